//! A server over the engine, a view of what it sends, and frames to feed it with.

use dunlin_http::http2::frame::{
    FrameHeader, flag, kind, write_data_head, write_reset, write_settings, write_settings_ack,
    write_window_update,
};
use dunlin_http::http2::hpack::{HpackEncoder, Indexing};
use dunlin_http::http2::{
    Http2Connection, Http2Error, Http2ErrorCode, Http2Event, Http2Settings, OutgoingHead, PREFACE,
};
use dunlin_http::{Head, Request, Version};

pub(crate) use crate::common::{GET, POST, replaced, with};

/// Events of a server, and its connection error.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Seen {
    /// Stream, method, target and every field of each request.
    pub(crate) requests: Vec<(u32, String)>,
    /// Bytes of bodies and their ends, by stream.
    pub(crate) bodies: Vec<(u32, Vec<u8>, bool)>,
    pub(crate) malformed: Vec<(u32, String)>,
    pub(crate) rejected: Vec<(u32, u16)>,
    pub(crate) resets: Vec<u32>,
    pub(crate) failure: Option<Http2Error>,
}

/// A server that responds by a rule, and the frames that it sends.
pub(crate) struct Server {
    pub(crate) engine: Http2Connection,
    pub(crate) head: Head,
    pub(crate) text: Vec<u8>,
    pub(crate) pending: Vec<u8>,
    pub(crate) out: Vec<u8>,
    pub(crate) seen: Seen,
    /// The length of the response to send to every request at once.
    pub(crate) response_length: Option<usize>,
}

impl Server {
    pub(crate) fn new(response_length: Option<usize>) -> Self {
        let mut out = Vec::new();
        Self {
            engine: Http2Connection::new(
                Http2Settings { streams: 10, ..Http2Settings::default() },
                &mut out,
            ),
            head: Head::default(),
            text: Vec::new(),
            pending: Vec::new(),
            out,
            seen: Seen::default(),
            response_length,
        }
    }

    /// Returns a server whose client has sent its preface.
    pub(crate) fn open(response_length: Option<usize>) -> Self {
        let mut server = Self::new(response_length);
        server.feed(&preface(&[]));
        server.out.clear();
        server
    }

    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        self.pending.extend_from_slice(bytes);
        let pending = std::mem::take(&mut self.pending);
        let mut at = 0;
        while self.seen.failure.is_none() {
            let event =
                self.engine.next(&pending, &mut at, &mut self.head, &mut self.text, &mut self.out);
            match event {
                Ok(Http2Event::More) => break,
                Ok(Http2Event::Request { stream, ended, .. }) => self.request(stream, ended),
                Ok(Http2Event::Rejected { stream, error }) => {
                    self.seen.rejected.push((stream, error.status));
                    self.engine.respond(stream, &plain(error.status), true, &mut self.out);
                }
                Ok(Http2Event::Data { stream, data, ended }) => {
                    let body = self.seen.bodies.iter_mut().find(|body| body.0 == stream).unwrap();
                    body.1.extend_from_slice(&pending[data.clone()]);
                    body.2 = ended;
                    self.engine.consumed(stream, data.len(), &mut self.out);
                }
                Ok(Http2Event::Malformed { stream, .. }) => {
                    let request = Request::new(&self.text, &self.head);
                    let target = String::from_utf8_lossy(request.target()).into_owned();
                    self.seen.malformed.push((stream, target));
                }
                Ok(Http2Event::Reset { stream }) => self.seen.resets.push(stream),
                Err(failure) => self.seen.failure = Some(failure),
            }
        }
        self.pending.extend_from_slice(&pending[at..]);
    }

    pub(crate) fn request(&mut self, stream: u32, ended: bool) {
        let request = Request::new(&self.text, &self.head);
        assert_eq!(request.version(), Version::Http2);
        let show = |text: &[u8]| String::from_utf8_lossy(text).into_owned();
        let mut line = format!("{} {}", show(request.method_text()), show(request.target()));
        for (name, value) in request.fields() {
            line += &format!(" {}={}", show(name), show(value));
        }
        self.seen.requests.push((stream, line));
        if !ended {
            self.seen.bodies.push((stream, Vec::new(), false));
        }
        if let Some(length) = self.response_length {
            self.respond(stream, length);
        }
    }

    pub(crate) fn respond(&mut self, stream: u32, length: usize) {
        self.engine.respond(stream, &plain(200), length == 0, &mut self.out);
        if length > 0 && !self.engine.send_whole(stream, &vec![b'x'; length], &mut self.out) {
            self.engine.set_ready(stream, true);
        }
    }

    /// Frames since the last call: kind, flags, stream and payload.
    pub(crate) fn sent(&mut self) -> Vec<(u8, u8, u32, Vec<u8>)> {
        frames(&std::mem::take(&mut self.out))
    }

    #[track_caller]
    pub(crate) fn failed_with(&mut self, code: Http2ErrorCode) -> &'static str {
        let failure = self.seen.failure.expect("the connection went on");
        assert_eq!(failure.code, code, "{}", failure.reason);
        let sent = self.sent();
        let goaway = sent.last().unwrap();
        assert_eq!((goaway.0, goaway.3[7]), (kind::GOAWAY, code as u8));
        failure.reason
    }

    #[track_caller]
    pub(crate) fn reset_with(&mut self, stream: u32, code: Http2ErrorCode) {
        assert_eq!(self.seen.failure, None);
        let expected = (kind::RST_STREAM, 0, stream, (code as u32).to_be_bytes().to_vec());
        let sent = self.sent();
        assert!(sent.contains(&expected), "{sent:?}");
    }
}

pub(crate) fn plain(status: u16) -> OutgoingHead<'static> {
    OutgoingHead { status, date: b"", lines: b"Server: x\r\n", serial: 0 }
}

pub(crate) fn frames(mut bytes: &[u8]) -> Vec<(u8, u8, u32, Vec<u8>)> {
    let mut frames = Vec::new();
    while let Some(head) = FrameHeader::parse(bytes) {
        let payload = bytes[9..9 + head.length].to_vec();
        frames.push((head.kind, head.flags, head.stream, payload));
        bytes = &bytes[9 + head.length..];
    }
    assert!(bytes.is_empty());
    frames
}

pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = FrameHeader { length: payload.len(), kind, flags, stream }.to_bytes().to_vec();
    out.extend_from_slice(payload);
    out
}

pub(crate) fn preface(settings: &[(u16, u32)]) -> Vec<u8> {
    let mut out = PREFACE.to_vec();
    write_settings(settings, &mut out);
    write_settings_ack(&mut out);
    out
}

pub(crate) fn section(fields: &[(&str, &str)]) -> Vec<u8> {
    let (mut encoder, mut out) = (HpackEncoder::default(), Vec::new());
    for (name, value) in fields {
        encoder.field(name.as_bytes(), value.as_bytes(), Indexing::Without, &mut out);
    }
    out
}

pub(crate) fn headers(stream: u32, fields: &[(&str, &str)], ended: bool) -> Vec<u8> {
    let flags = flag::END_HEADERS | if ended { flag::END_STREAM } else { 0 };
    frame(kind::HEADERS, flags, stream, &section(fields))
}

pub(crate) fn data(stream: u32, bytes: &[u8], ended: bool) -> Vec<u8> {
    let mut out = Vec::new();
    write_data_head(stream, bytes.len(), ended, &mut out);
    out.extend_from_slice(bytes);
    out
}

pub(crate) fn settings(pairs: &[(u16, u32)]) -> Vec<u8> {
    let mut out = Vec::new();
    write_settings(pairs, &mut out);
    out
}

pub(crate) fn window(stream: u32, increment: u32) -> Vec<u8> {
    let mut out = Vec::new();
    write_window_update(stream, increment, &mut out);
    out
}

pub(crate) fn reset(stream: u32) -> Vec<u8> {
    let mut out = Vec::new();
    write_reset(stream, Http2ErrorCode::Cancel, &mut out);
    out
}
