//! A simulated client: its requests, and the invariants of their responses.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use dunlin_net::stream::memory::ClientEnd;

use super::{CONNECTION_BOUND, RESPONSE_BOUND};
use crate::testing::handler::{Kind, Plan, content};
use crate::testing::random::Random;
use crate::testing::{End, Http1, Http2, Http3, Message, Record, TestReply};

/// Returns the files that are requested, beside one that does not exist.
pub(super) fn files() -> [(&'static str, Vec<u8>); 3] {
    [
        ("a.txt", content(1, 0..20)),
        ("b.txt", content(2, 0..5_000)),
        ("c.bin", content(3, 0..100_000)),
    ]
}

/// A client with one connection.
pub(super) struct Client {
    pub(super) address: Ipv4Addr,
    pub(super) wire: Wire,
    pub(super) requests: Vec<SentRequest>,
    /// It has violated the protocol: its responses are not checked.
    pub(super) is_hostile: bool,
    /// It sends nothing more.
    pub(super) has_ended: bool,
}

pub(super) enum Wire {
    Http1(Http1),
    Http2(Box<Http2>),
    Http3(Box<Http3>),
}

/// A request and its expected response.
pub(super) struct SentRequest {
    pub(super) id: u64,
    /// The stream of HTTP/2 and HTTP/3.
    stream: Option<u64>,
    is_head: bool,
    /// Bytes of the request's body.
    upload: usize,
    plan: Option<Plan>,
    /// The content of the file; `None` when there is no such file.
    content: Option<Vec<u8>>,
}

impl Client {
    /// Returns a client of HTTP/3.
    pub(super) fn of_http3(address: Ipv4Addr, client: Http3) -> Self {
        let wire = Wire::Http3(Box::new(client));
        Self { address, wire, requests: Vec::new(), is_hostile: false, has_ended: false }
    }

    pub(super) fn new(address: Ipv4Addr, end: ClientEnd, random: &mut Random) -> Self {
        let wire = if random.once_in(2) {
            let window = random.one_of(&[0, 1, 100, 65_535, 65_535]);
            let mut client = Http2::new(end, window);
            client.is_eager = false;
            client.opens_windows = !random.once_in(4);
            Wire::Http2(Box::new(client))
        } else {
            Wire::Http1(Http1::new(end))
        };
        Self { address, wire, requests: Vec::new(), is_hostile: false, has_ended: false }
    }

    /// Returns the most bytes that the server may hold for this client.
    pub(super) fn bound(&self) -> usize {
        let responses = match &self.wire {
            Wire::Http1(_) => 0,
            Wire::Http2(_) | Wire::Http3(_) => self.requests.len(),
        };
        CONNECTION_BOUND + responses * RESPONSE_BOUND
    }

    /// Returns the end of the byte stream; none with HTTP/3.
    pub(super) fn end(&self) -> Option<&ClientEnd> {
        match &self.wire {
            Wire::Http1(client) => Some(&client.end),
            Wire::Http2(client) => Some(&client.end),
            Wire::Http3(_) => None,
        }
    }

    /// Description of the client and the progress of its responses.
    pub(super) fn describe(&self) -> String {
        let protocol = match &self.wire {
            Wire::Http1(client) => format!("HTTP/1, {} bytes queued", client.out.len()),
            Wire::Http2(client) => format!(
                "HTTP/2, {} bytes queued, GOAWAY {:?}, resets {:?}",
                client.out.len(),
                client.goaway,
                client.resets
            ),
            Wire::Http3(client) => format!(
                "HTTP/3, {} and {} datagrams queued, closed {:?}, resets {:?}",
                client.to_server.len(),
                client.to_client.len(),
                client.closed,
                client.resets
            ),
        };
        let replies = self.requests.iter().enumerate().map(|(number, sent)| {
            let reply = self.reply(number);
            let (status, end, id) = (reply.status, reply.end, reply.field("x-id"));
            format!("{}: {status} {end:?} {} bytes {id:?}", sent.id, reply.body.len())
        });
        let replies: Vec<_> = replies.collect();
        let (is_hostile, has_ended) = (self.is_hostile, self.has_ended);
        let end = self.end().map_or_else(String::new, |end| {
            let (server, is_closed, waiting) = (end.server(), end.is_closed(), end.waiting());
            format!(", server {server:?}, closed {is_closed}, {waiting} to take")
        });
        format!("{protocol}{end}, hostile {is_hostile}, ended {has_ended}, {replies:?}")
    }

    /// Queues a request. Returns its description.
    pub(super) fn request(&mut self, id: u64, random: &mut Random) -> String {
        let (message, plan, content) = message(id, random);
        let stream = match &mut self.wire {
            Wire::Http1(client) => {
                client.queue(&message);
                None
            }
            Wire::Http2(client) => Some(client.send(&message).into()),
            Wire::Http3(client) => Some(client.send(&message)),
        };
        let upload = message.body.as_ref().map_or(0, Vec::len);
        let is_head = message.method == "HEAD";
        let description =
            format!("{} {} with {upload} bytes, {plan:?}", message.method, message.target);
        self.requests.push(SentRequest { id, stream, is_head, upload, plan, content });
        description
    }

    /// Sends some of the queued bytes.
    pub(super) fn transmit(&mut self, max: usize) {
        match &mut self.wire {
            _ if self.has_ended => {}
            Wire::Http1(client) => client.transmit(max),
            Wire::Http2(client) => client.transmit(max),
            Wire::Http3(client) => {
                client.transmit();
                client.deliver(datagrams(max));
            }
        }
    }

    /// Damages the next byte that is queued.
    pub(super) fn damage(&mut self, random: &mut Random) {
        let out = match &mut self.wire {
            Wire::Http1(client) => &mut client.out,
            Wire::Http2(client) => &mut client.out,
            Wire::Http3(client) => {
                // The packet is not authentic any more, and dropped.
                let count = client.to_server.len().max(1);
                if let Some(datagram) = client.to_server.get_mut(random.below(count)) {
                    let at = random.below(datagram.len());
                    datagram[at] ^= 1 << random.below(8);
                }
                return;
            }
        };
        if !out.is_empty() {
            let at = random.below(out.len().min(200));
            out[at] ^= 1 << random.below(8);
            self.is_hostile = true;
        }
    }

    /// Receives some of the available bytes.
    pub(super) fn receive(&mut self, max: usize) {
        match &mut self.wire {
            Wire::Http1(client) if self.is_hostile => drop(client.end.take(max)),
            Wire::Http2(client) if self.is_hostile => drop(client.end.take(max)),
            Wire::Http1(client) => client.receive(max),
            Wire::Http2(client) => client.receive(max),
            Wire::Http3(client) => client.receive(datagrams(max)),
        }
    }

    /// Loses, duplicates or reorders datagrams, or changes the client's address; with HTTP/3.
    pub(super) fn disturb(&mut self, random: &mut Random) -> &'static str {
        let Wire::Http3(client) = &mut self.wire else { return "is not disturbed" };
        client.collect();
        let kind = random.below(8);
        let queue = if random.once_in(2) { &mut client.to_server } else { &mut client.to_client };
        let (first, second) = (random.below(queue.len().max(1)), random.below(queue.len().max(1)));
        match kind {
            0..4 => {
                queue.remove(first);
                "loses a datagram"
            }
            4 => {
                if let Some(datagram) = queue.get(first).cloned() {
                    queue.push_back(datagram);
                }
                "has a datagram twice"
            }
            5..7 if first < queue.len() && second < queue.len() => {
                queue.swap(first, second);
                "has datagrams in another order"
            }
            7 => {
                let port = client.address.port();
                client.address.set_port(port + 100);
                "has another port"
            }
            _ => "is not disturbed",
        }
    }

    /// Ends what a client of HTTP/3 waits for, if the end of its connection was lost.
    pub(super) fn give_up(&mut self) {
        if let Wire::Http3(client) = &mut self.wire {
            client.end(None);
        }
    }

    /// Cancels a stream or opens a window of it, where the protocol has streams.
    pub(super) fn change_stream(&mut self, random: &mut Random) {
        let number = random.below(self.requests.len().max(1));
        let Some(stream) = self.requests.get(number).and_then(|sent| sent.stream) else { return };
        if self.reply(number).end != End::Open {
            return;
        }
        match &mut self.wire {
            Wire::Http1(_) => {}
            Wire::Http2(client) if random.once_in(3) => client.cancel(stream as u32),
            Wire::Http2(client) => {
                client.open_window(stream as u32, 1 + random.size(100_000) as u32);
            }
            Wire::Http3(client) => client.cancel(stream),
        }
    }

    /// Lets the server send all that is left.
    pub(super) fn open_windows(&mut self) {
        let Wire::Http2(client) = &mut self.wire else { return };
        client.opens_windows = true;
        client.open_window(0, 1 << 24);
        let open = self.requests.iter().filter_map(|sent| sent.stream).map(|stream| stream as u32);
        let open: Vec<u32> =
            open.filter(|stream| client.replies[stream].end == End::Open).collect();
        open.into_iter().for_each(|stream| client.open_window(stream, 1 << 24));
    }

    fn reply(&self, number: usize) -> &TestReply {
        let stream = self.requests[number].stream.unwrap_or_default();
        match &self.wire {
            Wire::Http1(client) => &client.replies[number],
            Wire::Http2(client) => &client.replies[&(stream as u32)],
            Wire::Http3(client) => &client.replies[&stream],
        }
    }

    /// Checks the received bytes: each response belongs to its request, and a complete one is intact.
    pub(super) fn check(&self) {
        if self.is_hostile {
            return;
        }
        for (number, sent) in self.requests.iter().enumerate() {
            sent.check(self.reply(number));
        }
    }

    /// Checks the responses against the records, at the end.
    pub(super) fn check_records(&self, records: &BTreeMap<u64, Record>) {
        if self.is_hostile {
            return;
        }
        for (number, sent) in self.requests.iter().enumerate() {
            sent.check_record(self.reply(number), records.get(&sent.id));
        }
    }
}

impl SentRequest {
    fn check(&self, reply: &TestReply) {
        let id = self.id;
        let is_complete = reply.end == End::Complete;
        match reply.status {
            0 => assert!(!is_complete && reply.body.is_empty(), "request {id}: {reply:?}"),
            200 => {
                let expected = match (&self.plan, &self.content) {
                    (Some(plan), _) => {
                        let own = (reply.field("x-id"), reply.field("x-received"));
                        assert_eq!(
                            own.0,
                            Some(&*id.to_string()),
                            "the response to another request"
                        );
                        let received: Option<usize> = own.1.and_then(|text| text.parse().ok());
                        let received = received.unwrap_or_else(|| panic!("request {id}: {own:?}"));
                        let read = if plan.kind == Kind::Streaming { plan.read } else { 0 };
                        let least = read.min(self.upload);
                        assert!(
                            (least..=self.upload).contains(&received),
                            "request {id}: {reply:?}"
                        );
                        plan.content()
                    }
                    (None, Some(content)) => content.clone(),
                    (None, None) => panic!("request {id}: there is no such file"),
                };
                let expected = if self.is_head { &[] } else { &expected[..] };
                assert!(expected.starts_with(&reply.body), "request {id}: another body");
                assert!(!is_complete || expected == reply.body, "request {id}: a body was cut");
            }
            404 => assert!(self.plan.is_none() && self.content.is_none(), "request {id}"),
            408 | 413 | 429 | 503 => {}
            status => panic!("request {id}: status {status}"),
        }
    }

    /// Returns `true` if the record of a response that ends early has at least the bytes that arrived. With chunks of HTTP/1
    /// it takes framing for bytes of the body, and with streams only what was flushed with everything before it is sure.
    fn is_counted(&self) -> bool {
        let is_chunked =
            self.plan.as_ref().is_some_and(|plan| plan.chunk > 0 && !plan.states_length);
        self.stream.is_none() && !is_chunked
    }

    fn check_record(&self, reply: &TestReply, record: Option<&Record>) {
        let id = self.id;
        assert_ne!(
            reply.end,
            End::Open,
            "request {id}: a response that is neither complete nor cut"
        );
        let Some(record) = record else {
            // Before its head is complete, nothing is known of a request but that it took too long.
            assert!([0, 408].contains(&reply.status), "request {id}: no record of {reply:?}");
            return;
        };
        if reply.status != 0 {
            assert_eq!(record.status, reply.status, "request {id}: {record:?}");
        }
        let received = reply.body.len() as u64;
        if reply.end == End::Complete {
            assert_eq!(record.bytes, received, "request {id}: {record:?}");
        } else if self.is_counted() {
            assert!(record.bytes >= received, "request {id}: {record:?}, and {received} arrived");
        }
    }
}

/// Returns how many datagrams are moved instead of that number of bytes.
fn datagrams(bytes: usize) -> usize {
    1 + bytes / 1_000
}

/// Returns a request for a file or for the handler.
fn message(id: u64, random: &mut Random) -> (Message, Option<Plan>, Option<Vec<u8>>) {
    let is_head = random.once_in(8);
    let method = if is_head { "HEAD" } else { "GET" };
    if random.once_in(3) {
        let files = files();
        let (name, content) = match files.get(random.below(files.len() + 1)) {
            Some((name, content)) => (*name, Some(content.clone())),
            None => ("none.txt", None),
        };
        return (Message::new(method, format!("/{name}?{id}")), None, content);
    }
    let kind = random.one_of(&[Kind::Ready, Kind::Future, Kind::Streaming, Kind::Streaming]);
    let is_streamed = kind == Kind::Streaming && random.once_in(2);
    let (size, chunk) = match random.below(8) {
        _ if !is_streamed => (random.size(120_000), 0),
        // More than the server may hold.
        0 => (random.size(700_000), 1 + random.size(20_000)),
        // Mostly one byte at a time.
        1 => (random.size(5_000), 1 + random.size(3)),
        _ => {
            let size = random.size(120_000);
            (size, 1 + size / (1 + random.below(20)))
        }
    };
    let upload = if is_head || random.once_in(2) { 0 } else { random.size(60_000) };
    let plan = Plan {
        id,
        kind,
        size,
        chunk,
        pause: if random.once_in(2) && size < 25 * chunk { random.size(500) as u64 } else { 0 },
        delay: if random.once_in(2) { random.size(4_000) as u64 } else { 0 },
        states_length: random.once_in(2),
        read: random.size(80_000),
        fail: random.once_in(6).then(|| random.size(size.max(1))),
        hints: random.once_in(6),
    };
    let target = plan.target();
    let message = match upload {
        0 => Message::new(method, target),
        _ if random.once_in(2) => Message::new("POST", target).body(content(id, 0..upload)),
        _ => Message::new("POST", target).streamed(content(id, 0..upload)),
    };
    (message, Some(plan), None)
}
