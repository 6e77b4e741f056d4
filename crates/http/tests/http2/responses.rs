//! Response heads, interim responses and graceful shutdown.

use dunlin_http::http2::OutgoingHead;
use dunlin_http::http2::frame::{flag, kind};
use dunlin_http::http2::hpack::HpackDecoder;

use crate::support::{GET, Server, frame, headers};

#[test]
fn repeated_heads_shrink_and_change_with_the_date() {
    let mut server = Server::open(None);
    let lines = b"Content-Type: text/plain\r\nETag: \"a\"\r\nContent-Length: 5\r\nX-Own: y\r\nConnection: close\r\nSet-Cookie: secret\r\n";
    let mut decoder = HpackDecoder::default();
    let mut lengths = Vec::new();
    for number in 0..8_u32 {
        let stream = 2 * number + 1;
        server.feed(&headers(stream, GET, true));
        server.out.clear();
        let date: &[u8] = if number < 6 { b"one" } else { b"two" };
        let head = OutgoingHead { status: 200, date, lines, serial: 7 };
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
    // All fields but the secret one take one byte each; then the date changes.
    assert!(lengths[5] < 20 && lengths[5] == lengths[4], "{lengths:?}");
    assert!(lengths[6] > lengths[5] && lengths[7] == lengths[5], "{lengths:?}");
}

#[test]
fn a_large_head_is_sent_in_several_frames_and_hints_before_it() {
    let mut server = Server::open(None);
    server.feed(&headers(1, GET, true));
    server.out.clear();
    let hints = OutgoingHead { status: 103, date: b"", lines: b"Link: </a>\r\n", serial: 0 };
    server.engine.send_interim(1, &hints, &mut server.out);
    let lines = format!("X: {}\r\n", "\u{1}".repeat(20_000));
    let head = OutgoingHead { status: 200, date: b"", lines: lines.as_bytes(), serial: 0 };
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
    // Nothing is sent on a stream that has ended.
    assert!(!server.engine.respond(1, &head, true, &mut server.out));
    server.engine.send_interim(1, &hints, &mut server.out);
    assert!(server.out.is_empty());
}

#[test]
fn a_graceful_shutdown_has_two_steps() {
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
