//! A server over the engine, a view of what it makes, and frames to feed it with.

use std::collections::BTreeMap;

use dunlin_http::http3::frame::{self, kind, read_varint, write_varint};
use dunlin_http::http3::qpack::{Indexing, QpackEncoder};
use dunlin_http::http3::{
    Http3Connection, Http3Error, Http3ErrorCode, Http3Event, Http3Settings, OutgoingHead, OwnStream,
};
use dunlin_http::{FieldLines, Head, Request, Version};

pub(crate) use crate::common::{GET, POST, replaced, with};

/// Events of a server by stream, and its connection error.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Seen {
    /// Method, target and every field of each request.
    pub(crate) requests: BTreeMap<u64, String>,
    /// Bytes of bodies and their ends.
    pub(crate) bodies: BTreeMap<u64, (Vec<u8>, bool)>,
    pub(crate) trailers: BTreeMap<u64, FieldLines>,
    pub(crate) malformed: Vec<(u64, Http3ErrorCode, String)>,
    pub(crate) rejected: Vec<(u64, u16)>,
    pub(crate) resets: Vec<(u64, Http3ErrorCode)>,
    pub(crate) stops: Vec<(u64, Http3ErrorCode)>,
    pub(crate) failure: Option<Http3Error>,
}

/// A server that responds by a rule.
pub(crate) struct Server {
    pub(crate) engine: Http3Connection,
    pub(crate) head: Head,
    pub(crate) text: Vec<u8>,
    /// Bytes of blocked streams, and whether these end with them.
    pub(crate) blocked: BTreeMap<u64, (Vec<u8>, bool)>,
    /// What is sent on requests' streams.
    pub(crate) out: BTreeMap<u64, Vec<u8>>,
    pub(crate) seen: Seen,
    /// The length of the response to send to every request at once.
    pub(crate) response_length: Option<usize>,
}

impl Server {
    pub(crate) fn new(response_length: Option<usize>) -> Self {
        Self {
            engine: Http3Connection::new(Http3Settings { streams: 10, ..Http3Settings::default() }),
            head: Head::default(),
            text: Vec::new(),
            blocked: BTreeMap::new(),
            out: BTreeMap::new(),
            seen: Seen::default(),
            response_length,
        }
    }

    /// Returns a server whose client has sent its settings.
    pub(crate) fn open(response_length: Option<usize>) -> Self {
        let mut server = Self::new(response_length);
        server.feed(CONTROL, &control(&[]), false);
        server
    }

    /// Passes bytes of a stream, as an adapter does.
    pub(crate) fn feed(&mut self, stream: u64, bytes: &[u8], is_end: bool) {
        self.feed_stream(stream, bytes, is_end);
        while let Some(stream) = self.engine.next_unblocked() {
            let Some((bytes, is_end)) = self.blocked.remove(&stream) else { continue };
            self.feed_stream(stream, &bytes, is_end);
        }
    }

    fn feed_stream(&mut self, stream: u64, bytes: &[u8], is_end: bool) {
        if let Some((waiting, has_ended)) = self.blocked.get_mut(&stream) {
            waiting.extend_from_slice(bytes);
            *has_ended |= is_end;
            return;
        }
        let is_over = self.seen.stops.iter().chain(&self.seen.resets).any(|seen| seen.0 == stream)
            || self.seen.malformed.iter().any(|seen| seen.0 == stream);
        if is_over {
            return;
        }
        let mut at = 0;
        while self.seen.failure.is_none() {
            let event =
                self.engine.receive(stream, bytes, &mut at, is_end, &mut self.head, &mut self.text);
            match event {
                Ok(Http3Event::More) => {
                    assert_eq!(at, bytes.len());
                    break;
                }
                Ok(Http3Event::Blocked) => {
                    self.blocked.insert(stream, (bytes[at..].to_vec(), is_end));
                    break;
                }
                Ok(event) => self.event(event, bytes),
                Err(failure) => self.seen.failure = Some(failure),
            }
        }
    }

    fn event(&mut self, event: Http3Event, bytes: &[u8]) {
        match event {
            Http3Event::Request { stream, ended, .. } => self.request(stream, ended),
            Http3Event::Rejected { stream, error } => {
                self.seen.rejected.push((stream, error.status));
                let out = self.out.entry(stream).or_default();
                self.engine.respond(stream, &plain(error.status), true, out);
            }
            Http3Event::Data { stream, data, ended } => {
                // The body of a rejected request is of no interest.
                let body = self.seen.bodies.entry(stream).or_default();
                body.0.extend_from_slice(&bytes[data]);
                body.1 |= ended;
                if ended {
                    let trailers = self.engine.take_trailers(stream);
                    if !trailers.is_empty() {
                        self.seen.trailers.insert(stream, trailers);
                    }
                }
            }
            Http3Event::Malformed { stream, code, .. } => {
                let request = Request::new(&self.text, &self.head);
                let target = String::from_utf8_lossy(request.target()).into_owned();
                self.seen.malformed.push((stream, code, target));
            }
            Http3Event::Reset { stream, code } => self.seen.resets.push((stream, code)),
            Http3Event::Stop { stream, code } => self.seen.stops.push((stream, code)),
            Http3Event::More | Http3Event::Blocked => unreachable!("handled by the caller"),
        }
    }

    fn request(&mut self, stream: u64, ended: bool) {
        let request = Request::new(&self.text, &self.head);
        assert_eq!(request.version(), Version::Http3);
        let show = |text: &[u8]| String::from_utf8_lossy(text).into_owned();
        let mut line = format!("{} {}", show(request.method_text()), show(request.target()));
        for (name, value) in request.fields() {
            line += &format!(" {}={}", show(name), show(value));
        }
        assert_eq!(self.seen.requests.insert(stream, line), None);
        if ended {
            self.seen.bodies.insert(stream, (Vec::new(), true));
        }
        if let Some(length) = self.response_length {
            self.respond(stream, length);
        }
    }

    pub(crate) fn respond(&mut self, stream: u64, length: usize) {
        let out = self.out.entry(stream).or_default();
        self.engine.respond(stream, &plain(200), length == 0, out);
        if length > 0 {
            let header = self.engine.send_data(stream, length, true).unwrap();
            out.extend_from_slice(header.as_bytes());
            out.resize(out.len() + length, b'x');
        }
    }

    /// Bytes of one of the server's unidirectional streams since the last call.
    pub(crate) fn sent(&mut self, stream: OwnStream) -> Vec<u8> {
        let bytes = self.engine.pending(stream).to_vec();
        self.engine.sent(stream, bytes.len());
        bytes
    }

    #[track_caller]
    pub(crate) fn failed_with(&mut self, code: Http3ErrorCode) -> &'static str {
        let failure = self.seen.failure.expect("the connection went on");
        assert_eq!(failure.code, code, "{}", failure.reason);
        failure.reason
    }
}

/// Unidirectional streams of the client.
pub(crate) const CONTROL: u64 = 2;
pub(crate) const ENCODER: u64 = 6;
pub(crate) const DECODER: u64 = 10;

pub(crate) fn plain(status: u16) -> OutgoingHead<'static> {
    OutgoingHead { status, date: b"", lines: b"Server: x\r\n", serial: 0 }
}

/// Type and payload of each frame.
pub(crate) fn frames(bytes: &[u8]) -> Vec<(u64, Vec<u8>)> {
    let (mut frames, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        let kind = read_varint(bytes, &mut at).unwrap();
        let length = read_varint(bytes, &mut at).unwrap() as usize;
        frames.push((kind, bytes[at..at + length].to_vec()));
        at += length;
    }
    frames
}

pub(crate) fn frame(kind: u64, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    frame::write(kind, payload, &mut out);
    out
}

/// The header of a frame alone.
pub(crate) fn header(kind: u64, length: u64) -> Vec<u8> {
    [varint(kind), varint(length)].concat()
}

pub(crate) fn varint(value: u64) -> Vec<u8> {
    let mut out = Vec::new();
    write_varint(value, &mut out);
    out
}

pub(crate) fn settings(pairs: &[(u64, u64)]) -> Vec<u8> {
    let mut out = Vec::new();
    frame::write_settings(pairs, &mut out);
    out
}

/// The start of a control stream.
pub(crate) fn control(pairs: &[(u64, u64)]) -> Vec<u8> {
    [vec![0], settings(pairs)].concat()
}

/// A section that does not use a dynamic table.
pub(crate) fn section(fields: &[(&str, &str)]) -> Vec<u8> {
    let (mut encoder, mut out) = (QpackEncoder::default(), Vec::new());
    encoder.begin(0, &mut out);
    for (name, value) in fields {
        encoder.field(name.as_bytes(), value.as_bytes(), Indexing::Without, &mut out);
    }
    encoder.end(0, &mut out);
    out
}

pub(crate) fn headers(fields: &[(&str, &str)]) -> Vec<u8> {
    frame(kind::HEADERS, &section(fields))
}

pub(crate) fn data(bytes: &[u8]) -> Vec<u8> {
    frame(kind::DATA, bytes)
}
