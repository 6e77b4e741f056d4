#![no_main]
//! Bytes of a server, in one piece and in two: both give a client the same events, nothing panics, and what the client holds,
//! passes on and sends is bounded.

use dunlin_http::http2::client::{Http2ClientConnection, Http2ClientEvent};
use dunlin_http::{BodySize, RequestHead};
use libfuzzer_sys::fuzz_target;

/// Requests that wait for their responses.
const STREAMS: usize = 3;
/// Bytes of a head at most.
const HEAD: usize = 64 * 1024;
/// Bytes that a server may send before the client has consumed any.
const WINDOW: usize = 1024 * 1024;

/// Events, and the bytes that were sent.
fn receive(pieces: &[&[u8]], takes_data: bool) -> (Vec<String>, Vec<u8>) {
    let mut out = Vec::new();
    let mut engine = Http2ClientConnection::new(&mut out);
    for number in 0..STREAMS {
        let method = ["GET", "HEAD", "POST"][number % 3];
        let size = if method == "POST" { BodySize::Unknown } else { BodySize::Empty };
        engine.open(&RequestHead::new(method, "a", "/"), "http", size, &mut out).unwrap();
    }
    let sent = out.len();
    let (mut events, mut pending) = (Vec::new(), Vec::new());
    let (mut heads, mut data_held) = (0, 0);
    for piece in pieces {
        pending.extend_from_slice(piece);
        let mut at = 0;
        loop {
            let event = match engine.receive(&pending, &mut at, &mut out) {
                Ok(Http2ClientEvent::NeedInput) => break,
                Ok(event) => event,
                Err(failure) => {
                    events.push(format!("{failure:?}"));
                    return (events, out);
                }
            };
            match &event {
                Http2ClientEvent::Data { stream, data, is_end } => {
                    events.push(format!("{stream} {:?} {is_end}", &pending[data.clone()]));
                    match takes_data {
                        true => engine.consumed(*stream, data.len(), &mut out),
                        false => data_held += data.len(),
                    }
                }
                Http2ClientEvent::Interim { head, .. } | Http2ClientEvent::Head { head, .. } => {
                    heads += head.fields.as_bytes().len();
                    events.push(format!("{event:?}"));
                }
                event => events.push(format!("{event:?}")),
            }
            while let Some(stream) = engine.unprocessed() {
                events.push(format!("unprocessed {stream}"));
            }
            if engine.capacity(5) > 0 {
                engine.begin_data(5, 1, false, &mut out);
                out.push(b'x');
            }
            assert!(engine.open_streams() <= STREAMS);
            assert!(engine.held() <= 4 * HEAD && heads <= 2 * STREAMS * HEAD && data_held <= WINDOW);
        }
        pending.drain(..at);
        // Acknowledgements, credits, and a byte of a body for each event.
        assert!(out.len() - sent <= 16 * 1024 + 30 * events.len());
    }
    (events, out)
}

fuzz_target!(|input: (u16, bool, &[u8])| {
    let (cut, takes_data, data) = input;
    let data = [&[0, 0, 0, 4, 0, 0, 0, 0, 0][..], data].concat();
    let (first, second) = data.split_at(usize::from(cut).min(data.len()));
    assert_eq!(receive(&[&data], takes_data), receive(&[first, second], takes_data));
});
