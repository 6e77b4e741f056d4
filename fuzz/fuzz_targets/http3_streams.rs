#![no_main]
//! Bytes of a client's streams for the server of HTTP/3, each in one piece and in two: both give the same events, nothing panics, and
//! what the server holds is bounded.

use std::collections::HashMap;

use dunlin_http::http3::{Http3Connection, Http3Event, Http3Settings, OutgoingHead, OwnStream};
use dunlin_http::{Head, Request};
use libfuzzer_sys::fuzz_target;

/// Bytes of heads that are incomplete or wait, at most.
const HELD: usize = 8 * 32 * 1024;
const STREAMS: u32 = 5;

struct Server {
    engine: Http3Connection,
    /// Events, and bytes of bodies by stream.
    events: Vec<String>,
    bodies: HashMap<u64, Vec<u8>>,
    /// Bytes of streams that wait.
    blocked: HashMap<u64, (Vec<u8>, bool)>,
    over: Vec<u64>,
    out: Vec<u8>,
    has_failed: bool,
}

impl Server {
    fn new() -> Self {
        Self {
            engine: Http3Connection::new(Http3Settings {
                streams: STREAMS,
                ..Http3Settings::default()
            }),
            events: Vec::new(),
            bodies: HashMap::new(),
            blocked: HashMap::new(),
            over: Vec::new(),
            out: Vec::new(),
            has_failed: false,
        }
    }

    fn feed(&mut self, stream: u64, bytes: &[u8], is_end: bool) {
        self.receive(stream, bytes, is_end);
        while let Some(stream) = self.engine.next_unblocked() {
            if let Some((bytes, is_end)) = self.blocked.remove(&stream) {
                self.receive(stream, &bytes, is_end);
            }
        }
        assert!(self.engine.held() <= HELD || self.has_failed);
        assert!(self.engine.open_streams() <= STREAMS as usize);
    }

    fn receive(&mut self, stream: u64, bytes: &[u8], is_end: bool) {
        if let Some((waiting, has_ended)) = self.blocked.get_mut(&stream) {
            waiting.extend_from_slice(bytes);
            *has_ended |= is_end;
            return;
        }
        let (mut at, mut head, mut text) = (0, Head::default(), Vec::new());
        while !self.has_failed && !self.over.contains(&stream) {
            match self.engine.receive(stream, bytes, &mut at, is_end, &mut head, &mut text) {
                Ok(Http3Event::More) => {
                    assert_eq!(at, bytes.len());
                    return;
                }
                Ok(Http3Event::Blocked) => {
                    self.blocked.insert(stream, (bytes[at..].to_vec(), is_end));
                    return;
                }
                Ok(Http3Event::Data { data, ended, .. }) => {
                    self.bodies.entry(stream).or_default().extend_from_slice(&bytes[data]);
                    if ended {
                        self.events
                            .push(format!("{stream} {:?}", self.engine.take_trailers(stream)));
                    }
                }
                Ok(event) => {
                    if let Http3Event::Request { .. } | Http3Event::Rejected { .. } = event {
                        let request = Request::new(&text, &head);
                        self.events.push(format!("{:?}", request.fields().collect::<Vec<_>>()));
                        let lines = b"Server: x\r\nX-Own: y\r\n";
                        let response = OutgoingHead { status: 200, date: b"", lines, serial: 3 };
                        self.engine.respond(stream, &response, stream % 8 == 0, &mut self.out);
                    }
                    if let Http3Event::Malformed { .. }
                    | Http3Event::Reset { .. }
                    | Http3Event::Stop { .. } = event
                    {
                        self.over.push(stream);
                    }
                    self.events.push(format!("{event:?}"));
                }
                Err(failure) => {
                    self.events.push(format!("{failure:?}"));
                    self.has_failed = true;
                }
            }
        }
    }
}

/// Pieces of streams: the number of the stream with that of a beginning in the upper bits, whether it ends, and bytes.
type Pieces = Vec<(u8, bool, Vec<u8>)>;

/// Beginnings of pieces, which are not easily found.
const BEGINNINGS: [&[u8]; 4] = [
    b"",
    // GET https://h/, and POST.
    b"\x01\x08\0\0\xd1\xd7\xc1\x50\x01h",
    b"\x01\x08\0\0\xd4\xd7\xc1\x50\x01h",
    // With an entry of the dynamic table.
    b"\x01\x09\x02\0\xd1\xd7\xc1\x50\x01h\x80",
];

type Outcome = (Vec<String>, HashMap<u64, Vec<u8>>, Vec<u8>);

/// `None` if a stream or the connection failed: that can happen at a piece of a stream or at its end, and entries of the table may be
/// evicted before a section that needs them is read.
fn run(pieces: &Pieces, cut: Option<usize>) -> Option<Outcome> {
    let mut server = Server::new();
    server.feed(2, b"\x00\x04\x05\x01\x50\x00\x07\x04", false);
    let mut ended = Vec::new();
    for (choice, is_end, bytes) in pieces {
        // Requests, and unidirectional streams.
        let stream = u64::from(choice % 16) * 2;
        if ended.contains(&stream) {
            continue;
        }
        if *is_end {
            ended.push(stream);
        }
        let bytes = &[BEGINNINGS[usize::from(choice >> 6)], bytes].concat();
        let (first, second) = bytes.split_at(cut.unwrap_or(bytes.len()).min(bytes.len()));
        if cut.is_some() && !first.is_empty() && !second.is_empty() {
            server.feed(stream, first, false);
            server.feed(stream, second, *is_end);
        } else {
            server.feed(stream, bytes, *is_end);
        }
    }
    for stream in OwnStream::ALL {
        server.out.extend_from_slice(server.engine.pending(stream));
    }
    // Whether a body ends with its last piece or behind it differs.
    server.bodies.retain(|_, body| !body.is_empty());
    let is_whole = server.over.is_empty() && !server.has_failed;
    is_whole.then_some((server.events, server.bodies, server.out))
}

fuzz_target!(|input: (u8, Pieces)| {
    let (cut, pieces) = input;
    let (whole, split) = (run(&pieces, None), run(&pieces, Some(usize::from(cut))));
    if whole.is_some() && split.is_some() {
        assert_eq!(whole, split);
    }
});
