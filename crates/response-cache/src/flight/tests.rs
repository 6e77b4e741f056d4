//! Flights whose tasks are polled by hand.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Wake;

use super::*;
use crate::freshness::Received;
use crate::presented::Unchanged;
use crate::storable::{Requested, Rules};
use crate::testing::{fields, request};
use dunlin_http::Method;

/// Counts how often a task is woken.
#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Count {
    fn taken(&self) -> usize {
        self.0.swap(0, Ordering::Relaxed)
    }
}

fn key() -> Key {
    Key { site: 1, url: b"http://example.com/".as_slice().into() }
}

fn head() -> StoredHead {
    let requested = Requested { method: Method::Get, is_authenticated: false, no_store: false };
    let rules = Rules { set_cookie: false, is_heuristic: true, lifetime: None, max_body: 1000 };
    let request = request("GET", "/", "");
    let received = Received { date: None, unix: 784_111_777, at: 0, delay: 0 };
    let fields = fields(&[("Cache-Control", "max-age=9")]);
    let head = StoredHead::new(
        requested,
        &Unchanged(request.as_request()),
        (200, &fields),
        received,
        &rules,
    );
    head.expect("it may be stored")
}

fn leader(flights: &Arc<Flights>) -> Leader {
    match flights.join(&key(), b"") {
        Role::Leader(leader) => leader,
        Role::Waiter(_) => panic!("another request leads"),
    }
}

fn waiter(flights: &Arc<Flights>) -> Reader {
    match flights.join(&key(), b"") {
        Role::Waiter(waiter) => waiter,
        Role::Leader(_) => panic!("no request leads"),
    }
}

/// Returns what can be read now, and how it ends.
fn read(reader: &mut Reader, waker: &Waker) -> (String, &'static str) {
    let mut text = String::new();
    loop {
        match reader.poll_next(&Context::from_waker(waker)) {
            Poll::Ready(Ok(Some(bytes))) => text.push_str(&String::from_utf8_lossy(&bytes)),
            Poll::Ready(Ok(None)) => return (text, "end"),
            Poll::Ready(Err(Broken)) => return (text, "broken"),
            Poll::Pending => return (text, "more"),
        }
    }
}

#[test]
fn a_thousand_requests_read_one_response() {
    let flights = Flights::new(1 << 20);
    let leader = leader(&flights);
    let count = Arc::<Count>::default();
    let waker = Waker::from(Arc::clone(&count));
    let cx = &Context::from_waker(&waker);
    let mut readers: Vec<Reader> = (0..999).map(|_| waiter(&flights)).collect();
    assert!(readers.iter().all(|reader| reader.poll_decision(cx).is_pending()));
    let (mut writer, own) = leader.begin(head(), None, 100);
    assert_eq!(count.taken(), 999);
    readers.push(own);
    for reader in &readers {
        assert!(matches!(reader.poll_decision(cx), Poll::Ready(Decision::Response(_, None))));
    }
    writer.push(Bytes::from_static(b"a"));
    assert!(readers.iter_mut().all(|reader| read(reader, &waker) == ("a".into(), "more")));
    writer.push(Bytes::from_static(b"b"));
    assert_eq!(count.taken(), 1000);
    // One that joins while the body arrives.
    readers.push(waiter(&flights));
    let stored = writer.end().expect("stored");
    assert_eq!(&stored.body[..], b"ab");
    drop(writer);
    let late = readers.pop().map(|mut late| read(&mut late, &waker));
    assert_eq!(late, Some(("ab".into(), "end")));
    assert!(readers.iter_mut().all(|reader| read(reader, &waker) == ("b".into(), "end")));
    assert!(matches!(flights.join(&key(), b""), Role::Leader(_)));
}

#[test]
fn requests_go_upstream_when_the_response_may_not_be_stored() {
    let flights = Flights::new(1 << 20);
    let leader = leader(&flights);
    let waiter = waiter(&flights);
    leader.decline();
    let cx = &Context::from_waker(Waker::noop());
    assert!(matches!(waiter.poll_decision(cx), Poll::Ready(Decision::Forward)));
    assert!(matches!(flights.join(&key(), b""), Role::Leader(_)));
}

#[test]
fn another_request_leads_when_the_leader_gives_up() {
    let flights = Flights::new(1 << 20);
    let (first, waiting) = (leader(&flights), waiter(&flights));
    drop(first);
    let cx = &Context::from_waker(Waker::noop());
    assert!(matches!(waiting.poll_decision(cx), Poll::Ready(Decision::Rejoin)));
    let _next = leader(&flights);
    let _waiting = waiter(&flights);
}

#[test]
fn a_body_that_breaks_off_is_broken_for_all_and_not_stored() {
    let flights = Flights::new(1 << 20);
    let (mut writer, mut reader) = leader(&flights).begin(head(), Some(3), 100);
    writer.push(Bytes::from_static(b"ab"));
    assert!(writer.end().is_none(), "it is shorter than its stated length");
    assert_eq!(read(&mut reader, Waker::noop()), ("ab".into(), "broken"));
    drop(writer);
    let (writer, mut reader) = leader(&flights).begin(head(), None, 100);
    writer.push(Bytes::from_static(b"ab"));
    drop(writer);
    assert_eq!(read(&mut reader, Waker::noop()), ("ab".into(), "broken"));
}

#[test]
fn an_invalidated_response_is_read_but_not_stored() {
    let flights = Flights::new(1 << 20);
    let (mut writer, mut reader) = leader(&flights).begin(head(), None, 100);
    flights.invalidate(&key());
    // Later requests need a newer response.
    let _next = leader(&flights);
    writer.push(Bytes::from_static(b"ab"));
    assert!(!writer.is_useless() && writer.end().is_none());
    assert_eq!(read(&mut reader, Waker::noop()), ("ab".into(), "end"));
    drop(writer);
    let _waiting = waiter(&flights);
}

#[test]
fn a_body_that_is_too_large_is_bounded_by_its_slowest_reader() {
    let flights = Flights::new(1 << 20);
    let first = leader(&flights);
    let mut slow = waiter(&flights);
    let max_body = 2 * WINDOW as u64;
    let (mut writer, mut fast) = first.begin(head(), None, max_body);
    let count = Arc::<Count>::default();
    let waker = Waker::from(Arc::clone(&count));
    let cx = &Context::from_waker(&waker);
    let piece = Bytes::from(vec![b'x'; WINDOW / 2]);
    for number in 0..5 {
        assert!(writer.poll_room(cx).is_ready(), "{number}");
        writer.push(piece.clone());
        read(&mut fast, Waker::noop());
    }
    // A new reader would miss the start, so it does not join.
    assert!(matches!(flights.join(&key(), b""), Role::Leader(_)));
    assert!(writer.poll_room(cx).is_pending());
    let (text, state) = read(&mut slow, Waker::noop());
    assert_eq!((text.len(), state, count.taken()), (5 * WINDOW / 2, "more", 1));
    assert!(writer.poll_room(cx).is_ready());
    writer.push(piece);
    // A reader that leaves holds nothing up.
    drop(slow);
    read(&mut fast, Waker::noop());
    assert!(writer.poll_room(cx).is_ready() && !writer.is_useless());
    assert!(writer.end().is_none());
    assert_eq!(read(&mut fast, Waker::noop()), (String::new(), "end"));
    drop(fast);
    assert!(writer.is_useless());
}

#[test]
fn requests_for_another_variant_have_another_flight() {
    let flights = Flights::new(1 << 20);
    let _leader = leader(&flights);
    let Role::Leader(other) = flights.join(&key(), b"a:1\n") else { panic!("another one leads") };
    assert!(matches!(flights.join(&key(), b"a:1\n"), Role::Waiter(_)));
    let (alone, also_alone) = (flights.lead(&key()), flights.lead(&key()));
    assert_eq!(flights.usage().0, 4);
    flights.invalidate(&Key { url: b"http://example.com/x".as_slice().into(), ..key() });
    assert_eq!(flights.usage().0, 4);
    flights.invalidate(&key());
    assert_eq!(flights.usage().0, 0);
    assert!(other.is_invalidated() && alone.is_invalidated() && also_alone.is_invalidated());
}

#[test]
fn a_purge_concerns_responses_that_are_on_their_way() {
    let flights = Flights::new(1 << 20);
    let waiting = leader(&flights);
    flights.purge(Some(2), &Purge::Everything);
    flights.purge(None, &Purge::Path { path: b"/x".as_slice().into(), is_prefix: true });
    assert!(!waiting.is_invalidated());
    // Its tags are not known yet.
    flights.purge(Some(1), &Purge::Tag(b"t".as_slice().into()));
    assert!(waiting.is_invalidated());
    let (mut writer, _reader) = leader(&flights).begin(head(), None, 100);
    flights.purge(None, &Purge::Tag(b"t".as_slice().into()));
    assert!(writer.end().is_some());
}

#[test]
fn waiters_have_the_response_that_was_validated() {
    let flights = Flights::new(1 << 20);
    let leader = leader(&flights);
    let waiter = waiter(&flights);
    leader.resolve(Arc::new(Stored { head: head(), body: Bytes::from_static(b"ab") }));
    let cx = &Context::from_waker(Waker::noop());
    let Poll::Ready(Decision::Stored(stored)) = waiter.poll_decision(cx) else {
        panic!("there is no response")
    };
    assert_eq!(&stored.body[..], b"ab");
}

#[test]
fn the_memory_of_all_bodies_is_bounded() {
    let taken = |length: usize| ChunkQueue::most_held(length as u64);
    let flights = Flights::new(taken(50_000));
    let piece = Bytes::from(vec![b'x'; 20_000]);
    let (mut writer, _reader) = leader(&flights).begin(head(), None, 100_000);
    writer.push(piece.clone());
    let of_first = flights.usage().1;
    assert!((20_000..taken(20_000)).contains(&of_first), "{of_first}");
    let (mut other, mut reader) = flights.lead(&key()).begin(head(), None, 100_000);
    other.push(piece.clone());
    assert_eq!(flights.usage().1, 2 * of_first);
    other.push(piece.clone());
    other.push(piece);
    assert_eq!(flights.usage().1, of_first);
    assert!(other.end().is_none());
    assert_eq!(read(&mut reader, Waker::noop()), ("x".repeat(60_000), "end"));
    assert!(writer.end().is_some());
    drop(writer);
    assert_eq!(flights.usage().1, 0);
}

#[test]
fn small_pieces_count_with_the_memory_that_they_take() {
    let flights = Flights::new(100_000);
    let (mut writer, _reader) = leader(&flights).begin(head(), None, 1_000_000);
    for sent in 1..=50_000 {
        // A slice of a large buffer, as a read leaves it.
        writer.push(Bytes::from(vec![b'x'; 16 * 1024]).slice(..1));
        let taken = flights.usage().1;
        assert!(taken >= sent && taken <= ChunkQueue::most_held(sent), "{taken} for {sent}");
    }
    assert_eq!(writer.end().expect("stored").body.len(), 50_000);
}

#[test]
fn small_pieces_fill_a_window() {
    let flights = Flights::new(1);
    let (writer, _reader) = leader(&flights).begin(head(), None, 1_000_000);
    let cx = &Context::from_waker(Waker::noop());
    let mut sent = 0;
    while writer.poll_room(cx).is_ready() {
        writer.push(Bytes::from(vec![b'x'; 16 * 1024]).slice(..1));
        sent += 1;
    }
    assert!((WINDOW / 2..=WINDOW).contains(&sent), "{sent}");
}
