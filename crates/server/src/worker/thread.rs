//! The permanent tasks of a worker: ticks of the clock, timeouts, change notifications, eviction and draining.

use std::cell::{Cell, OnceCell, RefCell};
use std::fs::File;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use dunlin_client::Client;
use dunlin_net::clock::{self, Clock};
use dunlin_net::connections::{Connections, STATES};
use dunlin_proxy::WorkerProxy;
use dunlin_script::state::ThreadState;
use dunlin_telemetry::AccessLogs;
use dunlin_telemetry::metrics::WorkerMetrics;
use tokio::net::unix::pipe::Receiver;
use tokio::sync::Notify;

use super::{Buffers, Deadlines, SharedState, Timer, WorkerContext, busy_poll, memory};
use crate::route::router::Router;
use dunlin_fs::watch::Watch;
use dunlin_net::connection_limits::limiter::ConnectionLimiter;

/// The state of a worker that outlives reloads.
pub(crate) struct Worker {
    number: usize,
    pub(super) clock: Rc<Clock>,
    pub(super) connections: Rc<Connections>,
    pub(super) router: &'static dyn Router,
    pub(super) deadlines: Rc<Deadlines>,
    pub(super) client: Client,
    pub(super) proxy: Rc<WorkerProxy>,
    pub(super) scripts: ThreadState,
    /// The counters of the worker.
    pub(super) metrics: OnceCell<Rc<WorkerMetrics>>,
    pub(super) buffers: Cell<Option<Box<Buffers>>>,
    pub(super) current: RefCell<Option<Rc<WorkerContext>>>,
    pub(super) draining: Cell<bool>,
    /// Idle connections have to close.
    pub(super) closes_idle: Cell<bool>,
    pub(super) drain: Notify,
    pub(super) ticker: Rc<Notify>,
    ticks: Cell<u64>,
    /// Time of the last check of state that sends no notifications, in milliseconds of the clock.
    looked: Cell<u64>,
}

impl Worker {
    pub(crate) fn new(number: usize, router: &'static dyn Router) -> Rc<Self> {
        let ticker = Rc::new(Notify::new());
        let deadlines = Rc::new(Deadlines::new(Rc::clone(&ticker)));
        Rc::new(Self {
            number,
            router,
            clock: Rc::new(Clock::new()),
            connections: Rc::default(),
            proxy: WorkerProxy::new(&deadlines),
            deadlines,
            client: Client::default(),
            scripts: ThreadState::default(),
            metrics: OnceCell::new(),
            buffers: Cell::new(Some(Box::default())),
            current: RefCell::new(None),
            draining: Cell::new(false),
            closes_idle: Cell::new(false),
            drain: Notify::new(),
            ticker,
            ticks: Cell::new(0),
            looked: Cell::new(0),
        })
    }

    /// Returns the number of the worker.
    pub(crate) fn number(&self) -> usize {
        self.number
    }

    /// Applies a new configuration.
    pub(crate) fn apply(self: &Rc<Self>, shared: Arc<SharedState>, logs: &AccessLogs) {
        self.proxy.set_name_servers(&shared.config.server.resolver);
        self.proxy.set_alone(shared.config.server.threads == 1);
        for group in shared.sites.proxies() {
            self.proxy.check_health(group);
        }
        busy_poll::set_bound(shared.config.server.busy_poll);
        let ctx = WorkerContext::new(self, shared, logs);
        let Some(before) = self.current.replace(Some(Rc::clone(&ctx))) else { return };
        before.superseded.set(true);
        before.flush_log();
        before.sweep();
        ctx.files
            .cache
            .borrow_mut()
            .take_over(&before.files.cache, |site| ctx.shared.sites.has(site));
        // Idle connections wake up and release the previous configuration.
        self.connections.wake_idle();
    }

    /// Returns the context of new connections; `None` before the first configuration.
    pub(crate) fn current(&self) -> Option<Rc<WorkerContext>> {
        self.current.borrow().clone()
    }

    /// Resolves when the worker has received the command to stop.
    pub(crate) async fn drained(&self) {
        let notified = self.drain.notified();
        if !self.draining.get() {
            notified.await;
        }
    }

    /// Stops accepting and lets responses in progress finish. Connections that wait for a request are
    /// closed after `grace`; the response to one further request announces the close.
    pub(crate) async fn drain(&self, grace: Duration) {
        self.draining.set(true);
        self.drain.notify_waiters();
        self.scripts.close_websockets();
        // Accept first the connections that are in the backlog now.
        clock::sleep(Duration::from_millis(5)).await;
        if !grace.is_zero() {
            // Then close the remaining connections.
            let _ = clock::timeout(grace, self.connections.emptied()).await;
        }
        self.closes_idle.set(true);
        self.drain.notify_waiters();
        self.connections.wake_idle();
        self.connections.emptied().await;
        if let Some(ctx) = self.current.take() {
            ctx.flush_log();
            ctx.sweep();
        }
    }

    /// Runs the ticks: updates the clock, wakes tasks whose deadline has passed and flushes the log. Sleeps while there are
    /// neither connections nor deadlines.
    pub(crate) async fn tick(self: Rc<Self>, timer: Timer) {
        let mut expired = Vec::new();
        loop {
            if self.connections.is_empty() && self.deadlines.is_empty() {
                if let Some(ctx) = self.current() {
                    ctx.flush_log();
                    ctx.sweep();
                    ctx.metrics.publish(&ctx.shared.metrics, [0; STATES]);
                }
                self.ticker.notified().await;
            }
            wake_until_tick(&timer, std::mem::take(&mut expired)).await;
            expired = self.tick_once();
        }
    }

    /// Returns `true` if no task has taken the buffers.
    #[cfg(test)]
    pub(crate) fn has_buffers(&self) -> bool {
        let buffers = self.buffers.take();
        let has_buffers = buffers.is_some();
        self.buffers.set(buffers);
        has_buffers
    }

    /// Does the work of one tick. Returns the wakers of tasks whose deadline has passed.
    pub(crate) fn tick_once(&self) -> Vec<Waker> {
        self.ticks.set(self.ticks.get() + 1);
        self.clock.update();
        let current = self.current();
        let is_full = current.as_ref().is_some_and(|ctx| ctx.shared.limiter.is_full());
        let scan = self.connections.scan(self.clock.now(), is_full);
        let mut expired = scan.expired;
        expired.append(&mut self.deadlines.expire(clock::now()));
        let Some(ctx) = current else { return expired };
        ctx.metrics.publish(&ctx.shared.metrics, scan.counts);
        ctx.look_back();
        memory::check();
        ctx.files.publish_counts();
        ctx.shared.limiter.eviction().set_first_victim(self.number, scan.first_victim);
        self.bound_addresses(&ctx.shared.limiter);
        if self.ticks.get().is_multiple_of(5) {
            ctx.flush_log();
        }
        // By the clock: an idle worker has no ticks.
        if self.clock.now() >= self.looked.get() + LOOK {
            self.looked.set(self.clock.now());
            ctx.shared.files.check_roots();
            ctx.shared.files.listings.expire(clock::now());
            ctx.sweep();
        }
        expired
    }

    /// Closes idle connections to make room for new ones, on request of the limiter.
    pub(crate) async fn evict(self: Rc<Self>, limiter: Arc<ConnectionLimiter>) {
        let eviction = limiter.eviction();
        loop {
            for _ in 0..eviction.requested(self.number).await {
                // The candidate of this worker may have been closed since the request.
                if eviction.is_another_first(self.number) {
                    eviction.evict_one();
                    continue;
                }
                let now = self.clock.now();
                let (evicted, next) = self.connections.evict(1, now, limiter.is_full());
                eviction.count(evicted);
                eviction.set_first_victim(self.number, next);
            }
        }
    }

    /// Closes connections without a complete request of addresses that have too many of them.
    fn bound_addresses(&self, limiter: &ConnectionLimiter) {
        let max = limiter.unfinished_per_address();
        let (closed, address) = self.connections.bound_addresses(max, self.clock.now());
        if let Some(address) = address {
            limiter.eviction().count(closed);
            tracing::warn!(
                %address,
                closed,
                "an address has connections without a complete request for half of `connections`; the oldest are closed; \
                 `connections_per_address` limits all connections of an address"
            );
        }
    }

    /// Closes file descriptors of the cache when another part of the server needs them.
    pub(crate) async fn release_descriptors(self: Rc<Self>, limiter: Arc<ConnectionLimiter>) {
        loop {
            limiter.release_requested().await;
            if let Some(ctx) = self.current() {
                ctx.sweep();
            }
        }
    }

    /// Reads change notifications of files.
    pub(crate) async fn follow_changes(self: Rc<Self>, watch: Arc<Watch>) {
        self.follow(watch.duplicate(), WorkerContext::look_for_changes).await;
    }

    /// Reads notifications of mounts and unmounts.
    pub(crate) async fn follow_mounts(self: Rc<Self>, watch: Arc<Watch>) {
        if let Some(events) = watch.duplicate_mounts() {
            self.follow(events, WorkerContext::look_for_mounts).await;
        }
    }

    /// Calls `look` whenever the descriptor becomes readable.
    async fn follow(&self, events: io::Result<File>, look: impl Fn(&WorkerContext)) {
        // Each worker polls a duplicate. tokio has no type for such descriptors; the receiving end of a pipe is polled in
        // the same way.
        let events = match events.and_then(Receiver::from_file_unchecked) {
            Ok(events) => events,
            Err(error) => {
                tracing::error!(
                    "no change notifications; only `cache.revalidate` detects changes: {error}"
                );
                return;
            }
        };
        while events.readable().await.is_ok() {
            let result = events.try_io(|| {
                if let Some(ctx) = self.current() {
                    look(&ctx);
                }
                // Everything was read, so the next change makes the descriptor readable again.
                Err::<(), _>(io::ErrorKind::WouldBlock.into())
            });
            debug_assert!(result.is_err());
        }
    }
}

/// Interval of checks of state that sends no notifications, in milliseconds.
const LOOK: u64 = 1000;
/// Maximum of expired tasks that are woken at once.
const PORTION: usize = 32;
/// Pause between two portions, in which other tasks run.
const PAUSE: Duration = Duration::from_millis(1);

/// Returns at the next tick. Until then, wakes expired tasks in portions, so that new requests do not wait until thousands of
/// connections have closed. Tasks that are not woken before the tick expire again.
async fn wake_until_tick(timer: &Timer, expired: Vec<Waker>) {
    let tick = clock::now() + Clock::until_tick();
    for portion in expired.chunks(PORTION) {
        portion.iter().for_each(Waker::wake_by_ref);
        timer.sleep(PAUSE).await;
        if clock::now() >= tick {
            return;
        }
    }
    timer.sleep(tick.saturating_duration_since(clock::now())).await;
}
