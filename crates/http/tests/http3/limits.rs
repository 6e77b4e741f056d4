//! Limits: concurrent streams, bytes that are held, and abuse.

use dunlin_http::http3::frame::kind;
use dunlin_http::http3::{Http3ErrorCode, OwnStream};

use crate::support::{
    CONTROL, DECODER, ENCODER, GET, POST, Server, data, frame, header, headers, section, varint,
};

#[test]
fn streams_beyond_the_limit_are_rejected() {
    let mut server = Server::open(None);
    for number in 0..11 {
        server.feed(4 * number, &headers(GET), true);
    }
    assert_eq!(server.seen.requests.len(), 10);
    assert_eq!(server.seen.resets, [(40, Http3ErrorCode::RequestRejected)]);
    let mut server = Server::open(None);
    server.feed(4 * 1025, &headers(GET), true);
    assert!(server.failed_with(Http3ErrorCode::ExcessiveLoad).contains("without bytes"));
}

#[test]
fn incomplete_sections_are_bounded() {
    let mut server = Server::open(None);
    let start = [header(kind::HEADERS, 60_000), vec![0; 40_000]].concat();
    for number in 0..6 {
        server.feed(4 * number, &start, false);
    }
    assert_eq!(server.engine.held(), 240_000);
    assert!(server.engine.awaits_head());
    // What is given up is not held.
    for number in 0..6 {
        assert_eq!(server.engine.reset_received(4 * number), Ok(true));
    }
    assert_eq!((server.engine.held(), server.engine.awaits_head()), (0, false));
    for number in 6..13 {
        server.feed(4 * number, &start, false);
    }
    assert!(server.failed_with(Http3ErrorCode::ExcessiveLoad).contains("incomplete"));
}

#[test]
fn blocked_streams_are_bounded() {
    let mut server = Server::open(None);
    let blocked = frame(kind::HEADERS, &[&[2, 0, 0x80], &section(GET)[2..]].concat());
    for number in 0..8 {
        server.feed(4 * number, &blocked, true);
    }
    assert_eq!((server.seen.failure, server.blocked.len()), (None, 8));
    server.feed(ENCODER, &[&[2][..], &[0x3f, 0xe1, 0x1f], b"\x41a\x01b"].concat(), false);
    // The entry is a field before the pseudo-fields.
    assert_eq!((server.seen.malformed.len(), server.engine.held()), (8, 0));
    let mut server = Server::open(None);
    for number in 0..10 {
        server.feed(4 * number, &blocked, true);
        server.engine.cancel(4 * number);
        server.blocked.clear();
    }
    assert_eq!((server.seen.failure, server.engine.held()), (None, 0));
}

#[test]
fn each_abuse_ends_the_connection_with_a_reason_that_names_it() {
    let post = headers(POST);
    // An entry that fills the table, and then one byte for each reference to it.
    let insertion =
        [&[2, 0x3f, 0xe1, 0x1f, 0x41, b'x', 0x7f, 0xa1, 0x1e][..], &[b'v'; 4000]].concat();
    let bomb = frame(kind::HEADERS, &[&[2, 0][..], &section(GET)[2..], &[0x80; 20]].concat());
    let requests = |count: u64| 4 * count;
    type Next = Box<dyn Fn(u64) -> Vec<(u64, Vec<u8>)>>;
    let cases: [(&str, Next); 8] = [
        (
            "made you reset",
            Box::new(move |n| {
                vec![(requests(n), [headers(POST), headers(&[(":path", "/")])].concat())]
            }),
        ),
        (
            "HPACK bomb",
            Box::new(move |n| match n {
                0 => vec![(ENCODER, insertion.clone())],
                n => vec![(requests(n - 1), bomb.clone())],
            }),
        ),
        ("HPACK bomb", Box::new(move |n| vec![(requests(n), header(kind::HEADERS, 100_000))])),
        ("priority", Box::new(|_| vec![(CONTROL, frame(kind::PRIORITY_UPDATE, &varint(4)))])),
        ("empty", Box::new(|_| vec![(CONTROL, frame(0x21, b""))])),
        ("empty", Box::new(move |n| vec![(0, if n == 0 { post.clone() } else { data(b"") })])),
        ("empty", Box::new(|n| vec![(4 * n + 14, varint(0x21))])),
        (
            "insertions",
            Box::new(|n| match n {
                0 => vec![(ENCODER, b"\x02\x3f\xe1\x1f\x41a\x01b".to_vec())],
                _ => vec![(ENCODER, vec![0; 10])],
            }),
        ),
    ];
    for (name, next) in cases {
        let mut server = Server::open(None);
        let end = (0..10_000).find(|number| {
            for (stream, bytes) in next(*number) {
                server.feed(stream, &bytes, false);
            }
            if stream_is_full(&server) {
                (0..*number).for_each(|number| {
                    server.engine.cancel(4 * number);
                });
            }
            server.seen.failure.is_some()
        });
        assert!(end.is_some_and(|end| (5..2_100).contains(&end)), "{name}: {end:?}");
        let reason = server.failed_with(Http3ErrorCode::ExcessiveLoad);
        assert!(reason.contains(name), "{name}: {reason}");
        assert!(server.seen.failure.unwrap().is_abuse());
    }
}

fn stream_is_full(server: &Server) -> bool {
    server.engine.open_streams() >= 9
}

#[test]
fn resets_of_requests_and_idle_cancellations_are_bounded() {
    let mut server = Server::open(None);
    let end = (0..1000).find(|number| {
        server.feed(4 * number, &headers(POST), false);
        server.engine.reset_received(4 * number).is_err()
    });
    assert_eq!(end, Some(200));
    // Requests of which nothing was read, not all of them in order. The second frame about each counts no more.
    let mut server = Server::open(None);
    let end = (0..1000_u64).map(|number| 4 * (number ^ 1)).position(|stream| {
        let is_reset = server.engine.reset_received(stream).is_err();
        is_reset || server.engine.stop_received(stream).is_err()
    });
    assert_eq!(end, Some(200));
    let mut server = Server::open(None);
    server.feed(DECODER, &[3], false);
    server.feed(DECODER, &[0x40; 1000], false);
    assert!(server.failed_with(Http3ErrorCode::ExcessiveLoad).contains("empty"));
}

#[test]
fn a_decoder_stream_that_is_not_received_ends_the_connection() {
    let mut server = Server::open(Some(1));
    server.feed(ENCODER, b"\x02\x3f\xe1\x1f\x41a\x01b", false);
    let request = frame(kind::HEADERS, &[&[2, 0][..], &section(GET)[2..], &[0x80]].concat());
    let end = (0..100_000).find(|number| {
        server.feed(4 * number, &request, true);
        server.out.clear();
        server.seen.requests.clear();
        server.seen.bodies.clear();
        server.seen.failure.is_some()
    });
    assert!(end.is_some());
    assert!(server.failed_with(Http3ErrorCode::ExcessiveLoad).contains("not received"));
    assert!(server.sent(OwnStream::Decoder).len() <= 65 * 1024);
}

#[test]
fn many_ordinary_requests_are_no_abuse() {
    let mut server = Server::open(Some(10));
    for number in 0..5_000 {
        let stream = 4 * number;
        server.feed(CONTROL, &frame(kind::PRIORITY_UPDATE, &varint(stream)), false);
        server.feed(stream, &[headers(GET), frame(0x21, b"grease")].concat(), true);
        // Too late: the response is complete.
        assert_eq!(server.engine.stop_received(stream), Ok(false));
        server.sent(OwnStream::Decoder);
        assert_eq!(server.seen.failure, None);
    }
    assert_eq!((server.seen.requests.len(), server.engine.open_streams()), (5_000, 0));
}
