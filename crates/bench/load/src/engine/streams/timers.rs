//! Timers of a worker with streams, with the resolution of the clock. Those of tokio have one of milliseconds.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::future::poll_fn;
use std::io;
use std::os::fd::OwnedFd;
use std::task::{Poll, Waker};

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use tokio::io::unix::AsyncFd;

use crate::engine::clock::Clock;

/// The timers, all of which wait for one timer of the kernel.
pub(super) struct StreamTimers {
    clock: Clock,
    descriptor: AsyncFd<OwnedFd>,
    /// Time and number of each timer.
    heap: RefCell<BinaryHeap<Reverse<(u64, u64)>>>,
    wakers: RefCell<HashMap<u64, Waker>>,
    next: Cell<u64>,
}

/// A task yields instead of sleeping if it is due within this time, in nanoseconds, since a sleep may take that much longer.
const SPIN: u64 = 60_000;

impl StreamTimers {
    /// Creates timers by a clock. The caller runs [`StreamTimers::run`] beside the tasks that wait.
    pub(super) fn new(clock: Clock) -> io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        #[expect(
            deprecated,
            reason = "an `OwnedFd` is always the same descriptor, and the other constructor is unsafe"
        )]
        let descriptor = AsyncFd::new(timer)?;
        Ok(Self {
            clock,
            descriptor,
            heap: RefCell::default(),
            wakers: RefCell::default(),
            next: Cell::new(0),
        })
    }

    /// Sets the clock of the run.
    pub(super) fn start(&mut self, clock: Clock) {
        self.clock = clock;
    }

    /// Waits until a time in nanoseconds since the start of the run.
    pub(super) async fn sleep_until(&self, due: u64) {
        self.wait(due.saturating_sub(SPIN)).await;
        while self.clock.now() < due {
            tokio::task::yield_now().await;
        }
    }

    async fn wait(&self, until: u64) {
        let id = self.next.get();
        self.next.set(id + 1);
        let mut is_set = false;
        poll_fn(|context| {
            if self.clock.now() >= until {
                return Poll::Ready(());
            }
            self.wakers.borrow_mut().insert(id, context.waker().clone());
            if !is_set {
                is_set = true;
                let is_first =
                    self.heap.borrow().peek().is_none_or(|Reverse((due, _))| until < *due);
                self.heap.borrow_mut().push(Reverse((until, id)));
                if is_first {
                    self.arm(until);
                }
            }
            Poll::Pending
        })
        .await;
    }

    /// Wakes the tasks whose time has come. It never ends, but by an error of the kernel's timer.
    pub(super) async fn run(&self) -> io::Result<()> {
        loop {
            let mut ready = self.descriptor.readable().await?;
            let mut count = [0; 8];
            // Nothing to read if the timer was set again meanwhile.
            let _ = rustix::io::read(self.descriptor.get_ref(), &mut count);
            ready.clear_ready();
            drop(ready);
            self.expire();
        }
    }

    fn expire(&self) {
        let now = self.clock.now();
        let mut heap = self.heap.borrow_mut();
        while let Some(Reverse((due, id))) = heap.peek().copied() {
            if due > now {
                self.arm(due);
                return;
            }
            heap.pop();
            // A task that was dropped leaves its waker, which does nothing.
            if let Some(waker) = self.wakers.borrow_mut().remove(&id) {
                waker.wake();
            }
        }
    }

    fn arm(&self, due: u64) {
        // 0 would stop the timer.
        let rest = due.saturating_sub(self.clock.now()).max(1);
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        let value = Timespec {
            tv_sec: (rest / 1_000_000_000) as i64,
            tv_nsec: (rest % 1_000_000_000) as i64,
        };
        let timer = Itimerspec { it_interval: zero, it_value: value };
        // Cannot fail: the values are those of a valid time.
        let _ = timerfd_settime(self.descriptor.get_ref(), TimerfdTimerFlags::empty(), &timer);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn tasks_are_woken_and_not_before_their_time() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let clock = Clock::new(Instant::now());
            let timers = StreamTimers::new(clock).unwrap();
            let order = RefCell::new(Vec::new());
            let task = |due: u64| {
                let (timers, order) = (&timers, &order);
                async move {
                    timers.sleep_until(due).await;
                    order.borrow_mut().push((due, clock.now()));
                }
            };
            tokio::select! {
                _ = timers.run() => {}
                _ = async { tokio::join!(task(3_400_000), task(1_300_000), task(2_700_000), task(0)) } => {}
            }
            let order = order.into_inner();
            assert_eq!(order.len(), 4);
            assert!(order.iter().all(|(due, at)| at >= due), "{order:?}");
        });
    }
}
