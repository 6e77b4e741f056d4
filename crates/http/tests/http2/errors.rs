//! Errors of the connection and of a stream.

use dunlin_http::http2::frame::{flag, kind, setting};
use dunlin_http::http2::{Http2ErrorCode, PREFACE};

use crate::support::{GET, POST, Server, data, frame, headers, reset, settings, window};

#[test]
fn frames_that_break_the_rules_end_the_connection() {
    let get = headers(1, GET, true);
    for (what, code, bytes) in [
        ("DATA for no stream", Http2ErrorCode::ProtocolError, data(0, b"x", false)),
        ("DATA for an idle stream", Http2ErrorCode::ProtocolError, data(1, b"x", false)),
        ("HEADERS for an even stream", Http2ErrorCode::ProtocolError, headers(2, GET, true)),
        ("HEADERS for no stream", Http2ErrorCode::ProtocolError, headers(0, GET, true)),
        (
            "a number that was passed over",
            Http2ErrorCode::ProtocolError,
            [headers(5, GET, true), headers(3, GET, true)].concat(),
        ),
        (
            "HEADERS for a closed stream",
            Http2ErrorCode::StreamClosed,
            [get.clone(), get.clone()].concat(),
        ),
        (
            "DATA for a closed stream",
            Http2ErrorCode::StreamClosed,
            [get.clone(), data(1, b"x", true)].concat(),
        ),
        (
            "CONTINUATION of nothing",
            Http2ErrorCode::ProtocolError,
            frame(kind::CONTINUATION, 4, 1, b""),
        ),
        (
            "an interrupted section",
            Http2ErrorCode::ProtocolError,
            [frame(kind::HEADERS, 0, 1, b""), data(1, b"", true)].concat(),
        ),
        (
            "a section on another stream",
            Http2ErrorCode::ProtocolError,
            [frame(kind::HEADERS, 0, 1, b""), frame(kind::CONTINUATION, 4, 3, b"")].concat(),
        ),
        (
            "padding beyond the frame",
            Http2ErrorCode::ProtocolError,
            frame(kind::HEADERS, flag::PADDED | 4, 1, b"\x09abc"),
        ),
        (
            "a frame that is too large",
            Http2ErrorCode::FrameSizeError,
            frame(kind::DATA, 0, 1, &[0; 16_385]),
        ),
        (
            "a section that cannot be decoded",
            Http2ErrorCode::CompressionError,
            frame(kind::HEADERS, 5, 1, b"\x80"),
        ),
        (
            "PUSH_PROMISE",
            Http2ErrorCode::ProtocolError,
            frame(kind::PUSH_PROMISE, 4, 1, b"\0\0\0\x02"),
        ),
        ("SETTINGS for a stream", Http2ErrorCode::ProtocolError, frame(kind::SETTINGS, 0, 1, b"")),
        (
            "SETTINGS of no length",
            Http2ErrorCode::FrameSizeError,
            frame(kind::SETTINGS, 0, 0, b"12345"),
        ),
        (
            "an acknowledgement with a payload",
            Http2ErrorCode::FrameSizeError,
            frame(kind::SETTINGS, 1, 0, b"123456"),
        ),
        (
            "a push that is neither",
            Http2ErrorCode::ProtocolError,
            settings(&[(setting::ENABLE_PUSH, 2)]),
        ),
        (
            "a window that is too large",
            Http2ErrorCode::FlowControlError,
            settings(&[(setting::INITIAL_WINDOW_SIZE, 1 << 31)]),
        ),
        (
            "a frame size that is too small",
            Http2ErrorCode::ProtocolError,
            settings(&[(setting::MAX_FRAME_SIZE, 16_383)]),
        ),
        (
            "PING of another length",
            Http2ErrorCode::FrameSizeError,
            frame(kind::PING, 0, 0, b"1234567"),
        ),
        ("PING for a stream", Http2ErrorCode::ProtocolError, frame(kind::PING, 0, 1, b"12345678")),
        ("GOAWAY for a stream", Http2ErrorCode::ProtocolError, frame(kind::GOAWAY, 0, 1, &[0; 8])),
        (
            "GOAWAY that is too short",
            Http2ErrorCode::FrameSizeError,
            frame(kind::GOAWAY, 0, 0, &[0; 7]),
        ),
        (
            "WINDOW_UPDATE of another length",
            Http2ErrorCode::FrameSizeError,
            frame(kind::WINDOW_UPDATE, 0, 0, &[0; 5]),
        ),
        ("WINDOW_UPDATE by nothing", Http2ErrorCode::ProtocolError, window(0, 0)),
        (
            "WINDOW_UPDATE beyond all bounds",
            Http2ErrorCode::FlowControlError,
            window(0, 0x7fff_ffff),
        ),
        ("WINDOW_UPDATE for an idle stream", Http2ErrorCode::ProtocolError, window(1, 1)),
        ("RST_STREAM for an idle stream", Http2ErrorCode::ProtocolError, reset(1)),
        (
            "RST_STREAM of another length",
            Http2ErrorCode::FrameSizeError,
            frame(kind::RST_STREAM, 0, 1, &[0; 3]),
        ),
        (
            "PRIORITY for no stream",
            Http2ErrorCode::ProtocolError,
            frame(kind::PRIORITY, 0, 0, &[0; 5]),
        ),
        (
            "PRIORITY_UPDATE for a stream",
            Http2ErrorCode::ProtocolError,
            frame(kind::PRIORITY_UPDATE, 0, 1, &[0; 4]),
        ),
        (
            "PRIORITY_UPDATE of no stream",
            Http2ErrorCode::ProtocolError,
            frame(kind::PRIORITY_UPDATE, 0, 0, &[0; 4]),
        ),
        (
            "PRIORITY_UPDATE that is too short",
            Http2ErrorCode::FrameSizeError,
            frame(kind::PRIORITY_UPDATE, 0, 0, &[0; 3]),
        ),
    ] {
        let mut server = Server::open(Some(1));
        server.feed(&bytes);
        let failure = server.seen.failure.unwrap_or_else(|| panic!("{what}: it went on"));
        assert_eq!(failure.code, code, "{what}: {}", failure.reason);
        server.failed_with(code);
        // The connection neither reads nor writes any more.
        server.seen.failure = None;
        server.feed(&headers(9, GET, true));
        assert!(server.seen.failure.is_some() && server.out.is_empty(), "{what}");
    }
    for first in [b"GET / HTTP/1.1\r\n".to_vec(), [PREFACE, &headers(1, GET, true)].concat()] {
        let mut server = Server::new(None);
        server.feed(&first);
        server.failed_with(Http2ErrorCode::ProtocolError);
    }
}

#[test]
fn stream_errors_reset_only_their_stream() {
    for (what, code, bytes) in [
        ("a window that adds nothing", Http2ErrorCode::ProtocolError, window(1, 0)),
        ("a window beyond all bounds", Http2ErrorCode::FlowControlError, window(1, 0x7fff_ffff)),
        ("a second head", Http2ErrorCode::ProtocolError, headers(1, &[("a", "b")], false)),
        (
            "a pseudo-field among trailers",
            Http2ErrorCode::ProtocolError,
            headers(1, &[(":path", "/")], true),
        ),
        (
            "PRIORITY of another length",
            Http2ErrorCode::FrameSizeError,
            frame(kind::PRIORITY, 0, 1, &[0; 4]),
        ),
        (
            "a stream that depends on itself",
            Http2ErrorCode::ProtocolError,
            frame(kind::PRIORITY, 0, 1, &[0, 0, 0, 1, 0]),
        ),
    ] {
        let mut server = Server::open(None);
        server.feed(&headers(1, POST, false));
        server.feed(&bytes);
        assert_eq!(server.seen.resets, [1], "{what}");
        server.reset_with(1, code);
        // Frames that were on their way are ignored.
        server.feed(&[data(1, b"late", false), headers(1, &[("a", "b")], true)].concat());
        server.feed(&headers(3, GET, true));
        assert_eq!((server.seen.failure, server.seen.requests.len()), (None, 2), "{what}");
    }
}
