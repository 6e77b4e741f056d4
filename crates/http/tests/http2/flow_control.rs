//! Flow control and priorities.

use dunlin_http::Head;
use dunlin_http::http2::frame::{flag, kind, setting};
use dunlin_http::http2::{BlockedBy, Http2ErrorCode, Http2Event};

use crate::support::{
    GET, POST, Server, data, frame, frames, headers, plain, preface, settings, window, with,
};

#[test]
fn stream_and_connection_windows_follow_the_settings() {
    let mut server = Server::new(Some(100));
    server.feed(&preface(&[(setting::INITIAL_WINDOW_SIZE, 50)]));
    server.feed(&headers(1, GET, true));
    server.out.clear();
    assert_eq!(server.engine.allowance(1), 50);
    // The window shrinks below zero, and grows again.
    server.feed(&settings(&[(setting::INITIAL_WINDOW_SIZE, 0)]));
    assert_eq!((server.engine.allowance(1), server.engine.next_to_send()), (0, None));
    assert_eq!(server.engine.blocked_by(1), Some(BlockedBy::Stream));
    server.feed(&window(1, 30));
    assert_eq!((server.engine.allowance(1), server.engine.next_to_send()), (30, Some(1)));
    server.out.clear();
    let mark = server.engine.begin_data(&mut server.out);
    server.out.extend_from_slice(&[b'x'; 30]);
    server.engine.end_data(1, mark, false, &mut server.out);
    assert_eq!(server.sent(), [(kind::DATA, 0, 1, vec![b'x'; 30])]);
    assert_eq!(server.engine.allowance(1), 0);
    // The connection has a window of its own.
    server.feed(&settings(&[(setting::INITIAL_WINDOW_SIZE, 1 << 20)]));
    assert_eq!(server.engine.allowance(1), 16_384);
    for _ in 0..4 {
        let mark = server.engine.begin_data(&mut server.out);
        let allowance = server.engine.allowance(1);
        server.out.resize(server.out.len() + allowance, 0);
        server.engine.end_data(1, mark, false, &mut server.out);
    }
    assert_eq!(server.engine.blocked_by(1), Some(BlockedBy::Connection));
    server.feed(&window(0, 5));
    assert_eq!(server.engine.allowance(1), 5);
}

#[test]
fn a_client_that_sends_beyond_its_windows_is_stopped() {
    let mut server = Server::open(None);
    server.feed(&headers(1, POST, false));
    // The handler does not consume the body, so no window grows.
    let piece = data(1, &[0; 16_384], false);
    let mut at;
    for number in 0..5 {
        let (mut head, mut text, mut out) = (Head::default(), Vec::new(), Vec::new());
        at = 0;
        let event = server.engine.next(&piece, &mut at, &mut head, &mut text, &mut out).unwrap();
        if number < 3 {
            assert!(matches!(event, Http2Event::Data { .. }));
        } else if number == 3 {
            assert_eq!(event, Http2Event::Reset { stream: 1 });
            assert_eq!(frames(&out)[0].3, (Http2ErrorCode::FlowControlError as u32).to_be_bytes());
        }
    }
}

#[test]
fn a_body_that_has_used_its_window_is_reset_with_the_end_of_the_response() {
    let mut server = Server::open(None);
    server.feed(&headers(1, POST, false));
    let (mut head, mut text, mut out) = (Head::default(), Vec::new(), Vec::new());
    // The handler consumes nothing.
    for length in [16_384, 16_384, 16_384, 16_383] {
        let (piece, mut at) = (data(1, &vec![0; length], false), 0);
        let event = server.engine.next(&piece, &mut at, &mut head, &mut text, &mut out).unwrap();
        assert!(matches!(event, Http2Event::Data { .. }));
    }
    server.out.clear();
    server.engine.respond(1, &plain(200), true, &mut server.out);
    let sent = server.sent();
    assert_eq!((sent[0].0, sent[0].1 & flag::END_STREAM), (kind::HEADERS, flag::END_STREAM));
    assert_eq!(
        sent[1],
        (kind::RST_STREAM, 0, 1, (Http2ErrorCode::NoError as u32).to_be_bytes().to_vec())
    );
    assert_eq!(server.engine.open_streams(), 0);
}

#[test]
fn the_window_of_a_stream_does_not_grow_after_the_response() {
    let mut server = Server::open(None);
    server.feed(&headers(1, POST, false));
    server.engine.respond(1, &plain(200), true, &mut server.out);
    server.out.clear();
    server.engine.consumed(1, 40_000, &mut server.out);
    assert_eq!(server.sent(), []);
}

#[test]
fn windows_grow_with_a_handler_that_keeps_up() {
    let mut server = Server::open(None);
    server.feed(&headers(1, POST, false));
    let mut given = 65_535_i64;
    let mut max = 0;
    for _ in 0..400 {
        server.feed(&data(1, &[0; 10_000], false));
        given -= 10_000;
        for (kind, _, stream, payload) in server.sent() {
            if kind == kind::WINDOW_UPDATE && stream == 1 {
                given += i64::from(u32::from_be_bytes(payload.try_into().unwrap()));
            }
        }
        assert_eq!(server.seen.failure, None);
        assert!(given > 0);
        max = max.max(given);
    }
    assert!((400_000..=512 << 10).contains(&max), "{max}");
}

#[test]
fn priorities_decide_which_stream_is_next() {
    let mut server = Server::new(Some(100));
    server.feed(&preface(&[(setting::INITIAL_WINDOW_SIZE, 0)]));
    server.feed(&frame(kind::PRIORITY_UPDATE, 0, 0, b"\0\0\0\x07u=2"));
    server.feed(&headers(1, GET, true));
    server.feed(&headers(3, &with(GET, &[("priority", "u=1, i")]), true));
    server.feed(&headers(5, &with(GET, &[("priority", "u=1, i")]), true));
    server.feed(&headers(7, GET, true));
    server.feed(&settings(&[(setting::INITIAL_WINDOW_SIZE, 2)]));
    let mut order = Vec::new();
    while let Some(stream) = server.engine.next_to_send() {
        order.push(stream);
        let mark = server.engine.begin_data(&mut server.out);
        server.out.push(b'x');
        server.engine.end_data(stream, mark, false, &mut server.out);
    }
    assert_eq!(order, [3, 5, 3, 5, 7, 7, 1, 1]);
}
