//! Limits of time that are hardly ever reached: they are looked at once a tick, all together, so that one that is
//! set with each request costs next to nothing.

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

/// The limits of a worker.
#[derive(Debug)]
pub(crate) struct Deadlines {
    entries: RefCell<Slab<Entry>>,
    /// Told when there is one to look at after there was none.
    ticker: Rc<Notify>,
}

#[derive(Debug)]
struct Entry {
    at: Instant,
    has_passed: bool,
    waker: Waker,
}

impl Deadlines {
    pub(crate) fn new(ticker: Rc<Notify>) -> Self {
        Self { entries: RefCell::default(), ticker }
    }

    /// Resolves at `at`. It is about `now`.
    pub(crate) async fn until(&self, at: Instant, now: Instant) {
        // A look may come a tick too late: the last two ticks are waited for exactly.
        if let Some(nearly) = at.checked_sub(2 * TICK)
            && nearly > now
        {
            let registered = Registered { deadlines: self, key: self.add(nearly) };
            poll_fn(|cx| self.poll(registered.key, cx)).await;
        }
        Sleep::until(at).await;
    }

    /// What `future` comes to before `at`, which is [`None`] when that passes first. It is about `now`.
    pub(crate) async fn before<F: Future>(
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

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.borrow().is_empty()
    }

    /// What wakes those that wait for a moment which has passed at `now`. Who is not woken is found again.
    pub(crate) fn expire(&self, now: Instant) -> Vec<Waker> {
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
    async fn only_what_has_passed_is_woken_and_what_is_dropped_is_forgotten() {
        let ticker = Rc::new(Notify::new());
        let deadlines = Deadlines::new(Rc::clone(&ticker));
        let now = Instant::now();
        let seconds = |seconds| now + Duration::from_secs(seconds);
        {
            let mut soon = pin!(deadlines.until(seconds(10), now));
            let mut late = pin!(deadlines.until(seconds(20), now));
            assert!(poll(soon.as_mut()).is_pending() && poll(late.as_mut()).is_pending());
            // There is something to look at now.
            ticker.notified().await;
            assert_eq!(deadlines.expire(seconds(9)).len(), 0);
            assert_eq!(deadlines.expire(seconds(10)).len(), 1);
            assert_eq!(deadlines.expire(seconds(19)).len(), 1, "who was not woken is found again");
            // It goes on to wait exactly.
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
