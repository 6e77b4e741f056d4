//! Deadlines that are rarely reached. A worker checks all of them together once a tick, so that setting one with each
//! request is cheap.

use std::cell::RefCell;
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use futures_util::future::{Either, select};
use slab::Slab;
use tokio::sync::Notify;

use crate::clock::{Sleep, TICK};

/// The deadlines of a worker.
#[derive(Debug)]
pub struct Deadlines {
    entries: RefCell<Slab<Entry>>,
    /// Notified when the first entry is added.
    ticker: Rc<Notify>,
}

#[derive(Debug)]
struct Entry {
    at: Instant,
    has_passed: bool,
    waker: Waker,
}

impl Deadlines {
    /// No deadlines. `ticker` is notified when there is one after there was none: [`Deadlines::expire`] has to be called
    /// from then on.
    pub fn new(ticker: Rc<Notify>) -> Self {
        Self { entries: RefCell::default(), ticker }
    }

    /// Resolves at `at`. `now` is approximately the current time.
    pub async fn until(&self, at: Instant, now: Instant) {
        // A check may come a tick too late, so the last two ticks are waited for by a timer.
        if let Some(nearly) = at.checked_sub(2 * TICK)
            && nearly > now
        {
            let registered = Registered { deadlines: self, key: self.add(nearly) };
            poll_fn(|cx| self.poll(registered.key, cx)).await;
        }
        Sleep::until(at).await;
    }

    /// Returns the output of `future`; [`None`] when `at` passes first. `now` is approximately the current time.
    pub async fn before<F: Future>(
        &self,
        at: Instant,
        now: Instant,
        future: F,
    ) -> Option<F::Output> {
        match select(pin!(future), pin!(self.until(at, now))).await {
            Either::Left((output, _)) => Some(output),
            Either::Right(_) => None,
        }
    }

    fn add(&self, at: Instant) -> usize {
        let mut entries = self.entries.borrow_mut();
        if entries.is_empty() {
            self.ticker.notify_one();
        }
        entries.insert(Entry { at, has_passed: false, waker: Waker::noop().clone() })
    }

    fn poll(&self, key: usize, cx: &mut Context<'_>) -> Poll<()> {
        let mut entries = self.entries.borrow_mut();
        match entries.get_mut(key) {
            Some(entry) if !entry.has_passed => entry.waker.clone_from(cx.waker()),
            _ => return Poll::Ready(()),
        }
        Poll::Pending
    }

    /// Returns `true` if there is no deadline to check.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.entries.borrow().is_empty()
    }

    /// Returns the wakers of all deadlines that have passed at `now`. A waker that the caller does not wake is returned again
    /// by the next call.
    pub fn expire(&self, now: Instant) -> Vec<Waker> {
        let mut entries = self.entries.borrow_mut();
        let passed = entries.iter_mut().filter(|(_, entry)| entry.at <= now);
        let expired = passed.map(|(_, entry)| {
            entry.has_passed = true;
            entry.waker.clone()
        });
        expired.collect()
    }
}

struct Registered<'a> {
    deadlines: &'a Deadlines,
    key: usize,
}

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        self.deadlines.entries.borrow_mut().try_remove(self.key);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn poll(future: std::pin::Pin<&mut impl Future<Output = ()>>) -> Poll<()> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    #[tokio::test]
    async fn passed_deadlines_are_returned_and_dropped_ones_are_removed() {
        let ticker = Rc::new(Notify::new());
        let deadlines = Deadlines::new(Rc::clone(&ticker));
        let now = Instant::now();
        let seconds = |seconds| now + Duration::from_secs(seconds);
        {
            let mut soon = pin!(deadlines.until(seconds(10), now));
            let mut late = pin!(deadlines.until(seconds(20), now));
            assert!(poll(soon.as_mut()).is_pending() && poll(late.as_mut()).is_pending());
            // There is a deadline to check now.
            ticker.notified().await;
            assert_eq!(deadlines.expire(seconds(9)).len(), 0);
            assert_eq!(deadlines.expire(seconds(10)).len(), 1);
            assert_eq!(
                deadlines.expire(seconds(19)).len(),
                1,
                "a waker that was not woken is returned again"
            );
            // The rest of the time is waited for by a timer.
            assert!(poll(soon.as_mut()).is_pending() && !deadlines.is_empty());
            assert_eq!(deadlines.expire(seconds(19)).len(), 0);
            assert_eq!(deadlines.expire(seconds(20)).len(), 1);
            assert!(poll(late.as_mut()).is_pending() && deadlines.is_empty());
        }
        let mut near = Box::pin(deadlines.until(Instant::now() + TICK, Instant::now()));
        assert!(poll(near.as_mut()).is_pending() && deadlines.is_empty());
        near.await;
        let mut dropped = Box::pin(deadlines.until(seconds(10), now));
        assert!(poll(dropped.as_mut()).is_pending() && !deadlines.is_empty());
        drop(dropped);
        assert!(deadlines.is_empty());
    }
}
