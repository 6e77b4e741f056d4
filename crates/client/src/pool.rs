//! Idle connections, by origin.

use std::collections::HashMap;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep_until};

use crate::Origin;
use crate::http1::Http1;
use crate::http2::Http2;
use crate::stream::Stream;

/// Bounds of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolLimits {
    /// Most connections to one origin, over HTTP/2 most requests at once; further requests wait.
    pub connections: usize,
    /// Most idle connections to one origin.
    pub idle: usize,
    /// The time for which a connection stays idle before the client closes it.
    pub idle_time: Duration,
}

impl Default for PoolLimits {
    fn default() -> Self {
        Self { connections: 256, idle: 32, idle_time: Duration::from_secs(30) }
    }
}

/// The connections of a client.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    limits: PoolLimits,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    origins: HashMap<Origin, Slot>,
    watcher: Watcher,
}

/// The task that closes idle connections when their time is over or their server has closed them.
#[derive(Debug, Default)]
enum Watcher {
    #[default]
    Absent,
    /// It runs and will look at all idle connections.
    Starting,
    /// It waits; idle connections wake it.
    Waiting(Waker),
}

#[derive(Debug)]
struct Slot {
    /// One for each connection in use. An idle connection needs none: it is taken before a new one is opened, so that
    /// connections in use and idle ones together never exceed the limit.
    permits: Arc<Semaphore>,
    /// The longest idle first.
    idle: Vec<Idle>,
    /// The connection of HTTP/2, which closes itself when it is idle for too long.
    http2: Option<Http2>,
}

#[derive(Debug)]
struct Idle {
    http1: Box<Http1<Stream>>,
    until: Instant,
}

impl Pool {
    pub(crate) fn new(limits: PoolLimits) -> Self {
        Self { limits, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the permits of an origin.
    pub(crate) fn permits(&self, origin: &Origin) -> Arc<Semaphore> {
        let mut state = self.state();
        if let Some(slot) = state.origins.get(origin) {
            return Arc::clone(&slot.permits);
        }
        let permits = Arc::new(Semaphore::new(self.limits.connections));
        let slot = Slot { permits: Arc::clone(&permits), idle: Vec::new(), http2: None };
        state.origins.insert(origin.clone(), slot);
        permits
    }

    /// Returns an idle connection that is still usable: the one that was used last.
    pub(crate) fn take(&self, origin: &Origin) -> Option<Box<Http1<Stream>>> {
        let now = Instant::now();
        let mut context = Context::from_waker(Waker::noop());
        loop {
            // The lock is not held while a connection is closed.
            let mut idle = self.state().origins.get_mut(origin)?.idle.pop()?;
            if idle.until > now && idle.http1.is_healthy(&mut context) {
                return Some(idle.http1);
            }
        }
    }

    /// Keeps a connection for the next request.
    pub(crate) fn put(self: &Arc<Self>, origin: &Origin, mut http1: Box<Http1<Stream>>) {
        http1.shrink();
        let mut state = self.state();
        let is_absent = matches!(state.watcher, Watcher::Absent);
        if let Watcher::Waiting(waker) = &state.watcher
            && !http1.is_healthy(&mut Context::from_waker(waker))
        {
            return;
        }
        let Some(slot) = state.origins.get_mut(origin) else { return };
        let until = Instant::now() + self.limits.idle_time;
        slot.idle.push(Idle { http1, until });
        let surplus = (slot.idle.len() > self.limits.idle).then(|| slot.idle.remove(0));
        if is_absent {
            state.watcher = Watcher::Starting;
            tokio::spawn(watch(Arc::downgrade(self)));
        }
        drop(state);
        drop(surplus);
    }

    /// Returns the bounds of the pool.
    pub(crate) fn limits(&self) -> &PoolLimits {
        &self.limits
    }

    /// Returns the connection of HTTP/2 to an origin, if there is one that takes further requests.
    pub(crate) fn http2(&self, origin: &Origin) -> Option<Http2> {
        let mut state = self.state();
        let http2 = &mut state.origins.get_mut(origin)?.http2;
        let unusable = http2.take_if(|http2| !http2.is_usable());
        let usable = http2.clone();
        // The lock is not held while a connection is dropped.
        drop(state);
        drop(unusable);
        usable
    }

    /// Has further requests to an origin use a connection of HTTP/2.
    pub(crate) fn put_http2(&self, origin: &Origin, http2: &Http2) {
        let mut state = self.state();
        let slot = state.origins.get_mut(origin);
        let before = slot.and_then(|slot| slot.http2.replace(http2.clone()));
        drop(state);
        drop(before);
    }

    /// Closes unusable idle connections and registers `context` with the others. Returns the time of the next check: `None`
    /// when no connection is idle.
    fn prune(&self, context: &mut Context<'_>) -> Option<Instant> {
        let now = Instant::now();
        let mut state = self.state();
        state.origins.retain(|_, slot| {
            slot.idle.retain_mut(|idle| idle.until > now && idle.http1.is_healthy(context));
            slot.http2.take_if(|http2| !http2.is_usable());
            let is_used = Arc::strong_count(&slot.permits) > 1;
            is_used || !slot.idle.is_empty() || slot.http2.is_some()
        });
        let all = state.origins.values().flat_map(|slot| &slot.idle);
        let next = all.map(|idle| idle.until).min();
        state.watcher = match next {
            Some(_) => Watcher::Waiting(context.waker().clone()),
            None => Watcher::Absent,
        };
        next
    }
}

/// Watches the idle connections of a pool until there are none.
async fn watch(pool: Weak<Pool>) {
    let mut sleep = pin!(sleep_until(Instant::now()));
    poll_fn(|context| {
        loop {
            let Some(pool) = pool.upgrade() else { return Poll::Ready(()) };
            let Some(next) = pool.prune(context) else { return Poll::Ready(()) };
            sleep.as_mut().reset(next);
            if sleep.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
        }
    })
    .await;
}
