//! The receiver of WebSocket frames, fed in one piece and at every split.

use dunlin_http::websocket::frame::code;
use dunlin_http::websocket::{Receiver, WebSocketEvent};
use proptest::prelude::*;

const MAX: u64 = 1_000;
const TEXT: u8 = 1;
const BINARY: u8 = 2;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;
const FIN: u8 = 0x80;

/// The events of a receiver, with the parts of messages joined.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Found {
    Text(Vec<u8>),
    Binary(Vec<u8>),
    Ping(Vec<u8>),
    Pong,
    Close(u16, String),
    Violation(u16),
}

/// Returns a client's frame.
fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mask = [7, 99, 200, 31];
    let mut bytes = vec![first];
    match payload.len() {
        length @ ..126 => bytes.push(0x80 | length as u8),
        length @ ..65_536 => {
            bytes.push(0x80 | 126);
            bytes.extend((length as u16).to_be_bytes());
        }
        length => {
            bytes.push(0x80 | 127);
            bytes.extend((length as u64).to_be_bytes());
        }
    }
    bytes.extend(mask);
    bytes.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
    bytes
}

fn receive<'a>(parts: impl Iterator<Item = &'a [u8]>, max: u64) -> Vec<Found> {
    let (mut receiver, mut found, mut message) = (Receiver::new(max), Vec::new(), Vec::new());
    for part in parts {
        let (mut input, mut at) = (part.to_vec(), 0);
        loop {
            match receiver.next(&mut input, &mut at) {
                Ok(WebSocketEvent::More) => break,
                Ok(WebSocketEvent::Data { data, is_text, is_end }) => {
                    assert!(is_end || !data.is_empty());
                    message.extend_from_slice(&input[data]);
                    if is_end {
                        let message = std::mem::take(&mut message);
                        found.push(if is_text {
                            Found::Text(message)
                        } else {
                            Found::Binary(message)
                        });
                    }
                }
                Ok(WebSocketEvent::Ping(payload)) => found.push(Found::Ping(payload.to_vec())),
                Ok(WebSocketEvent::Pong) => found.push(Found::Pong),
                Ok(WebSocketEvent::Close { code, reason }) => {
                    found.push(Found::Close(code, reason.into()));
                }
                Err(violation) => found.push(Found::Violation(violation.code)),
            }
        }
        assert_eq!(at, input.len());
    }
    found
}

/// Feeds the bytes in one piece, byte by byte, and in two pieces cut anywhere.
#[track_caller]
fn check(bytes: &[u8], expected: &[Found]) {
    assert_eq!(receive([bytes].into_iter(), MAX), expected);
    assert_eq!(receive(bytes.chunks(1), MAX), expected);
    for cut in 1..bytes.len() {
        let (first, second) = bytes.split_at(cut);
        assert_eq!(receive([first, second].into_iter(), MAX), expected, "cut at {cut}");
    }
}

#[test]
fn messages_arrive_whole_however_they_are_fragmented() {
    check(&frame(FIN | TEXT, b""), &[Found::Text(b"".to_vec())]);
    check(&frame(FIN | BINARY, &[b'x'; 200]), &[Found::Binary(vec![b'x'; 200])]);
    let fragments = [
        frame(TEXT, b"He"),
        frame(FIN | PING, b"a ping"),
        frame(0, b""),
        frame(FIN | PONG, b"unasked"),
        frame(FIN, b"llo"),
        frame(FIN | BINARY, b"\xff"),
    ];
    let expected = [
        Found::Ping(b"a ping".to_vec()),
        Found::Pong,
        Found::Text(b"Hello".to_vec()),
        Found::Binary(b"\xff".to_vec()),
    ];
    check(&fragments.concat(), &expected);
    let empty = [frame(TEXT, b""), frame(0, b""), frame(FIN, b"")].concat();
    check(&empty, &[Found::Text(Vec::new())]);
}

#[test]
fn what_breaks_the_protocol_is_found_at_once_and_nothing_follows() {
    let unmasked = vec![FIN | TEXT, 1, b'x'];
    let longer = vec![FIN | TEXT, 0x80 | 126, 0, 125, 0, 0, 0, 0];
    let longest = [&[FIN | TEXT, 0x80 | 127][..], &(1_u64 << 63).to_be_bytes(), &[0; 4]].concat();
    let not_minimal = [&[FIN | TEXT, 0x80 | 127][..], &65_535_u64.to_be_bytes(), &[0; 4]].concat();
    let cases: Vec<(&str, Vec<u8>, u16)> = vec![
        ("a reserved bit", frame(FIN | 0x40 | TEXT, b"x"), code::PROTOCOL_ERROR),
        ("another one", frame(FIN | 0x20 | PING, b"x"), code::PROTOCOL_ERROR),
        ("the third", frame(FIN | 0x10 | BINARY, b"x"), code::PROTOCOL_ERROR),
        ("a reserved opcode", frame(FIN | 3, b""), code::PROTOCOL_ERROR),
        ("a reserved control opcode", frame(FIN | 11, b""), code::PROTOCOL_ERROR),
        ("no mask", unmasked, code::PROTOCOL_ERROR),
        ("a fragmented ping", frame(PING, b""), code::PROTOCOL_ERROR),
        ("a long ping", frame(FIN | PING, &[0; 126]), code::PROTOCOL_ERROR),
        ("a long close", frame(FIN | CLOSE, &[3; 126]), code::PROTOCOL_ERROR),
        ("a continuation of nothing", frame(FIN, b"x"), code::PROTOCOL_ERROR),
        (
            "a message in another",
            [frame(TEXT, b"x"), frame(FIN | TEXT, b"x")].concat(),
            code::PROTOCOL_ERROR,
        ),
        ("a length that is too long", longer, code::PROTOCOL_ERROR),
        ("a length with the highest bit", longest, code::PROTOCOL_ERROR),
        ("a long length in the longest form", not_minimal, code::PROTOCOL_ERROR),
        ("half a code", frame(FIN | CLOSE, b"\x03"), code::PROTOCOL_ERROR),
        ("a reason that is not UTF-8", frame(FIN | CLOSE, b"\x03\xe8\xff"), code::INVALID_DATA),
        ("a text that is not UTF-8", frame(FIN | TEXT, b"a\xffb"), code::INVALID_DATA),
        ("a text that ends in a character", frame(FIN | TEXT, b"\xe2\x82"), code::INVALID_DATA),
        (
            "a surrogate in fragments",
            [frame(TEXT, b"\xed"), frame(0, b"\xa0")].concat(),
            code::INVALID_DATA,
        ),
        ("a message beyond the limit", frame(FIN | BINARY, &[0; MAX as usize + 1]), code::TOO_BIG),
        (
            "fragments beyond the limit",
            [frame(BINARY, &[0; MAX as usize]), frame(FIN, b"x")].concat(),
            code::TOO_BIG,
        ),
    ];
    for (what, bytes, code) in cases {
        let bytes = [bytes, frame(FIN | TEXT, b"behind")].concat();
        for size in [usize::MAX, 1, 3] {
            let found = receive(bytes.chunks(size.min(bytes.len())), MAX);
            assert_eq!(found, [Found::Violation(code)], "{what}");
        }
    }
}

#[test]
fn codes_of_close_frames_are_checked() {
    check(&frame(FIN | CLOSE, b""), &[Found::Close(code::NO_STATUS, String::new())]);
    for number in (0..=5_100).chain([u16::MAX]) {
        let bytes = frame(FIN | CLOSE, &[&number.to_be_bytes()[..], b"why"].concat());
        let is_valid = matches!(number, 1000..=1003 | 1007..=1014 | 3000..=4999);
        let expected = match is_valid {
            true => Found::Close(number, "why".into()),
            false => Found::Violation(code::PROTOCOL_ERROR),
        };
        assert_eq!(receive([&bytes[..]].into_iter(), MAX), [expected], "{number}");
    }
    let behind = [frame(FIN | CLOSE, b"\x03\xe8"), frame(FIN | TEXT, b"behind")].concat();
    check(&behind, &[Found::Close(code::NORMAL, String::new())]);
}

#[test]
fn a_message_of_the_largest_size_is_accepted() {
    let bytes = frame(FIN | BINARY, &[1; MAX as usize]);
    assert_eq!(receive([&bytes[..]].into_iter(), MAX), [Found::Binary(vec![1; MAX as usize])]);
    let large = vec![5; 70_000];
    let bytes = frame(FIN | BINARY, &large);
    assert_eq!(receive(bytes.chunks(999), 70_000), [Found::Binary(large)]);
}

proptest! {
    #[test]
    fn any_input_gives_the_same_events_at_every_split(
        mut bytes in proptest::collection::vec(any::<u8>(), 0..60),
        texts in proptest::collection::vec(".{0,10}", 0..4),
        size in 1_usize..20,
    ) {
        let mut input: Vec<u8> = texts.iter().flat_map(|text| frame(FIN | TEXT, text.as_bytes())).collect();
        input.append(&mut bytes);
        let whole = receive([&input[..]].into_iter(), MAX);
        prop_assert_eq!(&receive(input.chunks(size), MAX), &whole);
        prop_assert!(whole.len() >= texts.len());
        if let Some(text) = texts.first() {
            prop_assert_eq!(whole.first(), Some(&Found::Text(text.as_bytes().to_vec())));
        }
    }
}

#[test]
fn the_receiver_of_an_idle_connection_is_small() {
    assert!(size_of::<Receiver>() <= 128);
}
