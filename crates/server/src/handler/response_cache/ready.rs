//! Responses that a worker has made of stored ones, ready to be sent again: pages that are requested many times a second.
//!
//! They are what [`with_cache`](super::with_cache) would make again: for the same URL, as long as neither the store nor the `Age`
//! changes, and for requests that nothing distinguishes. The oracle compares both ways.

use std::cell::RefCell;
use std::sync::Arc;

use dunlin_http::semantics::{Method, path};
use dunlin_http::{FieldLines, FieldName, Request};
use dunlin_response_cache::request::RequestDirectives;
use dunlin_response_cache::respond::{CachedResponse, whole_with};
use dunlin_response_cache::stored::Stored;

use super::request_kind::SPECIAL;
use crate::route::route_match::RouteMatch;

/// The responses of a worker. Two URLs with the same slot displace each other.
#[derive(Debug, Default)]
pub(crate) struct ReadyHits {
    slots: RefCell<Slots>,
}

#[derive(Debug)]
struct Slots {
    slots: [Slot; SLOTS],
    /// Bytes of all responses.
    bytes: usize,
}

#[derive(Debug, Default)]
enum Slot {
    #[default]
    Empty,
    /// A URL with this hash was requested once.
    Seen(u64),
    Ready(Box<ReadyHit>),
}

#[derive(Debug)]
struct ReadyHit {
    site: usize,
    is_encrypted: bool,
    has_codings: bool,
    host: Box<[u8]>,
    target: Box<[u8]>,
    stored: Arc<Stored>,
    /// The number of changes of the store before the response was found.
    changes: u64,
    age: u64,
    fields: FieldLines,
    /// Bytes of memory.
    size: usize,
}

/// A request for which a ready response may be used. Its handler gets no certificate of the client.
#[derive(Debug, Clone, Copy)]
pub(super) struct Plain<'r> {
    site: usize,
    is_encrypted: bool,
    /// It states codings, which are hidden from the handler if the server compresses the response.
    has_codings: bool,
    host: &'r [u8],
    target: &'r [u8],
    hash: u64,
}

const SLOTS: usize = 128;
/// Bytes of all responses of a worker at most.
const MAX_BYTES: usize = 4 << 20;

impl<'r> Plain<'r> {
    /// Returns a request for which the cache may be used, if its URL alone determines the response from the store.
    #[inline]
    pub(super) fn of(
        request: &Request<'r>,
        matched: &RouteMatch<'_>,
        directives: RequestDirectives,
    ) -> Option<Self> {
        let (host, target) = (request.field(FieldName::Host)?, request.target());
        let is_plain = request.method() == Method::Get
            && target.first() == Some(&b'/')
            && !request.has_any(SPECIAL)
            && directives == RequestDirectives::default();
        let (site, is_encrypted) = (matched.site.serial, matched.client.encrypted);
        let has_codings = request.has(FieldName::AcceptEncoding);
        let hash = || path::quick_hash(site as u64, target);
        is_plain.then(|| Self { site, is_encrypted, has_codings, host, target, hash: hash() })
    }

    fn slot(&self) -> usize {
        (self.hash >> 32) as usize % SLOTS
    }

    fn is_of(&self, hit: &ReadyHit) -> bool {
        self.site == hit.site
            && self.is_encrypted == hit.is_encrypted
            && self.has_codings == hit.has_codings
            && *self.host == *hit.host
            && *self.target == *hit.target
    }
}

impl Default for Slots {
    fn default() -> Self {
        Self { slots: [const { Slot::Empty }; SLOTS], bytes: 0 }
    }
}

impl ReadyHits {
    /// Returns the response to a request at `now`, in milliseconds of the monotonic clock. `changes` is the number of changes of
    /// the store.
    #[inline]
    pub(super) fn find(
        &self,
        request: Plain<'_>,
        changes: u64,
        now: u64,
    ) -> Option<CachedResponse> {
        let slots = self.slots.borrow();
        let Slot::Ready(hit) = &slots.slots[request.slot()] else { return None };
        let is_valid = hit.changes == changes && hit.stored.head.freshness.age(now) == hit.age;
        if !is_valid || !request.is_of(hit) {
            return None;
        }
        #[cfg(test)]
        if tests::ARE_HIDDEN.get() {
            return None;
        }
        #[cfg(test)]
        tests::USES.set(tests::USES.get() + 1);
        Some(whole_with(&hit.stored, &hit.fields))
    }

    /// Notes the fields of the response to a request, made at `now` of a stored one that is fresh. Keeps them if the same URL was
    /// requested before.
    pub(super) fn note(
        &self,
        request: Plain<'_>,
        (stored, fields): (&Arc<Stored>, &FieldLines),
        changes: u64,
        now: u64,
    ) {
        let mut slots = self.slots.borrow_mut();
        let texts = request.target.len() + request.host.len() + fields.as_bytes().len();
        let size = size_of::<ReadyHit>() + texts + stored.size();
        let slot = request.slot();
        let is_again = match &slots.slots[slot] {
            Slot::Empty => false,
            Slot::Seen(hash) => *hash == request.hash,
            Slot::Ready(hit) => request.is_of(hit),
        };
        if !is_again || size > MAX_BYTES / 8 {
            slots.put(slot, Slot::Seen(request.hash));
            return;
        }
        if slots.bytes + size > MAX_BYTES {
            *slots = Slots::default();
        }
        let hit = ReadyHit {
            site: request.site,
            is_encrypted: request.is_encrypted,
            has_codings: request.has_codings,
            host: request.host.into(),
            target: request.target.into(),
            stored: Arc::clone(stored),
            changes,
            age: stored.head.freshness.age(now),
            fields: fields.clone(),
            size,
        };
        slots.put(slot, Slot::Ready(Box::new(hit)));
    }
}

impl Slots {
    fn put(&mut self, number: usize, slot: Slot) {
        let before = std::mem::replace(&mut self.slots[number], slot);
        self.bytes -= before.size();
        self.bytes += self.slots[number].size();
    }
}

impl Slot {
    fn size(&self) -> usize {
        match self {
            Self::Empty | Self::Seen(_) => 0,
            Self::Ready(hit) => hit.size,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::net::{Ipv4Addr, TcpListener};
    use std::rc::Rc;
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use dunlin_response_cache::freshness::Freshness;
    use dunlin_response_cache::storable::Rules;
    use dunlin_response_cache::stored::StoredHead;
    use dunlin_response_cache::vary::Vary;

    use super::super::purge_order::PurgeOrder;
    use super::*;
    use crate::testing::{End, Http1, Message, TestReply, TestServer, random::Random, run};

    thread_local! {
        /// No ready response is used.
        pub(super) static ARE_HIDDEN: Cell<bool> = const { Cell::new(false) };
        /// Responses that were ready.
        pub(super) static USES: Cell<usize> = const { Cell::new(0) };
    }

    /// Paths, and the `Vary` of their responses.
    const PATHS: [(&str, &str); 6] = [
        ("/plain", ""),
        ("/plain?a=1", ""),
        ("/codings", "Accept-Encoding"),
        ("/languages", "Accept-Language"),
        ("/%70lain", ""),
        ("/missing", ""),
    ];
    const FIELDS: [(&str, &str); 9] = [
        ("accept-encoding", "gzip"),
        ("accept-encoding", "br, zstd"),
        ("accept-language", "de"),
        ("cache-control", "no-cache"),
        ("cache-control", "max-age=3"),
        ("pragma", "no-cache"),
        ("range", "bytes=2-5"),
        ("if-none-match", "\"tag\""),
        ("cookie", "a=b"),
    ];

    /// Responds with the number of changes so far, by POST, and with what selects the response.
    async fn serve(listener: TcpListener, requests: Rc<Cell<usize>>) {
        let listener = tokio::net::TcpListener::from_std(listener).expect("a listener");
        let changes = Rc::new(Cell::new(0));
        while let Ok((mut connection, _)) = listener.accept().await {
            let (requests, changes) = (Rc::clone(&requests), Rc::clone(&changes));
            tokio::task::spawn_local(async move {
                let mut received = Vec::new();
                while connection.read_buf(&mut received).await.is_ok_and(|length| length > 0) {
                    let end = received.windows(4).position(|window| window == b"\r\n\r\n");
                    let Some(end) = end else { continue };
                    let head = received.drain(..end + 4).collect::<Vec<u8>>();
                    let head = String::from_utf8_lossy(&head).to_ascii_lowercase();
                    requests.set(requests.get() + 1);
                    changes.set(changes.get() + usize::from(head.starts_with("post")));
                    let target = head.split(' ').nth(1).unwrap_or_default();
                    let language = head.contains("accept-language: de");
                    let vary = PATHS.iter().find(|(path, _)| *path == target);
                    let vary = vary.map_or("", |(_, vary)| vary);
                    let status = if target == "/missing" { "404 Not Found" } else { "200 OK" };
                    let body = format!("{} {target} {language}\n", changes.get()).repeat(100);
                    let response = format!(
                        "HTTP/1.1 {status}\r\nCache-Control: max-age=10\r\nETag: \"tag\"\r\nVary: {vary}\r\n\
                         Content-Type: text/html\r\nContent-Length: {}\r\n\r\n{body}",
                        body.len()
                    );
                    if connection.write_all(response.as_bytes()).await.is_err() {
                        return;
                    }
                }
            });
        }
    }

    async fn reply(server: &TestServer, message: &Message) -> TestReply {
        let mut client = Http1::new(server.connect());
        client.send(message);
        while client.replies[0].end == End::Open {
            server.settle().await;
            client.receive(usize::MAX);
            tokio::time::sleep(Duration::from_micros(50)).await;
        }
        let mut reply = client.replies.swap_remove(0);
        reply.fields.retain(|(name, _)| name != "date");
        reply
    }

    /// Returns what the requests of a seed get, the number of those that the upstream got, and of ready responses.
    fn replies(seed: u64, are_hidden: bool) -> (Vec<(Message, TestReply)>, usize, usize) {
        ARE_HIDDEN.set(are_hidden);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a listener");
        listener.set_nonblocking(true).expect("a listener");
        let port = listener.local_addr().expect("an address").port();
        let config = format!(
            "[[site.route]]\npath = '/*'\ncache = {{ responses = true }}\nproxy = 'http://127.0.0.1:{port}'\n"
        );
        let before = USES.get();
        let requests = Rc::new(Cell::new(0));
        let all = run(&config, &[], async |server| {
            tokio::task::spawn_local(serve(listener, Rc::clone(&requests)));
            let (mut random, mut all) = (Random::new(seed), Vec::new());
            for _ in 0..200 {
                let (path, _) = random.one_of(&PATHS);
                match random.below(40) {
                    0 => server.advance(Duration::from_millis(1100)).await,
                    1 => {
                        let shared = server.shared();
                        let order = PurgeOrder {
                            path: path.into(),
                            verbatim: String::new(),
                            tag: String::new(),
                            site: String::new(),
                        };
                        order.apply(shared.responses.as_deref(), |_| None).expect("a purge");
                    }
                    _ => {}
                }
                let method = match random.below(30) {
                    0 => "POST",
                    1 => "HEAD",
                    _ => "GET",
                };
                let mut message = Message::new(method, path);
                message.host = if random.once_in(8) { "other" } else { "test" };
                for (name, value) in FIELDS {
                    if random.once_in(12) {
                        message = message.with(name, value);
                    }
                }
                let reply = reply(server, &message).await;
                all.push((message, reply));
            }
            all
        });
        (all, requests.get(), USES.get() - before)
    }

    #[test]
    fn ready_responses_are_those_of_the_store() {
        let mut uses = 0;
        for seed in 0..4 {
            let (ready, ready_requests, used) = replies(seed, false);
            let (general, requests, none) = replies(seed, true);
            for ((message, ready), (_, general)) in ready.iter().zip(&general) {
                assert_eq!(ready, general, "seed {seed}: {message:?}");
            }
            assert_eq!((ready_requests, none), (requests, 0), "seed {seed}");
            uses += used;
        }
        assert!(uses > 25, "{uses} responses were ready");
    }

    /// Returns a stored response with a body of that size.
    fn stored(size: usize) -> Arc<Stored> {
        let freshness = Freshness {
            lifetime: 100,
            is_explicit: true,
            initial_age: 0,
            received: 0,
            while_revalidate: 0,
            if_error: 0,
            always_validate: false,
            must_revalidate: false,
        };
        let rules = Rules { set_cookie: false, is_heuristic: true, lifetime: None, max_body: 1000 };
        let head =
            StoredHead::from_parts((200, FieldLines::new()), 0, freshness, Vary::default(), rules);
        Arc::new(Stored { head, body: vec![b'x'; size].into() })
    }

    #[test]
    fn ready_responses_are_bounded() {
        let hits = ReadyHits::default();
        let mut kept = 0;
        for number in 0..2000_usize {
            let target = format!("/{number}");
            let (host, target) = (b"test".as_slice(), target.as_bytes());
            let (is_encrypted, has_codings) = (false, false);
            let hash = path::quick_hash(1, target);
            let plain = Plain { site: 1, is_encrypted, has_codings, host, target, hash };
            // One of ten is larger than what is kept at all.
            let size = if number % 10 == 0 { MAX_BYTES / 8 } else { number * 50 };
            let stored = stored(size);
            let is_large = stored.size() > MAX_BYTES / 8;
            for _ in 0..2 {
                hits.note(plain, (&stored, &FieldLines::new()), 0, 0);
            }
            let found = hits.find(plain, 0, 0);
            assert_eq!(found.is_some(), !is_large, "{number}");
            assert!(hits.find(plain, 1, 0).is_none() && hits.find(plain, 0, 1000).is_none());
            kept += usize::from(found.is_some());
            let slots = hits.slots.borrow();
            let held = slots.slots.iter().map(|slot| match slot {
                Slot::Ready(hit) => hit.stored.size() + hit.target.len() + hit.host.len(),
                _ => 0,
            });
            let held: usize = held.sum();
            assert!(held <= slots.bytes && slots.bytes <= MAX_BYTES, "{held} {}", slots.bytes);
        }
        assert_eq!(kept, 1800);
    }
}
