//! Input gives the same result however it is split.

use dunlin_http::http3::OwnStream;
use dunlin_http::http3::frame::{kind, setting};
use proptest::prelude::*;

use crate::support::{
    CONTROL, DECODER, ENCODER, GET, POST, Seen, Server, control, data, frame, headers, section,
    varint, with,
};

/// Bytes of streams, and whether each stream ends with them.
type Streams = Vec<(u64, Vec<u8>, bool)>;

/// Returns a conversation with every kind of frame, stream by stream.
fn conversation() -> Streams {
    let large = headers(&with(GET, &[("x", &"v".repeat(40_000))]));
    let waiting = [&[3, 0][..], &section(POST)[2..], &[0x80, 0x81]].concat();
    let body = [("content-length", "9"), ("te", "trailers")];
    vec![
        (CONTROL, control(&[(setting::QPACK_MAX_TABLE_CAPACITY, 0), (0x21, 1 << 50)]), false),
        (0, headers(GET), true),
        (
            4,
            [
                headers(&with(POST, &body)),
                data(b"abc"),
                frame(0x40 * 0x1f + 0x21, b"unknown"),
                data(b"defghi"),
                headers(&[("trailer", "x")]),
                frame(0x21, b""),
            ]
            .concat(),
            true,
        ),
        (8, [frame(kind::HEADERS, &waiting), data(b"late")].concat(), true),
        (DECODER, vec![3], false),
        (ENCODER, b"\x02\x3f\xe1\x1f\x41a\x01b\x00".to_vec(), false),
        (
            CONTROL,
            [
                frame(kind::PRIORITY_UPDATE, &[varint(12), b"u=1".to_vec()].concat()),
                frame(kind::MAX_PUSH_ID, &varint(1000)),
                frame(0xf, b"unknown"),
                frame(kind::GOAWAY, &varint(70_000)),
            ]
            .concat(),
            false,
        ),
        (12, large, true),
        (16, [headers(&with(POST, &[("content-length", "2")])), data(b"abc")].concat(), true),
        (20, headers(&[(":method", "GET")]), true),
    ]
}

/// Feeds streams in pieces that end at the positions `cuts`.
fn run(streams: &Streams, is_cut: impl Fn(usize) -> bool) -> (Seen, Vec<Vec<u8>>) {
    let (mut server, mut position) = (Server::new(Some(10)), 0);
    for (stream, bytes, is_end) in streams {
        let mut start = 0;
        for end in 1..bytes.len() {
            position += 1;
            if is_cut(position) {
                server.feed(*stream, &bytes[start..end], false);
                start = end;
            }
        }
        server.feed(*stream, &bytes[start..], *is_end);
    }
    let mut sent: Vec<_> = std::mem::take(&mut server.out).into_values().collect();
    sent.extend(OwnStream::ALL.map(|stream| server.sent(stream)));
    (server.seen, sent)
}

#[test]
fn a_conversation_gives_the_same_events_at_every_split() {
    let streams = conversation();
    let whole = run(&streams, |_| false);
    assert_eq!(whole.0.failure, None);
    let requests: Vec<_> = whole.0.requests.values().map(String::as_str).collect();
    assert_eq!(
        requests,
        [
            "GET /a?b host=h:1",
            "POST /p host=h content-length=9 te=trailers",
            "POST /p host=h a=b a=b",
            "POST /p host=h content-length=2",
        ]
    );
    assert_eq!((whole.0.rejected.len(), whole.0.stops.len(), whole.0.malformed.len()), (1, 1, 1));
    let length: usize = streams.iter().map(|stream| stream.1.len()).sum();
    for cut in (0..length).filter(|cut| *cut < 600 || cut % 997 == 0) {
        assert_eq!(run(&streams, |position| position == cut), whole, "split at {cut}");
    }
    assert_eq!(run(&streams, |_| true), whole);
}

proptest! {
    #[test]
    fn any_frames_give_the_same_result_at_every_split(
        parts in proptest::collection::vec(
            (
                0..12_u64,
                prop_oneof![0..16_u64, Just(0x21), Just(kind::PRIORITY_UPDATE)],
                proptest::collection::vec(any::<u8>(), 0..40),
                0..8_u8,
            ),
            0..30,
        ),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut streams: Streams = vec![(CONTROL, control(&[]), false)];
        for (number, (stream, frame_kind, payload, choice)) in parts.into_iter().enumerate() {
            let stream = match stream {
                0 => CONTROL,
                1 => ENCODER,
                2 => DECODER,
                3 => 14,
                stream => 4 * (stream - 4) + if choice < 4 { 4 * (number as u64 % 20) } else { 0 },
            };
            let bytes = match choice {
                0..4 => headers(if choice & 1 == 0 { GET } else { POST }),
                4 => payload,
                _ => frame(frame_kind, &payload),
            };
            let is_end = stream & 2 == 0 && choice & 1 == 1;
            let has_ended = streams.iter().any(|other| other.0 == stream && other.2);
            if !has_ended {
                streams.push((stream, bytes, is_end));
            }
        }
        let whole = run(&streams, |_| false);
        let length: usize = streams.iter().map(|stream| stream.1.len()).sum();
        let cut = cut.index(length + 1);
        let split = run(&streams, |position| position == cut);
        prop_assert_eq!(split, whole);
    }
}
