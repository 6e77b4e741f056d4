#![no_main]
//! Bytes of a connection after the preface, in one piece and in two: both give the same events, nothing panics,
//! and the limit of open streams holds.

use dunlin_http::Head;
use dunlin_http::http2::{Http2Connection, Http2Event, Http2Settings, OutgoingHead, PREFACE};
use libfuzzer_sys::fuzz_target;

/// Events, and the bytes that were sent.
fn serve(pieces: &[&[u8]]) -> (Vec<String>, Vec<u8>) {
    let settings = Http2Settings { streams: 5, ..Http2Settings::default() };
    let (mut head, mut text, mut out) = (Head::default(), Vec::new(), Vec::new());
    let mut engine = Http2Connection::new(settings, &mut out);
    let (mut events, mut pending) = (Vec::new(), Vec::new());
    for piece in pieces {
        pending.extend_from_slice(piece);
        let mut at = 0;
        loop {
            let event = match engine.next(&pending, &mut at, &mut head, &mut text, &mut out) {
                Ok(Http2Event::More) => break,
                Ok(event) => event,
                Err(failure) => {
                    events.push(format!("{failure:?}"));
                    return (events, out);
                }
            };
            match &event {
                Http2Event::Request { stream, .. } => {
                    let lines = b"A: b\r\nSet-Cookie: c\r\n";
                    let head = OutgoingHead {
                        status: 200,
                        date: b"d",
                        lines,
                        serial: u64::from(*stream % 3),
                    };
                    engine.respond(*stream, &head, false, &mut out);
                    if stream % 4 == 1 && !engine.send_whole(*stream, &[b'x'; 3000], &mut out) {
                        engine.set_ready(*stream, true);
                    }
                    events.push(format!("request {stream}"));
                }
                Http2Event::Data { stream, data, ended } => {
                    events.push(format!("{stream} {:?} {ended}", &pending[data.clone()]));
                    engine.consumed(*stream, data.len(), &mut out);
                }
                event => events.push(format!("{event:?}")),
            }
            assert!(engine.open_streams() <= 5);
        }
        pending.drain(..at);
    }
    (events, out)
}

fuzz_target!(|input: (u16, &[u8])| {
    let (cut, data) = input;
    let data = [PREFACE, &[0, 0, 0, 4, 0, 0, 0, 0, 0], data].concat();
    let (first, second) = data.split_at(usize::from(cut).min(data.len()));
    assert_eq!(serve(&[&data]), serve(&[first, second]));
});
