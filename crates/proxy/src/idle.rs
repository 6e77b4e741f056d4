//! Idle connections, and those that all workers share.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use dunlin_client::Connection;

/// An idle connection.
#[derive(Debug)]
pub(crate) struct Idle {
    pub(crate) connection: Connection,
    pub(crate) since: Instant,
    /// When it is closed.
    pub(crate) until: Instant,
}

/// The idle connections that a request may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reuse {
    Any,
    /// Those that were used a moment ago: a request that cannot be repeated must not meet a server that closes the
    /// connection at the end of its own idle time.
    Recent,
    None,
}

/// Servers that close idle connections wait at least this long.
const RECENT: Duration = Duration::from_secs(1);

impl Idle {
    /// Returns `true` if it can be used: it has not expired and the server has not closed it.
    pub(crate) fn is_usable(&mut self, now: Instant) -> bool {
        self.until > now && self.connection.is_healthy()
    }

    /// Returns `true` if a request with this reuse policy may use it.
    pub(crate) fn fits(&self, reuse: Reuse, now: Instant) -> bool {
        match reuse {
            Reuse::Any => true,
            Reuse::Recent => now.saturating_duration_since(self.since) <= RECENT,
            Reuse::None => false,
        }
    }
}

/// Idle connections of one upstream that a worker has too many of, or has not used for a while. Another worker uses them
/// before it opens a new one.
#[derive(Debug, Default)]
pub(crate) struct SharedIdlePool {
    /// Their number, which is read without the lock.
    count: AtomicUsize,
    /// The longest idle first, each with the number of its pool.
    idle: Mutex<VecDeque<(usize, Idle)>>,
}

impl SharedIdlePool {
    /// Keeps a connection for any worker, if there are fewer than `limit`; otherwise returns it.
    pub(crate) fn put(&self, pool: usize, idle: Idle, limit: usize) -> Option<Idle> {
        if self.count.load(Ordering::Relaxed) >= limit {
            return Some(idle);
        }
        let mut all = self.lock();
        if all.len() >= limit {
            return Some(idle);
        }
        let at = all.partition_point(|(_, other)| other.since <= idle.since);
        all.insert(at, (pool, idle));
        self.count.store(all.len(), Ordering::Relaxed);
        None
    }

    /// Returns a connection of this pool for a request of this worker.
    pub(crate) fn take(&self, pool: usize, reuse: Reuse, now: Instant) -> Option<Connection> {
        if reuse == Reuse::None {
            return None;
        }
        while self.count.load(Ordering::Relaxed) > 0 {
            // The lock is not held while a connection is closed.
            let mut idle = self.pop(pool, reuse, now)?;
            if idle.is_usable(now) && idle.connection.adopt().is_ok() {
                return Some(idle.connection);
            }
        }
        None
    }

    fn pop(&self, pool: usize, reuse: Reuse, now: Instant) -> Option<Idle> {
        let mut all = self.lock();
        let at = all.iter().rposition(|(of, idle)| *of == pool && idle.fits(reuse, now))?;
        let (_, idle) = all.remove(at)?;
        self.count.store(all.len(), Ordering::Relaxed);
        Some(idle)
    }

    /// Closes unusable connections. Returns `false` if none is left.
    pub(crate) fn close_unusable(&self, now: Instant) -> bool {
        if self.count.load(Ordering::Relaxed) == 0 {
            return false;
        }
        let mut all = self.lock();
        all.retain_mut(|(_, idle)| idle.is_usable(now));
        self.count.store(all.len(), Ordering::Relaxed);
        !all.is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<(usize, Idle)>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
