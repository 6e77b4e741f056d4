#![no_main]
//! Bytes of a server's streams for the client of HTTP/3, each in one piece and in two: both give a client the same, nothing
//! panics, and what the client holds and passes on is bounded.

use std::collections::HashMap;

use dunlin_http::http3::OwnStream;
use dunlin_http::http3::client::{Http3ClientConnection, Http3ClientEvent};
use dunlin_http::{BodySize, RequestHead};
use libfuzzer_sys::fuzz_target;

/// Requests that wait for their responses.
const STREAMS: usize = 4;
/// Bytes of a head at most.
const HEAD: usize = 64 * 1024;

/// Pieces of streams: the number of the stream with that of a beginning in the upper bits, whether it ends, and bytes.
type Pieces = Vec<(u8, bool, Vec<u8>)>;

/// Beginnings of pieces, which are not easily found.
const BEGINNINGS: [&[u8]; 4] = [
    b"",
    b"\x01\x03\0\0\xd9",
    // 103, and 200 with an entry of the dynamic table.
    b"\x01\x03\0\0\xd8",
    b"\x01\x04\x02\0\xd9\x80",
];

struct Client {
    engine: Http3ClientConnection,
    heads: usize,
    blocked: HashMap<u64, (Vec<u8>, bool)>,
    over: Vec<u64>,
    failure: Option<String>,
}

impl Client {
    fn feed(&mut self, stream: u64, bytes: &[u8], is_end: bool) {
        self.receive(stream, bytes, is_end);
        while let Some(stream) = self.engine.next_unblocked() {
            if let Some((bytes, is_end)) = self.blocked.remove(&stream) {
                self.receive(stream, &bytes, is_end);
            }
        }
        while self.engine.unprocessed().is_some() {}
        assert!(self.engine.held() <= 16 * HEAD || self.failure.is_some());
        assert!(self.engine.open_streams() <= STREAMS && self.heads <= 3 * STREAMS * HEAD);
    }

    fn receive(&mut self, stream: u64, bytes: &[u8], is_end: bool) {
        if let Some((waiting, has_ended)) = self.blocked.get_mut(&stream) {
            waiting.extend_from_slice(bytes);
            *has_ended |= is_end;
            return;
        }
        let mut at = 0;
        while self.failure.is_none() && !self.over.contains(&stream) {
            match self.engine.receive(stream, bytes, &mut at, is_end) {
                Ok(Http3ClientEvent::NeedInput) => {
                    assert_eq!(at, bytes.len());
                    return;
                }
                Ok(Http3ClientEvent::Blocked) => {
                    self.blocked.insert(stream, (bytes[at..].to_vec(), is_end));
                    return;
                }
                Ok(
                    Http3ClientEvent::Interim { head, .. } | Http3ClientEvent::Head { head, .. },
                ) => {
                    self.heads += head.fields.as_bytes().len();
                }
                Ok(Http3ClientEvent::Data { data, .. }) => assert!(data.end <= bytes.len()),
                Ok(Http3ClientEvent::Reset { .. } | Http3ClientEvent::Stop { .. }) => {
                    self.over.push(stream);
                }
                Ok(_) => {}
                Err(failure) => self.failure = Some(format!("{failure:?}")),
            }
        }
    }
}

/// `None` if a stream or the connection failed: that can happen at a piece of a stream or at its end, and entries of the table may be
/// evicted before a section that needs them is read.
fn run(pieces: &Pieces, cut: Option<usize>) -> Option<(usize, Vec<u8>)> {
    let mut engine = Http3ClientConnection::new();
    for (number, method) in ["GET", "HEAD", "POST", "CONNECT"].iter().enumerate() {
        let head = RequestHead::new(method, "a", if *method == "CONNECT" { "a:1" } else { "/" });
        engine.open(4 * number as u64, &head, "https", BodySize::Unknown, &mut Vec::new()).unwrap();
    }
    let mut client =
        Client { engine, heads: 0, blocked: HashMap::new(), over: Vec::new(), failure: None };
    client.feed(3, b"\x00\x04\x05\x01\x50\x00\x07\x04", false);
    let mut ended = Vec::new();
    for (choice, is_end, bytes) in pieces {
        let number = u64::from(choice % 8);
        let stream = if number < 4 { 4 * number } else { 4 * (number - 4) + 3 };
        if ended.contains(&stream) {
            continue;
        }
        if *is_end {
            ended.push(stream);
        }
        let bytes = &[BEGINNINGS[usize::from(choice >> 6)], bytes].concat();
        let (first, second) = bytes.split_at(cut.unwrap_or(bytes.len()).min(bytes.len()));
        if cut.is_some() && !first.is_empty() && !second.is_empty() {
            client.feed(stream, first, false);
            client.feed(stream, second, *is_end);
        } else {
            client.feed(stream, bytes, *is_end);
        }
    }
    let mut sent = Vec::new();
    for stream in OwnStream::ALL {
        sent.extend_from_slice(client.engine.pending(stream));
    }
    let is_whole = client.over.is_empty() && client.failure.is_none();
    is_whole.then_some((client.heads, sent))
}

fuzz_target!(|input: (u8, Pieces)| {
    let (cut, pieces) = input;
    let (whole, split) = (run(&pieces, None), run(&pieces, Some(usize::from(cut))));
    if whole.is_some() && split.is_some() {
        assert_eq!(whole, split);
    }
});
