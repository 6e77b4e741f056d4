//! A server that writes frames, and what a client has seen of them.

use dunlin_http::http2::client::{Http2ClientConnection, Http2ClientEvent};
use dunlin_http::http2::frame::{self, FrameHeader, flag, kind};
use dunlin_http::http2::hpack::{HpackEncoder, Indexing};
use dunlin_http::http2::{Http2Error, Http2ErrorCode};
use dunlin_http::{BodySize, RequestHead};

/// A server that writes frames.
#[derive(Default)]
pub(super) struct Server {
    pub(super) encoder: HpackEncoder,
    pub(super) bytes: Vec<u8>,
}

impl Server {
    /// Creates a server that has sent its settings.
    pub(super) fn new(settings: &[(u16, u32)]) -> Self {
        let mut server = Self::default();
        frame::write_settings(settings, &mut server.bytes);
        server
    }

    pub(super) fn frame(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> &mut Self {
        FrameHeader { length: payload.len(), kind, flags, stream }.write(&mut self.bytes);
        self.bytes.extend_from_slice(payload);
        self
    }

    pub(super) fn headers(&mut self, stream: u32, fields: &[(&str, &str)], flags: u8) -> &mut Self {
        let mut block = Vec::new();
        self.encoder.begin(&mut block);
        for (name, value) in fields {
            self.encoder.field(
                name.as_bytes(),
                value.as_bytes(),
                Indexing::Incremental,
                &mut block,
            );
        }
        self.frame(kind::HEADERS, flags | flag::END_HEADERS, stream, &block)
    }

    pub(super) fn data(&mut self, stream: u32, data: &[u8], flags: u8) -> &mut Self {
        self.frame(kind::DATA, flags, stream, data)
    }
}

pub(super) const END: u8 = flag::END_STREAM;
pub(super) const OK: &[(&str, &str)] = &[(":status", "200")];

/// The events of a client, one line each; data of the same stream is joined.
pub(super) type Seen = Vec<String>;

/// Feeds `input` in pieces of `size` bytes.
pub(super) fn feed(
    connection: &mut Http2ClientConnection,
    input: &[u8],
    size: usize,
    out: &mut Vec<u8>,
) -> (Seen, Result<(), Http2Error>) {
    let (mut seen, mut pending) = (Seen::new(), Vec::new());
    let mut data_of = None;
    for piece in input.chunks(size) {
        pending.extend_from_slice(piece);
        let mut at = 0;
        loop {
            let event = match connection.receive(&pending, &mut at, out) {
                Ok(Http2ClientEvent::NeedInput) => break,
                Ok(event) => event,
                Err(failure) => return (seen, Err(failure)),
            };
            if let Http2ClientEvent::Data { stream, data, is_end } = event {
                let text = String::from_utf8_lossy(&pending[data.clone()]).into_owned();
                connection.consumed(stream, data.len(), out);
                if data_of == Some(stream) {
                    seen.last_mut().unwrap().push_str(&text);
                } else {
                    seen.push(format!("{stream} data {text}"));
                }
                data_of = (!is_end).then_some(stream);
                if is_end {
                    seen.push(format!("{stream} end"));
                }
                continue;
            }
            data_of = None;
            seen.push(match event {
                Http2ClientEvent::Interim { stream, head } => {
                    format!("{stream} interim {}", head.status)
                }
                Http2ClientEvent::Head { stream, head, is_end } => {
                    let fields =
                        String::from_utf8_lossy(head.fields.as_bytes()).replace("\r\n", ";");
                    let end = if is_end { " end" } else { "" };
                    format!("{stream} head {} {fields}{end}", head.status)
                }
                Http2ClientEvent::Trailers { stream, fields } => {
                    format!(
                        "{stream} trailers {}",
                        String::from_utf8_lossy(fields.as_bytes()).trim_end()
                    )
                }
                Http2ClientEvent::Reset { stream, reason, is_unprocessed, code } => {
                    let code = code.and_then(Http2ErrorCode::from_code);
                    let code = code.map_or_else(String::new, |code| format!(" ({code})"));
                    format!("{stream} reset {is_unprocessed} {reason}{code}")
                }
                Http2ClientEvent::GoAway { code } => format!("goaway {code}"),
                Http2ClientEvent::Window => continue,
                Http2ClientEvent::Data { .. } | Http2ClientEvent::NeedInput => {
                    unreachable!("handled above")
                }
            });
        }
        pending.drain(..at);
    }
    (seen, Ok(()))
}

pub(super) fn get() -> RequestHead {
    RequestHead::new("GET", "a", "/")
}

/// Opens a stream for each method and feeds what `server` sends, whole and in pieces of each size, which has to give the
/// same.
pub(super) fn exchange(methods: &[&str], server: &Server) -> (Seen, Result<(), Http2Error>) {
    let run = |size| {
        let mut out = Vec::new();
        let mut connection = Http2ClientConnection::new(&mut out);
        for method in methods {
            let head = RequestHead::new(method, "a", "/");
            connection.open(&head, "http", BodySize::Empty, &mut out).unwrap();
        }
        feed(&mut connection, &server.bytes, size, &mut out)
    };
    let whole = run(server.bytes.len());
    for size in (1..40).chain([100, 1000]) {
        assert_eq!(run(size), whole, "in pieces of {size}");
    }
    whole
}
