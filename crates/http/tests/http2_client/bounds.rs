//! Bounds of what a hostile server can make grow.

use dunlin_http::http2::client::{Http2ClientConnection, Http2ClientEvent};
use dunlin_http::http2::frame::{FrameHeader, flag, kind};
use dunlin_http::http2::{Http2Error, Http2ErrorCode};
use dunlin_http::{BodySize, RequestHead};
use proptest::prelude::*;

use super::support::{END, OK, Server, exchange, feed, get};

/// The frames that a server sends again and again, and the number of times that it may.
type Flood = (&'static str, fn(&mut Server), usize);

/// Feeds what `server` sends to a connection with the streams 1 and 3, of which 3 has a head and 1 was reset by the client.
fn flooded(server: &Server) -> (Result<(), Http2Error>, usize) {
    let mut out = Vec::new();
    let mut connection = Http2ClientConnection::new(&mut out);
    connection.open(&get(), "http", BodySize::Empty, &mut out).unwrap();
    connection.open(&get(), "http", BodySize::Empty, &mut out).unwrap();
    connection.reset(1, Http2ErrorCode::Cancel, &mut out);
    out.clear();
    let (_, result) = feed(&mut connection, &server.bytes, 1 << 14, &mut out);
    (result, out.len())
}

#[test]
fn floods_end_the_connection_before_they_cost_memory() {
    let floods: [Flood; 13] = [
        ("PING", |server| _ = server.frame(kind::PING, 0, 0, &[0; 8]), 100),
        ("acknowledged PING", |server| _ = server.frame(kind::PING, flag::ACK, 0, &[0; 8]), 200),
        ("SETTINGS", |server| _ = server.frame(kind::SETTINGS, 0, 0, &[]), 49),
        (
            "acknowledged SETTINGS",
            |server| _ = server.frame(kind::SETTINGS, flag::ACK, 0, &[]),
            200,
        ),
        (
            "WINDOW_UPDATE",
            |server| _ = server.frame(kind::WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1]),
            2000,
        ),
        (
            "WINDOW_UPDATE of a closed stream",
            |server| _ = server.frame(kind::WINDOW_UPDATE, 0, 1, &[0, 0, 0, 1]),
            2000,
        ),
        ("empty DATA", |server| _ = server.data(3, b"", 0), 200),
        ("padding", |server| _ = server.frame(kind::DATA, flag::PADDED, 3, b"\x02\0\0"), 200),
        ("empty DATA of a closed stream", |server| _ = server.data(1, b"", 0), 200),
        ("RST_STREAM", |server| _ = server.frame(kind::RST_STREAM, 0, 1, &[0, 0, 0, 8]), 200),
        ("HEADERS of a closed stream", |server| _ = server.headers(1, OK, 0), 200),
        ("PRIORITY", |server| _ = server.frame(kind::PRIORITY, 0, 3, &[0; 5]), 400),
        ("unknown frames", |server| _ = server.frame(99, 0, 0, b"x"), 200),
    ];
    for (what, add, permitted) in floods {
        let mut server = Server::new(&[]);
        server.headers(3, OK, 0);
        (0..permitted).for_each(|_| add(&mut server));
        assert_eq!(flooded(&server).0, Ok(()), "{what}");
        (0..100_000).for_each(|_| add(&mut server));
        let (result, out) = flooded(&server);
        assert_eq!(result.unwrap_err().code, Http2ErrorCode::EnhanceYourCalm, "{what}");
        assert!(out < 4096, "{what}: {out}");
    }
}

#[test]
fn interim_responses_are_bounded_by_number_and_size() {
    let link = "x".repeat(10_000);
    let floods: [(&[(&str, &str)], usize); 3] = [
        (&[(":status", "103"), ("link", "</a>")], 100),
        (&[(":status", "100")], 100),
        (&[(":status", "103"), ("link", &link)], 6),
    ];
    for (fields, permitted) in floods {
        let mut server = Server::new(&[]);
        (0..permitted).for_each(|_| _ = server.headers(1, fields, 0));
        server.headers(3, OK, END);
        let (seen, result) = exchange(&["GET", "GET"], &server);
        assert_eq!((seen.len(), result), (permitted + 1, Ok(())));
        (0..3).for_each(|_| _ = server.headers(1, fields, 0));
        let (seen, result) = exchange(&["GET", "GET"], &server);
        assert_eq!(result, Ok(()));
        assert_eq!(seen[permitted + 1..], ["1 reset false there are too many interim responses"]);
    }
}

#[test]
fn a_server_that_uses_the_connection_ordinarily_reaches_no_bound() {
    let mut out = Vec::new();
    let mut connection = Http2ClientConnection::new(&mut out);
    let mut server = Server::new(&[]);
    feed(&mut connection, &std::mem::take(&mut server.bytes), 1 << 14, &mut out).1.unwrap();
    // An upload: the server returns credit for each frame, and estimates the bandwidth.
    let head = RequestHead::new("POST", "a", "/");
    let id = connection.open(&head, "http", BodySize::Unknown, &mut out).unwrap();
    for _ in 0..10_000 {
        assert!(connection.capacity(id) >= 1000);
        connection.begin_data(id, 1000, false, &mut out);
        for stream in [0, id] {
            server.frame(kind::WINDOW_UPDATE, 0, stream, &1000_u32.to_be_bytes());
        }
        server.frame(kind::PING, 0, 0, &[0; 8]);
        feed(&mut connection, &std::mem::take(&mut server.bytes), 1 << 14, &mut out).1.unwrap();
        out.clear();
    }
    // Downloads that the client gives up while data is on its way.
    for _ in 0..1000 {
        let id = connection.open(&get(), "http", BodySize::Empty, &mut out).unwrap();
        server.headers(id, OK, 0);
        feed(&mut connection, &std::mem::take(&mut server.bytes), 1 << 14, &mut out).1.unwrap();
        connection.reset(id, Http2ErrorCode::Cancel, &mut out);
        (0..16).for_each(|_| _ = server.data(id, &[b'x'; 16_000], 0));
        feed(&mut connection, &std::mem::take(&mut server.bytes), 1 << 14, &mut out).1.unwrap();
        out.clear();
    }
    // Requests that are given up before their response, which is complete when the server knows of it.
    for _ in 0..1000 {
        let id = connection.open(&get(), "http", BodySize::Empty, &mut out).unwrap();
        connection.reset(id, Http2ErrorCode::Cancel, &mut out);
        server.headers(id, &[(":status", "103")], 0).headers(id, OK, 0);
        server.data(id, b"late", 0).data(id, b"", END);
        server.frame(kind::RST_STREAM, 0, id, &[0, 0, 0, 8]);
        feed(&mut connection, &std::mem::take(&mut server.bytes), 1 << 14, &mut out).1.unwrap();
        out.clear();
    }
    // The bounds are rates.
    for second in 0..100 {
        connection.set_time(second);
        (0..5).for_each(|_| _ = server.frame(kind::SETTINGS, 0, 0, &[]));
        (0..10).for_each(|_| _ = server.frame(kind::PING, 0, 0, &[0; 8]));
        feed(&mut connection, &std::mem::take(&mut server.bytes), 1 << 14, &mut out).1.unwrap();
    }
}

#[test]
fn a_closed_stream_takes_no_more_data_than_was_on_its_way() {
    let mut server = Server::new(&[]);
    server.headers(3, OK, 0);
    // A window of 256 KB.
    (0..16).for_each(|_| _ = server.data(1, &[b'x'; 16_384], 0));
    assert_eq!(flooded(&server).0, Ok(()));
    server.data(1, b"x", 0);
    assert_eq!(flooded(&server).0.unwrap_err().code, Http2ErrorCode::StreamClosed);
}

/// Returns a frame of a hostile server.
fn hostile_frame() -> impl Strategy<Value = Vec<u8>> {
    let payload = prop_oneof![
        3 => proptest::collection::vec(any::<u8>(), 0..20),
        1 => (1_usize..16_384).prop_map(|length| vec![b'x'; length]),
        // Fields that are in the static table, and one that is not.
        3 => (0_u8..62, 0_usize..3000).prop_map(|(index, length)| {
            let mut block = vec![0x88, 0x80 | index];
            block.extend([0x00, 1, b'a', 0x7f, ((length.max(127) - 127) & 0x7f) as u8 | 0x80]);
            block.push(((length.max(127) - 127) >> 7) as u8);
            block.resize(block.len() + length.max(127), b'v');
            block
        }),
    ];
    let stream =
        prop_oneof![1 => Just(0_u32), 6 => (0_u32..4).prop_map(|n| 2 * n + 1), 1 => 0_u32..20];
    let flags = prop_oneof![Just(0_u8), Just(flag::END_HEADERS), any::<u8>()];
    (0_u8..11, flags, stream, payload).prop_map(|(kind, flags, stream, payload)| {
        let mut bytes = Vec::new();
        FrameHeader { length: payload.len(), kind, flags, stream }.write(&mut bytes);
        bytes.extend(payload);
        bytes
    })
}

proptest! {
    /// Whatever a server sends, what the engine holds, returns and wants to send is bounded after every step.
    #[test]
    fn hostile_servers_do_not_make_memory_grow(
        frames in proptest::collection::vec((hostile_frame(), 1_usize..60), 0..40),
        consumes: bool,
    ) {
        let mut out = Vec::new();
        let mut connection = Http2ClientConnection::new(&mut out);
        for _ in 0..3 {
            connection.open(&get(), "http", BodySize::Unknown, &mut out).unwrap();
        }
        let mut input = Server::new(&[]).bytes;
        let (mut data_held, mut heads_held) = (0, 0);
        for (frame, repeats) in frames {
            (0..repeats).for_each(|_| input.extend_from_slice(&frame));
            let mut at = 0;
            loop {
                match connection.receive(&input, &mut at, &mut out) {
                    Ok(Http2ClientEvent::NeedInput) => break,
                    Ok(Http2ClientEvent::Data { stream, data, .. }) if consumes => {
                        connection.consumed(stream, data.len(), &mut out);
                    }
                    Ok(Http2ClientEvent::Data { data, .. }) => data_held += data.len(),
                    Ok(Http2ClientEvent::Interim { head, .. } | Http2ClientEvent::Head { head, .. }) => {
                        heads_held += head.fields.as_bytes().len();
                    }
                    Ok(_) => {}
                    Err(_) => return Ok(()),
                }
                // Nothing of it is taken: the connection's window, two heads for each stream, few acknowledgements.
                prop_assert!(data_held <= 1 << 20 && heads_held <= 3 * 2 * (64 << 10));
                prop_assert!(connection.held() <= 4 * (64 << 10) && out.len() <= 16 << 10);
                prop_assert!(connection.open_streams() <= 3);
            }
            input.drain(..at);
        }
    }
}
