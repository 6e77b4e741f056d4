//! Live requests for whoever watches. When nobody does, a request costs one load of an atomic that
//! nobody writes to.

mod filter;

use std::fmt::Write;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use dunlin_http::Request;
use tokio::sync::Notify;

pub use self::filter::{Filter, FilterError};
use super::redact::Redactor;
use super::{AccessRecord, Format, TimeCache};

/// A request, as watchers see it.
pub(crate) struct LiveEvent<'a> {
    /// It has only begun: what comes of it is not known yet, and is 0 or empty.
    pub(crate) is_start: bool,
    /// Its answer did not come to its end.
    pub(crate) broken_off: bool,
    pub(crate) record: &'a AccessRecord<'a>,
    /// The pattern of its route.
    pub(crate) route: &'a str,
    pub(crate) head: Option<RequestHead<'a>>,
}

/// The head of a request, and what keeps its secrets.
pub(crate) struct RequestHead<'a> {
    pub(crate) request: &'a Request<'a>,
    pub(crate) redactor: &'a Redactor,
}

/// How much is told of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Level {
    /// What the access log tells, with its phases.
    Line,
    /// Also the fields of the request.
    Heads,
    /// As `Line`, and only requests that were answered with 400 or more, or that were broken off.
    Errors,
}

/// All who watch.
#[derive(Debug, Default)]
pub(crate) struct LiveTap {
    count: AtomicUsize,
    /// Of these want to hear of requests as they begin.
    of_starts: AtomicUsize,
    subscribers: RwLock<Vec<Arc<Subscriber>>>,
}

/// One who watches. What it does not take in time is dropped and counted.
#[derive(Debug)]
pub(crate) struct Subscriber {
    filter: Filter,
    level: Level,
    /// Whether requests are told of as they begin, too.
    is_start: bool,
    queue: Mutex<Queue>,
    /// There is something in an empty queue.
    pub(crate) ready: Notify,
}

/// A place among the watchers, until it is dropped.
#[derive(Debug)]
pub(crate) struct Subscription {
    live: Arc<LiveTap>,
    subscriber: Arc<Subscriber>,
}

#[derive(Debug, Default)]
struct Queue {
    lines: Vec<u8>,
    lost: u64,
}

/// The most who may watch at once.
const MOST: usize = 16;
/// Bytes that may wait for one watcher.
const WAITING: usize = 256 * 1024;

impl Level {
    pub(crate) fn parse(text: &[u8]) -> Option<Self> {
        match text {
            // Phases are part of each line.
            b"line" | b"phases" => Some(Self::Line),
            b"heads" => Some(Self::Heads),
            b"errors" => Some(Self::Errors),
            _ => None,
        }
    }
}

impl LiveTap {
    /// Whether anybody watches.
    #[inline]
    pub(crate) fn has_subscribers(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    /// Whether anybody wants to hear of requests as they begin.
    #[inline]
    pub(crate) fn wants_starts(&self) -> bool {
        self.of_starts.load(Ordering::Relaxed) > 0
    }

    /// One more watcher; `None` when there are too many. `begins`: it is told of requests as they begin,
    /// too.
    pub(crate) fn subscribe(
        self: &Arc<Self>,
        filter: Filter,
        level: Level,
        is_start: bool,
    ) -> Option<Subscription> {
        let mut subscribers = self.subscribers.write().unwrap_or_else(PoisonError::into_inner);
        if subscribers.len() >= MOST {
            return None;
        }
        let (queue, ready) = (Mutex::default(), Notify::new());
        let subscriber = Arc::new(Subscriber { filter, level, is_start, queue, ready });
        subscribers.push(Arc::clone(&subscriber));
        self.count(&subscribers);
        Some(Subscription { live: Arc::clone(self), subscriber })
    }

    fn count(&self, subscribers: &[Arc<Subscriber>]) {
        let of_starts = subscribers.iter().filter(|subscriber| subscriber.is_start).count();
        self.count.store(subscribers.len(), Ordering::Relaxed);
        self.of_starts.store(of_starts, Ordering::Relaxed);
    }

    /// Tells whoever wants to hear of it.
    #[cold]
    pub(crate) fn publish(&self, event: &LiveEvent<'_>, time: &mut TimeCache) {
        let mut line = Vec::new();
        for subscriber in &*self.subscribers.read().unwrap_or_else(PoisonError::into_inner) {
            if subscriber.wants(event) {
                if line.is_empty() {
                    Format::Json.write_line(event.record, time, &mut line);
                }
                subscriber.add(&line, event);
            }
        }
    }
}

impl Subscription {
    pub(crate) fn subscriber(&self) -> &Subscriber {
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
        (self.is_start || !event.is_start)
            && (self.level != Level::Errors || event.is_failed())
            && self.filter.wants(event)
    }

    /// Adds a line, which ends with a brace and a line feed, if there is room.
    fn add(&self, line: &[u8], event: &LiveEvent<'_>) {
        let mut more = String::new();
        // Writing to a String cannot fail.
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
        if queue.lines.len() + line.len() + more.len() > WAITING {
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

    /// What has come since, one JSON object a line. Where lines were lost, the last says how many:
    /// `{"lost":3}`.
    pub(crate) fn take(&self) -> Vec<u8> {
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
    /// Its fields in their order, without what is secret.
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
    use crate::telemetry::access_record::tests::sample;

    fn live() -> Arc<LiveTap> {
        Arc::default()
    }

    #[test]
    fn only_what_is_wanted_is_told_while_somebody_watches() {
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
    fn beginnings_are_told_to_those_who_ask_for_them() {
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
        let told = |subscription: &Subscription| {
            String::from_utf8(subscription.subscriber().take()).unwrap()
        };
        assert_eq!(
            (told(&ends).lines().count(), told(&both).matches("\"begins\":true").count()),
            (1, 1)
        );
        drop(both);
        assert!(!live.wants_starts() && live.has_subscribers());
    }

    #[test]
    fn answers_that_were_broken_off_are_among_the_errors() {
        let (live, mut time) = (live(), TimeCache::new());
        let subscription =
            live.subscribe(Filter::parse("").unwrap(), Level::Errors, false).unwrap();
        for (status, broken_off) in [(200, false), (200, true), (404, false)] {
            let record = AccessRecord { status, ..sample() };
            live.publish(&LiveEvent { broken_off, ..LiveEvent::of(&record, "/*") }, &mut time);
        }
        let lines = String::from_utf8(subscription.subscriber().take()).unwrap();
        let told: Vec<_> = lines
            .lines()
            .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
            .map(|event| (event["status"].as_u64(), event["broken_off"].as_bool()))
            .collect();
        assert_eq!(told, [(Some(200), Some(true)), (Some(404), None)]);
    }

    #[test]
    fn what_a_slow_watcher_does_not_take_is_dropped_and_counted() {
        let (live, mut time) = (live(), TimeCache::new());
        let subscription = live.subscribe(Filter::parse("").unwrap(), Level::Line, false).unwrap();
        for _ in 0..5_000 {
            live.publish(&LiveEvent::of(&sample(), "/*"), &mut time);
        }
        let lines = String::from_utf8(subscription.subscriber().take()).unwrap();
        assert!(lines.len() <= WAITING + 32);
        let kept = lines.lines().count() as u64 - 1;
        let last: serde_json::Value = serde_json::from_str(lines.lines().last().unwrap()).unwrap();
        assert_eq!(last["lost"], 5_000 - kept);
        assert!(subscription.subscriber().take().is_empty());
    }

    #[test]
    fn watchers_are_bounded() {
        let live = live();
        let watch = || live.subscribe(Filter::parse("").unwrap(), Level::Line, false);
        let all: Vec<_> = (0..MOST).map(|_| watch().unwrap()).collect();
        assert!(watch().is_none());
        drop(all);
        assert!(watch().is_some());
    }
}
