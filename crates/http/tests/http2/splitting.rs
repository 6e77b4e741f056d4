//! Input gives the same result however it is split.

use dunlin_http::http2::Http2ErrorCode;
use dunlin_http::http2::frame::{flag, kind, setting, write_goaway, write_ping};
use proptest::prelude::*;

use crate::support::{
    GET, POST, Server, data, frame, frames, headers, preface, reset, section, settings, window,
    with,
};

/// Returns a conversation with every kind of frame.
fn conversation() -> Vec<u8> {
    let whole = section(&with(POST, &[("content-length", "9"), ("te", "trailers")]));
    let mut ping = Vec::new();
    write_ping(*b"12345678", false, &mut ping);
    let mut goaway = Vec::new();
    write_goaway(0, Http2ErrorCode::NoError, "bye", &mut goaway);
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
fn a_conversation_gives_the_same_events_at_every_split() {
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
    assert_eq!(whole.seen.rejected, [(7, 431)]);
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

proptest! {
    #[test]
    fn any_frames_give_the_same_result_at_every_split(
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
