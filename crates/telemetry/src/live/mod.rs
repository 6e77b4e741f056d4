//! Live view: streams requests to subscribers. Without subscribers, a request costs one load of an atomic that
//! no thread writes.

mod filter;

use std::fmt::Write;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use dunlin_http::Request;
use tokio::sync::Notify;

pub use self::filter::{Filter, FilterError};
use dunlin_config::AccessLogFormat;

use super::format::write_line;
use super::redact::Redactor;
use super::{AccessRecord, TimeCache};

/// Start or end of a request, as subscribers receive it.
pub struct LiveEvent<'a> {
    /// The request starts: values of its response are 0 or empty.
    pub is_start: bool,
    /// The response was aborted.
    pub broken_off: bool,
    /// The request and its response.
    pub record: &'a AccessRecord<'a>,
    /// Pattern of the route.
    pub route: &'a str,
    /// The head of the request, if a subscriber may receive it.
    pub head: Option<RequestHead<'a>>,
}

/// The head of a request, and the redactor of its secrets.
pub struct RequestHead<'a> {
    /// The head.
    pub request: &'a Request<'a>,
    /// Removes the secrets of its fields.
    pub redactor: &'a Redactor,
}

/// Detail of the events that a subscriber receives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// The members of the JSON access log, with timings.
    Line,
    /// Also the fields of the request head.
    Heads,
    /// As `Line`, but only requests with a status of 400 or more, or whose response was aborted.
    Errors,
}

/// Distributes events to all subscribers.
#[derive(Debug, Default)]
pub struct LiveTap {
    count: AtomicUsize,
    /// Number of subscribers that also receive the start of requests.
    of_starts: AtomicUsize,
    subscribers: RwLock<Vec<Arc<Subscriber>>>,
}

/// Queue of one subscriber. Events that it does not read in time are dropped and counted.
#[derive(Debug)]
pub struct Subscriber {
    filter: Filter,
    level: Level,
    /// Also receives the start of requests.
    wants_starts: bool,
    queue: Mutex<Queue>,
    /// Notified when the empty queue gets an event.
    pub ready: Notify,
}

/// A subscription. Dropping it ends it.
#[derive(Debug)]
pub struct Subscription {
    live: Arc<LiveTap>,
    subscriber: Arc<Subscriber>,
}

#[derive(Debug, Default)]
struct Queue {
    lines: Vec<u8>,
    lost: u64,
}

/// Maximum of concurrent subscribers.
const MAX_SUBSCRIBERS: usize = 16;
/// Maximum of queued bytes per subscriber.
const MAX_QUEUED: usize = 256 * 1024;

impl Level {
    /// Returns the level of a name: `line`, `heads` or `errors`.
    pub fn parse(text: &[u8]) -> Option<Self> {
        match text {
            // Each line contains the timings of all phases.
            b"line" | b"phases" => Some(Self::Line),
            b"heads" => Some(Self::Heads),
            b"errors" => Some(Self::Errors),
            _ => None,
        }
    }
}

impl LiveTap {
    /// Returns `true` if there are subscribers.
    #[inline]
    pub fn has_subscribers(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    /// Returns `true` if a subscriber also receives the start of requests.
    #[inline]
    pub fn wants_starts(&self) -> bool {
        self.of_starts.load(Ordering::Relaxed) > 0
    }

    /// Adds a subscriber; `None` if there are too many. With `wants_starts` it also receives the start of
    /// requests.
    pub fn subscribe(
        self: &Arc<Self>,
        filter: Filter,
        level: Level,
        wants_starts: bool,
    ) -> Option<Subscription> {
        let mut subscribers = self.subscribers.write().unwrap_or_else(PoisonError::into_inner);
        if subscribers.len() >= MAX_SUBSCRIBERS {
            return None;
        }
        let (queue, ready) = (Mutex::default(), Notify::new());
        let subscriber = Arc::new(Subscriber { filter, level, wants_starts, queue, ready });
        subscribers.push(Arc::clone(&subscriber));
        self.count(&subscribers);
        Some(Subscription { live: Arc::clone(self), subscriber })
    }

    fn count(&self, subscribers: &[Arc<Subscriber>]) {
        let of_starts = subscribers.iter().filter(|subscriber| subscriber.wants_starts).count();
        self.count.store(subscribers.len(), Ordering::Relaxed);
        self.of_starts.store(of_starts, Ordering::Relaxed);
    }

    /// Sends an event to all subscribers whose filter matches.
    #[cold]
    pub fn publish(&self, event: &LiveEvent<'_>, time: &mut TimeCache) {
        let mut line = Vec::new();
        for subscriber in &*self.subscribers.read().unwrap_or_else(PoisonError::into_inner) {
            if subscriber.wants(event) {
                if line.is_empty() {
                    write_line(&AccessLogFormat::Json, event.record, time, &mut line);
                }
                subscriber.add(&line, event);
            }
        }
    }
}

impl Subscription {
    /// Returns the queue of events.
    pub fn subscriber(&self) -> &Subscriber {
        &self.subscriber
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut subscribers = self.live.subscribers.write().unwrap_or_else(PoisonError::into_inner);
        subscribers.retain(|other| !Arc::ptr_eq(other, &self.subscriber));
        self.live.count(&subscribers);
    }
}

impl Subscriber {
    fn wants(&self, event: &LiveEvent<'_>) -> bool {
        (self.wants_starts || !event.is_start)
            && (self.level != Level::Errors || event.is_failed())
            && self.filter.wants(event)
    }

    /// Queues an event if there is room. `line` ends with a brace and a line feed.
    fn add(&self, line: &[u8], event: &LiveEvent<'_>) {
        let mut more = String::new();
        // Writes to a `String` do not fail.
        let _ = write!(more, ",\"route\":{}", serde_json::Value::from(event.route));
        if event.is_start {
            more.push_str(",\"begins\":true");
        }
        if event.broken_off {
            more.push_str(",\"broken_off\":true");
        }
        if let (Level::Heads, Some(head)) = (self.level, &event.head) {
            let _ = write!(more, ",\"fields\":{}", head.fields());
        }
        let mut queue = self.lock();
        if queue.lines.len() + line.len() + more.len() > MAX_QUEUED {
            queue.lost += 1;
            return;
        }
        let was_empty = queue.lines.is_empty();
        queue.lines.extend_from_slice(line.strip_suffix(b"}\n").unwrap_or(line));
        queue.lines.extend_from_slice(more.as_bytes());
        queue.lines.extend_from_slice(b"}\n");
        drop(queue);
        if was_empty {
            self.ready.notify_one();
        }
    }

    /// Returns the queued events, one JSON object per line. If events were dropped, the last line has their number:
    /// `{"lost":3}`.
    pub fn take(&self) -> Vec<u8> {
        let mut queue = self.lock();
        let lost = std::mem::take(&mut queue.lost);
        let mut lines = std::mem::take(&mut queue.lines);
        drop(queue);
        if lost > 0 {
            lines.extend_from_slice(format!("{{\"lost\":{lost}}}\n").as_bytes());
        }
        lines
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RequestHead<'_> {
    /// Returns the fields in order, with secrets redacted.
    fn fields(&self) -> serde_json::Value {
        let field = |(name, value)| {
            let value = self.redactor.field(name, value);
            serde_json::json!([String::from_utf8_lossy(name), String::from_utf8_lossy(&value)])
        };
        self.request.fields().map(field).collect()
    }
}

impl<'a> LiveEvent<'a> {
    fn is_failed(&self) -> bool {
        self.record.status >= 400 || self.broken_off
    }

    #[cfg(test)]
    fn of(record: &'a AccessRecord<'a>, route: &'a str) -> Self {
        Self { is_start: false, broken_off: false, record, route, head: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access_record::tests::sample;

    fn live() -> Arc<LiveTap> {
        Arc::default()
    }

    #[test]
    fn a_subscriber_receives_events_that_match_its_filter() {
        let (live, mut time) = (live(), TimeCache::new());
        let subscription =
            live.subscribe(Filter::parse("status>=500").unwrap(), Level::Line, false).unwrap();
        assert!(live.has_subscribers());
        for status in [200, 503] {
            let record = AccessRecord { status, ..sample() };
            live.publish(&LiveEvent::of(&record, "/\"*"), &mut time);
        }
        let lines = subscription.subscriber().take();
        let line: serde_json::Value = serde_json::from_slice(&lines).unwrap();
        assert_eq!((&line["status"], &line["route"]), (&503.into(), &"/\"*".into()));
        drop(subscription);
        assert!(!live.has_subscribers());
    }

    #[test]
    fn starts_are_sent_to_subscribers_that_want_them() {
        let (live, mut time) = (live(), TimeCache::new());
        let watch =
            |is_start| live.subscribe(Filter::parse("").unwrap(), Level::Line, is_start).unwrap();
        let ends = watch(false);
        assert!(!live.wants_starts());
        let both = watch(true);
        assert!(live.wants_starts());
        for is_start in [true, false] {
            live.publish(&LiveEvent { is_start, ..LiveEvent::of(&sample(), "/*") }, &mut time);
        }
        let seen = |subscription: &Subscription| {
            String::from_utf8(subscription.subscriber().take()).unwrap()
        };
        assert_eq!(
            (seen(&ends).lines().count(), seen(&both).matches("\"begins\":true").count()),
            (1, 1)
        );
        drop(both);
        assert!(!live.wants_starts() && live.has_subscribers());
    }

    #[test]
    fn aborted_responses_are_errors() {
        let (live, mut time) = (live(), TimeCache::new());
        let subscription =
            live.subscribe(Filter::parse("").unwrap(), Level::Errors, false).unwrap();
        for (status, broken_off) in [(200, false), (200, true), (404, false)] {
            let record = AccessRecord { status, ..sample() };
            live.publish(&LiveEvent { broken_off, ..LiveEvent::of(&record, "/*") }, &mut time);
        }
        let lines = String::from_utf8(subscription.subscriber().take()).unwrap();
        let seen: Vec<_> = lines
            .lines()
            .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
            .map(|event| (event["status"].as_u64(), event["broken_off"].as_bool()))
            .collect();
        assert_eq!(seen, [(Some(200), Some(true)), (Some(404), None)]);
    }

    #[test]
    fn events_for_a_slow_subscriber_are_dropped_and_counted() {
        let (live, mut time) = (live(), TimeCache::new());
        let subscription = live.subscribe(Filter::parse("").unwrap(), Level::Line, false).unwrap();
        for _ in 0..5_000 {
            live.publish(&LiveEvent::of(&sample(), "/*"), &mut time);
        }
        let lines = String::from_utf8(subscription.subscriber().take()).unwrap();
        assert!(lines.len() <= MAX_QUEUED + 32);
        let kept = lines.lines().count() as u64 - 1;
        let last: serde_json::Value = serde_json::from_str(lines.lines().last().unwrap()).unwrap();
        assert_eq!(last["lost"], 5_000 - kept);
        assert!(subscription.subscriber().take().is_empty());
    }

    #[test]
    fn the_number_of_subscribers_is_bounded() {
        let live = live();
        let watch = || live.subscribe(Filter::parse("").unwrap(), Level::Line, false);
        let all: Vec<_> = (0..MAX_SUBSCRIBERS).map(|_| watch().unwrap()).collect();
        assert!(watch().is_none());
        drop(all);
        assert!(watch().is_some());
    }
}
