//! Rules of RFC 9114 and RFC 9204 that a client can break, each with the code of the error. Among them are the cases of h3spec that
//! concern HTTP/3 and QPACK.

use dunlin_http::http3::frame::{kind, setting};
use dunlin_http::http3::{Http3ErrorCode, Http3Event};

use crate::common::tunnel;
use crate::support::{
    CONTROL, DECODER, ENCODER, GET, POST, Server, control, data, frame, header, headers, settings,
    varint,
};

/// Bytes of streams, and whether each stream ends with them.
type Streams = Vec<(u64, Vec<u8>, bool)>;

fn request(bytes: Vec<u8>) -> Streams {
    vec![(0, bytes, false)]
}

/// Frames of the control stream behind SETTINGS.
fn frames(bytes: Vec<u8>) -> Streams {
    vec![(CONTROL, [control(&[]), bytes].concat(), false)]
}

fn encoder(bytes: &[u8]) -> Streams {
    vec![(ENCODER, [&[2], bytes].concat(), false)]
}

fn decoder(bytes: &[u8]) -> Streams {
    vec![(DECODER, [&[3], bytes].concat(), false)]
}

/// A request whose section has these bytes.
fn section(bytes: &[u8]) -> Streams {
    request(frame(kind::HEADERS, bytes))
}

/// Feeds a fresh server, in one piece and byte by byte: the connection has to fail with the code.
fn check(what: &str, code: Http3ErrorCode, streams: &Streams) {
    for is_whole in [true, false] {
        let mut server = Server::new(Some(1));
        for (stream, bytes, is_end) in streams {
            if is_whole {
                server.feed(*stream, bytes, *is_end);
                continue;
            }
            for byte in bytes {
                server.feed(*stream, &[*byte], false);
            }
            if *is_end {
                server.feed(*stream, b"", true);
            }
        }
        let failure = server.seen.failure.unwrap_or_else(|| panic!("{what}: it went on"));
        assert_eq!(failure.code, code, "{what}: {}", failure.reason);
        // The connection reads no more.
        server.seen.failure = None;
        server.feed(100, &headers(GET), true);
        assert!(server.seen.failure.is_some(), "{what}");
        assert!(
            server.engine.reset_received(0).is_err() && server.engine.stop_received(0).is_err()
        );
    }
}

#[test]
fn frames_of_requests_that_break_the_rules_end_the_connection() {
    use Http3ErrorCode::{FrameError, FrameUnexpected};
    let get = || headers(GET);
    for (what, code, bytes) in [
        ("DATA before HEADERS", FrameUnexpected, data(b"x")),
        ("empty DATA before HEADERS", FrameUnexpected, data(b"")),
        (
            "DATA behind trailers",
            FrameUnexpected,
            [headers(POST), headers(&[("a", "b")]), data(b"")].concat(),
        ),
        (
            "HEADERS behind trailers",
            FrameUnexpected,
            [headers(POST), headers(&[("a", "b")]), headers(&[("a", "b")])].concat(),
        ),
        (
            "HEADERS in a tunnel",
            FrameUnexpected,
            [headers(&[(":method", "CONNECT"), (":authority", "h:1")]), headers(&[("a", "b")])]
                .concat(),
        ),
        (
            "HEADERS in an extended tunnel",
            FrameUnexpected,
            [headers(&tunnel("", "")), headers(&[("a", "b")])].concat(),
        ),
        ("SETTINGS", FrameUnexpected, settings(&[])),
        ("SETTINGS behind a head", FrameUnexpected, [get(), settings(&[])].concat()),
        ("GOAWAY", FrameUnexpected, frame(kind::GOAWAY, &[0])),
        ("MAX_PUSH_ID", FrameUnexpected, frame(kind::MAX_PUSH_ID, &[0])),
        ("CANCEL_PUSH", FrameUnexpected, frame(kind::CANCEL_PUSH, &[0])),
        ("an empty CANCEL_PUSH", FrameUnexpected, frame(kind::CANCEL_PUSH, &[])),
        ("PRIORITY_UPDATE", FrameUnexpected, frame(kind::PRIORITY_UPDATE, &[0])),
        ("PUSH_PROMISE", FrameUnexpected, [get(), frame(kind::PUSH_PROMISE, &[0, 0, 0])].concat()),
        ("PRIORITY of HTTP/2", FrameUnexpected, frame(2, b"")),
        ("PING of HTTP/2", FrameUnexpected, frame(6, b"")),
        ("WINDOW_UPDATE of HTTP/2", FrameUnexpected, frame(8, b"")),
        ("CONTINUATION of HTTP/2", FrameUnexpected, [get(), frame(9, b"")].concat()),
    ] {
        check(what, code, &request(bytes));
    }
    for (what, bytes) in [
        ("an end within a header", vec![1]),
        ("an end within a length", vec![1, 0x40]),
        ("an end within a section", get()[..5].to_vec()),
        ("an end within DATA", [headers(POST), header(kind::DATA, 5), b"abc".to_vec()].concat()),
        ("an end within an unknown frame", [get(), header(0x21, 5)].concat()),
        ("an end before DATA", [headers(POST), header(kind::DATA, 5)].concat()),
    ] {
        check(what, FrameError, &vec![(0, bytes, true)]);
    }
}

#[test]
fn control_frames_that_break_the_rules_end_the_connection() {
    use Http3ErrorCode::{ExcessiveLoad, FrameError, FrameUnexpected, IdError, MissingSettings};
    let update = |kind, stream| frame(kind, &varint(stream));
    for (what, code, bytes) in [
        ("DATA", FrameUnexpected, data(b"")),
        ("HEADERS", FrameUnexpected, frame(kind::HEADERS, b"")),
        ("PUSH_PROMISE", FrameUnexpected, frame(kind::PUSH_PROMISE, &[0, 0, 0])),
        ("a second SETTINGS", FrameUnexpected, settings(&[])),
        ("PRIORITY of HTTP/2", FrameUnexpected, frame(2, b"")),
        ("PING of HTTP/2", FrameUnexpected, frame(6, b"")),
        ("WINDOW_UPDATE of HTTP/2", FrameUnexpected, frame(8, b"")),
        ("CONTINUATION of HTTP/2", FrameUnexpected, frame(9, b"")),
        ("GOAWAY without a number", FrameError, frame(kind::GOAWAY, b"")),
        ("GOAWAY with more than a number", FrameError, frame(kind::GOAWAY, &[0, 0])),
        ("GOAWAY with a part of a number", FrameError, frame(kind::GOAWAY, &[0x40])),
        ("a long GOAWAY", FrameError, header(kind::GOAWAY, 9)),
        ("a long MAX_PUSH_ID", FrameError, header(kind::MAX_PUSH_ID, 1 << 40)),
        ("CANCEL_PUSH without a number", FrameError, frame(kind::CANCEL_PUSH, b"")),
        (
            "a GOAWAY that goes up",
            IdError,
            [frame(kind::GOAWAY, &[1]), frame(kind::GOAWAY, &[2])].concat(),
        ),
        (
            "a MAX_PUSH_ID that goes down",
            IdError,
            [frame(kind::MAX_PUSH_ID, &[2]), frame(kind::MAX_PUSH_ID, &[1])].concat(),
        ),
        ("CANCEL_PUSH of nothing", IdError, frame(kind::CANCEL_PUSH, &[0])),
        ("a priority of a push", IdError, update(kind::PRIORITY_UPDATE_PUSH, 0)),
        ("a priority of a stream of the server", IdError, update(kind::PRIORITY_UPDATE, 1)),
        ("a priority of a unidirectional stream", IdError, update(kind::PRIORITY_UPDATE, 2)),
        ("an empty PRIORITY_UPDATE", FrameError, frame(kind::PRIORITY_UPDATE, b"")),
        ("a large PRIORITY_UPDATE", ExcessiveLoad, header(kind::PRIORITY_UPDATE, 1025)),
    ] {
        check(what, code, &frames(bytes));
    }
    for (what, bytes) in [
        ("DATA first", data(b"")),
        ("GOAWAY first", frame(kind::GOAWAY, &[0])),
        ("an unknown frame first", frame(0x21, b"")),
    ] {
        check(what, MissingSettings, &vec![(CONTROL, [vec![0], bytes].concat(), false)]);
    }
}

#[test]
fn settings_that_break_the_rules_end_the_connection() {
    use Http3ErrorCode::{ExcessiveLoad, FrameError, SettingsError};
    for (what, code, bytes) in [
        ("reserved 0", SettingsError, settings(&[(0, 0)])),
        ("ENABLE_PUSH of HTTP/2", SettingsError, settings(&[(2, 0)])),
        ("MAX_CONCURRENT_STREAMS of HTTP/2", SettingsError, settings(&[(3, 100)])),
        ("INITIAL_WINDOW_SIZE of HTTP/2", SettingsError, settings(&[(4, 100)])),
        ("MAX_FRAME_SIZE of HTTP/2", SettingsError, settings(&[(5, 16_384)])),
        ("a setting twice", SettingsError, settings(&[(0x21, 0), (1, 0), (0x21, 0)])),
        (
            "extended CONNECT by 2",
            SettingsError,
            settings(&[(setting::ENABLE_CONNECT_PROTOCOL, 2)]),
        ),
        ("datagrams by 2", SettingsError, settings(&[(setting::H3_DATAGRAM, 2)])),
        ("a setting without a value", FrameError, frame(kind::SETTINGS, &[1])),
        ("a setting with a part of a value", FrameError, frame(kind::SETTINGS, &[1, 0x40])),
        ("a part of a name", FrameError, frame(kind::SETTINGS, &[0xc0])),
        ("too many settings", ExcessiveLoad, header(kind::SETTINGS, 1025)),
    ] {
        check(what, code, &vec![(CONTROL, [vec![0], bytes].concat(), false)]);
    }
}

#[test]
fn unidirectional_streams_that_break_the_rules_end_the_connection() {
    use Http3ErrorCode::{ClosedCriticalStream, StreamCreationError};
    let twice = |kind: u8| vec![(CONTROL, vec![kind], false), (14, vec![kind], false)];
    for (what, code, streams) in [
        ("two control streams", StreamCreationError, twice(0)),
        ("two encoder streams", StreamCreationError, twice(2)),
        ("two decoder streams", StreamCreationError, twice(3)),
        ("a push stream", StreamCreationError, vec![(CONTROL, vec![1], false)]),
        ("a stream of the server", StreamCreationError, vec![(1, vec![0], false)]),
        (
            "the end of the control stream",
            ClosedCriticalStream,
            vec![(CONTROL, control(&[]), true)],
        ),
        ("the end of the encoder stream", ClosedCriticalStream, vec![(ENCODER, vec![2], true)]),
        ("the end of the decoder stream", ClosedCriticalStream, vec![(DECODER, vec![3], true)]),
    ] {
        check(what, code, &streams);
    }
    for kind in [0, 2, 3] {
        let mut server = Server::new(None);
        server.feed(CONTROL, &[kind], false);
        let failure = server.engine.reset_received(CONTROL).unwrap_err();
        assert_eq!(failure.code, ClosedCriticalStream);
        let mut server = Server::new(None);
        let failure = server.engine.stop_received(3 + 4 * u64::from(kind)).unwrap_err();
        assert_eq!(failure.code, ClosedCriticalStream);
    }
}

#[test]
fn streams_of_unknown_types_are_stopped() {
    let mut server = Server::open(Some(1));
    server.feed(14, &[varint(0x21), b"grease".to_vec()].concat(), false);
    server.feed(18, &varint(0x1234_5678_9abc), false);
    let code = Http3ErrorCode::StreamCreationError;
    assert_eq!(server.seen.stops, [(14, code), (18, code)]);
    // What was on its way is dropped, even if it looks like the type of another stream.
    for bytes in [&[0][..], &[1], &[2, 0x80]] {
        let mut at = 0;
        let event =
            server.engine.receive(14, bytes, &mut at, false, &mut server.head, &mut server.text);
        assert_eq!((event, at), (Ok(Http3Event::More), bytes.len()));
    }
    // Others may end before their type is known.
    server.feed(22, b"", true);
    server.feed(26, &[0xc0, 0], true);
    server.feed(30, &[0xc0], false);
    assert_eq!(server.engine.reset_received(30), Ok(false));
    assert_eq!(server.engine.reset_received(14), Ok(false));
    server.feed(0, &headers(GET), true);
    assert_eq!((server.seen.requests.len(), server.seen.failure), (1, None));
}

#[test]
fn instructions_and_sections_that_break_the_rules_end_the_connection() {
    use Http3ErrorCode::{
        QpackDecoderStreamError, QpackDecompressionFailed, QpackEncoderStreamError,
    };
    for (what, code, streams) in [
        ("an empty section", QpackDecompressionFailed, section(b"")),
        ("a static entry beyond the table", QpackDecompressionFailed, section(&[0, 0, 0xff, 0x24])),
        ("an entry without an insert count", QpackDecompressionFailed, section(&[0, 0, 0x80])),
        (
            "an insert count beyond the range",
            QpackDecompressionFailed,
            section(&[0xff, 9, 0, 0x80]),
        ),
        ("a negative base", QpackDecompressionFailed, section(&[2, 0x81, 0x80])),
        ("a string without an end", QpackDecompressionFailed, section(&[0, 0, 0x51, 5, b'/'])),
        ("a wrong Huffman code", QpackDecompressionFailed, section(&[0, 0, 0x51, 0x81, 0])),
        ("a capacity beyond the limit", QpackEncoderStreamError, encoder(&[0x3f, 0xe2, 0x1f])),
        ("an insertion without capacity", QpackEncoderStreamError, encoder(&[0xc0, 1, b'a'])),
        (
            "a static name beyond the table",
            QpackEncoderStreamError,
            encoder(&[0x3f, 0xe1, 0x1f, 0xff, 0x24, 0]),
        ),
        ("a name of no entry", QpackEncoderStreamError, encoder(&[0x3f, 0xe1, 0x1f, 0x80, 0])),
        ("a duplicate of nothing", QpackEncoderStreamError, encoder(&[0x3f, 0xe1, 0x1f, 0])),
        ("an increment by 0", QpackDecoderStreamError, decoder(&[0])),
        ("an increment beyond the insertions", QpackDecoderStreamError, decoder(&[1])),
        ("the acknowledgement of nothing", QpackDecoderStreamError, decoder(&[0x80])),
        (
            "an endless integer",
            QpackDecoderStreamError,
            decoder(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]),
        ),
    ] {
        check(what, code, &streams);
    }
}

#[test]
fn a_capital_letter_or_a_second_pseudo_field_is_a_message_error() {
    for fields in [
        &[GET, &[(":method", "GET")]].concat(),
        &[&[("a", "b")], GET].concat(),
        &[GET, &[(":status", "200")]].concat(),
        &GET[1..].to_vec(),
    ] {
        let mut server = Server::open(Some(1));
        server.feed(0, &headers(fields), true);
        assert_eq!(server.seen.malformed[0].1, Http3ErrorCode::MessageError);
        assert_eq!(server.seen.failure, None);
    }
}
