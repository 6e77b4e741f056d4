//! Rate limit of repeated log messages.

use std::collections::HashMap;
use std::fmt::{Debug, Write};
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::{Condvar, LazyLock, Mutex, MutexGuard, Once, PoisonError};
use std::time::{Duration, Instant};

use tracing::callsite::Identifier;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata};
use tracing_subscriber::layer::{Context, Filter};

/// Logs equal messages once per [`WINDOW`], and at most [`MAX_OF_A_KIND`] messages of one kind. The number of suppressed
/// messages is logged at the end of the window. Debug messages and the output of scripts, whose lines belong together, are
/// never suppressed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Repeats;

/// Messages of one call site in the current window.
struct Kind {
    level: Level,
    began: Instant,
    /// Messages that were logged.
    passed: Vec<u64>,
    /// Number of suppressed messages, and the last of them.
    held_back: u64,
    last: String,
}

struct Kinds {
    by_place: Mutex<HashMap<Identifier, Kind>>,
    /// A message was suppressed.
    held_back: Condvar,
    /// Starts the thread that logs summaries, when the first message is suppressed.
    thread: Once,
}

const WINDOW: Duration = Duration::from_secs(10);
const MAX_OF_A_KIND: usize = 20;
/// Target of the summaries, which are never suppressed.
const OWN: &str = "dunlin::repeats";

static KINDS: LazyLock<Kinds> = LazyLock::new(Kinds::new);

impl<S> Filter<S> for Repeats {
    fn enabled(&self, _: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        true
    }

    fn event_enabled(&self, event: &Event<'_>, _: &Context<'_, S>) -> bool {
        let metadata = event.metadata();
        let passes = [OWN, dunlin_script::SCRIPTS].contains(&metadata.target());
        if *metadata.level() > Level::INFO || passes {
            return true;
        }
        let mut text = Text(String::new());
        event.record(&mut text);
        KINDS.passes(metadata.callsite(), *metadata.level(), text.0, Instant::now())
    }
}

/// Logs the summaries of all kinds, at the end of the process.
pub(crate) fn finish() {
    KINDS.summarize(|_| true);
}

fn summarize_periodically() {
    loop {
        let kinds = KINDS.lock();
        let nothing = |kinds: &mut HashMap<_, Kind>| kinds.values().all(|kind| kind.held_back == 0);
        let waited = KINDS.held_back.wait_while(kinds, nothing);
        drop(waited);
        std::thread::sleep(Duration::from_secs(1));
        KINDS.summarize(|kind| kind.began.elapsed() >= WINDOW);
    }
}

impl Kinds {
    fn new() -> Self {
        Self { by_place: Mutex::default(), held_back: Condvar::new(), thread: Once::new() }
    }

    fn passes(&self, place: Identifier, level: Level, text: String, now: Instant) -> bool {
        let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(&text);
        let mut kinds = self.lock();
        let kind = kinds.entry(place).or_insert_with(|| Kind {
            level,
            began: now,
            passed: Vec::new(),
            held_back: 0,
            last: String::new(),
        });
        if kind.held_back == 0 && now.saturating_duration_since(kind.began) >= WINDOW {
            kind.began = now;
            kind.passed.clear();
        }
        if kind.passed.len() < MAX_OF_A_KIND && !kind.passed.contains(&hash) {
            kind.passed.push(hash);
            return true;
        }
        kind.held_back += 1;
        kind.last = text;
        drop(kinds);
        self.thread.call_once(|| {
            // Without the thread, summaries are logged at the end.
            let thread = std::thread::Builder::new().name("log-repeats".into());
            let _ = thread.spawn(summarize_periodically);
        });
        self.held_back.notify_one();
        false
    }

    /// Logs the summaries of kinds that are due, and starts new windows.
    fn summarize(&self, is_due: impl Fn(&Kind) -> bool) {
        let mut sums = Vec::new();
        for kind in self.lock().values_mut() {
            if kind.held_back > 0 && is_due(kind) {
                sums.push((kind.level, std::mem::take(&mut kind.held_back), kind.last.clone()));
                kind.began = Instant::now();
            }
        }
        // Logging a summary takes the lock, too.
        for (level, times, last) in sums {
            match level {
                Level::ERROR => tracing::error!(target: OWN, times, "repeated: {last}"),
                Level::WARN => tracing::warn!(target: OWN, times, "repeated: {last}"),
                _ => tracing::info!(target: OWN, times, "repeated: {last}"),
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Identifier, Kind>> {
        self.by_place.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The message and the fields of an event.
struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        // Writing to a String cannot fail.
        let _ = match field.name() {
            "message" => write!(self.0, "{value:?}"),
            // These values differ in otherwise equal messages.
            "pid" | "request_id" => Ok(()),
            name => write!(self.0, " {name}={value:?}"),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_messages_are_logged_once_and_kinds_a_few_times() {
        let kinds = Kinds::new();
        let place = || {
            let callsite = tracing::callsite!(
                name: "here",
                kind: tracing::metadata::Kind::EVENT,
                fields: message
            );
            tracing::Callsite::metadata(callsite).callsite()
        };
        let began = Instant::now();
        let passes = |text: &str, after: u64| {
            kinds.passes(place(), Level::WARN, text.into(), began + Duration::from_secs(after))
        };
        assert!(passes("a", 0) && !passes("a", 1) && passes("b", 1));
        let others = (0..100).filter(|n| passes(&n.to_string(), 2)).count();
        assert_eq!(others, MAX_OF_A_KIND - 2);
        let held_back = kinds.lock().values().map(|kind| kind.held_back).sum::<u64>();
        assert_eq!(held_back, 1 + 100 - others as u64);
        // No message is logged before the summary.
        assert!(!passes("a", 60));
        for kind in kinds.lock().values_mut() {
            kind.held_back = 0;
        }
        assert!(passes("a", 60));
    }
}
