//! One table of requests over HTTP/1.1, HTTP/2 and HTTP/3, with and without the fast path, the cache, TLS and the PROXY protocol.
//! Responses and access records are equal, except for what [`comparable`] names.

use std::net::Ipv4Addr;
use std::time::Duration;

use dunlin_memory::thread as thread_memory;
use tempfile::TempDir;

use super::handler::{Kind, Plan, content};
use super::link::{TestLink, TlsEnd, write_certificate};
use super::{End, Http1, Http2, Http3, Message, Record, TestReply, TestServer, run_in};

/// Bytes that a connection with one request may hold: its queues, and a body on its way in and one on its way out.
const MAX_HELD: i64 = 1 << 20;

/// A variant in which the table is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Variant {
    protocol: Protocol,
    has_fast_path: bool,
    has_cache: bool,
    has_tls: bool,
    /// Connections begin with a PROXY header.
    has_proxy: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Protocol {
    Http1,
    Http2,
    Http3,
}

use Protocol::{Http1 as H1, Http2 as H2, Http3 as H3};

impl Variant {
    const fn plain(protocol: Protocol, has_fast_path: bool, has_cache: bool) -> Self {
        Self { protocol, has_fast_path, has_cache, has_tls: false, has_proxy: false }
    }

    const fn over(protocol: Protocol, has_tls: bool, has_proxy: bool) -> Self {
        Self { protocol, has_fast_path: true, has_cache: true, has_tls, has_proxy }
    }

    const fn quic(has_fast_path: bool, has_cache: bool) -> Self {
        Self { has_tls: true, ..Self::plain(H3, has_fast_path, has_cache) }
    }

    /// Returns a new connection. Behind a proxy, its own address is another one than the client's.
    async fn connect(self, server: &TestServer, directory: &TempDir) -> Box<dyn TestLink> {
        let end = if self.has_proxy {
            let end = server.connect_from(Ipv4Addr::new(198, 51, 100, 1), 1);
            end.send(b"PROXY TCP4 192.0.2.1 192.0.2.254 1 80\r\n");
            end
        } else {
            server.connect()
        };
        if self.has_tls {
            let protocol: &[u8] = if self.protocol == H2 { b"h2" } else { b"http/1.1" };
            return Box::new(TlsEnd::connect(server, end, directory.path(), protocol).await);
        }
        Box::new(end)
    }

    /// Returns `true` if another response is known to be right: content codings are made for the cache alone.
    fn permits(self, message: &Message, expected: &Outcome) -> bool {
        let is_encoded = expected.reply.field("content-encoding").is_some();
        !self.has_cache && is_encoded && message.target == "/text.txt"
    }
}

const VARIANTS: [Variant; 18] = [
    Variant::plain(H1, true, true),
    Variant::plain(H2, true, true),
    Variant::plain(H1, false, true),
    Variant::plain(H2, false, true),
    Variant::plain(H1, true, false),
    Variant::plain(H2, true, false),
    Variant::plain(H1, false, false),
    Variant::plain(H2, false, false),
    Variant::over(H1, true, false),
    Variant::over(H2, true, false),
    Variant::over(H1, false, true),
    Variant::over(H2, false, true),
    Variant::over(H1, true, true),
    Variant::over(H2, true, true),
    Variant::quic(true, true),
    Variant::quic(false, true),
    Variant::quic(true, false),
    Variant::quic(false, false),
];

/// Routes with each setting that affects a response. A variant replaces `CACHE` by its setting of the cache.
const ROUTES: &str = r#"
[[site.route]]
path = "/*"
CACHE
[[site.route]]
path = "/listed/*"
listing = true
[[site.route]]
path = "/fixed"
respond = { body = "a fixed text" }
[[site.route]]
path = "/gone"
respond = { status = 410 }
[[site.route]]
path = "/moved/*"
redirect = { to = "/a.txt?{rest}", status = 302 }
[[site.route]]
path = "/private/*"
auth = { basic = "users" }
[[site.route]]
path = "/denied/*"
deny = ["192.0.2.0/24"]
[[site.route]]
path = "/once/*"
limit = { requests = "1/h" }
[[site.route]]
path = "/reported/*"
limit = { requests = "100/h", send_headers = true }
[[site.route]]
path = "/one-at-a-time/*"
throttle = { max_concurrent = 1 }
[[site.route]]
path = "/slow/*"
throttle = { bandwidth = "1MB/s" }
[[site.route]]
path = "/only-get/*"
methods = ["GET"]
[[site.route]]
path = "/fields/*"
set_fields = { "X-Set" = "1" }
cache_control = "no-store"
[[site.route]]
path = "/try/*"
try = ["{path}", "/a.txt"]
[[site.route]]
path = "/pages/*"
error_pages = { 404 = "/missing.html" }
[[site.route]]
path = "/timed/*"
server_timing = true
[[site.route]]
path = "/inside/*"
internal = true
[[site.route]]
path = "/test"
body_size = "1KiB"
"#;

fn files() -> Vec<(&'static str, Vec<u8>)> {
    let short = b"the content of a".to_vec();
    let text: Vec<u8> = b"a line of text that compresses well\n".repeat(300);
    let large = content(1, 0..200_000);
    let mut files = vec![
        ("a.txt", short.clone()),
        ("text.txt", text),
        ("large.bin", large),
        ("empty.txt", Vec::new()),
        ("with/index.html", b"<p>index".to_vec()),
        ("listed/b.txt", short.clone()),
        ("missing.html", b"<p>nothing here".to_vec()),
        (".hidden", short.clone()),
        ("none/x", short.clone()),
    ];
    for directory in [
        "private/a.txt",
        "denied/a.txt",
        "once/a.txt",
        "reported/a.txt",
        "one-at-a-time/a.txt",
        "slow/a.txt",
        "only-get/a.txt",
        "fields/a.txt",
        "pages/a.txt",
        "timed/a.txt",
        "inside/a.txt",
    ] {
        files.push((directory, short.clone()));
    }
    files
}

/// Returns the table.
fn requests() -> Vec<Message> {
    let get = |target: &str| Message::get(target);
    let mut all = Vec::new();
    // Files, directories and paths.
    for target in [
        "/a.txt",
        "/a.txt?query",
        "/text.txt",
        "/large.bin",
        "/empty.txt",
        "/",
        "/with/",
        "/with",
        "/listed/",
        "/none/",
        "/missing.txt",
        "/.hidden",
        "/a%2etxt",
        "/%61.txt",
        "/with/../a.txt",
        "/../a.txt",
        "/a%2Fb",
        "/a%00b",
        "/a%zz",
        "//a.txt",
        "/a.txt/",
        "/a.txt/more",
        "/fixed",
        "/gone",
        "/moved/x",
        "/private/a.txt",
        "/denied/a.txt",
        "/once/a.txt",
        "/reported/a.txt",
        "/one-at-a-time/a.txt",
        "/slow/a.txt",
        "/only-get/a.txt",
        "/fields/a.txt",
        "/fields/none",
        "/try/none",
        "/pages/none",
        "/pages/a.txt",
        "/timed/a.txt",
        "/inside/a.txt",
        "/test",
    ] {
        all.push(get(target));
        all.push(Message::new("HEAD", target));
    }
    // Methods.
    for target in ["/a.txt", "/missing.txt", "/only-get/a.txt", "/fixed", "/private/a.txt"] {
        for method in ["OPTIONS", "POST", "PUT", "DELETE", "PATCH", "TRACE", "BREW"] {
            all.push(Message::new(method, target));
        }
        all.push(Message::new("POST", target).body("a body"));
        all.push(Message::new("POST", target).streamed("a body"));
    }
    all.push(Message::new("OPTIONS", "*"));
    // Fields that decide about the representation.
    for target in ["/a.txt", "/text.txt", "/large.bin", "/slow/a.txt", "/reported/a.txt"] {
        for (name, value) in [
            ("accept-encoding", "gzip"),
            ("accept-encoding", "br, gzip;q=0.5"),
            ("accept-encoding", "identity;q=0, *;q=0"),
            ("accept-encoding", "zstd"),
            ("if-modified-since", "Sun, 09 Sep 2001 01:46:40 GMT"),
            ("if-modified-since", "Sun, 09 Sep 2001 01:46:39 GMT"),
            ("if-modified-since", "nonsense"),
            ("if-unmodified-since", "Sun, 09 Sep 2001 01:46:39 GMT"),
            ("if-none-match", "*"),
            ("if-none-match", "\"other\""),
            ("if-match", "\"other\""),
            ("range", "bytes=0-3"),
            ("range", "bytes=-3"),
            ("range", "bytes=1-2,4-5"),
            ("range", "bytes=900000-"),
            ("range", "bytes=5-1"),
            ("range", "lines=1-2"),
            ("expect", "100-continue"),
            ("expect", "something-else"),
            ("cache-control", "no-cache"),
            ("content-length", "0"),
        ] {
            all.push(get(target).with(name, value));
            all.push(Message::new("HEAD", target).with(name, value));
        }
        let ranged = get(target).with("range", "bytes=0-3");
        all.push(ranged.with("if-range", "Sun, 09 Sep 2001 01:46:40 GMT"));
    }
    // Users.
    for credentials in ["Basic dXNlcjpzZWNyZXQ=", "Basic dXNlcjp3cm9uZw==", "Basic !", "Bearer x"] {
        all.push(get("/private/a.txt").with("authorization", credentials));
        all.push(get("/private/none").with("authorization", credentials));
    }
    // Limits of the head.
    all.push(get(&format!("/{}", "x".repeat(9000))));
    let many = (0..120).fold(get("/a.txt"), |message, _| message.with("x-field", "1"));
    all.push(many);
    all.push(
        get("/a.txt").with("x-large", "x".repeat(12_000)).with("x-larger", "x".repeat(24_000)),
    );
    // Handlers.
    for kind in [Kind::Ready, Kind::Future, Kind::Streaming] {
        for (size, chunk) in [(0, 0), (10, 0), (10, 3), (50_000, 0), (50_000, 4_000)] {
            if chunk > 0 && kind != Kind::Streaming {
                continue;
            }
            for states_length in [false, true] {
                let plan = Plan { id: 1, kind, size, chunk, states_length, ..Plan::default() };
                all.push(get(&plan.target()));
                all.push(Message::new("HEAD", plan.target()));
            }
            for length in [0, 1, 900, 5_000] {
                // A handler that responds without the body may respond before the body is too large, which depends on the
                // protocol's frames.
                if kind == Kind::Future && length == 5_000 {
                    continue;
                }
                let (read, hints) = (length, length == 900);
                let plan = Plan { id: 2, kind, size, chunk, read, hints, ..Plan::default() };
                let post = Message::new("POST", plan.target());
                all.push(post.clone().body(content(2, 0..length)));
                all.push(post.clone().streamed(content(2, 0..length)));
                all.push(post.body(content(2, 0..length)).with("expect", "100-continue"));
            }
        }
    }
    all
}

/// The compared parts of a response and its access records.
#[derive(Debug, PartialEq)]
struct Outcome {
    reply: TestReply,
    /// Method, target, status, bytes, site, coding and user of each record.
    records: Vec<(String, String, u16, u64, [String; 3])>,
}

/// Removes the differences of the protocol and of the variant:
///
/// - `Connection` and `Transfer-Encoding` are fields of HTTP/1 (RFC 9113 §8.2.2);
/// - the connection's number, the protocol and the cache's part differ in the record;
/// - `Date`, `RateLimit` and `Server-Timing` hold times, and the boundary of several ranges is random.
fn comparable(mut reply: TestReply, records: Vec<Record>) -> Outcome {
    let own = ["connection", "transfer-encoding", "server-timing"];
    reply.fields.retain(|(name, _)| !own.contains(&&**name));
    replace_boundary(&mut reply);
    // More or less time may pass before a response.
    let times = ["date", "ratelimit"];
    let times = reply.fields.iter_mut().filter(|(name, _)| times.contains(&&**name));
    times.for_each(|(_, time)| time.clear());
    let records = records.into_iter().map(|record| {
        let [site, _cache, coding, user] = record.rest.clone();
        let Record { method, target, status, bytes, .. } = record;
        (method, target, status, bytes, [site, coding, user])
    });
    Outcome { reply, records: records.collect() }
}

/// Puts a fixed text of the same length in the place of the boundary between ranges.
fn replace_boundary(reply: &mut TestReply) {
    let field = reply.fields.iter_mut().find(|(name, _)| name == "content-type");
    let Some((_, value)) = field else { return };
    let Some((_, boundary)) = value.split_once("boundary=") else { return };
    let (boundary, fixed) = (boundary.to_owned(), "-".repeat(boundary.len()));
    *value = value.replace(&boundary, &fixed);
    reply.body = String::from_utf8_lossy(&reply.body).replace(&boundary, &fixed).into_bytes();
}

/// Bounds what the one connection holds after each step, whatever its request is.
fn check_memory() {
    let held = thread_memory::held();
    assert!((0..=MAX_HELD).contains(&held), "{held} bytes are held, of at most {MAX_HELD}");
}

/// Sends one request on a connection of its own.
async fn outcome(
    server: &TestServer,
    directory: &TempDir,
    variant: Variant,
    message: &Message,
) -> Outcome {
    let reply = if variant.protocol == H3 {
        let address = server.client_address();
        let mut client = Http3::connect(server, directory.path(), address);
        client.open(server).await;
        let id = client.send(message);
        for _ in 0..200 {
            client.exchange(server).await;
            check_memory();
            if client.replies[&id].end != End::Open {
                break;
            }
            server.advance(Duration::from_millis(10)).await;
        }
        client.close();
        client.exchange(server).await;
        client.replies.remove(&id).unwrap_or_default()
    } else if variant.protocol == H2 {
        let mut client = Http2::new(variant.connect(server, directory).await, 65_535);
        server.settle().await;
        client.receive(usize::MAX);
        let id = client.send(message);
        for _ in 0..200 {
            server.settle().await;
            check_memory();
            client.receive(usize::MAX);
            if client.replies[&id].end != End::Open {
                break;
            }
            server.advance(Duration::from_millis(10)).await;
        }
        client.replies.remove(&id).unwrap_or_default()
    } else {
        let mut client = Http1::new(variant.connect(server, directory).await);
        client.send(message);
        for _ in 0..200 {
            server.settle().await;
            check_memory();
            client.receive(usize::MAX);
            if client.replies[0].end != End::Open {
                break;
            }
            server.advance(Duration::from_millis(10)).await;
        }
        client.replies.remove(0)
    };
    server.settle().await;
    comparable(reply, server.records())
}

/// Runs the table, each request twice: uncached and cached.
fn outcomes(directory: &TempDir, variant: Variant) -> Vec<[Outcome; 2]> {
    let cache = if variant.has_cache { "" } else { "cache = false" };
    // The fast path is for servers without proxies. No client of the tests is this one.
    let server = if variant.has_fast_path { "" } else { "trusted_proxies = ['203.0.113.1']" };
    let routes = ROUTES.replace("CACHE", cache);
    thread_memory::forget();
    let site = if variant.has_tls { write_certificate(directory.path()) } else { String::new() };
    run_in(directory, server, &format!("{site}{routes}"), async |server| {
        server.change_listener(|listener| {
            (listener.tls, listener.proxy_protocol) = (variant.has_tls, variant.has_proxy);
            if variant.protocol == H3 {
                listener.http3 = dunlin_config::Http3::IfPossible;
            }
        });
        let mut outcomes = Vec::new();
        for message in requests() {
            let first = outcome(server, directory, variant, &message).await;
            let second = outcome(server, directory, variant, &message).await;
            outcomes.push([first, second]);
        }
        outcomes
    })
}

#[test]
fn every_way_through_the_server_gives_the_same_response_and_record() {
    let directory = tempfile::tempdir().expect("a directory for the test");
    std::fs::write(directory.path().join("users"), "user:$apr1$12345678$0lqb/6VUFP8JY/s/jTrIk0\n")
        .expect("users are written");
    std::fs::create_dir(directory.path().join("www")).expect("a root for the test");
    for (name, content) in files() {
        super::write_old(&directory.path().join("www").join(name), &content);
    }
    let expected = outcomes(&directory, VARIANTS[0]);
    let mut differences = Vec::new();
    for (message, [first, second]) in requests().iter().zip(&expected) {
        assert_eq!(first.records.len(), 1, "{message:?}: {first:?}");
        // The limit of a route depends on earlier requests.
        if !message.target.starts_with("/once/") && !message.target.starts_with("/reported/") {
            let ends = (first.reply.end, second.reply.end);
            assert_eq!(ends, (End::Complete, End::Complete), "{message:?}");
            if first != second {
                differences.push(format!(
                    "cold and warm\n  {message:?}\n  {}\n  {}",
                    shown(first),
                    shown(second)
                ));
            }
        }
    }
    for variant in &VARIANTS[1..] {
        let found = outcomes(&directory, *variant);
        for ((message, expected), found) in requests().iter().zip(&expected).zip(&found) {
            for (expected, found) in expected.iter().zip(found) {
                if expected != found && !variant.permits(message, expected) {
                    differences.push(format!(
                        "{variant:?}\n  {message:?}\n  expected {}\n  found    {}",
                        shown(expected),
                        shown(found)
                    ));
                }
            }
        }
    }
    let (count, first) = (differences.len(), differences.iter().take(40));
    let first: Vec<_> = first.map(String::as_str).collect();
    assert!(differences.is_empty(), "{count} differences:\n{}", first.join("\n"));
}

/// Returns an outcome without the bytes of its body.
fn shown(outcome: &Outcome) -> String {
    let Outcome { reply, records } = outcome;
    let TestReply { interim, status, fields, body, end } = reply;
    format!("{interim:?} {status} {end:?} {} bytes {fields:?} {records:?}", body.len())
}
