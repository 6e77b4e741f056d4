//! Limits: concurrent streams and abuse.

use dunlin_http::http2::Http2ErrorCode;
use dunlin_http::http2::frame::{flag, kind};
use dunlin_http::http2::hpack::{HpackEncoder, Indexing};

use crate::support::{GET, POST, Server, data, frame, headers, reset, section, settings, window};

#[test]
fn streams_beyond_the_limit_are_rejected() {
    let mut server = Server::open(None);
    for number in 0..11 {
        server.feed(&headers(2 * number + 1, GET, true));
    }
    assert_eq!(server.seen.requests.len(), 10);
    server.reset_with(21, Http2ErrorCode::RefusedStream);
}

#[test]
fn each_abuse_ends_the_connection_with_a_reason_that_names_it() {
    let post = |number: u32| headers(2 * number + 1, POST, false);
    // An entry that fills the table, and then one byte for each reference to it.
    let (mut encoder, mut entry) = (HpackEncoder::default(), section(GET));
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
        let reason = server.failed_with(Http2ErrorCode::EnhanceYourCalm);
        assert!(reason.contains(name), "{name}: {reason}");
    }
}

#[test]
fn many_ordinary_requests_are_no_abuse() {
    let mut server = Server::open(Some(10));
    for number in 0..5_000 {
        let stream = 2 * number + 1;
        server.feed(&headers(stream, GET, true));
        server.feed(&window(0, 10));
        server.feed(&frame(kind::PRIORITY_UPDATE, 0, 0, b"\0\0\0\x01u=1"));
        // Too late: the response is complete.
        server.feed(&reset(stream));
        server.out.clear();
        assert_eq!(server.seen.failure, None);
    }
}
