//! The engine of an HTTP/2 client: against frames in one piece and split at every byte, and against the server's engine.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use dunlin_http::http2::client::{Http2ClientConnection, Http2ClientEvent};
use dunlin_http::http2::frame::{self, FrameHeader, flag, kind, setting};
use dunlin_http::http2::hpack::{Encoder, Indexing};
use dunlin_http::http2::{ConnectionError, ErrorCode, PREFACE};
use dunlin_http::{BodySize, FieldLines, RequestHead};
use proptest::prelude::*;

/// A server that writes frames.
#[derive(Default)]
struct Server {
    encoder: Encoder,
    bytes: Vec<u8>,
}

impl Server {
    /// Creates a server that has sent its settings.
    fn new(settings: &[(u16, u32)]) -> Self {
        let mut server = Self::default();
        frame::write_settings(settings, &mut server.bytes);
        server
    }

    fn frame(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> &mut Self {
        FrameHeader { length: payload.len(), kind, flags, stream }.write(&mut self.bytes);
        self.bytes.extend_from_slice(payload);
        self
    }

    fn headers(&mut self, stream: u32, fields: &[(&str, &str)], flags: u8) -> &mut Self {
        let mut block = Vec::new();
        self.encoder.begin(&mut block);
        for (name, value) in fields {
            self.encoder.field(
                name.as_bytes(),
                value.as_bytes(),
                Indexing::Incremental,
                &mut block,
            );
        }
        self.frame(kind::HEADERS, flags | flag::END_HEADERS, stream, &block)
    }

    fn data(&mut self, stream: u32, data: &[u8], flags: u8) -> &mut Self {
        self.frame(kind::DATA, flags, stream, data)
    }
}

const END: u8 = flag::END_STREAM;
const OK: &[(&str, &str)] = &[(":status", "200")];

/// The events of a client, one line each; data of the same stream is joined.
type Seen = Vec<String>;

/// Feeds `input` in pieces of `size` bytes.
fn feed(
    connection: &mut Http2ClientConnection,
    input: &[u8],
    size: usize,
    out: &mut Vec<u8>,
) -> (Seen, Result<(), ConnectionError>) {
    let (mut seen, mut pending) = (Seen::new(), Vec::new());
    let mut data_of = None;
    for piece in input.chunks(size) {
        pending.extend_from_slice(piece);
        let mut at = 0;
        loop {
            let event = match connection.receive(&pending, &mut at, out) {
                Ok(Http2ClientEvent::NeedInput) => break,
                Ok(event) => event,
                Err(failure) => return (seen, Err(failure)),
            };
            if let Http2ClientEvent::Data { stream, data, is_end } = event {
                let text = String::from_utf8_lossy(&pending[data.clone()]).into_owned();
                connection.consumed(stream, data.len(), out);
                if data_of == Some(stream) {
                    seen.last_mut().unwrap().push_str(&text);
                } else {
                    seen.push(format!("{stream} data {text}"));
                }
                data_of = (!is_end).then_some(stream);
                if is_end {
                    seen.push(format!("{stream} end"));
                }
                continue;
            }
            data_of = None;
            seen.push(match event {
                Http2ClientEvent::Interim { stream, head } => {
                    format!("{stream} interim {}", head.status)
                }
                Http2ClientEvent::Head { stream, head, is_end } => {
                    let fields =
                        String::from_utf8_lossy(head.fields.as_bytes()).replace("\r\n", ";");
                    let end = if is_end { " end" } else { "" };
                    format!("{stream} head {} {fields}{end}", head.status)
                }
                Http2ClientEvent::Trailers { stream, fields } => {
                    format!(
                        "{stream} trailers {}",
                        String::from_utf8_lossy(fields.as_bytes()).trim_end()
                    )
                }
                Http2ClientEvent::Reset { stream, reason, is_unprocessed } => {
                    format!("{stream} reset {is_unprocessed} {reason}")
                }
                Http2ClientEvent::GoAway => "goaway".into(),
                Http2ClientEvent::Window => continue,
                Http2ClientEvent::Data { .. } | Http2ClientEvent::NeedInput => {
                    unreachable!("handled above")
                }
            });
        }
        pending.drain(..at);
    }
    (seen, Ok(()))
}

fn get() -> RequestHead {
    RequestHead::new("GET", "a", "/")
}

/// Opens a stream for each method and feeds what `server` sends, whole and in pieces of each size, which has to give the
/// same.
fn exchange(methods: &[&str], server: &Server) -> (Seen, Result<(), ConnectionError>) {
    let run = |size| {
        let mut out = Vec::new();
        let mut connection = Http2ClientConnection::new(&mut out);
        for method in methods {
            let head = RequestHead::new(method, "a", "/");
            connection.open(&head, "http", BodySize::Empty, &mut out).unwrap();
        }
        feed(&mut connection, &server.bytes, size, &mut out)
    };
    let whole = run(server.bytes.len());
    for size in (1..40).chain([100, 1000]) {
        assert_eq!(run(size), whole, "in pieces of {size}");
    }
    whole
}

#[test]
fn responses_of_several_streams_are_separated() {
    let mut server = Server::new(&[]);
    server
        .headers(1, &[(":status", "103"), ("link", "</a>")], 0)
        .headers(3, &[(":status", "204")], END)
        .headers(1, &[(":status", "200"), ("content-length", "5"), ("x", "y")], 0)
        .data(1, b"hel", 0)
        .headers(5, OK, 0)
        .data(1, b"lo", END)
        .data(5, b"five", 0)
        .headers(5, &[("digest", "z")], END);
    let (seen, result) = exchange(&["GET", "GET", "GET"], &server);
    assert_eq!(result, Ok(()));
    assert_eq!(
        seen,
        [
            "1 interim 103",
            "3 head 204  end",
            "1 head 200 content-length: 5;x: y;",
            "1 data hel",
            "5 head 200 ",
            "1 data lo",
            "1 end",
            "5 data five",
            "5 trailers digest: z",
        ]
    );
}

#[test]
fn sections_in_several_frames_and_padding_are_read() {
    let mut server = Server::new(&[]);
    let mut block = Vec::new();
    server.encoder.field(b":status", b"200", Indexing::Without, &mut block);
    server.encoder.field(b"a", b"b", Indexing::Without, &mut block);
    let (first, rest) = block.split_at(2);
    let (second, third) = rest.split_at(1);
    let padded = [&[3], first, &[0, 0, 0]].concat();
    server
        .frame(kind::HEADERS, flag::PADDED, 1, &padded)
        .frame(kind::CONTINUATION, 0, 1, second)
        .frame(kind::CONTINUATION, flag::END_HEADERS, 1, third)
        .data(1, b"\x02xy\0\0", flag::PADDED | END);
    let (seen, result) = exchange(&["GET"], &server);
    assert_eq!(result, Ok(()));
    assert_eq!(seen, ["1 head 200 a: b;", "1 data xy", "1 end"]);
}

/// Method, fields and flags of a response, and why it is malformed.
type Case = (&'static str, &'static [(&'static str, &'static str)], u8, &'static str);

#[test]
fn malformed_responses_end_their_stream_only() {
    let cases: [Case; 12] = [
        ("GET", &[("a", "b")], END, "the status is missing"),
        ("GET", &[(":status", "20")], END, "the status is malformed"),
        ("GET", &[(":status", "101")], 0, "only HTTP/1 has a 101 response"),
        ("GET", &[(":status", "200"), (":status", "200")], END, "a pseudo-field is repeated"),
        ("GET", &[("a", "b"), (":status", "200")], END, "a pseudo-field is repeated"),
        ("GET", &[(":status", "200"), (":path", "/")], END, "a pseudo-field is not one"),
        ("GET", &[(":status", "200"), ("A", "b")], END, "a field is malformed"),
        ("GET", &[(":status", "200"), ("connection", "close")], END, "a field concerns"),
        ("GET", &[(":status", "200"), ("content-length", "x")], 0, "Content-Length is malformed"),
        ("GET", &[(":status", "200"), ("content-length", "5")], END, "the body is shorter"),
        ("GET", &[(":status", "100")], END, "the stream ends before the final response"),
        ("HEAD", &[(":status", "99")], END, "the status is malformed"),
    ];
    for (method, fields, flags, reason) in cases {
        let mut server = Server::new(&[]);
        server.headers(1, fields, flags).headers(3, OK, END);
        let (seen, result) = exchange(&[method, "GET"], &server);
        assert_eq!(result, Ok(()), "{fields:?}");
        assert!(seen[0].starts_with(&format!("1 reset false {reason}")), "{seen:?}");
        assert_eq!(seen[1], "3 head 200  end");
    }
}

#[test]
fn bodies_have_the_announced_length() {
    let length: &[(&str, &str)] = &[(":status", "200"), ("content-length", "3")];
    for (data, reason) in [(&b"ab"[..], "the body is shorter"), (b"abcd", "the body is longer")] {
        let mut server = Server::new(&[]);
        server.headers(1, length, 0).data(1, data, END);
        let (seen, result) = exchange(&["GET"], &server);
        assert_eq!(result, Ok(()));
        assert!(seen[1].starts_with(&format!("1 reset false {reason}")), "{seen:?}");
    }
    // The length of a response to HEAD is that of another one.
    let mut server = Server::new(&[]);
    server.headers(1, length, END);
    assert_eq!(exchange(&["HEAD"], &server).0, ["1 head 200 content-length: 3; end"]);
    let mut server = Server::new(&[]);
    server.headers(1, length, 0).data(1, b"", END);
    let (seen, _) = exchange(&["HEAD"], &server);
    assert_eq!(seen, ["1 head 200 content-length: 3;", "1 data ", "1 end"]);
}

#[test]
fn connection_errors_end_the_connection() {
    let fails = |build: &dyn Fn(&mut Server)| {
        let mut server = Server::new(&[]);
        build(&mut server);
        exchange(&["GET"], &server).1.unwrap_err().code
    };
    let code = ErrorCode::ProtocolError;
    assert_eq!(
        fails(&|server| {
            server.headers(3, OK, END);
        }),
        code,
        "a stream that is idle"
    );
    assert_eq!(
        fails(&|server| {
            server.headers(2, OK, END);
        }),
        code,
        "a stream of the server"
    );
    assert_eq!(
        fails(&|server| {
            server.data(0, b"x", 0);
        }),
        code
    );
    assert_eq!(
        fails(&|server| {
            server.frame(kind::PUSH_PROMISE, 4, 1, &[0; 9]);
        }),
        code
    );
    assert_eq!(
        fails(&|server| {
            server.frame(kind::CONTINUATION, 4, 1, b"");
        }),
        code
    );
    assert_eq!(
        fails(&|server| {
            server.frame(kind::HEADERS, 0, 1, b"").frame(kind::PING, 0, 0, &[0; 8]);
        }),
        code
    );
    let code = ErrorCode::FrameSizeError;
    assert_eq!(
        fails(&|server| {
            server.frame(kind::PING, 0, 0, b"x");
        }),
        code
    );
    assert_eq!(
        fails(&|server| {
            server.frame(kind::SETTINGS, 0, 0, b"x");
        }),
        code
    );
    assert_eq!(
        fails(&|server| {
            server.frame(kind::DATA, 0, 1, &[0; 16_385]);
        }),
        code
    );
    let code = ErrorCode::FlowControlError;
    assert_eq!(
        fails(&|server| {
            server.frame(kind::WINDOW_UPDATE, 0, 0, &[0; 4]);
        }),
        code
    );
    assert_eq!(
        fails(&|server| {
            server.frame(kind::SETTINGS, 0, 0, &[0, 4, 255, 0, 0, 0]);
        }),
        code
    );
    let code = ErrorCode::CompressionError;
    assert_eq!(
        fails(&|server| {
            server.frame(kind::HEADERS, 4, 1, &[0xff, 0xff]);
        }),
        code
    );
    let code = ErrorCode::EnhanceYourCalm;
    assert_eq!(
        fails(&|server| {
            server.frame(kind::HEADERS, 0, 1, b"");
            for _ in 0..50 {
                server.frame(kind::CONTINUATION, 0, 1, b"");
            }
        }),
        code
    );
    // The first frame has to be SETTINGS.
    let mut server = Server::default();
    server.frame(kind::PING, 0, 0, &[0; 8]);
    assert!(exchange(&["GET"], &server).1.is_err());
}

#[test]
fn the_server_may_not_send_more_than_the_windows() {
    let mut server = Server::new(&[]);
    server.headers(1, OK, 0);
    for _ in 0..16 {
        server.data(1, &[b'x'; 16_384], 0);
    }
    let receive = |server: &Server, consumes: bool| {
        let mut out = Vec::new();
        let mut connection = Http2ClientConnection::new(&mut out);
        connection.open(&get(), "http", BodySize::Empty, &mut out).unwrap();
        let (mut at, mut length) = (0, 0);
        loop {
            match connection.receive(&server.bytes, &mut at, &mut out) {
                Ok(Http2ClientEvent::NeedInput) => return Ok(length),
                Ok(Http2ClientEvent::Data { data, .. }) => {
                    length += data.len();
                    if consumes {
                        connection.consumed(1, data.len(), &mut out);
                    }
                }
                Ok(_) => {}
                Err(failure) => return Err(failure.code),
            }
        }
    };
    assert_eq!(receive(&server, false), Ok(256 * 1024));
    server.data(1, b"x", 0);
    assert_eq!(receive(&server, false), Err(ErrorCode::FlowControlError));
    for _ in 0..200 {
        server.data(1, &[b'x'; 16_384], 0);
    }
    assert_eq!(receive(&server, true), Ok(216 * 16_384 + 1));
}

#[test]
fn bodies_are_sent_within_the_windows() {
    let mut out = Vec::new();
    let mut connection = Http2ClientConnection::new(&mut out);
    let post = RequestHead::new("POST", "a", "/");
    let first = connection.open(&post, "http", BodySize::Unknown, &mut out).unwrap();
    let second = connection.open(&post, "http", BodySize::Unknown, &mut out).unwrap();
    assert_eq!(connection.capacity(first), 16_384);
    for _ in 0..3 {
        connection.begin_data(first, 16_384, false, &mut out);
    }
    assert_eq!(connection.capacity(first), 65_535 - 3 * 16_384);
    connection.begin_data(first, 65_535 - 3 * 16_384, false, &mut out);
    // The connection's window is used up by the first stream.
    assert_eq!((connection.capacity(first), connection.capacity(second)), (0, 0));
    let mut server = Server::new(&[(setting::INITIAL_WINDOW_SIZE, 65_536)]);
    server.frame(kind::WINDOW_UPDATE, 0, 0, &100_u32.to_be_bytes());
    assert_eq!(feed(&mut connection, &server.bytes, 1000, &mut out).1, Ok(()));
    assert_eq!((connection.capacity(first), connection.capacity(second)), (1, 100));
    connection.begin_data(second, 100, true, &mut out);
    assert_eq!((connection.capacity(first), connection.capacity(second)), (0, 0));
}

#[test]
fn the_servers_limit_of_streams_and_its_goaway_hold() {
    let mut out = Vec::new();
    let mut connection = Http2ClientConnection::new(&mut out);
    let mut server = Server::new(&[(setting::MAX_CONCURRENT_STREAMS, 2)]);
    assert_eq!(feed(&mut connection, &server.bytes, 1000, &mut out).1, Ok(()));
    for stream in [1, 3] {
        assert_eq!(connection.open(&get(), "http", BodySize::Empty, &mut out), Ok(stream));
    }
    assert!(!connection.can_open() && connection.is_usable());
    assert!(connection.open(&get(), "http", BodySize::Empty, &mut out).is_err());
    server.bytes.clear();
    frame::write_goaway(1, ErrorCode::NoError, "", &mut server.bytes);
    server.headers(1, OK, END);
    let (seen, result) = feed(&mut connection, &server.bytes, 1000, &mut out);
    assert_eq!((seen, result), (vec!["goaway".into(), "1 head 200  end".into()], Ok(())));
    assert_eq!((connection.unprocessed(), connection.unprocessed()), (Some(3), None));
    assert!(!connection.is_usable() && connection.open_streams() == 0);
}

#[test]
fn requests_that_a_server_has_not_processed_are_repeated_in_their_order() {
    let mut out = Vec::new();
    let mut connection = Http2ClientConnection::new(&mut out);
    let mut server = Server::new(&[]);
    assert_eq!(feed(&mut connection, &server.bytes, 1000, &mut out).1, Ok(()));
    let streams: Vec<_> = (0..20)
        .map(|_| connection.open(&get(), "http", BodySize::Empty, &mut out).unwrap())
        .collect();
    server.bytes.clear();
    frame::write_goaway(1, ErrorCode::NoError, "", &mut server.bytes);
    assert_eq!(feed(&mut connection, &server.bytes, 1000, &mut out).1, Ok(()));
    let repeated: Vec<_> = std::iter::from_fn(|| connection.unprocessed()).collect();
    assert_eq!(repeated, streams[1..]);
}

#[test]
fn a_reset_reports_whether_the_request_was_processed() {
    for (code, is_unprocessed) in [(ErrorCode::RefusedStream, true), (ErrorCode::Cancel, false)] {
        let mut server = Server::new(&[]);
        frame::write_reset(1, code, &mut server.bytes);
        server.headers(3, OK, END);
        let (seen, _) = exchange(&["GET", "GET"], &server);
        assert_eq!(seen[0], format!("1 reset {is_unprocessed} the server has reset the stream"));
        assert_eq!(seen[1], "3 head 200  end");
    }
}

#[test]
fn frames_of_a_cancelled_stream_are_dropped() {
    let mut out = Vec::new();
    let mut connection = Http2ClientConnection::new(&mut out);
    let id = connection.open(&get(), "http", BodySize::Empty, &mut out).unwrap();
    assert!(connection.reset(id, ErrorCode::Cancel, &mut out));
    assert!(!connection.reset(id, ErrorCode::Cancel, &mut out));
    let next = connection.open(&get(), "http", BodySize::Empty, &mut out).unwrap();
    let mut server = Server::new(&[]);
    // What the section adds to the table is needed by the next one.
    server.headers(id, &[(":status", "200"), ("x", "y")], 0).data(id, b"late", END);
    server.headers(next, &[(":status", "200"), ("x", "y")], END);
    let (seen, result) = feed(&mut connection, &server.bytes, 7, &mut out);
    assert_eq!((seen, result), (vec![format!("{next} head 200 x: y; end")], Ok(())));
}

#[test]
fn a_ping_is_acknowledged() {
    let mut out = Vec::new();
    let mut connection = Http2ClientConnection::new(&mut out);
    out.clear();
    let mut server = Server::new(&[]);
    server.frame(kind::PING, 0, 0, b"12345678");
    feed(&mut connection, &server.bytes, 1, &mut out).1.unwrap();
    assert!(out.ends_with(b"12345678") && out[out.len() - 13] == flag::ACK);
}

/// Returns the head of the first request on a connection, as the server's engine reads it.
fn as_server(head: &RequestHead, size: BodySize) -> (String, Option<u64>, bool) {
    use dunlin_http::http2::{Event as Arrived, Http2Connection as Served, Settings};
    let mut out = Vec::new();
    let mut connection = Http2ClientConnection::new(&mut out);
    assert!(out.starts_with(PREFACE));
    let mut settings = Vec::new();
    frame::write_settings(&[(setting::ENABLE_CONNECT_PROTOCOL, 1)], &mut settings);
    connection.receive(&settings, &mut 0, &mut out).unwrap();
    connection.open(head, "https", size, &mut out).unwrap();
    let mut server = Served::new(Settings::default(), &mut Vec::new());
    let (mut at, mut head, mut text) = (0, dunlin_http::Head::default(), Vec::new());
    loop {
        match server.next(&out, &mut at, &mut head, &mut text, &mut Vec::new()).unwrap() {
            Arrived::Request { length, ended, .. } => {
                let request = dunlin_http::Request::new(&text, &head);
                let mut lines = String::from_utf8_lossy(request.method_text()).into_owned();
                lines += &format!(" {}", String::from_utf8_lossy(request.target()));
                for (name, value) in request.fields() {
                    lines += &format!("; {}: {}", name.escape_ascii(), value.escape_ascii());
                }
                return (lines, length, ended);
            }
            Arrived::More => panic!("no request arrived"),
            _ => {}
        }
    }
}

#[test]
fn the_servers_engine_reads_what_the_client_writes() {
    let mut head = RequestHead::new("GET", "a.example:444", "/x?y");
    for (name, value) in [
        ("Accept", "*/*"),
        ("Connection", "X-Hop, close"),
        ("X-Hop", "1"),
        ("Upgrade", "x"),
        ("TE", "trailers, gzip"),
        ("Keep-Alive", "5"),
        ("Cookie", "a=b"),
        ("X-Y", "z"),
    ] {
        head.fields.push(name, value);
    }
    let (lines, length, ended) = as_server(&head, BodySize::Empty);
    assert_eq!(
        lines,
        "GET /x?y; host: a.example:444; accept: */*; te: trailers; cookie: a=b; x-y: z"
    );
    assert_eq!((length, ended), (None, true));
    let (_, length, ended) = as_server(&head, BodySize::Known(7));
    assert_eq!((length, ended), (Some(7), false));
    // A head that is larger than a frame.
    let mut large = RequestHead::new("POST", "a", "/");
    large.fields.push("x", "ä".repeat(9_000));
    let (lines, _, ended) = as_server(&large, BodySize::Unknown);
    assert!(lines.len() > 18_000 && !ended);
}

#[test]
fn a_request_with_trailers_ends_with_them() {
    let mut out = Vec::new();
    let mut connection = Http2ClientConnection::new(&mut out);
    let post = RequestHead::new("POST", "a", "/");
    let id = connection.open(&post, "http", BodySize::Unknown, &mut out).unwrap();
    out.clear();
    let mut trailers = FieldLines::new();
    trailers.push("T", "1");
    connection.end_body(id, &trailers, &mut out);
    let head = FrameHeader::parse(&out).unwrap();
    assert_eq!((head.kind, head.flags), (kind::HEADERS, flag::END_HEADERS | END));
    out.clear();
    connection.end_body(id, &trailers, &mut out);
    assert_eq!(out, b"", "once only");
}

#[test]
fn an_extended_connect_waits_for_the_servers_settings() {
    let mut head = RequestHead::new("CONNECT", "a.example", "/chat?a");
    head.protocol = Some("websocket".into());
    let mut out = Vec::new();
    for (value, accepted) in [(1, true), (0, false)] {
        let mut connection = Http2ClientConnection::new(&mut out);
        assert_eq!(connection.accepts_extended_connect(), None);
        let opened = connection.open(&head, "https", BodySize::Unknown, &mut out);
        assert!(opened.unwrap_err().to_string().contains("SETTINGS_ENABLE_CONNECT_PROTOCOL"));
        let mut settings = Vec::new();
        frame::write_settings(&[(setting::ENABLE_CONNECT_PROTOCOL, value)], &mut settings);
        connection.receive(&settings, &mut 0, &mut out).unwrap();
        assert_eq!(connection.accepts_extended_connect(), Some(accepted));
        let opened = connection.open(&head, "https", BodySize::Unknown, &mut out);
        assert_eq!(opened.is_ok(), accepted);
    }
    let (line, length, ended) = as_server(&head, BodySize::Unknown);
    assert_eq!(line, "CONNECT /chat?a; host: a.example");
    assert_eq!((length, ended), (None, false));
    head.method = "GET".into();
    let mut connection = Http2ClientConnection::new(&mut out);
    assert!(connection.open(&head, "https", BodySize::Unknown, &mut out).is_err());
}

/// The frames that a server sends again and again, and the number of times that it may.
type Flood = (&'static str, fn(&mut Server), usize);

/// Feeds what `server` sends to a connection with the streams 1 and 3, of which 3 has a head and 1 was reset by the client.
fn flooded(server: &Server) -> (Result<(), ConnectionError>, usize) {
    let mut out = Vec::new();
    let mut connection = Http2ClientConnection::new(&mut out);
    connection.open(&get(), "http", BodySize::Empty, &mut out).unwrap();
    connection.open(&get(), "http", BodySize::Empty, &mut out).unwrap();
    connection.reset(1, ErrorCode::Cancel, &mut out);
    out.clear();
    let (_, result) = feed(&mut connection, &server.bytes, 1 << 14, &mut out);
    (result, out.len())
}

#[test]
fn floods_end_the_connection_before_they_cost_memory() {
    let floods: [Flood; 13] = [
        ("PING", |server| _ = server.frame(kind::PING, 0, 0, &[0; 8]), 100),
        ("acknowledged PING", |server| _ = server.frame(kind::PING, flag::ACK, 0, &[0; 8]), 200),
        ("SETTINGS", |server| _ = server.frame(kind::SETTINGS, 0, 0, &[]), 49),
        (
            "acknowledged SETTINGS",
            |server| _ = server.frame(kind::SETTINGS, flag::ACK, 0, &[]),
            200,
        ),
        (
            "WINDOW_UPDATE",
            |server| _ = server.frame(kind::WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1]),
            2000,
        ),
        (
            "WINDOW_UPDATE of a closed stream",
            |server| _ = server.frame(kind::WINDOW_UPDATE, 0, 1, &[0, 0, 0, 1]),
            2000,
        ),
        ("empty DATA", |server| _ = server.data(3, b"", 0), 200),
        ("padding", |server| _ = server.frame(kind::DATA, flag::PADDED, 3, b"\x02\0\0"), 200),
        ("empty DATA of a closed stream", |server| _ = server.data(1, b"", 0), 200),
        ("RST_STREAM", |server| _ = server.frame(kind::RST_STREAM, 0, 1, &[0, 0, 0, 8]), 200),
        ("HEADERS of a closed stream", |server| _ = server.headers(1, OK, 0), 200),
        ("PRIORITY", |server| _ = server.frame(kind::PRIORITY, 0, 3, &[0; 5]), 400),
        ("unknown frames", |server| _ = server.frame(99, 0, 0, b"x"), 200),
    ];
    for (what, add, permitted) in floods {
        let mut server = Server::new(&[]);
        server.headers(3, OK, 0);
        (0..permitted).for_each(|_| add(&mut server));
        assert_eq!(flooded(&server).0, Ok(()), "{what}");
        (0..100_000).for_each(|_| add(&mut server));
        let (result, out) = flooded(&server);
        assert_eq!(result.unwrap_err().code, ErrorCode::EnhanceYourCalm, "{what}");
        assert!(out < 4096, "{what}: {out}");
    }
}

#[test]
fn interim_responses_are_bounded_by_number_and_size() {
    let link = "x".repeat(10_000);
    let floods: [(&[(&str, &str)], usize); 3] = [
        (&[(":status", "103"), ("link", "</a>")], 100),
        (&[(":status", "100")], 100),
        (&[(":status", "103"), ("link", &link)], 6),
    ];
    for (fields, permitted) in floods {
        let mut server = Server::new(&[]);
        (0..permitted).for_each(|_| _ = server.headers(1, fields, 0));
        server.headers(3, OK, END);
        let (seen, result) = exchange(&["GET", "GET"], &server);
        assert_eq!((seen.len(), result), (permitted + 1, Ok(())));
        (0..3).for_each(|_| _ = server.headers(1, fields, 0));
        let (seen, result) = exchange(&["GET", "GET"], &server);
        assert_eq!(result, Ok(()));
        assert_eq!(seen[permitted + 1..], ["1 reset false there are too many interim responses"]);
    }
}

#[test]
fn a_server_that_uses_the_connection_ordinarily_reaches_no_bound() {
    let mut out = Vec::new();
    let mut connection = Http2ClientConnection::new(&mut out);
    let mut server = Server::new(&[]);
    feed(&mut connection, &std::mem::take(&mut server.bytes), 1 << 14, &mut out).1.unwrap();
    // An upload: the server returns credit for each frame, and estimates the bandwidth.
    let head = RequestHead::new("POST", "a", "/");
    let id = connection.open(&head, "http", BodySize::Unknown, &mut out).unwrap();
    for _ in 0..10_000 {
        assert!(connection.capacity(id) >= 1000);
        connection.begin_data(id, 1000, false, &mut out);
        for stream in [0, id] {
            server.frame(kind::WINDOW_UPDATE, 0, stream, &1000_u32.to_be_bytes());
        }
        server.frame(kind::PING, 0, 0, &[0; 8]);
        feed(&mut connection, &std::mem::take(&mut server.bytes), 1 << 14, &mut out).1.unwrap();
        out.clear();
    }
    // Downloads that the client gives up while data is on its way.
    for _ in 0..1000 {
        let id = connection.open(&get(), "http", BodySize::Empty, &mut out).unwrap();
        server.headers(id, OK, 0);
        feed(&mut connection, &std::mem::take(&mut server.bytes), 1 << 14, &mut out).1.unwrap();
        connection.reset(id, ErrorCode::Cancel, &mut out);
        (0..16).for_each(|_| _ = server.data(id, &[b'x'; 16_000], 0));
        feed(&mut connection, &std::mem::take(&mut server.bytes), 1 << 14, &mut out).1.unwrap();
        out.clear();
    }
    // Requests that are given up before their response, which is complete when the server knows of it.
    for _ in 0..1000 {
        let id = connection.open(&get(), "http", BodySize::Empty, &mut out).unwrap();
        connection.reset(id, ErrorCode::Cancel, &mut out);
        server.headers(id, &[(":status", "103")], 0).headers(id, OK, 0);
        server.data(id, b"late", 0).data(id, b"", END);
        server.frame(kind::RST_STREAM, 0, id, &[0, 0, 0, 8]);
        feed(&mut connection, &std::mem::take(&mut server.bytes), 1 << 14, &mut out).1.unwrap();
        out.clear();
    }
    // The bounds are rates.
    for second in 0..100 {
        connection.set_time(second);
        (0..5).for_each(|_| _ = server.frame(kind::SETTINGS, 0, 0, &[]));
        (0..10).for_each(|_| _ = server.frame(kind::PING, 0, 0, &[0; 8]));
        feed(&mut connection, &std::mem::take(&mut server.bytes), 1 << 14, &mut out).1.unwrap();
    }
}

#[test]
fn a_closed_stream_takes_no_more_data_than_was_on_its_way() {
    let mut server = Server::new(&[]);
    server.headers(3, OK, 0);
    // A window of 256 KB.
    (0..16).for_each(|_| _ = server.data(1, &[b'x'; 16_384], 0));
    assert_eq!(flooded(&server).0, Ok(()));
    server.data(1, b"x", 0);
    assert_eq!(flooded(&server).0.unwrap_err().code, ErrorCode::StreamClosed);
}

/// Returns a frame of a hostile server.
fn hostile_frame() -> impl Strategy<Value = Vec<u8>> {
    let payload = prop_oneof![
        3 => proptest::collection::vec(any::<u8>(), 0..20),
        1 => (1_usize..16_384).prop_map(|length| vec![b'x'; length]),
        // Fields that are in the static table, and one that is not.
        3 => (0_u8..62, 0_usize..3000).prop_map(|(index, length)| {
            let mut block = vec![0x88, 0x80 | index];
            block.extend([0x00, 1, b'a', 0x7f, ((length.max(127) - 127) & 0x7f) as u8 | 0x80]);
            block.push(((length.max(127) - 127) >> 7) as u8);
            block.resize(block.len() + length.max(127), b'v');
            block
        }),
    ];
    let stream =
        prop_oneof![1 => Just(0_u32), 6 => (0_u32..4).prop_map(|n| 2 * n + 1), 1 => 0_u32..20];
    let flags = prop_oneof![Just(0_u8), Just(flag::END_HEADERS), any::<u8>()];
    (0_u8..11, flags, stream, payload).prop_map(|(kind, flags, stream, payload)| {
        let mut bytes = Vec::new();
        FrameHeader { length: payload.len(), kind, flags, stream }.write(&mut bytes);
        bytes.extend(payload);
        bytes
    })
}

proptest! {
    /// Whatever a server sends, what the engine holds, returns and wants to send is bounded after every step.
    #[test]
    fn hostile_servers_do_not_make_memory_grow(
        frames in proptest::collection::vec((hostile_frame(), 1_usize..60), 0..40),
        consumes: bool,
    ) {
        let mut out = Vec::new();
        let mut connection = Http2ClientConnection::new(&mut out);
        for _ in 0..3 {
            connection.open(&get(), "http", BodySize::Unknown, &mut out).unwrap();
        }
        let mut input = Server::new(&[]).bytes;
        let (mut data_held, mut heads_held) = (0, 0);
        for (frame, repeats) in frames {
            (0..repeats).for_each(|_| input.extend_from_slice(&frame));
            let mut at = 0;
            loop {
                match connection.receive(&input, &mut at, &mut out) {
                    Ok(Http2ClientEvent::NeedInput) => break,
                    Ok(Http2ClientEvent::Data { stream, data, .. }) if consumes => {
                        connection.consumed(stream, data.len(), &mut out);
                    }
                    Ok(Http2ClientEvent::Data { data, .. }) => data_held += data.len(),
                    Ok(Http2ClientEvent::Interim { head, .. } | Http2ClientEvent::Head { head, .. }) => {
                        heads_held += head.fields.as_bytes().len();
                    }
                    Ok(_) => {}
                    Err(_) => return Ok(()),
                }
                // Nothing of it is taken: the connection's window, two heads for each stream, few acknowledgements.
                prop_assert!(data_held <= 1 << 20 && heads_held <= 3 * 2 * (64 << 10));
                prop_assert!(connection.held() <= 4 * (64 << 10) && out.len() <= 16 << 10);
                prop_assert!(connection.open_streams() <= 3);
            }
            input.drain(..at);
        }
    }
}
