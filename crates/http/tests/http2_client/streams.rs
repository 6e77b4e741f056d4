//! Windows, limits of streams, and the end of streams and connections.

use dunlin_http::http2::Http2ErrorCode;
use dunlin_http::http2::client::{Http2ClientConnection, Http2ClientEvent, Http2ClientSettings};
use dunlin_http::http2::frame::{self, flag, kind, setting};
use dunlin_http::{BodySize, RequestHead};

use super::support::{END, OK, Server, exchange, feed, get};

#[test]
fn the_server_may_not_send_more_than_the_windows() {
    let mut server = Server::new(&[]);
    server.headers(1, OK, 0);
    for _ in 0..16 {
        server.data(1, &[b'x'; 16_384], 0);
    }
    let receive = |server: &Server, consumes: bool| {
        let mut out = Vec::new();
        let mut connection = Http2ClientConnection::new(&mut out);
        connection.open(&get(), "http", BodySize::Empty, &mut out).unwrap();
        let (mut at, mut length) = (0, 0);
        loop {
            match connection.receive(&server.bytes, &mut at, &mut out) {
                Ok(Http2ClientEvent::NeedInput) => return Ok(length),
                Ok(Http2ClientEvent::Data { data, .. }) => {
                    length += data.len();
                    if consumes {
                        connection.consumed(1, data.len(), &mut out);
                    }
                }
                Ok(_) => {}
                Err(failure) => return Err(failure.code),
            }
        }
    };
    assert_eq!(receive(&server, false), Ok(256 * 1024));
    server.data(1, b"x", 0);
    assert_eq!(receive(&server, false), Err(Http2ErrorCode::FlowControlError));
    for _ in 0..200 {
        server.data(1, &[b'x'; 16_384], 0);
    }
    assert_eq!(receive(&server, true), Ok(216 * 16_384 + 1));
}

#[test]
fn bodies_are_sent_within_the_windows() {
    let mut out = Vec::new();
    let mut connection = Http2ClientConnection::new(&mut out);
    let post = RequestHead::new("POST", "a", "/");
    let first = connection.open(&post, "http", BodySize::Unknown, &mut out).unwrap();
    let second = connection.open(&post, "http", BodySize::Unknown, &mut out).unwrap();
    assert_eq!(connection.capacity(first), 16_384);
    for _ in 0..3 {
        connection.begin_data(first, 16_384, false, &mut out);
    }
    assert_eq!(connection.capacity(first), 65_535 - 3 * 16_384);
    connection.begin_data(first, 65_535 - 3 * 16_384, false, &mut out);
    // The connection's window is used up by the first stream.
    assert_eq!((connection.capacity(first), connection.capacity(second)), (0, 0));
    let mut server = Server::new(&[(setting::INITIAL_WINDOW_SIZE, 65_536)]);
    server.frame(kind::WINDOW_UPDATE, 0, 0, &100_u32.to_be_bytes());
    assert_eq!(feed(&mut connection, &server.bytes, 1000, &mut out).1, Ok(()));
    assert_eq!((connection.capacity(first), connection.capacity(second)), (1, 100));
    connection.begin_data(second, 100, true, &mut out);
    assert_eq!((connection.capacity(first), connection.capacity(second)), (0, 0));
}

#[test]
fn the_servers_limit_of_streams_and_its_goaway_hold() {
    let mut out = Vec::new();
    let mut connection = Http2ClientConnection::new(&mut out);
    let mut server = Server::new(&[(setting::MAX_CONCURRENT_STREAMS, 2)]);
    assert_eq!(feed(&mut connection, &server.bytes, 1000, &mut out).1, Ok(()));
    for stream in [1, 3] {
        assert_eq!(connection.open(&get(), "http", BodySize::Empty, &mut out), Ok(stream));
    }
    assert!(!connection.can_open() && connection.is_usable());
    assert!(connection.open(&get(), "http", BodySize::Empty, &mut out).is_err());
    server.bytes.clear();
    frame::write_goaway(1, Http2ErrorCode::NoError, "", &mut server.bytes);
    server.headers(1, OK, END);
    let (seen, result) = feed(&mut connection, &server.bytes, 1000, &mut out);
    assert_eq!((seen, result), (vec!["goaway 0".into(), "1 head 200  end".into()], Ok(())));
    assert_eq!((connection.unprocessed(), connection.unprocessed()), (Some(3), None));
    assert!(!connection.is_usable() && connection.open_streams() == 0);
}

#[test]
fn requests_that_a_server_has_not_processed_are_repeated_in_their_order() {
    let mut out = Vec::new();
    let mut connection = Http2ClientConnection::new(&mut out);
    let mut server = Server::new(&[]);
    assert_eq!(feed(&mut connection, &server.bytes, 1000, &mut out).1, Ok(()));
    let streams: Vec<_> = (0..20)
        .map(|_| connection.open(&get(), "http", BodySize::Empty, &mut out).unwrap())
        .collect();
    server.bytes.clear();
    frame::write_goaway(1, Http2ErrorCode::NoError, "", &mut server.bytes);
    assert_eq!(feed(&mut connection, &server.bytes, 1000, &mut out).1, Ok(()));
    let repeated: Vec<_> = std::iter::from_fn(|| connection.unprocessed()).collect();
    assert_eq!(repeated, streams[1..]);
}

#[test]
fn the_limit_of_streams_is_that_of_the_server_or_of_the_caller() {
    let limit = (setting::MAX_CONCURRENT_STREAMS, 2);
    for (stated, limit) in [(&[][..], 150), (&[limit][..], 2)] {
        let mut out = Vec::new();
        let settings = Http2ClientSettings { streams: 150, ..Http2ClientSettings::default() };
        let mut connection = Http2ClientConnection::with_settings(settings, &mut out);
        // Until the settings have arrived, the recommended number is open at most (RFC 9113 §6.5.2).
        assert_eq!(connection.max_streams(), None);
        let server = Server::new(stated);
        assert_eq!(feed(&mut connection, &server.bytes, 3, &mut out).1, Ok(()));
        assert_eq!(connection.max_streams(), Some(limit));
        for _ in 0..limit {
            connection.open(&get(), "http", BodySize::Empty, &mut out).unwrap();
        }
        assert!(!connection.can_open());
    }
}

#[test]
fn error_codes_are_found_by_their_number() {
    for code in 0..14 {
        assert_eq!(Http2ErrorCode::from_code(code).map(|error| error as u32), Some(code));
    }
    assert_eq!(Http2ErrorCode::from_code(14), None);
}

#[test]
fn a_reset_reports_whether_the_request_was_processed() {
    for (code, is_unprocessed) in
        [(Http2ErrorCode::RefusedStream, true), (Http2ErrorCode::Cancel, false)]
    {
        let mut server = Server::new(&[]);
        frame::write_reset(1, code, &mut server.bytes);
        server.headers(3, OK, END);
        let (seen, _) = exchange(&["GET", "GET"], &server);
        assert_eq!(
            seen[0],
            format!("1 reset {is_unprocessed} the server has reset the stream ({code})")
        );
        assert_eq!(seen[1], "3 head 200  end");
    }
}

#[test]
fn frames_of_a_cancelled_stream_are_dropped() {
    let mut out = Vec::new();
    let mut connection = Http2ClientConnection::new(&mut out);
    let id = connection.open(&get(), "http", BodySize::Empty, &mut out).unwrap();
    assert!(connection.reset(id, Http2ErrorCode::Cancel, &mut out));
    assert!(!connection.reset(id, Http2ErrorCode::Cancel, &mut out));
    let next = connection.open(&get(), "http", BodySize::Empty, &mut out).unwrap();
    let mut server = Server::new(&[]);
    // What the section adds to the table is needed by the next one.
    server.headers(id, &[(":status", "200"), ("x", "y")], 0).data(id, b"late", END);
    server.headers(next, &[(":status", "200"), ("x", "y")], END);
    let (seen, result) = feed(&mut connection, &server.bytes, 7, &mut out);
    assert_eq!((seen, result), (vec![format!("{next} head 200 x: y; end")], Ok(())));
}

#[test]
fn a_ping_is_acknowledged() {
    let mut out = Vec::new();
    let mut connection = Http2ClientConnection::new(&mut out);
    out.clear();
    let mut server = Server::new(&[]);
    server.frame(kind::PING, 0, 0, b"12345678");
    feed(&mut connection, &server.bytes, 1, &mut out).1.unwrap();
    assert!(out.ends_with(b"12345678") && out[out.len() - 13] == flag::ACK);
}
