//! A client of HTTP/1.1 in memory.

use std::collections::VecDeque;

use dunlin_net::stream::memory::{ClientEnd, Side};

use super::link::TestLink;
use super::message::{End, Message, TestReply};

/// A connection, and the responses to the requests that were sent on it, in their order.
pub(crate) struct Http1<L = ClientEnd> {
    pub(crate) end: L,
    received: Vec<u8>,
    /// Each request was one for a head alone.
    requests: Vec<bool>,
    pub(crate) replies: Vec<TestReply>,
    /// The server has closed the connection.
    pub(crate) is_closed: bool,
    /// Queued bytes that have not been sent.
    pub(crate) out: VecDeque<u8>,
}

/// Returns the bytes of a request.
pub(crate) fn encode(message: &Message) -> Vec<u8> {
    let Message { method, target, host, fields, body, states_length } = message;
    let mut bytes = format!("{method} {target} HTTP/1.1\r\nHost: {host}\r\n").into_bytes();
    for (name, value) in fields {
        bytes.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
    }
    match body {
        Some(body) if *states_length => {
            bytes.extend_from_slice(format!("Content-Length: {}\r\n\r\n", body.len()).as_bytes());
            bytes.extend_from_slice(body);
        }
        Some(body) => {
            bytes.extend_from_slice(b"Transfer-Encoding: chunked\r\n\r\n");
            for chunk in body.chunks(1000) {
                bytes.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
                bytes.extend_from_slice(chunk);
                bytes.extend_from_slice(b"\r\n");
            }
            bytes.extend_from_slice(b"0\r\n\r\n");
        }
        None => bytes.extend_from_slice(b"\r\n"),
    }
    bytes
}

impl<L: TestLink> Http1<L> {
    pub(crate) fn new(end: L) -> Self {
        let (received, requests, replies) = (Vec::new(), Vec::new(), Vec::new());
        Self { end, received, requests, replies, is_closed: false, out: VecDeque::new() }
    }

    /// Sends a whole request.
    pub(crate) fn send(&mut self, message: &Message) {
        self.queue(message);
        self.transmit(usize::MAX);
    }

    /// Queues a request for [`Self::transmit`].
    pub(crate) fn queue(&mut self, message: &Message) {
        let bytes = self.begin(message);
        self.out.extend(bytes);
    }

    /// Sends up to `max` queued bytes.
    pub(crate) fn transmit(&mut self, max: usize) {
        let count = self.out.len().min(max);
        let bytes: Vec<u8> = self.out.drain(..count).collect();
        self.end.send(&bytes);
    }

    /// Expects a response to `message`, whose bytes the caller sends.
    pub(crate) fn begin(&mut self, message: &Message) -> Vec<u8> {
        self.requests.push(message.method == "HEAD");
        self.replies.push(TestReply::default());
        encode(message)
    }

    /// Receives up to `max` bytes, and reads responses from all received bytes.
    pub(crate) fn receive(&mut self, max: usize) {
        self.received.extend(self.end.take(max));
        let server = self.end.server();
        self.is_closed = server != Side::Open;
        let mut used = 0;
        for (reply, is_head) in self.replies.iter_mut().zip(&self.requests) {
            if reply.end != End::Open {
                continue;
            }
            let (read, length) = read(&self.received[used..], *is_head, server);
            *reply = read;
            if reply.end != End::Complete {
                break;
            }
            used += length;
        }
        self.received.drain(..used);
        if self.is_closed {
            // Responses that have not begun are not coming any more.
            let open = self.replies.iter_mut().filter(|reply| reply.end == End::Open);
            open.for_each(|reply| reply.end = End::Aborted);
            self.received.clear();
        }
        let is_answered = self.replies.iter().all(|reply| reply.end == End::Complete);
        // A server that has not read the whole method does not know that the request is for a head alone.
        let is_cut = self.requests.last() == Some(&true)
            && self.replies.last().is_some_and(|reply| reply.status == 408);
        assert!(
            !is_answered || is_cut || self.received.is_empty(),
            "bytes behind the last response: {:?}",
            String::from_utf8_lossy(&self.received)
        );
    }

    /// Returns all bytes that no response has used.
    pub(crate) fn rest(&self) -> &[u8] {
        &self.received
    }
}

/// Reads one response. Returns its length if it is complete.
fn read(bytes: &[u8], is_head: bool, server: Side) -> (TestReply, usize) {
    let (mut reply, mut at) = (TestReply::default(), 0);
    loop {
        let Some(end) = bytes[at..].windows(4).position(|bytes| bytes == b"\r\n\r\n") else {
            return (reply, 0);
        };
        let head = std::str::from_utf8(&bytes[at..at + end]).expect("a head of text");
        at += end + 4;
        let mut lines = head.split("\r\n");
        let line = lines.next().unwrap_or_default();
        let status = line.strip_prefix("HTTP/1.1 ").and_then(|line| line.get(..3));
        let status = status.and_then(|status| status.parse().ok());
        let status: u16 = status.unwrap_or_else(|| panic!("a status line is malformed: {line}"));
        if status < 200 {
            reply.interim.push(status);
            continue;
        }
        reply.status = status;
        reply.fields = lines
            .map(|line| {
                let (name, value) = line.split_once(": ").expect("a field has a colon");
                (name.to_ascii_lowercase(), value.to_owned())
            })
            .collect();
        reply.fields.sort();
        break;
    }
    let body = &bytes[at..];
    let length = reply.field("content-length").map(|text| text.parse().expect("a length"));
    let is_chunked = reply.field("transfer-encoding") == Some("chunked");
    assert!(!(is_chunked && length.is_some()), "two lengths: {:?}", reply.fields);
    if is_head || reply.status == 204 || reply.status == 304 {
        reply.end = End::Complete;
    } else if let Some(length) = length {
        let have = body.len().min(length);
        reply.body = body[..have].to_vec();
        reply.end = if have == length { End::Complete } else { End::Open };
        at += have;
    } else if is_chunked {
        let (used, is_complete) = read_chunks(body, &mut reply.body);
        reply.end = if is_complete { End::Complete } else { End::Open };
        at += used;
    } else {
        reply.body = body.to_vec();
        at += body.len();
        reply.end = if server == Side::Ended { End::Complete } else { End::Open };
    }
    (reply, at)
}

/// Reads chunks into `out`: how many bytes they have, and whether the last one is there.
fn read_chunks(bytes: &[u8], out: &mut Vec<u8>) -> (usize, bool) {
    let mut at = 0;
    loop {
        let Some(line) = bytes[at..].windows(2).position(|bytes| bytes == b"\r\n") else {
            return (at, false);
        };
        let size = std::str::from_utf8(&bytes[at..at + line]).expect("a chunk size");
        let size = usize::from_str_radix(size, 16).expect("a chunk size");
        let start = at + line + 2;
        if bytes.len() < start + size + 2 {
            out.extend_from_slice(&bytes[start.min(bytes.len())..bytes.len().min(start + size)]);
            return (at, false);
        }
        out.extend_from_slice(&bytes[start..start + size]);
        assert_eq!(&bytes[start + size..start + size + 2], b"\r\n", "a chunk has an end");
        at = start + size + 2;
        if size == 0 {
            return (at, true);
        }
    }
}

/// Returns the bytes of the request's head, and of its body.
pub(crate) fn lengths(message: &Message) -> (usize, usize) {
    let bytes = encode(message);
    let head = bytes.windows(4).position(|bytes| bytes == b"\r\n\r\n").expect("a head has an end");
    (head + 4, bytes.len() - head - 4)
}
