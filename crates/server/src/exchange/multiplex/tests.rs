//! A protocol in memory, without a socket: it proves that the multiplexer needs no other than what [`Protocol`] says.

use std::collections::BTreeMap;
use std::io;
use std::task::{Context, Waker};
use std::time::Duration;

use dunlin_config::Config;
use dunlin_http::http1::Http1Connection as Parser;
use dunlin_http::{Head, Request};
use dunlin_net::address::{Peer, SocketAddresses};
use dunlin_tls::{Certificates, Policy, PolicyMatch, TlsInfo};

use super::super::link::Accepted;
use super::*;
use crate::testing::handler::{Kind, Plan, content, running};
use crate::testing::{TestServer, run};
use crate::worker::Completion;

/// What a client has received of one response.
#[derive(Debug, Default, PartialEq, Eq)]
struct Received {
    status: u16,
    body: Vec<u8>,
    trailers: Vec<u8>,
    has_ended: bool,
    reset: Option<Cancel>,
}

/// Responses by stream, and a window of `window` bytes that all streams share.
#[derive(Default)]
struct Memory {
    window: usize,
    ready: Vec<StreamId>,
    consumed: usize,
    carrier: Nothing,
}

/// Carries nothing: no encryption, no addresses.
#[derive(Default)]
struct Nothing;

type Responses = BTreeMap<StreamId, Received>;

impl Carrier for Nothing {
    fn ends(&self) -> io::Result<Option<SocketAddresses>> {
        Ok(None)
    }

    fn policy(&self) -> Policy {
        Policy::UNENCRYPTED
    }

    fn tls(&self) -> Option<TlsInfo> {
        None
    }

    fn renew_policy(&mut self, _: &Config, _: &Certificates) -> PolicyMatch {
        PolicyMatch::Unchanged
    }
}

impl Protocol for Memory {
    type Output = Responses;
    type Carrier = Nothing;

    fn carrier(&mut self) -> &mut Nothing {
        &mut self.carrier
    }

    fn respond(&mut self, id: StreamId, head: &OutgoingHead<'_>, end: bool, out: &mut Responses) {
        let response = out.entry(id).or_default();
        (response.status, response.has_ended) = (head.status, end);
    }

    fn send_interim(&mut self, _: StreamId, _: &OutgoingHead<'_>, _: &mut Responses) {}

    fn send_whole(&mut self, id: StreamId, body: &[u8], out: &mut Responses) -> bool {
        let fits = body.len() <= self.window;
        if fits {
            let response = out.entry(id).or_default();
            (response.body, response.has_ended) = (body.to_vec(), true);
        }
        fits
    }

    fn send_data(
        &mut self,
        id: StreamId,
        fill: impl FnOnce(usize, &mut Vec<u8>) -> Filled,
        out: &mut Responses,
    ) -> (usize, Filled) {
        let response = out.entry(id).or_default();
        let before = response.body.len();
        let filled = fill(self.window, &mut response.body);
        let bytes = response.body.len() - before;
        assert!(bytes <= self.window, "more than the window allows");
        self.window -= bytes;
        response.has_ended = matches!(filled, Filled::End);
        (bytes, filled)
    }

    fn end_body(&mut self, id: StreamId, trailers: &FieldLines, out: &mut Responses) {
        let response = out.entry(id).or_default();
        (response.trailers, response.has_ended) = (trailers.as_bytes().to_vec(), true);
    }

    fn cancel(&mut self, id: StreamId, reason: Cancel, out: &mut Responses) {
        out.entry(id).or_default().reset = Some(reason);
    }

    fn consumed(&mut self, _: StreamId, bytes: usize, _: &mut Responses) {
        self.consumed += bytes;
    }

    fn drain(&mut self, _: u64, _: &mut Responses) {}

    fn allowance(&mut self, _: StreamId) -> usize {
        self.window
    }

    fn set_ready(&mut self, id: StreamId, is_ready: bool) {
        self.ready.retain(|other| *other != id);
        if is_ready {
            self.ready.push(id);
        }
    }

    fn next_to_send(&mut self, _: &Responses) -> Option<StreamId> {
        self.ready.first().copied().filter(|_| self.window > 0)
    }

    fn stalled_by(&self, _: StreamId) -> Option<Stalled> {
        (self.window == 0).then_some(Stalled::Connection)
    }

    fn may_receive(&self, _: StreamId) -> bool {
        true
    }

    fn position(&self, out: &Responses) -> i64 {
        out.values().map(|response| response.body.len() as i64).sum()
    }

    fn flushes(&self) -> u64 {
        0
    }

    fn shrink(&mut self) {}
}

/// A connection in memory and what its client has received.
struct Client {
    exchanges: Multiplexer<Memory>,
    responses: Responses,
}

impl Client {
    fn new(server: &TestServer, window: usize) -> Self {
        let permit = server.shared().limiter.extra_permit();
        let peer = Peer::of("192.0.2.1:1".parse().unwrap());
        let accepted = Accepted {
            peer,
            listener: 0,
            proxied: None,
            permit,
            connection_start: None,
            arrived: Vec::new(),
            alternative: None,
        };
        let (link, _) = Link::new(server.context(), &Nothing, accepted);
        let memory = Memory { window, ..Memory::default() };
        Self { exchanges: Multiplexer::new(link, memory), responses: Responses::new() }
    }

    fn request(&mut self, id: StreamId, method: &str, target: &str, length: Option<u64>) {
        let bytes = format!("{method} {target} HTTP/1.1\r\nHost: a\r\n\r\n");
        let mut head = Head::default();
        Parser::default().head(bytes.as_bytes(), &Default::default(), &mut head).unwrap();
        let request = Request::new(bytes.as_bytes(), &head);
        let start = RequestStart { request, length, has_ended: length.is_none() };
        self.exchanges.begin(id, &start, &mut Vec::new(), &mut self.responses);
    }

    /// Polls until nothing moves.
    fn poll(&mut self) {
        let cx = &Context::from_waker(Waker::noop());
        loop {
            let mut moved = self.exchanges.poll(false, cx);
            moved |= self.exchanges.settle_streams(&mut self.responses);
            moved |= self.exchanges.pump(&mut self.responses);
            moved |= self.exchanges.release(false);
            if !moved && !self.exchanges.has_due() {
                return;
            }
        }
    }
}

#[test]
fn a_protocol_without_a_transport_gets_all_responses() {
    run("", &[("a.txt", b"the content of a")], async |server| {
        let mut client = Client::new(server, 4);
        let upload =
            Plan { id: 4, kind: Kind::Streaming, read: 30, size: 40, chunk: 7, ..Plan::default() };
        client.request(1, "GET", "/a.txt", None);
        client.request(2, "GET", "/missing.txt", None);
        client.request(3, "POST", &upload.target(), Some(30));
        client.request(4, "HEAD", "/a.txt", None);
        for part in content(4, 0..30).chunks(7) {
            client.exchanges.receive_body(3, part, &mut client.responses);
            client.poll();
        }
        client.exchanges.end_body(3, FieldLines::default(), &mut client.responses);
        while !client.exchanges.is_empty() {
            client.poll();
            server.settle().await;
            client.exchanges.protocol.window = 4;
        }
        let Client { exchanges, responses } = &mut client;
        assert_eq!((responses[&1].status, &*responses[&1].body), (200, &b"the content of a"[..]));
        assert_eq!((responses[&2].status, responses[&2].body.is_empty()), (404, false));
        assert_eq!((responses[&3].status, &responses[&3].body), (200, &content(4, 0..40)));
        assert_eq!((responses[&4].status, responses[&4].body.len()), (200, 0));
        assert!(responses.values().all(|response| response.has_ended && response.reset.is_none()));
        assert_eq!(exchanges.protocol.consumed, 30);
        exchanges.record_sent();
        let mut statuses: Vec<_> = server.records().iter().map(|record| record.status).collect();
        statuses.sort_unstable();
        assert_eq!(statuses, [200, 200, 200, 404]);
    });
}

#[test]
fn a_client_that_grants_no_window_loses_its_stream_and_no_other() {
    run("", &[("a.txt", &[b'a'; 10_000])], async |server| {
        let mut client = Client::new(server, 0);
        client.request(1, "GET", "/a.txt", None);
        let waits = Plan { id: 5, kind: Kind::Future, delay: 600_000, ..Plan::default() };
        client.request(2, "GET", &waits.target(), None);
        client.poll();
        let deadline = client.exchanges.deadline();
        assert!(deadline < u64::MAX);
        client.exchanges.expire(deadline, &mut client.responses);
        assert_eq!(client.responses[&1].reset, Some(Cancel::Stopped));
        assert_eq!((client.exchanges.is_empty(), running()), (false, 1));
        client.exchanges.forget(2, Completion::Aborted, &mut client.responses);
        assert_eq!((client.exchanges.is_empty(), running()), (true, 0));
        server.advance(Duration::from_millis(100)).await;
    });
}
