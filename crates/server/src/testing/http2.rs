//! A client of HTTP/2 in memory (RFC 9113).

use std::collections::{BTreeMap, VecDeque};

use dunlin_http::http2::frame::{
    self, FrameHeader, HEADER_LENGTH, MAX_PAYLOAD, flag, kind, setting, write_data_head,
    write_settings, write_settings_ack, write_window_update,
};
use dunlin_http::http2::hpack::{HpackDecoder, HpackEncoder, Indexing};
use dunlin_http::http2::{Http2ErrorCode, PREFACE};
use dunlin_net::stream::memory::{ClientEnd, Side};

use super::link::TestLink;
use super::message::{End, Message, TestReply};

/// A connection, and the responses to the requests that were sent on it, by their streams.
pub(crate) struct Http2<L = ClientEnd> {
    pub(crate) end: L,
    received: Vec<u8>,
    encoder: HpackEncoder,
    decoder: HpackDecoder,
    next: u32,
    pub(crate) replies: BTreeMap<u32, TestReply>,
    uploads: BTreeMap<u32, Upload>,
    /// The server's windows: of the connection, and initially of a stream.
    window: i64,
    stream_window: i64,
    /// Restores the windows at once.
    pub(crate) opens_windows: bool,
    /// The code of GOAWAY, and the last stream that it names.
    pub(crate) goaway: Option<(u32, u32)>,
    /// Codes of RST_STREAM.
    pub(crate) resets: BTreeMap<u32, u32>,
    pub(crate) is_closed: bool,
    /// Queued bytes that have not been sent.
    pub(crate) out: VecDeque<u8>,
    /// Sends queued bytes at once.
    pub(crate) is_eager: bool,
}

/// A request's body that has not been sent.
struct Upload {
    rest: Vec<u8>,
    window: i64,
    sent: i64,
}

impl<L: TestLink> Http2<L> {
    /// Sends the preface, with an initial window for each response.
    pub(crate) fn new(end: L, window: u32) -> Self {
        let mut bytes = PREFACE.to_vec();
        write_settings(&[(setting::INITIAL_WINDOW_SIZE, window)], &mut bytes);
        end.send(&bytes);
        Self::idle(end)
    }

    /// Returns a client for bytes that another one has made for that many requests.
    pub(crate) fn replaying(end: L, requests: u32) -> Self {
        let mut client = Self::idle(end);
        client.replies =
            (0..requests).map(|number| (2 * number + 1, TestReply::default())).collect();
        client
    }

    fn idle(end: L) -> Self {
        Self {
            end,
            received: Vec::new(),
            encoder: HpackEncoder::default(),
            decoder: HpackDecoder::default(),
            next: 1,
            replies: BTreeMap::new(),
            uploads: BTreeMap::new(),
            window: 65_535,
            stream_window: 65_535,
            opens_windows: true,
            goaway: None,
            resets: BTreeMap::new(),
            is_closed: false,
            out: VecDeque::new(),
            is_eager: true,
        }
    }

    /// Sends a request, and its body as far as the windows are open. Returns its stream.
    pub(crate) fn send(&mut self, message: &Message) -> u32 {
        let (id, bytes) = self.begin(message);
        self.queue(&bytes);
        self.send_bodies();
        id
    }

    fn queue(&mut self, bytes: &[u8]) {
        self.out.extend(bytes);
        if self.is_eager {
            self.transmit(usize::MAX);
        }
    }

    /// Sends up to `max` queued bytes.
    pub(crate) fn transmit(&mut self, max: usize) {
        let count = self.out.len().min(max);
        let bytes: Vec<u8> = self.out.drain(..count).collect();
        if !self.end.is_closed() {
            self.end.send(&bytes);
        }
    }

    /// Sends the head of a request whose body the caller sends.
    pub(crate) fn open(&mut self, message: &Message) -> u32 {
        let body = message.body.clone().or_else(|| Some(Vec::new()));
        let (id, bytes) = self.begin(&Message { body, states_length: false, ..message.clone() });
        self.uploads.remove(&id);
        self.queue(&bytes);
        id
    }

    /// Sends a part of a body, whatever the window.
    pub(crate) fn data(&mut self, id: u32, data: &[u8], is_end: bool) {
        let mut bytes = Vec::new();
        write_data_head(id, data.len(), is_end, &mut bytes);
        bytes.extend_from_slice(data);
        self.queue(&bytes);
    }

    /// Returns the frames of a request's head, which the caller sends, and its stream.
    pub(crate) fn begin(&mut self, message: &Message) -> (u32, Vec<u8>) {
        let Message { method, target, host, fields, body, states_length } = message;
        let id = self.next;
        self.next += 2;
        let mut block = Vec::new();
        self.encoder.begin(&mut block);
        let length = body.as_ref().filter(|_| *states_length).map(|body| body.len().to_string());
        let pseudo = [
            (":method", *method),
            (":scheme", "http"),
            (":path", target.as_str()),
            (":authority", *host),
        ];
        let fields = fields.iter().map(|(name, value)| (*name, value.as_str()));
        let length = length.as_deref().map(|length| ("content-length", length));
        for (name, value) in pseudo.into_iter().chain(fields).chain(length) {
            let (name, value) = (name.as_bytes(), value.as_bytes());
            self.encoder.field(name, value, Indexing::Incremental, &mut block);
        }
        let ended = if body.is_none() { flag::END_STREAM } else { 0 };
        let mut bytes = Vec::new();
        let (mut kind, mut flags) = (kind::HEADERS, ended);
        let mut parts = block.chunks(MAX_PAYLOAD).peekable();
        while let Some(part) = parts.next() {
            let last = if parts.peek().is_none() { flag::END_HEADERS } else { 0 };
            let header = FrameHeader { length: part.len(), kind, flags: flags | last, stream: id };
            header.write(&mut bytes);
            bytes.extend_from_slice(part);
            (kind, flags) = (kind::CONTINUATION, 0);
        }
        self.replies.insert(id, TestReply::default());
        if let Some(body) = body {
            let upload = Upload { rest: body.clone(), window: self.stream_window, sent: 0 };
            self.uploads.insert(id, upload);
        }
        (id, bytes)
    }

    /// Sends bodies of requests as far as the windows are open.
    pub(crate) fn send_bodies(&mut self) {
        let mut bytes = Vec::new();
        self.uploads.retain(|id, upload| {
            loop {
                let room = self.window.min(upload.window - upload.sent).clamp(0, 16_384) as usize;
                let count = upload.rest.len().min(room);
                let is_last = count == upload.rest.len();
                if count == 0 && !is_last {
                    return true;
                }
                write_data_head(*id, count, is_last, &mut bytes);
                bytes.extend(upload.rest.drain(..count));
                self.window -= count as i64;
                upload.sent += count as i64;
                if is_last {
                    return false;
                }
            }
        });
        self.queue(&bytes);
    }

    /// Cancels a stream.
    pub(crate) fn cancel(&mut self, id: u32) {
        let mut bytes = Vec::new();
        frame::write_reset(id, Http2ErrorCode::Cancel, &mut bytes);
        self.queue(&bytes);
        self.uploads.remove(&id);
        if let Some(reply) = self.replies.get_mut(&id).filter(|reply| reply.end == End::Open) {
            reply.end = End::Aborted;
        }
    }

    /// Returns the bytes of the request body that were not sent.
    pub(crate) fn unsent(&self, id: u32) -> usize {
        self.uploads.get(&id).map_or(0, |upload| upload.rest.len())
    }

    /// Lets the server send `bytes` further bytes on a stream, 0 for the connection.
    pub(crate) fn open_window(&mut self, stream: u32, bytes: u32) {
        let mut frames = Vec::new();
        write_window_update(stream, bytes, &mut frames);
        self.queue(&frames);
    }

    /// Receives up to `max` bytes, and reads all complete frames.
    pub(crate) fn receive(&mut self, max: usize) {
        self.received.extend(self.end.take(max));
        let received = std::mem::take(&mut self.received);
        let mut rest = &received[..];
        while let Some(head) =
            FrameHeader::parse(rest).filter(|head| rest.len() >= HEADER_LENGTH + head.length)
        {
            let payload = &rest[HEADER_LENGTH..HEADER_LENGTH + head.length];
            rest = &rest[HEADER_LENGTH + head.length..];
            self.frame(&head, payload);
        }
        self.received = rest.to_vec();
        self.is_closed = self.end.server() != Side::Open;
        if self.is_closed {
            let open = self.replies.values_mut().filter(|reply| reply.end == End::Open);
            open.for_each(|reply| reply.end = End::Aborted);
        }
        self.send_bodies();
    }

    fn frame(&mut self, head: &FrameHeader, payload: &[u8]) {
        let number = |at: usize| {
            u32::from_be_bytes(payload[at..at + 4].try_into().expect("four bytes")) & 0x7fff_ffff
        };
        match head.kind {
            kind::SETTINGS if !head.has(flag::ACK) => {
                for pair in payload.chunks(6) {
                    let value = u32::from_be_bytes(pair[2..6].try_into().expect("four bytes"));
                    if u16::from_be_bytes([pair[0], pair[1]]) == setting::INITIAL_WINDOW_SIZE {
                        self.stream_window = value.into();
                        let uploads = self.uploads.values_mut();
                        uploads.for_each(|upload| upload.window = value.into());
                    }
                }
                let mut ack = Vec::new();
                write_settings_ack(&mut ack);
                self.queue(&ack);
            }
            kind::PING if !head.has(flag::ACK) => {
                let mut ack = Vec::new();
                frame::write_ping(payload.try_into().expect("eight bytes"), true, &mut ack);
                self.queue(&ack);
            }
            kind::WINDOW_UPDATE if head.stream == 0 => self.window += i64::from(number(0)),
            kind::WINDOW_UPDATE => {
                if let Some(upload) = self.uploads.get_mut(&head.stream) {
                    upload.window += i64::from(number(0));
                }
            }
            kind::GOAWAY => self.goaway = Some((number(4), number(0))),
            kind::RST_STREAM => {
                self.resets.insert(head.stream, number(0));
                self.uploads.remove(&head.stream);
                let reply = self.reply(head.stream);
                if reply.end == End::Open {
                    reply.end = End::Aborted;
                }
            }
            kind::HEADERS => self.head(head, payload),
            kind::DATA => {
                let opens = self.opens_windows && !payload.is_empty();
                let reply = self.reply(head.stream);
                let is_open = reply.end == End::Open;
                assert!(
                    is_open || reply.end == End::Aborted,
                    "stream {}: DATA behind its end",
                    head.stream
                );
                if is_open {
                    reply.body.extend_from_slice(payload);
                    if head.has(flag::END_STREAM) {
                        reply.end = End::Complete;
                    }
                }
                if opens {
                    let mut updates = Vec::new();
                    write_window_update(0, payload.len() as u32, &mut updates);
                    write_window_update(head.stream, payload.len() as u32, &mut updates);
                    self.queue(&updates);
                }
            }
            _ => {}
        }
    }

    fn head(&mut self, head: &FrameHeader, payload: &[u8]) {
        assert!(head.has(flag::END_HEADERS), "heads of the tests fit into one frame");
        let (mut text, mut fields) = (Vec::new(), Vec::new());
        let decoded = self.decoder.decode(payload, &mut text, |text, field| {
            let part = |range: std::ops::Range<usize>| {
                String::from_utf8(text[range].to_vec()).expect("a field of text")
            };
            fields.push((part(field.name), part(field.value)));
        });
        decoded.expect("a section that can be read");
        let (status, fields) = fields.split_first().expect("a status");
        let status: u16 = status.1.parse().expect("a status");
        let reply = self.reply(head.stream);
        if reply.end == End::Aborted {
            return;
        }
        assert_eq!((reply.status, reply.end), (0, End::Open), "one final head for each stream");
        if status < 200 {
            return reply.interim.push(status);
        }
        (reply.status, reply.fields) = (status, fields.to_vec());
        reply.fields.sort();
        if head.has(flag::END_STREAM) {
            reply.end = End::Complete;
        }
    }

    fn reply(&mut self, stream: u32) -> &mut TestReply {
        self.replies.get_mut(&stream).unwrap_or_else(|| panic!("stream {stream} has no request"))
    }
}
