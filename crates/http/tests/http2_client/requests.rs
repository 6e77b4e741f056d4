//! Requests, as the engine of a server reads them.

use dunlin_http::http2::PREFACE;
use dunlin_http::http2::client::Http2ClientConnection;
use dunlin_http::http2::frame::{self, FrameHeader, flag, kind, setting};
use dunlin_http::{BodySize, FieldLines, RequestHead};

use super::support::END;

/// Returns the head of the first request on a connection, as the server's engine reads it.
fn as_server(head: &RequestHead, size: BodySize) -> (String, Option<u64>, bool) {
    use dunlin_http::http2::{Http2Connection as Served, Http2Event as Arrived, Http2Settings};
    let mut out = Vec::new();
    let mut connection = Http2ClientConnection::new(&mut out);
    assert!(out.starts_with(PREFACE));
    let mut settings = Vec::new();
    frame::write_settings(&[(setting::ENABLE_CONNECT_PROTOCOL, 1)], &mut settings);
    connection.receive(&settings, &mut 0, &mut out).unwrap();
    connection.open(head, "https", size, &mut out).unwrap();
    let mut server = Served::new(Http2Settings::default(), &mut Vec::new());
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
