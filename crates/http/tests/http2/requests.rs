//! Requests: malformed ones, unusual forms, bodies and fields.

use dunlin_http::http2::Http2ErrorCode;
use dunlin_http::http2::frame::{flag, kind, setting};
use dunlin_http::{FieldName, Method, Request};

use crate::common::{malformed, tunnel, unusual};
use crate::support::{GET, POST, Server, data, frame, headers, plain, preface, replaced, with};

#[test]
fn a_body_reaches_the_handler_with_its_trailers() {
    let mut server = Server::open(None);
    server.feed(&headers(1, &with(POST, &[("content-length", "6")]), false));
    server.feed(&data(1, b"abc", false));
    server.feed(&frame(kind::DATA, flag::PADDED, 1, b"\x01defx"));
    server.feed(&headers(1, &[("x", "y")], true));
    assert_eq!(server.seen.bodies, [(1, b"abcdef".to_vec(), true)]);
    assert!(server.engine.take_trailers(3).is_empty());
    assert_eq!(server.engine.take_trailers(1).as_bytes(), b"x: y\r\n");
    assert!(server.engine.take_trailers(1).is_empty());
    server.respond(1, 3);
    assert_eq!(server.engine.open_streams(), 0);
}

#[test]
fn an_extended_connect_is_a_request_whose_stream_stays_open() {
    let mut server = Server::new(None);
    server.feed(&preface(&[]));
    let announced = [&setting::ENABLE_CONNECT_PROTOCOL.to_be_bytes()[..], &[0, 0, 0, 1]].concat();
    assert!(server.sent()[0].3.chunks(6).any(|pair| pair == announced), "RFC 8441 §3");
    server.feed(&headers(1, &tunnel("", ""), false));
    assert_eq!(server.seen.requests, [(1, "CONNECT /chat?a host=h:1".to_owned())]);
    let request = Request::new(&server.text, &server.head);
    assert_eq!(request.method(), Method::ExtendedConnect);
    assert_eq!(request.protocol(), Some(&b"websocket"[..]));
    assert_eq!(request.equivalent_method(), b"GET");
    server.feed(&data(1, b"up", false));
    server.engine.respond(1, &plain(200), false, &mut server.out);
    server.feed(&data(1, b"", true));
    assert_eq!(server.seen.bodies, [(1, b"up".to_vec(), true)]);
    assert!(server.engine.send_whole(1, b"down", &mut server.out));
    assert_eq!((server.engine.open_streams(), server.seen.failure.is_none()), (0, true));
    // The next request is no longer one.
    server.feed(&headers(3, GET, true));
    assert_eq!(Request::new(&server.text, &server.head).protocol(), None);
}

#[test]
fn cookies_in_several_fields_are_joined() {
    let mut server = Server::new(None);
    server.feed(&preface(&[]));
    let cookies = [("cookie", "a=1"), ("x", "1"), ("cookie", ""), ("cookie", "b=2")];
    server.feed(&headers(1, &[GET, &cookies].concat(), true));
    let request = Request::new(&server.text, &server.head);
    let fields: Vec<_> = request.joined_fields().skip(1).collect();
    assert_eq!(fields[0], (&b"cookie"[..], b"a=1; b=2"[..].into()));
    assert_eq!(fields[1..], [(&b"x"[..], b"1"[..].into())]);
}

#[test]
fn a_malformed_request_is_reset_and_the_next_is_served() {
    for (what, fields) in &malformed() {
        let mut server = Server::open(Some(1));
        server.feed(&headers(1, fields, true));
        assert!(server.seen.requests.is_empty(), "{what}");
        // It is reported with what could be read of it.
        assert_eq!(server.seen.malformed.len(), 1, "{what}");
        if fields.iter().filter(|(name, _)| *name == ":path").count() == 1 {
            let target = fields.iter().find(|(name, _)| *name == ":path").map(|(_, path)| *path);
            let (stream, seen) = &server.seen.malformed[0];
            assert!(*stream == 1 && (seen.is_empty() || Some(&**seen) == target), "{what}: {seen}");
        }
        server.reset_with(1, Http2ErrorCode::ProtocolError);
        server.feed(&headers(3, GET, true));
        assert_eq!(server.seen.requests.len(), 1, "{what}");
    }
}

#[test]
fn unusual_but_valid_forms_are_served() {
    for (fields, line) in unusual() {
        let mut server = Server::open(Some(0));
        server.feed(&headers(1, &fields, true));
        assert_eq!(server.seen.requests, [(1, line.to_owned())]);
        assert_eq!(server.seen.failure, None);
    }
}

#[test]
fn a_scheme_other_than_http_or_https_is_rejected() {
    for scheme in ["ftp", "httpx", "h", "a+b-c.d1"] {
        let mut server = Server::open(Some(1));
        server.feed(&headers(1, &replaced(":scheme", scheme), true));
        assert!(server.seen.requests.is_empty(), "{scheme}");
        assert_eq!(server.seen.rejected, [(1, 400)], "{scheme}");
        server.feed(&headers(3, GET, true));
        assert_eq!(server.seen.requests.len(), 1, "{scheme}");
    }
}

#[test]
fn bodies_must_have_the_stated_length() {
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
            server.reset_with(1, Http2ErrorCode::ProtocolError);
            assert_eq!(server.seen.resets, [1]);
        }
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
