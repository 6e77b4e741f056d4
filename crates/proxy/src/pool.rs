//! The idle connections of one worker.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::{Duration, Instant};

use dunlin_client::{Connection, SharedConnection};
use dunlin_config::Proxy;
use dunlin_net::clock;
use dunlin_net::deadlines::Deadlines;
use hashbrown::HashMap;

use crate::group::Group;

/// What one worker keeps for its life: idle connections by the number of their pool.
#[derive(Debug)]
pub struct WorkerProxy {
    pub(crate) deadlines: Rc<Deadlines>,
    idle: RefCell<HashMap<usize, VecDeque<Idle>>>,
    /// Connections of HTTP/2 by pool.
    shared: RefCell<HashMap<usize, SharedConnection>>,
    /// A task closes connections that are idle for too long.
    is_swept: Cell<bool>,
    /// The buffer for reading from connections that use another protocol, which so have none while they are idle.
    buffer: RefCell<Box<[u8]>>,
    /// Name servers; empty for those of the system.
    name_servers: RefCell<Rc<[SocketAddr]>>,
    /// The groups whose health a task checks.
    checked: RefCell<Vec<std::sync::Weak<Group>>>,
}

#[derive(Debug)]
struct Idle {
    connection: Connection,
    since: Instant,
    /// When it is closed.
    until: Instant,
}

/// Which idle connections a request may use.
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
/// Bytes of the buffer.
const BUFFER: usize = 32 * 1024;
/// Interval at which connections are closed that are idle for too long, or that their server has closed.
const SWEEP: Duration = Duration::from_secs(1);

impl WorkerProxy {
    /// No connections. `deadlines` are those of the worker.
    pub fn new(deadlines: &Rc<Deadlines>) -> Rc<Self> {
        Rc::new(Self {
            deadlines: Rc::clone(deadlines),
            idle: RefCell::default(),
            shared: RefCell::default(),
            is_swept: Cell::new(false),
            buffer: RefCell::default(),
            name_servers: RefCell::new(Rc::from([])),
            checked: RefCell::default(),
        })
    }

    /// Has names resolved by these name servers; by those of the system if there are none.
    pub fn set_name_servers(&self, servers: &[SocketAddr]) {
        *self.name_servers.borrow_mut() = servers.into();
    }

    pub(crate) fn name_servers(&self) -> Rc<[SocketAddr]> {
        Rc::clone(&self.name_servers.borrow())
    }

    /// Whether the health of the group has to be checked by a new task of this worker, which is noted.
    pub(crate) fn begins_checks(&self, group: &Arc<Group>) -> bool {
        let mut checked = self.checked.borrow_mut();
        checked.retain(|group| group.strong_count() > 0);
        let is_new = !checked.iter().any(|other| std::ptr::eq(other.as_ptr(), &raw const **group));
        if is_new {
            checked.push(Arc::downgrade(group));
        }
        is_new
    }

    /// Calls `read` with the buffer of the worker.
    pub(crate) fn with_buffer<T>(&self, read: impl FnOnce(&mut [u8]) -> T) -> T {
        let mut buffer = self.buffer.borrow_mut();
        if buffer.is_empty() {
            *buffer = vec![0; BUFFER].into();
        }
        read(&mut buffer)
    }

    /// An idle connection of the pool of an upstream: the one that was used last. `now` is approximately the current time.
    pub(crate) fn take(&self, pool: usize, reuse: Reuse, now: Instant) -> Option<Connection> {
        if reuse == Reuse::None {
            return None;
        }
        let mut idle = self.idle.borrow_mut();
        let idle = idle.get_mut(&pool)?;
        while let Some(mut last) = idle.pop_back() {
            if last.until <= now || !last.connection.is_healthy() {
                continue;
            }
            if reuse == Reuse::Recent && now.saturating_duration_since(last.since) > RECENT {
                idle.push_back(last);
                return None;
            }
            return Some(last.connection);
        }
        None
    }

    /// The connection of HTTP/2 to the upstream, if it takes further requests.
    pub(crate) fn shared(&self, pool: usize) -> Option<SharedConnection> {
        let mut all = self.shared.borrow_mut();
        let usable = all.get(&pool).filter(|shared| shared.is_usable()).cloned();
        if usable.is_none() {
            // Also those of upstreams that are gone have closed themselves.
            all.retain(|_, shared| shared.is_usable());
        }
        usable
    }

    /// Has further requests use a connection of HTTP/2.
    pub(crate) fn share(&self, pool: usize, shared: &SharedConnection) {
        self.shared.borrow_mut().insert(pool, shared.clone());
    }

    /// Keeps a connection, which is idle since `since`, for another request.
    pub(crate) fn put(
        self: &Rc<Self>,
        pool: usize,
        rules: &Proxy,
        connection: Connection,
        since: Instant,
    ) {
        if rules.idle_connections == 0 {
            return;
        }
        let mut all = self.idle.borrow_mut();
        let idle = all.entry(pool).or_default();
        idle.push_back(Idle { connection, since, until: since + rules.keep_alive });
        let surplus = if idle.len() > rules.idle_connections { idle.pop_front() } else { None };
        drop(all);
        drop(surplus);
        if !self.is_swept.replace(true) {
            tokio::task::spawn_local(sweep(Rc::downgrade(self), Rc::clone(&self.deadlines)));
        }
    }

    /// Closes the connections that are of no more use. Returns `false` if none is left.
    fn close_unusable(&self) -> bool {
        let now = clock::now();
        let mut all = self.idle.borrow_mut();
        all.retain(|_, idle| {
            idle.retain_mut(|idle| idle.until > now && idle.connection.is_healthy());
            !idle.is_empty()
        });
        let is_left = !all.is_empty();
        self.is_swept.set(is_left);
        is_left
    }
}

/// Closes connections that are idle for too long, or that their server has closed, until there are none.
async fn sweep(pools: Weak<WorkerProxy>, deadlines: Rc<Deadlines>) {
    loop {
        let now = clock::now();
        deadlines.until(now + SWEEP, now).await;
        let is_left = pools.upgrade().is_some_and(|pools| pools.close_unusable());
        if !is_left {
            return;
        }
    }
}
