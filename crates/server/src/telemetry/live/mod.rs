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
use super::{Exchange, Format, TimeCache};

/// A request, as watchers see it.
pub(crate) struct Seen<'a> {
    /// It has only begun: what comes of it is not known yet, and is 0 or empty.
    pub(crate) begins: bool,
    /// Its answer did not come to its end.
    pub(crate) broken_off: bool,
    pub(crate) exchange: &'a Exchange<'a>,
    /// The pattern of its route.
    pub(crate) route: &'a str,
    pub(crate) head: Option<Head<'a>>,
}

/// The head of a request, and what keeps its secrets.
pub(crate) struct Head<'a> {
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
pub(crate) struct Hub {
    count: AtomicUsize,
    /// Of these want to hear of requests as they begin.
    of_beginnings: AtomicUsize,
    watchers: RwLock<Vec<Arc<Watcher>>>,
}

/// One who watches. What it does not take in time is dropped and counted.
#[derive(Debug)]
pub(crate) struct Watcher {
    filter: Filter,
    level: Level,
    /// Whether requests are told of as they begin, too.
    begins: bool,
    queue: Mutex<Queue>,
    /// There is something in an empty queue.
    pub(crate) ready: Notify,
}

/// A place among the watchers, until it is dropped.
#[derive(Debug)]
pub(crate) struct Watching {
    hub: Arc<Hub>,
    watcher: Arc<Watcher>,
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

impl Hub {
    /// Whether anybody watches.
    #[inline]
    pub(crate) fn is_watched(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    /// Whether anybody wants to hear of requests as they begin.
    #[inline]
    pub(crate) fn is_told_of_beginnings(&self) -> bool {
        self.of_beginnings.load(Ordering::Relaxed) > 0
    }

    /// One more watcher; `None` when there are too many. `begins`: it is told of requests as they begin,
    /// too.
    pub(crate) fn watch(
        self: &Arc<Self>,
        filter: Filter,
        level: Level,
        begins: bool,
    ) -> Option<Watching> {
        let mut watchers = self.watchers.write().unwrap_or_else(PoisonError::into_inner);
        if watchers.len() >= MOST {
            return None;
        }
        let (queue, ready) = (Mutex::default(), Notify::new());
        let watcher = Arc::new(Watcher { filter, level, begins, queue, ready });
        watchers.push(Arc::clone(&watcher));
        self.count(&watchers);
        Some(Watching { hub: Arc::clone(self), watcher })
    }

    fn count(&self, watchers: &[Arc<Watcher>]) {
        let of_beginnings = watchers.iter().filter(|watcher| watcher.begins).count();
        self.count.store(watchers.len(), Ordering::Relaxed);
        self.of_beginnings.store(of_beginnings, Ordering::Relaxed);
    }

    /// Tells whoever wants to hear of it.
    #[cold]
    pub(crate) fn tell(&self, seen: &Seen<'_>, time: &mut TimeCache) {
        let mut line = Vec::new();
        for watcher in &*self.watchers.read().unwrap_or_else(PoisonError::into_inner) {
            if watcher.wants(seen) {
                if line.is_empty() {
                    Format::Json.write_line(seen.exchange, time, &mut line);
                }
                watcher.add(&line, seen);
            }
        }
    }
}

impl Watching {
    pub(crate) fn watcher(&self) -> &Watcher {
        &self.watcher
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        let mut watchers = self.hub.watchers.write().unwrap_or_else(PoisonError::into_inner);
        watchers.retain(|other| !Arc::ptr_eq(other, &self.watcher));
        self.hub.count(&watchers);
    }
}

impl Watcher {
    fn wants(&self, seen: &Seen<'_>) -> bool {
        (self.begins || !seen.begins)
            && (self.level != Level::Errors || seen.is_failed())
            && self.filter.wants(seen)
    }

    /// Adds a line, which ends with a brace and a line feed, if there is room.
    fn add(&self, line: &[u8], seen: &Seen<'_>) {
        let mut more = String::new();
        // Writing to a String cannot fail.
        let _ = write!(more, ",\"route\":{}", serde_json::Value::from(seen.route));
        if seen.begins {
            more.push_str(",\"begins\":true");
        }
        if seen.broken_off {
            more.push_str(",\"broken_off\":true");
        }
        if let (Level::Heads, Some(head)) = (self.level, &seen.head) {
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

impl Head<'_> {
    /// Its fields in their order, without what is secret.
    fn fields(&self) -> serde_json::Value {
        let field = |(name, value)| {
            let value = self.redactor.field(name, value);
            serde_json::json!([String::from_utf8_lossy(name), String::from_utf8_lossy(&value)])
        };
        self.request.fields().map(field).collect()
    }
}

impl<'a> Seen<'a> {
    fn is_failed(&self) -> bool {
        self.exchange.status >= 400 || self.broken_off
    }

    #[cfg(test)]
    fn of(exchange: &'a Exchange<'a>, route: &'a str) -> Self {
        Self { begins: false, broken_off: false, exchange, route, head: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::exchange::tests::sample;

    fn hub() -> Arc<Hub> {
        Arc::default()
    }

    #[test]
    fn only_what_is_wanted_is_told_while_somebody_watches() {
        let (hub, mut time) = (hub(), TimeCache::new());
        let watching =
            hub.watch(Filter::parse("status>=500").unwrap(), Level::Line, false).unwrap();
        assert!(hub.is_watched());
        for status in [200, 503] {
            let exchange = Exchange { status, ..sample() };
            hub.tell(&Seen::of(&exchange, "/\"*"), &mut time);
        }
        let lines = watching.watcher().take();
        let line: serde_json::Value = serde_json::from_slice(&lines).unwrap();
        assert_eq!((&line["status"], &line["route"]), (&503.into(), &"/\"*".into()));
        drop(watching);
        assert!(!hub.is_watched());
    }

    #[test]
    fn beginnings_are_told_to_those_who_ask_for_them() {
        let (hub, mut time) = (hub(), TimeCache::new());
        let watch = |begins| hub.watch(Filter::parse("").unwrap(), Level::Line, begins).unwrap();
        let ends = watch(false);
        assert!(!hub.is_told_of_beginnings());
        let both = watch(true);
        assert!(hub.is_told_of_beginnings());
        for begins in [true, false] {
            hub.tell(&Seen { begins, ..Seen::of(&sample(), "/*") }, &mut time);
        }
        let told = |watching: &Watching| String::from_utf8(watching.watcher().take()).unwrap();
        assert_eq!(
            (told(&ends).lines().count(), told(&both).matches("\"begins\":true").count()),
            (1, 1)
        );
        drop(both);
        assert!(!hub.is_told_of_beginnings() && hub.is_watched());
    }

    #[test]
    fn answers_that_were_broken_off_are_among_the_errors() {
        let (hub, mut time) = (hub(), TimeCache::new());
        let watching = hub.watch(Filter::parse("").unwrap(), Level::Errors, false).unwrap();
        for (status, broken_off) in [(200, false), (200, true), (404, false)] {
            let exchange = Exchange { status, ..sample() };
            hub.tell(&Seen { broken_off, ..Seen::of(&exchange, "/*") }, &mut time);
        }
        let lines = String::from_utf8(watching.watcher().take()).unwrap();
        let told: Vec<_> = lines
            .lines()
            .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
            .map(|event| (event["status"].as_u64(), event["broken_off"].as_bool()))
            .collect();
        assert_eq!(told, [(Some(200), Some(true)), (Some(404), None)]);
    }

    #[test]
    fn what_a_slow_watcher_does_not_take_is_dropped_and_counted() {
        let (hub, mut time) = (hub(), TimeCache::new());
        let watching = hub.watch(Filter::parse("").unwrap(), Level::Line, false).unwrap();
        for _ in 0..5_000 {
            hub.tell(&Seen::of(&sample(), "/*"), &mut time);
        }
        let lines = String::from_utf8(watching.watcher().take()).unwrap();
        assert!(lines.len() <= WAITING + 32);
        let kept = lines.lines().count() as u64 - 1;
        let last: serde_json::Value = serde_json::from_str(lines.lines().last().unwrap()).unwrap();
        assert_eq!(last["lost"], 5_000 - kept);
        assert!(watching.watcher().take().is_empty());
    }

    #[test]
    fn watchers_are_bounded() {
        let hub = hub();
        let watch = || hub.watch(Filter::parse("").unwrap(), Level::Line, false);
        let all: Vec<_> = (0..MOST).map(|_| watch().unwrap()).collect();
        assert!(watch().is_none());
        drop(all);
        assert!(watch().is_some());
    }
}
