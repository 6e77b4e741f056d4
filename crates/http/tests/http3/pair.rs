//! The client's engine against the server's, with streams that advance in any order and in pieces of any size.

use std::collections::BTreeMap;

use dunlin_http::http3::client::{Http3ClientConnection, Http3ClientEvent};
use dunlin_http::http3::{OutgoingHead, OwnStream};
use dunlin_http::{BodySize, FieldLines, RequestHead};
use proptest::prelude::*;

use crate::support::Server;

/// Bytes of a stream that are on their way.
#[derive(Default)]
struct Pipe {
    bytes: Vec<u8>,
    is_end: bool,
    is_done: bool,
}

impl Pipe {
    /// Takes at most `count` bytes, and the end with the last ones.
    fn take(&mut self, count: usize) -> Option<(Vec<u8>, bool)> {
        let count = count.min(self.bytes.len());
        let is_end = self.is_end && count == self.bytes.len();
        if self.is_done || count == 0 && !is_end {
            return None;
        }
        self.is_done = is_end;
        Some((self.bytes.drain(..count).collect(), is_end))
    }
}

/// A request, and the response that it gets.
#[derive(Debug, Clone)]
struct Message {
    fields: Vec<(u8, u8)>,
    body: Vec<u8>,
    has_trailers: bool,
    is_interim: bool,
}

fn message() -> impl Strategy<Value = Message> {
    let fields = proptest::collection::vec((0..6_u8, 0..4_u8), 0..6);
    let body = prop_oneof![Just(Vec::new()), proptest::collection::vec(any::<u8>(), 1..300)];
    (fields, body, any::<bool>(), any::<bool>()).prop_map(
        |(fields, body, has_trailers, is_interim)| Message {
            fields,
            body,
            has_trailers,
            is_interim,
        },
    )
}

fn lines(message: &Message) -> FieldLines {
    let mut lines = FieldLines::new();
    for (name, value) in &message.fields {
        let name =
            ["server", "content-type", "x-own", "etag", "vary", "accept"][usize::from(*name)];
        lines.push(name, format!("value-{value}").repeat(usize::from(*value) + 1));
    }
    lines
}

fn trailers() -> FieldLines {
    let mut lines = FieldLines::new();
    lines.push("sum", "1");
    lines
}

/// What the client has received of a response.
#[derive(Default)]
struct Received {
    heads: Vec<String>,
    body: Vec<u8>,
    trailers: Option<FieldLines>,
    has_ended: bool,
}

/// Both sides and what is between them.
struct Pair {
    client: Http3ClientConnection,
    server: Server,
    to_server: BTreeMap<u64, Pipe>,
    to_client: BTreeMap<u64, Pipe>,
    blocked: BTreeMap<u64, (Vec<u8>, bool)>,
    received: BTreeMap<u64, Received>,
}

impl Pair {
    fn new() -> Self {
        Self {
            client: Http3ClientConnection::new(),
            server: Server::new(None),
            to_server: BTreeMap::new(),
            to_client: BTreeMap::new(),
            blocked: BTreeMap::new(),
            received: BTreeMap::new(),
        }
    }

    /// Puts what the engines have for their unidirectional streams on the way, at most `count` bytes of each.
    fn flush(&mut self, count: usize) {
        for (number, stream) in (0..).zip(OwnStream::ALL) {
            let pending = self.client.pending(stream);
            let taken = pending.len().min(count);
            self.to_server
                .entry(2 + 4 * number)
                .or_default()
                .bytes
                .extend_from_slice(&pending[..taken]);
            self.client.sent(stream, taken);
            let pending = self.server.engine.pending(stream);
            let taken = pending.len().min(count);
            self.to_client
                .entry(3 + 4 * number)
                .or_default()
                .bytes
                .extend_from_slice(&pending[..taken]);
            self.server.engine.sent(stream, taken);
        }
    }

    fn open(&mut self, stream: u64, message: &Message) {
        let mut head = RequestHead::new("POST", "a.example", "/path");
        head.fields = lines(message);
        let size = match (message.body.len(), message.has_trailers) {
            (0, false) => BodySize::Empty,
            (length, false) => BodySize::Known(length as u64),
            (_, true) => BodySize::Unknown,
        };
        let pipe = self.to_server.entry(stream).or_default();
        self.client.open(stream, &head, "https", size, &mut pipe.bytes).unwrap();
        if !message.body.is_empty() {
            let is_end = !message.has_trailers;
            let header = self.client.send_data(stream, message.body.len(), is_end).unwrap();
            pipe.bytes.extend_from_slice(header.as_bytes());
            pipe.bytes.extend_from_slice(&message.body);
        }
        if message.has_trailers {
            self.client.end_body(stream, &trailers(), &mut pipe.bytes);
        }
        assert!(!self.client.is_sending(stream));
        pipe.is_end = true;
    }

    fn respond(&mut self, stream: u64, message: &Message) {
        let engine = &mut self.server.engine;
        let pipe = self.to_client.entry(stream).or_default();
        let lines = lines(message);
        let serial = 1 + message
            .fields
            .iter()
            .fold(0, |sum, field| sum * 31 + u64::from(field.0) * 4 + u64::from(field.1));
        let head = OutgoingHead { status: 200, date: b"today", lines: lines.as_bytes(), serial };
        if message.is_interim {
            engine.send_interim(stream, &OutgoingHead { status: 103, ..head }, &mut pipe.bytes);
        }
        let is_end = message.body.is_empty() && !message.has_trailers;
        assert!(engine.respond(stream, &head, is_end, &mut pipe.bytes));
        for piece in message.body.chunks(100) {
            let start = engine.begin_data(&mut pipe.bytes);
            pipe.bytes.extend_from_slice(piece);
            engine.end_data(stream, start, false, &mut pipe.bytes);
        }
        if message.has_trailers {
            engine.send_trailers(stream, trailers().as_bytes(), &mut pipe.bytes);
        } else if !message.body.is_empty() {
            assert_eq!(engine.send_data(stream, 0, true), None);
        }
        pipe.is_end = true;
    }

    fn receive(&mut self, stream: u64, bytes: &[u8], is_end: bool) {
        if let Some((waiting, has_ended)) = self.blocked.get_mut(&stream) {
            waiting.extend_from_slice(bytes);
            *has_ended |= is_end;
            return;
        }
        let mut at = 0;
        loop {
            let event = self.client.receive(stream, bytes, &mut at, is_end).unwrap();
            let seen = self.received.entry(stream).or_default();
            match event {
                Http3ClientEvent::NeedInput => break,
                Http3ClientEvent::Blocked => {
                    self.blocked.insert(stream, (bytes[at..].to_vec(), is_end));
                    break;
                }
                Http3ClientEvent::Settings => {}
                Http3ClientEvent::Interim { head, .. } => seen.heads.push(format!("{head:?}")),
                Http3ClientEvent::Head { head, is_end, .. } => {
                    seen.heads.push(format!("{head:?}"));
                    seen.has_ended |= is_end;
                }
                Http3ClientEvent::Data { data, is_end, .. } => {
                    seen.body.extend_from_slice(&bytes[data]);
                    seen.has_ended |= is_end;
                }
                Http3ClientEvent::Trailers { fields, .. } => {
                    (seen.trailers, seen.has_ended) = (Some(fields), true);
                }
                event => panic!("{event:?}"),
            }
        }
    }

    /// Delivers at most `count` bytes of the stream at the position `number`.
    fn deliver(&mut self, to_server: bool, number: usize, count: usize) {
        let pipes = if to_server { &mut self.to_server } else { &mut self.to_client };
        let length = pipes.len().max(1);
        let Some((stream, pipe)) = pipes.iter_mut().nth(number % length) else { return };
        let stream = *stream;
        let Some((bytes, is_end)) = pipe.take(count) else { return };
        if to_server {
            return self.server.feed(stream, &bytes, is_end);
        }
        self.receive(stream, &bytes, is_end);
        while let Some(stream) = self.client.next_unblocked() {
            if let Some((bytes, is_end)) = self.blocked.remove(&stream) {
                self.receive(stream, &bytes, is_end);
            }
        }
    }
}

proptest! {
    #[test]
    fn every_request_gets_its_response_in_any_order_of_the_streams(
        messages in proptest::collection::vec((message(), message()), 1..12),
        steps in proptest::collection::vec((0..5_u8, any::<u16>(), prop_oneof![1..20_usize, 1..2000_usize]), 0..300),
    ) {
        let mut pair = Pair::new();
        let mut unsent = messages.iter().enumerate();
        let mut responded = 0;
        let rest = (0..60_000_u16).map(|number| ((number % 5) as u8, number / 5, 5000));
        for (step, number, count) in steps.into_iter().chain(rest) {
            prop_assert_eq!(pair.server.seen.failure, None);
            match step {
                0 if pair.client.open_streams() < 8 => {
                    if let Some((number, (request, _))) = unsent.next() {
                        pair.open(4 * number as u64, request);
                    }
                }
                1 => pair.flush(count),
                2 | 3 => pair.deliver(step == 2, usize::from(number), count),
                4 => {
                    let ready: Vec<u64> = pair.server.seen.bodies.iter()
                        .filter(|(stream, body)| body.1 && !pair.to_client.contains_key(stream))
                        .map(|(stream, _)| *stream).collect();
                    if let Some(stream) = ready.get(usize::from(number) % ready.len().max(1)) {
                        pair.respond(*stream, &messages[(*stream / 4) as usize].1);
                        responded += 1;
                    }
                }
                _ => {}
            }
            let is_done = responded == messages.len() && pair.client.open_streams() == 0;
            if is_done {
                break;
            }
        }
        prop_assert_eq!((responded, pair.client.open_streams()), (messages.len(), 0));
        prop_assert_eq!(pair.server.engine.open_streams(), 0);
        for (number, (request, response)) in messages.iter().enumerate() {
            let stream = 4 * number as u64;
            let seen = &pair.server.seen;
            prop_assert_eq!(&seen.bodies[&stream].0, &request.body);
            prop_assert_eq!(seen.trailers.contains_key(&stream), request.has_trailers);
            for (name, value) in lines(request).iter() {
                let field = format!(" {}={}", String::from_utf8_lossy(name), String::from_utf8_lossy(value));
                prop_assert!(seen.requests[&stream].contains(&field));
            }
            let Received { heads, body, trailers, has_ended } = &pair.received[&stream];
            prop_assert_eq!(heads.len(), 1 + usize::from(response.is_interim));
            prop_assert!(heads.last().unwrap().contains("200"));
            prop_assert_eq!(body, &response.body);
            prop_assert_eq!(trailers.is_some(), response.has_trailers);
            prop_assert!(has_ended);
        }
    }
}
