//! Requests that use the dynamic table, and streams that wait for it.

use dunlin_http::http3::OwnStream;
use dunlin_http::http3::frame::kind;
use dunlin_http::http3::qpack::{Indexing, QpackEncoder};

use crate::support::{ENCODER, GET, POST, Server, data, frame, headers, section};

/// A client's encoder with the limits of the server.
fn encoder() -> QpackEncoder {
    let mut encoder = QpackEncoder::default();
    encoder.set_limits(4096, 16);
    encoder
}

fn request(encoder: &mut QpackEncoder, stream: u64, fields: &[(&str, &str)]) -> Vec<u8> {
    let mut out = Vec::new();
    encoder.begin(stream, &mut out);
    for (name, value) in fields {
        encoder.field(name.as_bytes(), value.as_bytes(), Indexing::Incremental, &mut out);
    }
    encoder.end(0, &mut out);
    frame(kind::HEADERS, &out)
}

#[test]
fn a_request_waits_for_its_entries() {
    for is_late in [false, true] {
        let (mut server, mut encoder) = (Server::open(Some(0)), encoder());
        let first = request(&mut encoder, 0, GET);
        let body = [request(&mut encoder, 4, POST), data(b"body")].concat();
        let instructions = [&[2], encoder.instructions()].concat();
        if !is_late {
            server.feed(ENCODER, &instructions, false);
        }
        server.feed(0, &first, true);
        server.feed(4, &body, true);
        if is_late {
            assert!(server.seen.requests.is_empty());
            assert!(server.engine.held() > 0 && server.engine.awaits_head());
            for byte in &instructions {
                server.feed(ENCODER, &[*byte], false);
            }
        }
        assert_eq!(server.seen.requests[&0], "GET /a?b host=h:1");
        assert_eq!(server.seen.requests[&4], "POST /p host=h");
        assert_eq!((server.engine.held(), server.seen.failure), (0, None));
        let acknowledgements = server.sent(OwnStream::Decoder);
        assert_eq!(encoder.receive(&acknowledgements[1..]), Ok(0));
        // All is acknowledged: what repeats takes one byte for each field.
        assert_eq!(request(&mut encoder, 8, GET).len(), 2 + 2 + GET.len());
    }
}

#[test]
fn trailers_wait_for_their_entries() {
    let (mut server, mut encoder) = (Server::open(None), encoder());
    server.feed(0, &[headers(POST), data(b"body")].concat(), false);
    let trailers = request(&mut encoder, 0, &[("x", "y")]);
    server.feed(0, &trailers, false);
    server.feed(0, b"", true);
    assert_eq!(server.seen.bodies[&0], (b"body".to_vec(), false));
    server.feed(ENCODER, &[&[2], encoder.instructions()].concat(), false);
    assert_eq!(server.seen.bodies[&0], (b"body".to_vec(), true));
    assert_eq!(server.seen.trailers[&0].as_bytes(), b"x: y\r\n");
}

#[test]
fn a_stream_that_is_given_up_waits_for_nothing() {
    let mut server = Server::open(None);
    let blocked = frame(kind::HEADERS, &[&[2, 0, 0x80], &section(GET)[2..]].concat());
    server.feed(0, &blocked, true);
    assert_eq!(server.engine.reset_received(0), Ok(true));
    assert_eq!(server.sent(OwnStream::Decoder), [3, 0x40]);
    server.blocked.clear();
    server.feed(ENCODER, b"\x02\x3f\xe1\x1f\x41a\x01b", false);
    assert_eq!((server.engine.held(), server.seen.requests.len()), (0, 0));
    // The insertion is acknowledged by itself.
    assert_eq!(server.sent(OwnStream::Decoder), [1]);
    assert_eq!(server.seen.failure, None);
}
