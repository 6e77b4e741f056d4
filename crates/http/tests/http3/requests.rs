//! Requests: malformed ones, unusual forms, bodies and fields.

use dunlin_http::http3::frame::{kind, setting};
use dunlin_http::http3::{Http3ErrorCode, OwnStream};
use dunlin_http::{FieldName, Method, Request};

use crate::common::{malformed, tunnel, unusual};
use crate::support::{
    CONTROL, GET, POST, Server, control, data, frame, frames, headers, plain, replaced, settings,
    varint, with,
};

#[test]
fn a_request_with_the_end_of_its_stream_has_no_body() {
    let mut server = Server::open(Some(3));
    server.feed(0, &headers(GET), true);
    assert_eq!(server.seen.requests[&0], "GET /a?b host=h:1");
    assert_eq!(server.engine.open_streams(), 0);
    let sent = frames(&server.out[&0]);
    assert_eq!((sent[0].0, &sent[1]), (kind::HEADERS, &(kind::DATA, b"xxx".to_vec())));
    // The end may arrive by itself.
    server.feed(4, &headers(GET), false);
    assert_eq!(server.engine.open_streams(), 1);
    assert!(server.engine.may_receive(4));
    server.feed(4, b"", true);
    assert_eq!((server.engine.open_streams(), server.seen.failure), (0, None));
}

#[test]
fn a_body_reaches_the_handler_with_its_trailers() {
    for is_late in [false, true] {
        let mut server = Server::open(None);
        server.feed(0, &headers(&with(POST, &[("content-length", "6")])), false);
        server.feed(0, &[data(b"abc"), frame(0x21, b"grease"), data(b"def")].concat(), false);
        server.feed(0, &headers(&[("x", "y")]), !is_late);
        if is_late {
            assert!(!server.seen.bodies[&0].1);
            server.feed(0, &frame(0x40, b""), true);
        }
        assert_eq!(server.seen.bodies[&0], (b"abcdef".to_vec(), true));
        assert_eq!(server.seen.trailers[&0].as_bytes(), b"x: y\r\n");
        assert!(server.engine.take_trailers(0).is_empty());
        server.respond(0, 3);
        assert_eq!((server.engine.open_streams(), server.seen.failure), (0, None));
    }
}

#[test]
fn an_extended_connect_is_a_request_whose_stream_stays_open() {
    let mut server = Server::open(None);
    let announced = server.sent(OwnStream::Control);
    let expected = [
        (setting::QPACK_MAX_TABLE_CAPACITY, 4096),
        (setting::QPACK_BLOCKED_STREAMS, 16),
        (setting::MAX_FIELD_SECTION_SIZE, 32 * 1024),
        (setting::ENABLE_CONNECT_PROTOCOL, 1),
    ];
    assert_eq!(announced, control(&expected), "RFC 9220 §3");
    server.feed(0, &headers(&tunnel("", "")), false);
    assert_eq!(server.seen.requests[&0], "CONNECT /chat?a host=h:1");
    let request = Request::new(&server.text, &server.head);
    assert_eq!(request.method(), Method::ExtendedConnect);
    assert_eq!(request.protocol(), Some(&b"websocket"[..]));
    server.feed(0, &data(b"up"), false);
    let mut out = Vec::new();
    server.engine.respond(0, &plain(200), false, &mut out);
    server.feed(0, b"", true);
    assert_eq!(server.seen.bodies[&0], (b"up".to_vec(), true));
    assert_eq!(server.engine.send_data(0, 4, true).unwrap().as_bytes(), [0, 4]);
    assert_eq!((server.engine.open_streams(), server.seen.failure), (0, None));
    // The next request is no longer one.
    server.feed(4, &headers(GET), true);
    assert_eq!(Request::new(&server.text, &server.head).protocol(), None);
}

#[test]
fn a_malformed_request_is_reset_and_the_next_is_served() {
    for (what, fields) in malformed() {
        let mut server = Server::open(Some(1));
        server.feed(0, &headers(&fields), true);
        assert!(server.seen.requests.is_empty(), "{what}");
        // It is reported with what could be read of it.
        let [(0, Http3ErrorCode::MessageError, seen)] = &server.seen.malformed[..] else {
            panic!("{what}: {:?}", server.seen);
        };
        let paths: Vec<_> = fields.iter().filter(|(name, _)| *name == ":path").collect();
        if let [(_, path)] = paths[..] {
            assert!(seen.is_empty() || seen == path, "{what}: {seen}");
        }
        assert_eq!(server.engine.open_streams(), 0);
        server.feed(4, &headers(GET), true);
        assert_eq!(server.seen.requests.len(), 1, "{what}");
    }
}

#[test]
fn unusual_but_valid_forms_are_served() {
    for (fields, line) in unusual() {
        let mut server = Server::open(Some(0));
        server.feed(0, &headers(&fields), true);
        assert_eq!(server.seen.requests[&0], line);
        assert_eq!(server.seen.failure, None);
    }
}

#[test]
fn requests_beyond_a_limit_are_rejected_and_the_next_is_served() {
    let large = "v".repeat(70_000);
    let long = format!("/{}", "a".repeat(9_000));
    for (what, status, fields) in [
        ("a scheme that is not served", 400, replaced(":scheme", "ftp")),
        ("a head that is too large once it is decoded", 431, with(GET, &[("x", &large[..33_000])])),
        ("a section that is not even decoded", 431, with(GET, &[("x", &large)])),
        ("too many fields", 431, with(GET, &[("x", "y"); 200])),
        ("a long target", 414, replaced(":path", &long)),
    ] {
        for size in [usize::MAX, 1000] {
            let mut server = Server::open(None);
            let request = headers(&fields);
            let count = request.len().div_ceil(size);
            for (number, piece) in request.chunks(size.min(request.len())).enumerate() {
                server.feed(0, piece, number + 1 == count);
            }
            assert_eq!(server.seen.rejected, [(0, status)], "{what}");
            assert_eq!(server.engine.open_streams(), 0, "{what}");
            server.feed(4, &headers(GET), true);
            assert_eq!((server.seen.requests.len(), server.seen.failure), (1, None), "{what}");
        }
    }
}

#[test]
fn bodies_must_have_the_stated_length() {
    for (pieces, is_kept) in [
        (vec![("abc", false), ("def", true)], true),
        (vec![("abc", false), ("def", false), ("", true)], true),
        (vec![("abcdefg", false)], false),
        (vec![("abc", true)], false),
        (vec![("abc", false), ("", true)], false),
    ] {
        let mut server = Server::open(None);
        server.feed(0, &headers(&with(POST, &[("content-length", "6")])), false);
        for (bytes, ended) in &pieces {
            let bytes = if bytes.is_empty() { Vec::new() } else { data(bytes.as_bytes()) };
            server.feed(0, &bytes, *ended);
        }
        if is_kept {
            assert_eq!(server.seen.bodies[&0], (b"abcdef".to_vec(), true));
        } else {
            assert_eq!(server.seen.resets, [(0, Http3ErrorCode::MessageError)]);
        }
        assert_eq!(server.seen.failure, None);
    }
    // Trailers do not make up for it.
    let mut server = Server::open(None);
    server.feed(0, &headers(&with(POST, &[("content-length", "6")])), false);
    server.feed(0, &headers(&[("a", "b")]), true);
    assert_eq!(server.seen.resets, [(0, Http3ErrorCode::MessageError)]);
}

#[test]
fn malformed_trailers_reset_the_stream() {
    for trailers in [[(":path", "/")], [("Capital", "x")], [("connection", "close")]] {
        let mut server = Server::open(None);
        server.feed(0, &[headers(POST), headers(&trailers)].concat(), true);
        assert_eq!(server.seen.resets, [(0, Http3ErrorCode::MessageError)]);
        assert_eq!(server.seen.failure, None);
    }
    // Large ones are discarded.
    let mut server = Server::open(None);
    server.feed(0, &[headers(POST), headers(&[("x", &"v".repeat(33_000))])].concat(), true);
    assert!(server.seen.bodies[&0].1 && server.seen.trailers.is_empty());
    server.feed(4, &[headers(POST), headers(&[("x", &"v".repeat(70_000))])].concat(), true);
    assert!(server.seen.bodies[&4].1 && server.seen.trailers.is_empty());
    assert_eq!((server.seen.failure, server.seen.resets), (None, vec![]));
}

#[test]
fn a_stream_without_a_whole_request_is_incomplete() {
    for bytes in [vec![], frame(0x21, b"grease")] {
        let mut server = Server::open(None);
        server.feed(0, &bytes, true);
        let expected = (0, Http3ErrorCode::RequestIncomplete, String::new());
        assert_eq!((server.seen.failure, &server.seen.malformed[..]), (None, &[expected][..]));
    }
}

#[test]
fn streams_may_arrive_in_any_order() {
    let mut server = Server::open(Some(1));
    for stream in [8, 0, 12, 4] {
        server.feed(stream, &headers(GET), true);
    }
    assert_eq!(server.seen.requests.len(), 4);
    // A stream that is complete is not opened again.
    server.feed(0, &headers(GET), true);
    assert_eq!((server.seen.requests.len(), server.seen.failure), (4, None));
}

#[test]
fn priorities_arrive_before_and_after_their_requests() {
    let mut server = Server::open(None);
    let update = |stream, value: &[u8]| {
        frame(kind::PRIORITY_UPDATE, &[varint(stream), value.to_vec()].concat())
    };
    server.feed(CONTROL, &update(8, b"u=0"), false);
    for stream in [0, 4, 8, 12] {
        server.feed(stream, &headers(&with(GET, &[("priority", "u=4, i")])), true);
        let mut out = Vec::new();
        server.engine.respond(stream, &plain(200), false, &mut out);
        server.engine.set_ready(stream, true);
    }
    assert_eq!(server.engine.next_to_send(), Some(8));
    server.engine.set_blocked(8, true);
    // Incremental responses take turns.
    for expected in [0, 4, 12, 0] {
        assert_eq!(server.engine.next_to_send(), Some(expected));
        server.engine.send_data(expected, 10, false);
    }
    server.feed(CONTROL, &update(12, b"u=1"), false);
    assert_eq!(server.engine.next_to_send(), Some(12));
    server.engine.set_blocked(8, false);
    assert_eq!(server.engine.next_to_send(), Some(8));
    server.engine.set_ready(8, false);
    server.engine.send_data(12, 10, true);
    assert_eq!(server.engine.next_to_send(), Some(4));
}

#[test]
fn requests_that_the_client_gives_up_are_reported_once() {
    let mut server = Server::open(None);
    for stream in [0, 4, 8] {
        server.feed(stream, &headers(POST), false);
    }
    assert_eq!(server.engine.reset_received(0), Ok(true));
    assert_eq!(server.engine.stop_received(0), Ok(false));
    assert_eq!(server.engine.stop_received(4), Ok(true));
    assert_eq!(server.engine.reset_received(4), Ok(false));
    // The client's encoder does not wait for acknowledgements.
    assert_eq!(server.sent(OwnStream::Decoder), [3, 0x40, 0x44]);
    // A stream that is reset before any of its bytes.
    server.feed(20, &headers(GET), true);
    assert_eq!(server.engine.reset_received(16), Ok(false));
    server.feed(16, &headers(GET), true);
    assert!(!server.seen.requests.contains_key(&16));
    assert!(server.engine.cancel(8) && !server.engine.cancel(8));
    assert_eq!(server.engine.open_streams(), 1);
    let mut out = Vec::new();
    assert!(!server.engine.respond(8, &plain(200), true, &mut out));
    assert_eq!(server.engine.send_data(8, 1, false), None);
    server.engine.send_interim(8, &plain(103), &mut out);
    server.engine.send_trailers(8, b"a: b\r\n", &mut out);
    assert!(out.is_empty());
}

#[test]
fn the_rest_of_a_request_is_discarded_and_then_stopped() {
    let mut server = Server::open(Some(1));
    server.feed(0, &headers(POST), false);
    server.feed(0, &data(&[b'x'; 60_000]), false);
    assert_eq!((server.seen.stops.len(), server.engine.open_streams()), (0, 1));
    server.feed(0, &data(&[b'x'; 6_000]), false);
    assert_eq!(server.seen.stops, [(0, Http3ErrorCode::NoError)]);
    server.feed(4, &[headers(POST), data(b"all")].concat(), true);
    assert_eq!((server.engine.open_streams(), server.seen.bodies.len()), (0, 0));
    assert_eq!((server.seen.stops.len(), server.seen.failure), (1, None));
}

#[test]
fn a_field_is_found_by_its_name_and_cookies_are_joined() {
    let mut server = Server::open(None);
    let fields =
        [("accept-encoding", "br"), ("cookie", "a=1"), ("cookie", "b=2"), ("if-match", "*")];
    server.feed(0, &headers(&with(GET, &fields)), true);
    let request = Request::new(&server.text, &server.head);
    assert_eq!(request.field(FieldName::Host), Some(&b"h:1"[..]));
    assert_eq!(request.field(FieldName::AcceptEncoding), Some(&b"br"[..]));
    assert_eq!(request.field(FieldName::IfMatch), Some(&b"*"[..]));
    assert_eq!(request.cookies().unwrap().as_ref(), b"a=1; b=2");
    assert_eq!(request.version().as_str(), "HTTP/3.0");
    // Settings may follow a request.
    let mut server = Server::new(Some(1));
    server.feed(0, &headers(GET), true);
    server.feed(CONTROL, &[vec![0], settings(&[(0x1f * 7 + 0x21, 5)])].concat(), false);
    assert_eq!((server.seen.requests.len(), server.seen.failure), (1, None));
}
