//! What a loop's thread does besides serving: it keeps the time, ends what waits too long, follows changes on
//! disk, and drains.

use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use tokio::net::unix::pipe::Receiver;
use tokio::sync::Notify;

use super::{Buffers, Deadlines, Loop, Shared, Timer};
use crate::cache::Watch;
use crate::clock::{Clock, TICK};
use crate::connections::{Connections, STATES};
use crate::handler::script::Links;
use crate::listen::Gauge;
use crate::record::AccessLog;
use crate::record::metrics::LoopMetrics;

/// What a loop's thread keeps whatever the configuration becomes.
pub(crate) struct Thread {
    number: usize,
    pub(super) clock: Rc<Clock>,
    pub(super) connections: Rc<Connections>,
    pub(super) deadlines: Rc<Deadlines>,
    pub(super) links: Rc<Links>,
    /// What it has counted, whatever the configuration was.
    pub(super) metrics: OnceCell<Rc<LoopMetrics>>,
    pub(super) buffers: Cell<Option<Box<Buffers>>>,
    pub(super) current: RefCell<Option<Rc<Loop>>>,
    pub(super) draining: Cell<bool>,
    /// Connections that wait for a request are closed.
    pub(super) closes_idle: Cell<bool>,
    pub(super) drain: Notify,
    pub(super) ticker: Rc<Notify>,
}

impl Thread {
    pub(crate) fn new(number: usize) -> Rc<Self> {
        let ticker = Rc::new(Notify::new());
        Rc::new(Self {
            number,
            clock: Rc::new(Clock::new()),
            connections: Rc::default(),
            deadlines: Rc::new(Deadlines::new(Rc::clone(&ticker))),
            links: Rc::default(),
            metrics: OnceCell::new(),
            buffers: Cell::new(Some(Box::default())),
            current: RefCell::new(None),
            draining: Cell::new(false),
            closes_idle: Cell::new(false),
            drain: Notify::new(),
            ticker,
        })
    }

    /// Goes by `shared` from now on.
    pub(crate) fn adopt(self: &Rc<Self>, shared: Arc<Shared>, log: Option<&Arc<AccessLog>>) {
        let ctx = Rc::new(Loop::new(self, shared, log));
        let Some(before) = self.current.replace(Some(Rc::clone(&ctx))) else { return };
        before.superseded.set(true);
        before.flush_log();
        before.sweep();
        ctx.front.borrow_mut().take_over(&before.front, |site| ctx.shared.config.sites.has(site));
        // Those that wait for a request let go of what was.
        self.connections.wake_idle();
    }

    /// What new connections go by; `None` before the first.
    pub(crate) fn current(&self) -> Option<Rc<Loop>> {
        self.current.borrow().clone()
    }

    /// Resolves when the loop is asked to stop.
    pub(crate) async fn drained(&self) {
        let notified = self.drain.notified();
        if !self.draining.get() {
            notified.await;
        }
    }

    /// Stops accepting and lets answers under way finish. Connections that wait for a request are
    /// closed after `grace`, in which they are told of the end with the answer to one more.
    pub(crate) async fn drain(&self, grace: Duration) {
        self.draining.set(true);
        self.drain.notify_waiters();
        // Those who have connected by now are accepted first.
        tokio::time::sleep(Duration::from_millis(5)).await;
        if !grace.is_zero() {
            let began = Instant::now();
            while began.elapsed() < grace && self.connections.len() > 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
        self.closes_idle.set(true);
        self.drain.notify_waiters();
        self.connections.wake_idle();
        while self.connections.len() > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        if let Some(ctx) = self.current.take() {
            ctx.flush_log();
            ctx.sweep();
        }
    }

    /// Keeps the time, ends what has waited too long and hands over log lines, for as long as
    /// there are connections or limits to look at; sleeps otherwise.
    pub(crate) async fn tick(self: Rc<Self>, timer: Timer) {
        let mut ticks: u64 = 0;
        let mut expired = Vec::new();
        loop {
            if self.connections.len() == 0 && self.deadlines.is_empty() {
                if let Some(ctx) = self.current() {
                    ctx.flush_log();
                    ctx.sweep();
                    ctx.metrics.show(&ctx.shared.metrics, [0; STATES]);
                }
                self.ticker.notified().await;
            }
            wake_until_tick(&timer, std::mem::take(&mut expired)).await;
            ticks += 1;
            self.clock.update();
            let look = self.connections.look(self.clock.now());
            expired = look.expired;
            expired.append(&mut self.deadlines.expire(Instant::now()));
            let Some(ctx) = self.current() else { continue };
            ctx.metrics.show(&ctx.shared.metrics, look.counts);
            ctx.look_back();
            ctx.show_counts();
            ctx.shared.gauge.eviction.tell(self.number, look.idlest);
            if ticks.is_multiple_of(5) {
                ctx.flush_log();
            }
            if ticks.is_multiple_of(10) {
                if ctx.shared.roots.check() {
                    ctx.shared.store.clear();
                }
                ctx.sweep();
            }
        }
    }

    /// Closes idle connections when newcomers need room.
    pub(crate) async fn evict(self: Rc<Self>, gauge: Arc<Gauge>) {
        let eviction = &gauge.eviction;
        loop {
            for _ in 0..eviction.asked(self.number).await {
                // Who asked may not have known yet that this loop's idlest is gone.
                if eviction.has_idler_than(self.number) {
                    eviction.evict_one();
                    continue;
                }
                let (evicted, next) = self.connections.evict(1, self.clock.now());
                eviction.count(evicted);
                eviction.tell(self.number, next);
            }
        }
    }

    /// Follows changes on disk.
    pub(crate) async fn follow_changes(self: Rc<Self>, watch: Arc<Watch>) {
        // Each loop polls a duplicate. The runtime has no type for such descriptors of its own;
        // a pipe's receiving end is polled in the same way.
        let events = watch.duplicate().and_then(Receiver::from_file_unchecked);
        let events = match events {
            Ok(events) => events,
            Err(error) => {
                tracing::error!("changes on disk are not seen at once: {error}");
                return;
            }
        };
        while events.readable().await.is_ok() {
            let result = events.try_io(|| {
                if let Some(ctx) = self.current() {
                    ctx.look_for_changes();
                }
                // All has been read: the next change makes it ready again.
                Err::<(), _>(std::io::ErrorKind::WouldBlock.into())
            });
            debug_assert!(result.is_err());
        }
    }
}

/// How many connections are ended in a row, and how long others have their turn before the next.
const PORTION: usize = 32;
const PAUSE: Duration = Duration::from_millis(1);

/// Returns at the next tick. Until then, wakes connections that have waited too long: a few at a time, so that
/// requests that arrive need not wait until thousands of them have ended. Who has no turn is found again.
async fn wake_until_tick(timer: &Timer, expired: Vec<Waker>) {
    let tick = Instant::now() + TICK;
    for portion in expired.chunks(PORTION) {
        portion.iter().for_each(Waker::wake_by_ref);
        timer.sleep(PAUSE).await;
        if Instant::now() >= tick {
            return;
        }
    }
    timer.sleep(tick.saturating_duration_since(Instant::now())).await;
}
