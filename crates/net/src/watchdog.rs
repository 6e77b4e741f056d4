//! Limits of time without progress.

use std::fmt;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use crate::clock;
use crate::deadlines::Deadlines;

/// Measures the time since the last progress. Progress costs nothing but a look at the clock: a deadline that passes too
/// early is set again.
pub struct Watchdog {
    deadlines: Rc<Deadlines>,
    progress: u64,
    /// The last progress; `None` before the first poll.
    since: Option<Instant>,
    sleep: Option<Pin<Box<dyn Future<Output = ()>>>>,
}

impl Watchdog {
    /// Creates a watchdog. The time begins with the first poll.
    pub fn new(deadlines: &Rc<Deadlines>) -> Self {
        let deadlines = Rc::clone(deadlines);
        Self { deadlines, progress: u64::MAX, since: None, sleep: None }
    }

    /// Polls while there is nothing to do. `progress` differs if something has happened since the last call. Ready when
    /// nothing has happened for as long as `limit`.
    pub fn poll(
        &mut self,
        cx: &mut Context<'_>,
        limit: Option<Duration>,
        progress: u64,
    ) -> Poll<()> {
        let Some(limit) = limit else { return Poll::Pending };
        let now = clock::now();
        if progress != self.progress {
            (self.progress, self.since) = (progress, Some(now));
        }
        let since = *self.since.get_or_insert(now);
        self.poll_from(cx, now, since + limit)
    }

    /// Polls while there is nothing to do. Ready at `end`, which may be later with each call.
    pub fn poll_until(&mut self, cx: &mut Context<'_>, end: Instant) -> Poll<()> {
        self.poll_from(cx, clock::now(), end)
    }

    fn poll_from(&mut self, cx: &mut Context<'_>, now: Instant, end: Instant) -> Poll<()> {
        if now >= end {
            return Poll::Ready(());
        }
        loop {
            let deadlines = &self.deadlines;
            let sleep = self.sleep.get_or_insert_with(|| {
                let deadlines = Rc::clone(deadlines);
                Box::pin(async move { deadlines.until(end, now).await })
            });
            if sleep.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            self.sleep = None;
            if clock::now() >= end {
                return Poll::Ready(());
            }
        }
    }

    /// Forgets the deadline: the next call of [`Self::poll`] may have a shorter limit.
    pub fn reset(&mut self) {
        self.sleep = None;
        self.progress = u64::MAX;
    }
}

impl fmt::Debug for Watchdog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watchdog").field("since", &self.since).finish_non_exhaustive()
    }
}
