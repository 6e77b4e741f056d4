//! A property: each client gets the response that the application would give to that very request, or one that the application
//! allows it to have. Users, addresses, fields that `Connection` hides, spellings of paths, purges and unsafe requests are random;
//! the expected response comes from a slow model of what the proxy forwards (RFC 9111 §4.1), which knows nothing of the cache.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, TcpListener};
use std::rc::Rc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::purge_order::PurgeOrder;
use crate::testing::{End, Http1, Message, TestServer, random::Random, run};

/// The directives and the `Vary` of the paths `/0`, `/1` and so on, and whether the response names the user in any case.
const PLANS: [(&str, &str, bool); 10] = [
    ("public, max-age=1000", "Remote-User", false),
    ("max-age=1000", "Origin, X-Lang", false),
    ("public, max-age=1000", "Origin, Remote-User", false),
    ("public, max-age=1000", "X-Forwarded-For", false),
    ("s-maxage=1000", "forwarded, Accept-Language", false),
    ("public, max-age=0, stale-while-revalidate=1000", "Cookie", false),
    ("max-age=1000", "", true),
    ("public, max-age=1000", "X-Forwarded-Host, Via, X-Set", false),
    ("public, max-age=1000", "Connection", false),
    ("max-age=1000", "Content-Type, If-None-Match, Range", false),
];

/// Fields of clients, with their values.
const FIELDS: [(&str, &[&str]); 12] = [
    ("origin", &["https://a.test", "https://b.test"]),
    ("x-lang", &["de", "fr"]),
    ("accept-language", &["de", "fr, de;q=0.5"]),
    ("cookie", &["u=alpha", "u=beta"]),
    ("x-forwarded-for", &["192.0.2.3"]),
    ("forwarded", &["for=192.0.2.3"]),
    ("remote-user", &["alpha"]),
    ("x-set", &["spoofed"]),
    ("x_remote_user", &["alpha"]),
    ("content-type", &["x"]),
    ("if-none-match", &["\"x\""]),
    ("range", &["bytes=0-"]),
];

const NAMES: [&str; 3] = ["ab", "a;b", "b%20a"];

/// A request, as the model sees it.
#[derive(Debug, Clone)]
struct SentRequest {
    plan: usize,
    name: &'static str,
    /// The path as it is sent.
    path: String,
    fields: Vec<(&'static str, &'static str)>,
    /// The fields that `Connection` lists.
    hidden: Vec<&'static str>,
    address: Ipv4Addr,
}

/// The state of the application: the version of each path, and the number of requests.
#[derive(Default)]
struct Application {
    versions: RefCell<BTreeMap<String, u64>>,
    requests: Cell<usize>,
}

impl Application {
    fn version(&self, path: &str) -> u64 {
        self.versions.borrow().get(path).copied().unwrap_or_default()
    }

    fn change(&self, path: &str) {
        *self.versions.borrow_mut().entry(path.to_owned()).or_default() += 1;
    }

    /// Returns the response to a request with these fields.
    fn respond(&self, head: &str) -> String {
        let mut lines = head.lines();
        let mut words = lines.next().unwrap_or_default().split(' ');
        let (method, target) =
            (words.next().unwrap_or_default(), words.next().unwrap_or_default().to_owned());
        let mut fields: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (name, value) in lines.filter_map(|line| line.split_once(": ")) {
            fields.entry(name.to_ascii_lowercase()).or_default().push(value.to_owned());
        }
        if target == "/auth" {
            let user = fields.get("cookie").and_then(|cookies| cookies[0].strip_prefix("u="));
            let user = user.map(|user| format!("Remote-User: {user}\r\n")).unwrap_or_default();
            return format!("HTTP/1.1 200 OK\r\n{user}Content-Length: 0\r\n\r\n");
        }
        self.requests.set(self.requests.get() + 1);
        let plain = plain(&target);
        if method == "POST" {
            self.change(&plain);
        }
        let plan = plain[1..].split('/').next().and_then(|plan| plan.parse::<usize>().ok());
        let (directives, vary, is_personal) = PLANS[plan.expect("a plan")];
        let body = content(self.version(&plain), &target, vary, is_personal, |name| {
            fields.get(name).map(|lines| lines.join(", "))
        });
        format!(
            "HTTP/1.1 200 OK\r\nCache-Control: {directives}\r\nVary: {vary}\r\nCache-Tag: t{}\r\nContent-Length: {}\r\n\r\n{body}",
            &plain[1..2],
            body.len()
        )
    }

    /// Responds to requests at the listener.
    async fn serve(self: Rc<Self>, listener: TcpListener) {
        let listener = tokio::net::TcpListener::from_std(listener).expect("a listener");
        while let Ok((mut connection, _)) = listener.accept().await {
            let application = Rc::clone(&self);
            tokio::task::spawn_local(async move {
                let mut received = Vec::new();
                while connection.read_buf(&mut received).await.is_ok_and(|length| length > 0) {
                    while let Some(end) =
                        received.windows(4).position(|window| window == b"\r\n\r\n")
                    {
                        let head: Vec<u8> = received.drain(..end + 4).collect();
                        let response = application.respond(&String::from_utf8_lossy(&head));
                        if connection.write_all(response.as_bytes()).await.is_err() {
                            return;
                        }
                    }
                }
            });
        }
    }
}

/// Returns the content for these values of the fields.
fn content(
    version: u64,
    target: &str,
    vary: &str,
    is_personal: bool,
    value: impl Fn(&str) -> Option<String>,
) -> String {
    let mut text = format!("{version} {target}");
    let more = is_personal.then_some("remote-user");
    for name in vary.split(", ").filter(|name| !name.is_empty()).chain(more) {
        let value = value(&name.to_ascii_lowercase());
        text.push_str(&format!("\n{}: {}", name.to_ascii_lowercase(), value.unwrap_or_default()));
    }
    text
}

/// Returns the path without encoding, but for slashes and spaces.
fn plain(path: &str) -> String {
    path.replace("%3B", ";").replace("%3b", ";")
}

impl SentRequest {
    fn random(random: &mut Random) -> Self {
        let (plan, name) = (random.below(PLANS.len()), random.one_of(&NAMES));
        let fields = FIELDS.iter().filter(|_| random.once_in(4)).collect::<Vec<_>>();
        let fields = fields.iter().map(|(name, values)| (*name, random.one_of(values))).collect();
        let hidden = FIELDS.iter().filter(|_| random.once_in(8)).map(|(name, _)| *name).collect();
        let address = Ipv4Addr::new(192, 0, 2, 1 + random.below(3) as u8);
        let path = spelled(&format!("/{plan}/{name}"), random);
        Self { plan, name, path, fields, hidden, address }
    }

    fn message(&self, method: &'static str) -> Message {
        let mut message = Message::new(method, &*self.path);
        message.fields = self.fields.iter().map(|(name, value)| (*name, (*value).into())).collect();
        if !self.hidden.is_empty() {
            message = message.with("connection", self.hidden.join(", "));
        }
        message
    }

    /// Returns the path as all spellings mean it.
    fn plain(&self) -> String {
        format!("/{}/{}", self.plan, self.name)
    }

    fn user(&self) -> Option<&'static str> {
        self.sent("cookie").and_then(|cookie| cookie.strip_prefix("u="))
    }

    /// Returns the value of a field of the client that is not hidden.
    fn sent(&self, name: &str) -> Option<&'static str> {
        let found = self.fields.iter().find(|(other, _)| *other == name);
        found.map(|(_, value)| *value).filter(|_| !self.hidden.contains(&name))
    }

    /// Returns the value of a field that the application gets.
    fn forwarded(&self, name: &str, user: Option<&str>) -> Option<String> {
        let address = self.address;
        match name {
            "remote-user" => user.map(Into::into),
            "x-forwarded-for" => Some(address.to_string()),
            "forwarded" => Some(format!("for={address};host=\"test\";proto=http")),
            "x-forwarded-host" => Some("test".into()),
            "via" => Some("1.1 dunlin".into()),
            "x-set" => Some("ours".into()),
            // The cache requests the whole response.
            "connection" | "if-none-match" | "range" => None,
            name => self.sent(name).map(Into::into),
        }
    }

    /// Returns the contents that the client may get.
    fn expected(&self, version: u64) -> BTreeSet<String> {
        let (_, vary, is_personal) = PLANS[self.plan];
        // A character with a meaning stays as the client has spelled it.
        let name = match self.path.contains("%3b") || self.path.contains("%3B") {
            true => self.name.replace(';', "%3B"),
            false => self.name.to_owned(),
        };
        let target = format!("/{}/{name}", self.plan);
        let of = |user, left_out: &[&str]| {
            let value =
                |name: &str| self.forwarded(name, user).filter(|_| !left_out.contains(&name));
            content(version, &target, vary, is_personal, value)
        };
        let mut expected = BTreeSet::from([of(self.user(), &[])]);
        if is_personal {
            // What is not for a user alone is for all.
            expected.insert(of(None, &[]));
        }
        let is_special = |(name, _): &(&str, &str)| matches!(*name, "if-none-match" | "range");
        if self.fields.iter().any(is_special) {
            // The request for the whole response has no field of a body.
            expected.insert(of(self.user(), &["content-type"]));
            // It is forwarded as it is where it is known that the response is not stored.
            let value = |name: &str| match name {
                "if-none-match" | "range" => self.sent(name).map(Into::into),
                name => self.forwarded(name, self.user()),
            };
            expected.insert(content(version, &target, vary, is_personal, value));
        }
        expected
    }
}

/// One of the spellings of a path.
fn spelled(path: &str, random: &mut Random) -> String {
    let mut text = path.to_owned();
    for (plain, other) in [
        ("a", "%61"),
        ("b", "%62"),
        (";", "%3b"),
        (";", "%3B"),
        ("/", "//"),
        ("/", "/./"),
        ("/", "/x/../"),
    ] {
        if random.once_in(6) {
            text = text.replacen(plain, other, 1);
        }
    }
    text
}

/// Sends requests at the same time. Returns the contents of the responses.
async fn send(server: &TestServer, all: &[(&'static str, SentRequest)]) -> Vec<String> {
    let mut clients = Vec::new();
    for (number, (method, requested)) in all.iter().enumerate() {
        let end = server.connect_from(requested.address, 1000 + number as u16);
        let mut client = Http1::new(end);
        client.send(&requested.message(method));
        clients.push(client);
    }
    for _ in 0..10_000 {
        server.settle().await;
        clients.iter_mut().for_each(|client| client.receive(usize::MAX));
        if clients.iter().all(|client| client.replies[0].end != End::Open) {
            break;
        }
        // The application has a socket.
        tokio::time::sleep(Duration::from_micros(100)).await;
    }
    let reply = |client: Http1| {
        let reply = &client.replies[0];
        assert!(matches!(reply.status, 200 | 206) && reply.end == End::Complete, "{reply:?}");
        String::from_utf8_lossy(&reply.body).into_owned()
    };
    clients.into_iter().map(reply).collect()
}

async fn check(
    server: &TestServer,
    application: &Application,
    all: &[SentRequest],
    steps: &[String],
) {
    let requests: Vec<_> = all.iter().map(|requested| ("GET", requested.clone())).collect();
    for (requested, got) in all.iter().zip(send(server, &requests).await) {
        let expected = requested.expected(application.version(&requested.plain()));
        assert!(
            expected.contains(&got),
            "{requested:#?}\nexpected {expected:#?}\ngot {got:?}\nafter {steps:#?}"
        );
    }
}

fn purge(server: &TestServer, path: &str, tag: &str) {
    let order = PurgeOrder {
        path: path.into(),
        verbatim: String::new(),
        tag: tag.into(),
        site: String::new(),
    };
    let shared = server.shared();
    order.apply(shared.responses.as_deref(), |_| None).expect("a purge");
}

#[test]
fn everybody_gets_the_response_that_the_application_would_give() {
    for seed in 0..8 {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a listener");
        listener.set_nonblocking(true).expect("a listener");
        let port = listener.local_addr().expect("an address").port();
        let config = format!(
            "[[site.route]]\npath = '/*'\ncache = {{ responses = true }}\n\
             proxy = {{ to = 'http://127.0.0.1:{port}', set_request_fields = {{ X-Set = 'ours' }} }}\n\
             auth = {{ forward = 'http://127.0.0.1:{port}/auth' }}\n"
        );
        run(&config, &[], async |server| {
            let application = Rc::new(Application::default());
            tokio::task::spawn_local(Rc::clone(&application).serve(listener));
            let (mut random, mut requested) = (Random::new(seed), 0);
            let mut steps = Vec::new();
            for _ in 0..400 {
                let one = SentRequest::random(&mut random);
                let path = one.plain();
                match random.below(12) {
                    // An unsafe request: the application changes the path.
                    0 => {
                        steps.push(format!("POST {}", one.path));
                        send(server, &[("POST", one)]).await;
                    }
                    1 => {
                        application.change(&path);
                        let path = spelled(&path, &mut random);
                        let directory = format!("/{}/*", one.plan);
                        let (path, tag) = match random.below(3) {
                            0 => (path, String::new()),
                            1 => (directory, String::new()),
                            _ => (String::new(), format!("t{}", one.plan)),
                        };
                        steps.push(format!("purge {path} {tag}"));
                        purge(server, &path, &tag);
                    }
                    2 | 3 => {
                        let other = |random: &mut Random| {
                            let path = spelled(&path, random);
                            SentRequest {
                                plan: one.plan,
                                name: one.name,
                                path,
                                ..SentRequest::random(random)
                            }
                        };
                        let all: Vec<_> = (0..5).map(|_| other(&mut random)).collect();
                        requested += all.len();
                        check(server, &application, &all, &steps).await;
                    }
                    _ => {
                        requested += 1;
                        check(server, &application, &[one], &steps).await;
                    }
                }
            }
            let forwarded = application.requests.get();
            assert!(forwarded < requested * 3 / 4, "the cache is used: {forwarded} of {requested}");
        });
    }
}
