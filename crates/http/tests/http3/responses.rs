//! Response heads, interim responses, bodies and graceful shutdown.

use dunlin_http::http3::frame::{kind, setting};
use dunlin_http::http3::qpack::{Decoded, QpackDecoder};
use dunlin_http::http3::{Http3ErrorCode, OutgoingHead, OwnStream};

use crate::support::{
    CONTROL, DECODER, GET, POST, Server, control, frame, frames, headers, plain, varint,
};

/// Fields of a section.
fn decode(
    decoder: &mut QpackDecoder,
    stream: u64,
    section: &[u8],
) -> Option<Vec<(String, String)>> {
    let (mut text, mut fields) = (Vec::new(), Vec::new());
    let decoded = decoder.decode(stream, section, &mut text, |text, field| {
        let show = |range| String::from_utf8_lossy(&text[range]).into_owned();
        fields.push((show(field.name), show(field.value)));
        true
    });
    (decoded.unwrap() == Decoded::Complete).then_some(fields)
}

#[test]
fn repeated_heads_shrink_and_change_with_the_date() {
    // The client permits no blocked stream, and later some.
    for blocked in [0, 16] {
        let mut server = Server::new(None);
        let limits =
            [(setting::QPACK_MAX_TABLE_CAPACITY, 4096), (setting::QPACK_BLOCKED_STREAMS, blocked)];
        server.feed(CONTROL, &control(&limits), false);
        server.feed(DECODER, &[3], false);
        let mut decoder = QpackDecoder::new(4096, blocked as usize);
        let lines = b"Content-Type: text/x-own\r\nETag: \"a\"\r\nContent-Length: 5\r\nX-Own: y\r\nConnection: close\r\nSet-Cookie: secret\r\n";
        let mut lengths = Vec::new();
        let mut is_first = true;
        for number in 0..12 {
            let stream = 4 * number;
            server.feed(stream, &headers(GET), true);
            let date: &[u8] = if number < 8 { b"one" } else { b"two" };
            let head = OutgoingHead { status: 200, date, lines, serial: 7 };
            let mut out = Vec::new();
            server.engine.respond(stream, &head, true, &mut out);
            let [(kind::HEADERS, payload)] = &frames(&out)[..] else { panic!() };
            // The encoder stream may be late by one response, if that is permitted.
            let instructions = server.sent(OwnStream::Encoder);
            let mut instructions = &instructions[..];
            if is_first {
                assert_eq!(instructions[0], 2, "the type of the stream");
                (instructions, is_first) = (&instructions[1..], false);
            }
            let early = if blocked == 0 { decode(&mut decoder, stream, payload) } else { None };
            decoder.receive(instructions).unwrap();
            let fields = early.or_else(|| decode(&mut decoder, stream, payload)).unwrap();
            let date = String::from_utf8_lossy(date).into_owned();
            let expected = [
                (":status", "200"),
                ("date", &date),
                ("content-type", "text/x-own"),
                ("etag", "\"a\""),
                ("content-length", "5"),
                ("x-own", "y"),
                ("set-cookie", "secret"),
            ];
            let expected: Vec<_> =
                expected.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
            assert_eq!(fields, expected);
            lengths.push(payload.len());
            let acknowledgements = decoder.instructions().to_vec();
            decoder.sent(acknowledgements.len());
            server.feed(DECODER, &acknowledgements, false);
            assert_eq!(server.seen.failure, None);
        }
        // All fields but the secret one take one byte each; then the date changes.
        assert!(lengths[0] > 25 || blocked > 0, "{lengths:?}");
        assert!(lengths[7] < 20 && lengths[7] == lengths[6], "{lengths:?}");
        assert!(lengths[11] == lengths[7], "{lengths:?}");
    }
}

#[test]
fn a_client_that_acknowledges_nothing_gets_no_more_than_its_limits() {
    let mut server = Server::new(None);
    let limits = [(setting::QPACK_MAX_TABLE_CAPACITY, 200), (setting::QPACK_BLOCKED_STREAMS, 1)];
    server.feed(CONTROL, &control(&limits), false);
    let mut decoder = QpackDecoder::new(200, 1);
    let mut inserted = 0;
    for number in 0..1000_u64 {
        let stream = 4 * number;
        server.feed(stream, &headers(GET), true);
        let lines = format!("Server: x\r\nX-Own: {}\r\n", number % 40);
        let head = OutgoingHead { status: 200, date: b"", lines: lines.as_bytes(), serial: 0 };
        let mut out = Vec::new();
        server.engine.respond(stream, &head, true, &mut out);
        // The section arrives first.
        let payload = &frames(&out)[0].1;
        let early = decode(&mut decoder, stream, payload);
        let instructions = server.sent(OwnStream::Encoder);
        let start = usize::from(number == 0);
        inserted += decoder.receive(&instructions[start..]).unwrap();
        while decoder.next_unblocked().is_some() {}
        let fields = early.or_else(|| decode(&mut decoder, stream, payload)).unwrap();
        assert_eq!(fields[2].1, (number % 40).to_string());
    }
    assert!(inserted > 0 && inserted <= 200 / 32, "{inserted}");
}

#[test]
fn a_large_head_is_sent_in_one_frame_and_hints_before_it() {
    let mut server = Server::open(None);
    server.feed(0, &headers(GET), true);
    let mut out = Vec::new();
    let hints = OutgoingHead { status: 103, date: b"", lines: b"Link: </a>\r\n", serial: 0 };
    server.engine.send_interim(0, &hints, &mut out);
    let lines = format!("X: {}\r\n", "\u{1}".repeat(20_000));
    let head = OutgoingHead { status: 200, date: b"", lines: lines.as_bytes(), serial: 0 };
    server.engine.respond(0, &head, true, &mut out);
    let sent = frames(&out);
    let decode = |number: usize| decode(&mut QpackDecoder::new(0, 0), 0, &sent[number].1).unwrap();
    assert_eq!(decode(0), [(":status".into(), "103".into()), ("link".into(), "</a>".into())]);
    assert_eq!((decode(1)[1].1.len(), sent.len()), (20_000, 2));
    // Nothing is sent on a stream that has ended.
    out.clear();
    assert!(!server.engine.respond(0, &head, true, &mut out));
    server.engine.send_interim(0, &hints, &mut out);
    assert!(out.is_empty());
}

#[test]
fn bodies_are_sent_in_frames_and_end_with_trailers() {
    let mut server = Server::open(None);
    server.feed(0, &headers(GET), true);
    let mut out = Vec::new();
    server.engine.respond(0, &plain(200), false, &mut out);
    // No further interim response.
    let length = out.len();
    server.engine.send_interim(0, &plain(103), &mut out);
    assert_eq!(out.len(), length);
    out.clear();
    let start = server.engine.begin_data(&mut out);
    out.extend_from_slice(b"abc");
    server.engine.end_data(0, start, false, &mut out);
    let start = server.engine.begin_data(&mut out);
    server.engine.end_data(0, start, false, &mut out);
    let large = server.engine.send_data(0, 70_000, false).unwrap();
    assert_eq!(large.as_bytes(), [&[0][..], &varint(70_000)].concat());
    server.engine.send_trailers(0, b"X: y\r\n", &mut out);
    let sent = frames(&out);
    assert_eq!(sent[0], (kind::DATA, b"abc".to_vec()));
    let trailers = decode(&mut QpackDecoder::new(0, 0), 0, &sent[1].1).unwrap();
    assert_eq!((trailers, sent.len()), (vec![("x".into(), "y".into())], 2));
    assert_eq!(server.engine.open_streams(), 0);
}

#[test]
fn a_graceful_shutdown_has_two_steps() {
    let mut server = Server::open(None);
    server.feed(0, &headers(POST), false);
    server.sent(OwnStream::Control);
    server.engine.begin_drain();
    server.engine.begin_drain();
    let last = varint((1 << 62) - 4);
    assert_eq!(server.sent(OwnStream::Control), frame(kind::GOAWAY, &last));
    // A request that crossed it is served.
    server.feed(4, &headers(GET), true);
    assert_eq!(server.seen.requests.len(), 2);
    server.engine.end_drain();
    server.engine.end_drain();
    assert_eq!(server.sent(OwnStream::Control), frame(kind::GOAWAY, &[8]));
    server.feed(8, &headers(GET), true);
    assert_eq!(server.seen.requests.len(), 2);
    assert_eq!(server.seen.resets, [(8, Http3ErrorCode::RequestRejected)]);
    server.respond(0, 0);
    assert!(!server.engine.is_done());
    server.respond(4, 0);
    assert!(server.engine.is_done());
    // The rest of the first request is not waited for.
    assert_eq!(server.engine.open_streams(), 1);
}
