//! The HTTP/2 engine without sockets: whatever is sent, in one piece and split at every byte.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use dunlin_http::http2::frame::{
    FrameHeader, flag, kind, setting, write_data_head, write_goaway, write_ping, write_reset,
    write_settings, write_settings_ack, write_window_update,
};
use dunlin_http::http2::hpack::{Decoder, Encoder, Indexing};
use dunlin_http::http2::{
    BlockedBy, Connection, ConnectionError, ErrorCode, Event, PREFACE, ResponseHead, Settings,
};
use dunlin_http::{FieldName, Head, Request, Version};
use proptest::prelude::*;

/// What a server made of its input.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct Seen {
    /// Stream, method, target and every field of each request.
    requests: Vec<(u32, String)>,
    /// Bytes of bodies and their ends, by stream.
    bodies: Vec<(u32, Vec<u8>, bool)>,
    refused: Vec<(u32, u16)>,
    resets: Vec<u32>,
    failure: Option<ConnectionError>,
}

/// A server that answers by a rule, and a client's view of what it sends.
struct Server {
    engine: Connection,
    head: Head,
    text: Vec<u8>,
    pending: Vec<u8>,
    out: Vec<u8>,
    seen: Seen,
    /// Answers every request at once, with so many bytes.
    answer: Option<usize>,
}

impl Server {
    fn new(answer: Option<usize>) -> Self {
        let mut out = Vec::new();
        Self {
            engine: Connection::new(Settings { streams: 10, ..Settings::default() }, &mut out),
            head: Head::default(),
            text: Vec::new(),
            pending: Vec::new(),
            out,
            seen: Seen::default(),
            answer,
        }
    }

    /// One whose client has sent its preface.
    fn open(answer: Option<usize>) -> Self {
        let mut server = Self::new(answer);
        server.feed(&preface(&[]));
        server.out.clear();
        server
    }

    fn feed(&mut self, bytes: &[u8]) {
        self.pending.extend_from_slice(bytes);
        let pending = std::mem::take(&mut self.pending);
        let mut at = 0;
        while self.seen.failure.is_none() {
            let event =
                self.engine.next(&pending, &mut at, &mut self.head, &mut self.text, &mut self.out);
            match event {
                Ok(Event::More) => break,
                Ok(Event::Request { stream, ended, .. }) => self.request(stream, ended),
                Ok(Event::Rejected { stream, error: refusal }) => {
                    self.seen.refused.push((stream, refusal.status));
                    self.engine.respond(stream, &plain(refusal.status), true, &mut self.out);
                }
                Ok(Event::Data { stream, data, ended }) => {
                    let body = self.seen.bodies.iter_mut().find(|body| body.0 == stream).unwrap();
                    body.1.extend_from_slice(&pending[data.clone()]);
                    body.2 = ended;
                    self.engine.consumed(stream, data.len(), &mut self.out);
                }
                Ok(Event::Reset { stream }) => self.seen.resets.push(stream),
                Err(failure) => self.seen.failure = Some(failure),
            }
        }
        self.pending.extend_from_slice(&pending[at..]);
    }

    fn request(&mut self, stream: u32, ended: bool) {
        let request = Request::new(&self.text, &self.head);
        assert_eq!(request.version(), Version::Http2);
        let show = |text: &[u8]| String::from_utf8_lossy(text).into_owned();
        let mut line = format!("{} {}", show(request.method_text()), show(request.target()));
        for (name, value) in request.fields() {
            line += &format!(" {}={}", show(name), show(value));
        }
        self.seen.requests.push((stream, line));
        if !ended {
            self.seen.bodies.push((stream, Vec::new(), false));
        }
        if let Some(length) = self.answer {
            self.respond(stream, length);
        }
    }

    fn respond(&mut self, stream: u32, length: usize) {
        self.engine.respond(stream, &plain(200), length == 0, &mut self.out);
        if length > 0 && !self.engine.send_whole(stream, &vec![b'x'; length], &mut self.out) {
            self.engine.set_ready(stream, true);
        }
    }

    /// Frames since the last time: kind, flags, stream and payload.
    fn sent(&mut self) -> Vec<(u8, u8, u32, Vec<u8>)> {
        frames(&std::mem::take(&mut self.out))
    }

    #[track_caller]
    fn failed_with(&mut self, code: ErrorCode) -> &'static str {
        let failure = self.seen.failure.expect("the connection went on");
        assert_eq!(failure.code, code, "{}", failure.reason);
        let sent = self.sent();
        let goaway = sent.last().unwrap();
        assert_eq!((goaway.0, goaway.3[7]), (kind::GOAWAY, code as u8));
        failure.reason
    }

    #[track_caller]
    fn reset_with(&mut self, stream: u32, code: ErrorCode) {
        assert_eq!(self.seen.failure, None);
        let expected = (kind::RST_STREAM, 0, stream, (code as u32).to_be_bytes().to_vec());
        let sent = self.sent();
        assert!(sent.contains(&expected), "{sent:?}");
    }
}

fn plain(status: u16) -> ResponseHead<'static> {
    ResponseHead { status, date: b"", lines: b"Server: x\r\n", serial: 0 }
}

fn frames(mut bytes: &[u8]) -> Vec<(u8, u8, u32, Vec<u8>)> {
    let mut frames = Vec::new();
    while let Some(head) = FrameHeader::parse(bytes) {
        let payload = bytes[9..9 + head.length].to_vec();
        frames.push((head.kind, head.flags, head.stream, payload));
        bytes = &bytes[9 + head.length..];
    }
    assert!(bytes.is_empty());
    frames
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = FrameHeader { length: payload.len(), kind, flags, stream }.to_bytes().to_vec();
    out.extend_from_slice(payload);
    out
}

fn preface(settings: &[(u16, u32)]) -> Vec<u8> {
    let mut out = PREFACE.to_vec();
    write_settings(settings, &mut out);
    write_settings_ack(&mut out);
    out
}

fn section(fields: &[(&str, &str)]) -> Vec<u8> {
    let (mut encoder, mut out) = (Encoder::default(), Vec::new());
    for (name, value) in fields {
        encoder.field(name.as_bytes(), value.as_bytes(), Indexing::Without, &mut out);
    }
    out
}

const GET: &[(&str, &str)] =
    &[(":method", "GET"), (":scheme", "http"), (":path", "/a?b"), (":authority", "h:1")];
const POST: &[(&str, &str)] =
    &[(":method", "POST"), (":scheme", "http"), (":path", "/p"), (":authority", "h")];

/// `GET` with another value of one field.
fn replaced<'a>(name: &str, value: &'a str) -> Vec<(&'a str, &'a str)> {
    let field = |&(other, old)| if other == name { (other, value) } else { (other, old) };
    GET.iter().map(field).collect()
}

/// `GET` without one field.
fn without(name: &str) -> Vec<(&'static str, &'static str)> {
    GET.iter().filter(|(other, _)| *other != name).copied().collect()
}

fn with<'a>(fields: &[(&'a str, &'a str)], more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    [fields, more].concat()
}

fn headers(stream: u32, fields: &[(&str, &str)], ended: bool) -> Vec<u8> {
    let flags = flag::END_HEADERS | if ended { flag::END_STREAM } else { 0 };
    frame(kind::HEADERS, flags, stream, &section(fields))
}

fn data(stream: u32, bytes: &[u8], ended: bool) -> Vec<u8> {
    let mut out = Vec::new();
    write_data_head(stream, bytes.len(), ended, &mut out);
    out.extend_from_slice(bytes);
    out
}

fn settings(pairs: &[(u16, u32)]) -> Vec<u8> {
    let mut out = Vec::new();
    write_settings(pairs, &mut out);
    out
}

fn window(stream: u32, increment: u32) -> Vec<u8> {
    let mut out = Vec::new();
    write_window_update(stream, increment, &mut out);
    out
}

fn reset(stream: u32) -> Vec<u8> {
    let mut out = Vec::new();
    write_reset(stream, ErrorCode::Cancel, &mut out);
    out
}

/// A conversation with something of everything.
fn conversation() -> Vec<u8> {
    let whole = section(&with(POST, &[("content-length", "9"), ("te", "trailers")]));
    let mut ping = Vec::new();
    write_ping(*b"12345678", false, &mut ping);
    let mut goaway = Vec::new();
    write_goaway(0, ErrorCode::NoError, "bye", &mut goaway);
    let padded = frame(kind::DATA, flag::PADDED, 3, b"\x03defxyz");
    let large = section(&with(GET, &[("x", &"v".repeat(40_000))]));
    [
        preface(&[(setting::INITIAL_WINDOW_SIZE, 70_000), (0xabcd, 1)]),
        headers(1, GET, true),
        frame(kind::HEADERS, 0, 3, &whole[..5]),
        frame(kind::CONTINUATION, 0, 3, &whole[5..9]),
        frame(kind::CONTINUATION, flag::END_HEADERS, 3, &whole[9..]),
        data(3, b"abc", false),
        ping,
        padded,
        frame(kind::PRIORITY, 0, 3, &[0, 0, 0, 1, 5]),
        frame(0xbe, 0xff, 77, b"unknown"),
        data(3, b"ghi", false),
        headers(3, &[("trailer", "x")], true),
        headers(5, &with(GET, &[("a", "b"), ("cookie", "c"), ("cookie", "d")]), true),
        window(0, 1000),
        settings(&[(setting::HEADER_TABLE_SIZE, 0)]),
        reset(5),
        // Larger than the limit once it is decoded.
        frame(kind::HEADERS, flag::END_STREAM, 7, &large[..16_000]),
        frame(kind::CONTINUATION, 0, 7, &large[16_000..32_000]),
        frame(kind::CONTINUATION, flag::END_HEADERS, 7, &large[32_000..]),
        goaway,
    ]
    .concat()
}

#[test]
fn however_it_is_split_a_conversation_means_the_same() {
    let input = conversation();
    let mut whole = Server::new(Some(10));
    whole.feed(&input);
    assert_eq!(whole.seen.failure, None);
    assert_eq!(
        whole.seen.requests,
        [
            (1, "GET /a?b host=h:1".to_owned()),
            (3, "POST /p host=h content-length=9 te=trailers".to_owned()),
            (5, "GET /a?b host=h:1 a=b cookie=c cookie=d".to_owned()),
        ]
    );
    assert_eq!(whole.seen.refused, [(7, 431)]);
    let sent = whole.out.clone();
    for cut in (0..input.len()).filter(|cut| *cut < 600 || cut % 997 == 0) {
        let mut split = Server::new(Some(10));
        split.feed(&input[..cut]);
        split.feed(&input[cut..]);
        assert_eq!((&split.seen, &split.out), (&whole.seen, &sent), "split at {cut}");
    }
    let mut bytewise = Server::new(Some(10));
    for byte in &input {
        bytewise.feed(&[*byte]);
    }
    assert_eq!((bytewise.seen, bytewise.out), (whole.seen, sent));
}

#[test]
fn a_body_reaches_the_handler_with_its_trailers_dropped() {
    let mut server = Server::open(None);
    server.feed(&headers(1, &with(POST, &[("content-length", "6")]), false));
    server.feed(&data(1, b"abc", false));
    server.feed(&frame(kind::DATA, flag::PADDED, 1, b"\x01defx"));
    server.feed(&headers(1, &[("x", "y")], true));
    assert_eq!(server.seen.bodies, [(1, b"abcdef".to_vec(), true)]);
    server.respond(1, 3);
    assert_eq!(server.engine.open_streams(), 0);
}

#[test]
fn a_malformed_request_is_reset_and_the_next_is_served() {
    let cases: &[(&str, Vec<(&str, &str)>)] = &[
        ("no method", without(":method")),
        ("an empty method", replaced(":method", "")),
        ("a method that is no token", replaced(":method", "G T")),
        ("no scheme", without(":scheme")),
        ("an empty scheme", replaced(":scheme", "")),
        ("a scheme with its delimiter", replaced(":scheme", "http:")),
        ("a scheme that is a URL", replaced(":scheme", "http://x")),
        ("a scheme with a space", replaced(":scheme", "ht tp")),
        ("a scheme that begins with a digit", replaced(":scheme", "1http")),
        ("a scheme that is a colon", replaced(":scheme", ":")),
        ("a scheme with an underscore", replaced(":scheme", "ht_tp")),
        ("a second scheme", with(GET, &[(":scheme", "http")])),
        ("a second method", with(GET, &[(":method", "GET")])),
        ("no path", without(":path")),
        ("an empty path", replaced(":path", "")),
        ("a path that is a URL", replaced(":path", "http://a/")),
        ("a path without a slash", replaced(":path", "a")),
        ("a path that is a query", replaced(":path", "?a")),
        ("an asterisk for GET", replaced(":path", "*")),
        ("neither :authority nor Host", without(":authority")),
        ("an empty authority", replaced(":authority", "")),
        ("an authority without a name", replaced(":authority", ":80")),
        ("an authority with a path", replaced(":authority", "h/a")),
        ("an authority with a wrong port", replaced(":authority", "h:x")),
        ("an authority with a wrong encoding", replaced(":authority", "h%2")),
        ("an empty Host alone", [without(":authority"), vec![("host", "")]].concat()),
        ("a wrong Host alone", [without(":authority"), vec![("host", "u@h")]].concat()),
        ("two Hosts alone", [without(":authority"), vec![("host", "h"), ("host", "h")]].concat()),
        ("two Hosts beside :authority", with(GET, &[("host", "h:1"), ("host", "h:1")])),
        ("an empty Host beside :authority", with(GET, &[("host", "")])),
        (
            "an empty :authority beside Host",
            [replaced(":authority", ""), vec![("host", "h:1")]].concat(),
        ),
        ("CONNECT to no name", vec![(":method", "CONNECT"), (":authority", ":1")]),
        ("CONNECT by Host", vec![(":method", "CONNECT"), ("host", "h:1")]),
        (
            "CONNECT with a protocol",
            vec![(":method", "CONNECT"), (":authority", "h:1"), (":protocol", "websocket")],
        ),
        ("a second path", with(GET, &[(":path", "/")])),
        ("a second authority", with(GET, &[(":authority", "h:1")])),
        ("a pseudo-field of responses", with(GET, &[(":status", "200")])),
        ("an unknown pseudo-field", with(GET, &[(":x", "200")])),
        ("a pseudo-field behind a field", [&GET[..3], &[("a", "b"), (":authority", "h")]].concat()),
        ("capitals", with(GET, &[("Accept", "x")])),
        ("a space in a name", with(GET, &[("a b", "x")])),
        ("an empty name", with(GET, &[("", "x")])),
        ("a line end in a value", with(GET, &[("a", "b\r\nc: d")])),
        ("a NUL in a value", with(GET, &[("a", "\0")])),
        ("a space around a value", with(GET, &[("a", " b")])),
        ("Connection", with(GET, &[("connection", "close")])),
        ("Keep-Alive", with(GET, &[("keep-alive", "1")])),
        ("Proxy-Connection", with(GET, &[("proxy-connection", "1")])),
        ("Transfer-Encoding", with(GET, &[("transfer-encoding", "chunked")])),
        ("Upgrade", with(GET, &[("upgrade", "h2c")])),
        ("TE with more", with(GET, &[("te", "gzip")])),
        ("a Host that differs", with(GET, &[("host", "other")])),
        ("an authority with a user", replaced(":authority", "u@h")),
        ("a length that is no number", with(GET, &[("content-length", "x")])),
        ("lengths that differ", with(GET, &[("content-length", "0"), ("content-length", "1")])),
        ("a length without a body", with(GET, &[("content-length", "1")])),
        (
            "CONNECT with a path",
            with(GET, &[])
                .into_iter()
                .map(|(n, v)| if n == ":method" { (n, "CONNECT") } else { (n, v) })
                .collect(),
        ),
        ("CONNECT without authority", vec![(":method", "CONNECT")]),
    ];
    for (what, fields) in cases {
        let mut server = Server::open(Some(1));
        server.feed(&headers(1, fields, true));
        assert!(server.seen.requests.is_empty(), "{what}");
        server.reset_with(1, ErrorCode::ProtocolError);
        server.feed(&headers(3, GET, true));
        assert_eq!(server.seen.requests.len(), 1, "{what}");
    }
}

#[test]
fn what_differs_only_in_form_is_served() {
    for (fields, line) in [
        (
            vec![(":method", "OPTIONS"), (":scheme", "HTTP"), (":path", "*"), (":authority", "h")],
            "OPTIONS * host=h",
        ),
        (replaced(":authority", "[::1]:80"), "GET /a?b host=[::1]:80"),
        (replaced(":authority", "h%41"), "GET /a?b host=h%41"),
        (vec![(":method", "CONNECT"), (":authority", "h:1")], "CONNECT h:1 host=h:1"),
        (with(GET, &[("host", "h:1")]), "GET /a?b host=h:1"),
        (
            vec![(":path", "/"), (":method", "GET"), (":scheme", "https"), ("host", "x")],
            "GET / host=x",
        ),
        (with(GET, &[("te", "trailers")]), "GET /a?b host=h:1 te=trailers"),
        (with(GET, &[("content-length", "0")]), "GET /a?b host=h:1 content-length=0"),
    ] {
        let mut server = Server::open(Some(0));
        server.feed(&headers(1, &fields, true));
        assert_eq!(server.seen.requests, [(1, line.to_owned())]);
        assert_eq!(server.seen.failure, None);
    }
}

#[test]
fn a_scheme_other_than_http_or_https_is_refused() {
    for scheme in ["ftp", "httpx", "h", "a+b-c.d1"] {
        let mut server = Server::open(Some(1));
        server.feed(&headers(1, &replaced(":scheme", scheme), true));
        assert!(server.seen.requests.is_empty(), "{scheme}");
        assert_eq!(server.seen.refused, [(1, 400)], "{scheme}");
        server.feed(&headers(3, GET, true));
        assert_eq!(server.seen.requests.len(), 1, "{scheme}");
    }
}

#[test]
fn lengths_have_to_be_kept() {
    for (pieces, is_kept) in [
        (vec![("abc", false), ("def", true)], true),
        (vec![("abcdefg", false)], false),
        (vec![("abc", true)], false),
        (vec![("abc", false), ("", true)], false),
    ] {
        let mut server = Server::open(None);
        server.feed(&headers(1, &with(POST, &[("content-length", "6")]), false));
        server.out.clear();
        for (bytes, ended) in &pieces {
            server.feed(&data(1, bytes.as_bytes(), *ended));
        }
        if is_kept {
            assert!(server.seen.bodies[0].2);
        } else {
            server.reset_with(1, ErrorCode::ProtocolError);
            assert_eq!(server.seen.resets, [1]);
        }
    }
}

#[test]
fn frames_that_break_the_rules_end_the_connection() {
    let get = headers(1, GET, true);
    for (what, code, bytes) in [
        ("DATA for no stream", ErrorCode::ProtocolError, data(0, b"x", false)),
        ("DATA for an idle stream", ErrorCode::ProtocolError, data(1, b"x", false)),
        ("HEADERS for an even stream", ErrorCode::ProtocolError, headers(2, GET, true)),
        ("HEADERS for no stream", ErrorCode::ProtocolError, headers(0, GET, true)),
        (
            "a number that was passed over",
            ErrorCode::ProtocolError,
            [headers(5, GET, true), headers(3, GET, true)].concat(),
        ),
        (
            "HEADERS for a closed stream",
            ErrorCode::StreamClosed,
            [get.clone(), get.clone()].concat(),
        ),
        (
            "DATA for a closed stream",
            ErrorCode::StreamClosed,
            [get.clone(), data(1, b"x", true)].concat(),
        ),
        ("CONTINUATION of nothing", ErrorCode::ProtocolError, frame(kind::CONTINUATION, 4, 1, b"")),
        (
            "an interrupted section",
            ErrorCode::ProtocolError,
            [frame(kind::HEADERS, 0, 1, b""), data(1, b"", true)].concat(),
        ),
        (
            "a section on another stream",
            ErrorCode::ProtocolError,
            [frame(kind::HEADERS, 0, 1, b""), frame(kind::CONTINUATION, 4, 3, b"")].concat(),
        ),
        (
            "padding beyond the frame",
            ErrorCode::ProtocolError,
            frame(kind::HEADERS, flag::PADDED | 4, 1, b"\x09abc"),
        ),
        (
            "a frame that is too large",
            ErrorCode::FrameSizeError,
            frame(kind::DATA, 0, 1, &[0; 16_385]),
        ),
        (
            "a section that cannot be decoded",
            ErrorCode::CompressionError,
            frame(kind::HEADERS, 5, 1, b"\x80"),
        ),
        ("PUSH_PROMISE", ErrorCode::ProtocolError, frame(kind::PUSH_PROMISE, 4, 1, b"\0\0\0\x02")),
        ("SETTINGS for a stream", ErrorCode::ProtocolError, frame(kind::SETTINGS, 0, 1, b"")),
        ("SETTINGS of no length", ErrorCode::FrameSizeError, frame(kind::SETTINGS, 0, 0, b"12345")),
        (
            "an acknowledgement with a payload",
            ErrorCode::FrameSizeError,
            frame(kind::SETTINGS, 1, 0, b"123456"),
        ),
        (
            "a push that is neither",
            ErrorCode::ProtocolError,
            settings(&[(setting::ENABLE_PUSH, 2)]),
        ),
        (
            "a window that is too large",
            ErrorCode::FlowControlError,
            settings(&[(setting::INITIAL_WINDOW_SIZE, 1 << 31)]),
        ),
        (
            "a frame size that is too small",
            ErrorCode::ProtocolError,
            settings(&[(setting::MAX_FRAME_SIZE, 16_383)]),
        ),
        ("PING of another length", ErrorCode::FrameSizeError, frame(kind::PING, 0, 0, b"1234567")),
        ("PING for a stream", ErrorCode::ProtocolError, frame(kind::PING, 0, 1, b"12345678")),
        ("GOAWAY for a stream", ErrorCode::ProtocolError, frame(kind::GOAWAY, 0, 1, &[0; 8])),
        ("GOAWAY that is too short", ErrorCode::FrameSizeError, frame(kind::GOAWAY, 0, 0, &[0; 7])),
        (
            "WINDOW_UPDATE of another length",
            ErrorCode::FrameSizeError,
            frame(kind::WINDOW_UPDATE, 0, 0, &[0; 5]),
        ),
        ("WINDOW_UPDATE by nothing", ErrorCode::ProtocolError, window(0, 0)),
        ("WINDOW_UPDATE beyond all bounds", ErrorCode::FlowControlError, window(0, 0x7fff_ffff)),
        ("WINDOW_UPDATE for an idle stream", ErrorCode::ProtocolError, window(1, 1)),
        ("RST_STREAM for an idle stream", ErrorCode::ProtocolError, reset(1)),
        (
            "RST_STREAM of another length",
            ErrorCode::FrameSizeError,
            frame(kind::RST_STREAM, 0, 1, &[0; 3]),
        ),
        ("PRIORITY for no stream", ErrorCode::ProtocolError, frame(kind::PRIORITY, 0, 0, &[0; 5])),
        (
            "PRIORITY_UPDATE for a stream",
            ErrorCode::ProtocolError,
            frame(kind::PRIORITY_UPDATE, 0, 1, &[0; 4]),
        ),
        (
            "PRIORITY_UPDATE of no stream",
            ErrorCode::ProtocolError,
            frame(kind::PRIORITY_UPDATE, 0, 0, &[0; 4]),
        ),
        (
            "PRIORITY_UPDATE that is too short",
            ErrorCode::FrameSizeError,
            frame(kind::PRIORITY_UPDATE, 0, 0, &[0; 3]),
        ),
    ] {
        let mut server = Server::open(Some(1));
        server.feed(&bytes);
        let failure = server.seen.failure.unwrap_or_else(|| panic!("{what}: it went on"));
        assert_eq!(failure.code, code, "{what}: {}", failure.reason);
        server.failed_with(code);
        // Nothing is read or written any more.
        server.seen.failure = None;
        server.feed(&headers(9, GET, true));
        assert!(server.seen.failure.is_some() && server.out.is_empty(), "{what}");
    }
    for first in [b"GET / HTTP/1.1\r\n".to_vec(), [PREFACE, &headers(1, GET, true)].concat()] {
        let mut server = Server::new(None);
        server.feed(&first);
        server.failed_with(ErrorCode::ProtocolError);
    }
}

#[test]
fn what_concerns_one_stream_resets_it() {
    for (what, code, bytes) in [
        ("a window that adds nothing", ErrorCode::ProtocolError, window(1, 0)),
        ("a window beyond all bounds", ErrorCode::FlowControlError, window(1, 0x7fff_ffff)),
        ("a second head", ErrorCode::ProtocolError, headers(1, &[("a", "b")], false)),
        (
            "a pseudo-field among trailers",
            ErrorCode::ProtocolError,
            headers(1, &[(":path", "/")], true),
        ),
        (
            "PRIORITY of another length",
            ErrorCode::FrameSizeError,
            frame(kind::PRIORITY, 0, 1, &[0; 4]),
        ),
        (
            "a stream that depends on itself",
            ErrorCode::ProtocolError,
            frame(kind::PRIORITY, 0, 1, &[0, 0, 0, 1, 0]),
        ),
    ] {
        let mut server = Server::open(None);
        server.feed(&headers(1, POST, false));
        server.feed(&bytes);
        assert_eq!(server.seen.resets, [1], "{what}");
        server.reset_with(1, code);
        // What was on its way is let pass.
        server.feed(&[data(1, b"late", false), headers(1, &[("a", "b")], true)].concat());
        server.feed(&headers(3, GET, true));
        assert_eq!((server.seen.failure, server.seen.requests.len()), (None, 2), "{what}");
    }
}

#[test]
fn windows_hold_for_both_and_follow_the_settings() {
    let mut server = Server::new(Some(100));
    server.feed(&preface(&[(setting::INITIAL_WINDOW_SIZE, 50)]));
    server.feed(&headers(1, GET, true));
    server.out.clear();
    assert_eq!(server.engine.allowance(1), 50);
    // It shrinks below what was not even used, and grows again.
    server.feed(&settings(&[(setting::INITIAL_WINDOW_SIZE, 0)]));
    assert_eq!((server.engine.allowance(1), server.engine.next_to_send()), (0, None));
    assert_eq!(server.engine.blocked_by(1), Some(BlockedBy::Stream));
    server.feed(&window(1, 30));
    assert_eq!((server.engine.allowance(1), server.engine.next_to_send()), (30, Some(1)));
    server.out.clear();
    let mark = server.engine.begin_data(&mut server.out);
    server.out.extend_from_slice(&[b'x'; 30]);
    server.engine.end_data(1, mark, false, &mut server.out);
    assert_eq!(server.sent(), [(kind::DATA, 0, 1, vec![b'x'; 30])]);
    assert_eq!(server.engine.allowance(1), 0);
    // The connection's window is another.
    server.feed(&settings(&[(setting::INITIAL_WINDOW_SIZE, 1 << 20)]));
    assert_eq!(server.engine.allowance(1), 16_384);
    for _ in 0..4 {
        let mark = server.engine.begin_data(&mut server.out);
        let allowance = server.engine.allowance(1);
        server.out.resize(server.out.len() + allowance, 0);
        server.engine.end_data(1, mark, false, &mut server.out);
    }
    assert_eq!(server.engine.blocked_by(1), Some(BlockedBy::Connection));
    server.feed(&window(0, 5));
    assert_eq!(server.engine.allowance(1), 5);
}

#[test]
fn a_client_that_sends_beyond_its_windows_is_stopped() {
    let mut server = Server::open(None);
    server.feed(&headers(1, POST, false));
    // The body is not taken: nothing is given back.
    let piece = data(1, &[0; 16_384], false);
    let mut at;
    for number in 0..5 {
        let (mut head, mut text, mut out) = (Head::default(), Vec::new(), Vec::new());
        at = 0;
        let event = server.engine.next(&piece, &mut at, &mut head, &mut text, &mut out).unwrap();
        if number < 3 {
            assert!(matches!(event, Event::Data { .. }));
        } else if number == 3 {
            assert_eq!(event, Event::Reset { stream: 1 });
            assert_eq!(frames(&out)[0].3, (ErrorCode::FlowControlError as u32).to_be_bytes());
        }
    }
}

#[test]
fn windows_grow_with_a_handler_that_keeps_up() {
    let mut server = Server::open(None);
    server.feed(&headers(1, POST, false));
    let mut given = 65_535_i64;
    let mut most = 0;
    for _ in 0..400 {
        server.feed(&data(1, &[0; 10_000], false));
        given -= 10_000;
        for (kind, _, stream, payload) in server.sent() {
            if kind == kind::WINDOW_UPDATE && stream == 1 {
                given += i64::from(u32::from_be_bytes(payload.try_into().unwrap()));
            }
        }
        assert_eq!(server.seen.failure, None);
        assert!(given > 0);
        most = most.max(given);
    }
    assert!((400_000..=512 << 10).contains(&most), "{most}");
}

#[test]
fn repeated_heads_shrink_and_change_with_the_date() {
    let mut server = Server::open(None);
    let lines = b"Content-Type: text/plain\r\nETag: \"a\"\r\nContent-Length: 5\r\nX-Own: y\r\nConnection: close\r\nSet-Cookie: secret\r\n";
    let mut decoder = Decoder::default();
    let mut lengths = Vec::new();
    for number in 0..8_u32 {
        let stream = 2 * number + 1;
        server.feed(&headers(stream, GET, true));
        server.out.clear();
        let date: &[u8] = if number < 6 { b"one" } else { b"two" };
        let head = ResponseHead { status: 200, date, lines, serial: 7 };
        server.engine.respond(stream, &head, true, &mut server.out);
        let [(_, flags, _, payload)] = &server.sent()[..] else { panic!() };
        assert_eq!(*flags, flag::END_STREAM | flag::END_HEADERS);
        let (mut text, mut fields) = (Vec::new(), Vec::new());
        decoder
            .decode(payload, &mut text, |text, field| {
                let show = |range| String::from_utf8_lossy(&text[range]).into_owned();
                fields.push((show(field.name), show(field.value)));
            })
            .unwrap();
        let date = String::from_utf8_lossy(date).into_owned();
        let expected = [
            (":status", "200"),
            ("date", &date),
            ("content-type", "text/plain"),
            ("etag", "\"a\""),
            ("content-length", "5"),
            ("x-own", "y"),
            ("set-cookie", "secret"),
        ];
        let expected: Vec<_> =
            expected.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
        assert_eq!(fields, expected);
        lengths.push(payload.len());
    }
    // All but the secret are one byte each; then the date changes.
    assert!(lengths[5] < 20 && lengths[5] == lengths[4], "{lengths:?}");
    assert!(lengths[6] > lengths[5] && lengths[7] == lengths[5], "{lengths:?}");
}

#[test]
fn a_large_head_is_sent_in_several_frames_and_hints_before_it() {
    let mut server = Server::open(None);
    server.feed(&headers(1, GET, true));
    server.out.clear();
    let hints = ResponseHead { status: 103, date: b"", lines: b"Link: </a>\r\n", serial: 0 };
    server.engine.send_interim(1, &hints, &mut server.out);
    let lines = format!("X: {}\r\n", "\u{1}".repeat(20_000));
    let head = ResponseHead { status: 200, date: b"", lines: lines.as_bytes(), serial: 0 };
    server.engine.respond(1, &head, true, &mut server.out);
    let sent = server.sent();
    let shape: Vec<_> = sent.iter().map(|frame| (frame.0, frame.1)).collect();
    assert_eq!(
        shape,
        [
            (kind::HEADERS, flag::END_HEADERS),
            (kind::HEADERS, flag::END_STREAM),
            (kind::CONTINUATION, flag::END_HEADERS),
        ]
    );
    // Nothing is sent on a stream that is over.
    assert!(!server.engine.respond(1, &head, true, &mut server.out));
    server.engine.send_interim(1, &hints, &mut server.out);
    assert!(server.out.is_empty());
}

#[test]
fn the_end_comes_in_two_steps() {
    let mut server = Server::open(None);
    server.feed(&headers(1, GET, true));
    server.out.clear();
    server.engine.begin_drain(&mut server.out);
    let sent = server.sent();
    assert_eq!((sent[0].0, &sent[0].3[..4]), (kind::GOAWAY, &[0x7f, 0xff, 0xff, 0xff][..]));
    // A request that crossed it is served.
    server.feed(&headers(3, GET, true));
    assert_eq!(server.seen.requests.len(), 2);
    server.feed(&frame(kind::PING, flag::ACK, 0, &sent[1].3));
    assert_eq!(server.sent()[0].3[..4], [0, 0, 0, 3]);
    server.feed(&headers(5, GET, true));
    assert_eq!(server.seen.requests.len(), 2);
    server.respond(1, 0);
    assert!(!server.engine.is_done());
    server.respond(3, 0);
    assert!(server.engine.is_done());
}

#[test]
fn streams_beyond_the_limit_are_refused() {
    let mut server = Server::open(None);
    for number in 0..11 {
        server.feed(&headers(2 * number + 1, GET, true));
    }
    assert_eq!(server.seen.requests.len(), 10);
    server.reset_with(21, ErrorCode::RefusedStream);
}

#[test]
fn each_abuse_ends_the_connection_by_its_name() {
    let post = |number: u32| headers(2 * number + 1, POST, false);
    // An entry that fills the table, and then a byte for each time that it is meant.
    let (mut encoder, mut entry) = (Encoder::default(), section(GET));
    encoder.field(b"x", &[b'v'; 4000], Indexing::Incremental, &mut entry);
    let bomb = move |number: u32| {
        let mut section = if number == 0 { entry.clone() } else { section(GET) };
        section.extend_from_slice(&[0xbe; 20]);
        let flags = flag::END_STREAM | flag::END_HEADERS;
        frame(kind::HEADERS, flags, 2 * number + 1, &section)
    };
    type Next = Box<dyn Fn(u32) -> Vec<u8>>;
    let cases: [(&str, Next); 10] = [
        ("rapid reset", Box::new(move |n| [post(n), reset(2 * n + 1)].concat())),
        ("made you reset", Box::new(move |n| [post(n), window(2 * n + 1, 0)].concat())),
        (
            "CONTINUATION flood",
            Box::new(|n| match n {
                0 => frame(kind::HEADERS, 0, 1, b""),
                _ => frame(kind::CONTINUATION, 0, 1, b"\x82"),
            }),
        ),
        ("HPACK bomb", Box::new(bomb)),
        ("SETTINGS", Box::new(|_| settings(&[]))),
        ("PING", Box::new(|_| frame(kind::PING, 0, 0, b"12345678"))),
        ("priority", Box::new(|_| frame(kind::PRIORITY, 0, 1, &[0, 0, 0, 3, 0]))),
        ("priority", Box::new(|_| frame(kind::PRIORITY_UPDATE, 0, 0, b"\0\0\0\x01u=1"))),
        ("empty", Box::new(|n| if n == 0 { headers(1, POST, false) } else { data(1, b"", false) })),
        ("WINDOW_UPDATE", Box::new(|_| window(0, 1))),
    ];
    for (name, next) in cases {
        let mut server = Server::open(None);
        let end = (0..10_000).find(|number| {
            server.feed(&next(*number));
            server.seen.failure.is_some()
        });
        assert!(end.is_some_and(|end| (5..2_100).contains(&end)), "{name}: {end:?}");
        let reason = server.failed_with(ErrorCode::EnhanceYourCalm);
        assert!(reason.contains(name), "{name}: {reason}");
    }
}

#[test]
fn a_long_life_of_usual_requests_is_no_abuse() {
    let mut server = Server::open(Some(10));
    for number in 0..5_000 {
        let stream = 2 * number + 1;
        server.feed(&headers(stream, GET, true));
        server.feed(&window(0, 10));
        server.feed(&frame(kind::PRIORITY_UPDATE, 0, 0, b"\0\0\0\x01u=1"));
        // Too late: the answer is complete.
        server.feed(&reset(stream));
        server.out.clear();
        assert_eq!(server.seen.failure, None);
    }
}

#[test]
fn priorities_decide_who_is_next() {
    let mut server = Server::new(Some(100));
    server.feed(&preface(&[(setting::INITIAL_WINDOW_SIZE, 0)]));
    server.feed(&frame(kind::PRIORITY_UPDATE, 0, 0, b"\0\0\0\x07u=2"));
    server.feed(&headers(1, GET, true));
    server.feed(&headers(3, &with(GET, &[("priority", "u=1, i")]), true));
    server.feed(&headers(5, &with(GET, &[("priority", "u=1, i")]), true));
    server.feed(&headers(7, GET, true));
    server.feed(&settings(&[(setting::INITIAL_WINDOW_SIZE, 2)]));
    let mut order = Vec::new();
    while let Some(stream) = server.engine.next_to_send() {
        order.push(stream);
        let mark = server.engine.begin_data(&mut server.out);
        server.out.push(b'x');
        server.engine.end_data(stream, mark, false, &mut server.out);
    }
    assert_eq!(order, [3, 5, 3, 5, 7, 7, 1, 1]);
}

proptest! {
    #[test]
    fn any_frames_are_survived_however_they_are_split(
        parts in proptest::collection::vec(
            (prop_oneof![0..10_u8, Just(16)], any::<u8>(), 0..12_u32, proptest::collection::vec(any::<u8>(), 0..40)),
            0..30,
        ),
        cut in any::<prop::sample::Index>(),
        real in proptest::collection::vec(any::<bool>(), 30),
    ) {
        let mut input = preface(&[]);
        for (number, (kind, flags, stream, payload)) in parts.iter().enumerate() {
            if real[number] {
                input.extend(headers(*stream | 1, GET, flags & 1 != 0));
            } else {
                input.extend(frame(*kind, *flags, *stream, payload));
            }
        }
        let mut whole = Server::new(Some(1000));
        whole.feed(&input);
        let cut = cut.index(input.len());
        let mut split = Server::new(Some(1000));
        split.feed(&input[..cut]);
        split.feed(&input[cut..]);
        prop_assert_eq!((&split.seen, &split.out), (&whole.seen, &whole.out));
        let _ = frames(&whole.out);
        prop_assert!(whole.engine.open_streams() <= 10);
    }
}

#[test]
fn a_field_is_found_by_its_name() {
    let mut server = Server::open(None);
    server.feed(&headers(1, &with(GET, &[("accept-encoding", "br"), ("if-match", "*")]), true));
    let request = Request::new(&server.text, &server.head);
    assert_eq!(request.field(FieldName::Host), Some(&b"h:1"[..]));
    assert_eq!(request.field(FieldName::AcceptEncoding), Some(&b"br"[..]));
    assert_eq!(request.field(FieldName::IfMatch), Some(&b"*"[..]));
}
