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
use crate::idle::{Idle, Reuse};
use crate::upstream::Upstream;

/// The state that one worker keeps for its life: idle connections by the number of their pool.
#[derive(Debug)]
pub struct WorkerProxy {
    pub(crate) deadlines: Rc<Deadlines>,
    idle: RefCell<HashMap<usize, Pool>>,
    /// There is no other worker.
    is_alone: Cell<bool>,
    /// Connections of HTTP/2 by pool.
    shared: RefCell<HashMap<usize, SharedPool>>,
    /// A task closes connections that are idle for too long.
    is_swept: Cell<bool>,
    /// The buffer for reading from connections that use another protocol, which so have none while they are idle.
    buffer: RefCell<Box<[u8]>>,
    /// Name servers; empty for those of the system.
    name_servers: RefCell<Rc<[SocketAddr]>>,
    /// The groups whose health a task checks.
    checked: RefCell<Vec<std::sync::Weak<Group>>>,
}

/// The idle connections of the worker to an upstream.
#[derive(Debug)]
struct Pool {
    upstream: Arc<Upstream>,
    /// The longest idle first.
    idle: VecDeque<Idle>,
    /// Maximum of them, and of those in the shared pool.
    limit: usize,
}

/// The connections of HTTP/2 of the worker to an upstream.
#[derive(Debug, Default)]
struct SharedPool {
    /// The oldest first.
    connections: Vec<SharedConnection>,
    opening: OpeningLock,
}

/// Held while a connection of HTTP/2 is opened: it may have room for all that wait.
pub(crate) type OpeningLock = Arc<tokio::sync::Mutex<()>>;

/// The next step of a request that needs a stream.
pub(crate) enum Selected {
    /// Open it on this connection, as soon as the upstream permits it.
    Stream(SharedConnection),
    /// Wait for the settings of this connection.
    New(SharedConnection),
    /// Open another connection.
    Open(OpeningLock),
}

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
            is_alone: Cell::new(false),
            shared: RefCell::default(),
            is_swept: Cell::new(false),
            buffer: RefCell::default(),
            name_servers: RefCell::new(Rc::from([])),
            checked: RefCell::default(),
        })
    }

    /// Records if there is no other worker that could use the idle connections of this one.
    pub fn set_alone(&self, is_alone: bool) {
        self.is_alone.set(is_alone);
    }

    /// Has names resolved by these name servers; by those of the system if there are none.
    pub fn set_name_servers(&self, servers: &[SocketAddr]) {
        *self.name_servers.borrow_mut() = servers.into();
    }

    pub(crate) fn name_servers(&self) -> Rc<[SocketAddr]> {
        Rc::clone(&self.name_servers.borrow())
    }

    /// Returns `true` if the health of the group has to be checked by a new task of this worker, which is noted.
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

    /// Returns an idle connection of the pool of an upstream: the one of this worker that was used last, or one that the
    /// workers share. `now` is approximately the current time.
    pub(crate) fn take(
        &self,
        upstream: &Upstream,
        pool: usize,
        reuse: Reuse,
        now: Instant,
    ) -> Option<Connection> {
        self.take_own(pool, reuse, now).or_else(|| upstream.shared_idle.take(pool, reuse, now))
    }

    fn take_own(&self, pool: usize, reuse: Reuse, now: Instant) -> Option<Connection> {
        let mut all = self.idle.borrow_mut();
        let idle = &mut all.get_mut(&pool)?.idle;
        while let Some(last) = idle.back_mut() {
            let is_usable = last.is_usable(now);
            if is_usable && !last.fits(reuse, now) {
                return None;
            }
            let last = idle.pop_back()?;
            if is_usable {
                return Some(last.connection);
            }
        }
        None
    }

    /// Returns the connection of HTTP/2 for a further request to the upstream, which has at most `limit` of them.
    pub(crate) fn select(&self, pool: usize, limit: usize) -> Selected {
        let mut all = self.shared.borrow_mut();
        let SharedPool { connections, opening } = all.entry(pool).or_default();
        connections.retain(SharedConnection::is_usable);
        // The first ones, so that the others become idle and close.
        if let Some(shared) = connections.iter().find(|shared| shared.has_room()) {
            return Selected::Stream(shared.clone());
        }
        if let Some(shared) = connections.iter().find(|shared| shared.is_new()) {
            return Selected::New(shared.clone());
        }
        // One that is full without a request permits none: neither would another one.
        let permits_none = connections.iter().find(|shared| shared.open_streams() == 0);
        let last = connections.last().filter(|_| connections.len() >= limit);
        if let Some(shared) = permits_none.or(last) {
            return Selected::Stream(shared.clone());
        }
        let opening = Arc::clone(opening);
        // Also those of upstreams that are gone have closed themselves.
        all.retain(|_, shared| {
            shared.connections.retain(SharedConnection::is_usable);
            !shared.connections.is_empty() || Arc::strong_count(&shared.opening) > 1
        });
        Selected::Open(opening)
    }

    /// Has further requests use a connection of HTTP/2.
    pub(crate) fn share(&self, pool: usize, shared: &SharedConnection) {
        self.shared.borrow_mut().entry(pool).or_default().connections.push(shared.clone());
    }

    /// Keeps a connection, which is idle since `since`, for another request.
    pub(crate) fn put(
        self: &Rc<Self>,
        upstream: &Arc<Upstream>,
        pool: usize,
        rules: &Proxy,
        connection: Connection,
        since: Instant,
    ) {
        let limit = rules.idle_connections;
        if limit == 0 {
            return;
        }
        let mut all = self.idle.borrow_mut();
        let Pool { idle, .. } = all.entry(pool).or_insert_with(|| Pool {
            upstream: Arc::clone(upstream),
            idle: VecDeque::new(),
            limit,
        });
        idle.push_back(Idle { connection, since, until: since + rules.keep_alive });
        let surplus = if idle.len() > limit { idle.pop_front() } else { None };
        drop(all);
        if let Some(surplus) = surplus.filter(|_| !self.is_alone.get()) {
            drop(upstream.shared_idle.put(pool, surplus, limit));
        }
        if !self.is_swept.replace(true) {
            tokio::task::spawn_local(sweep(Rc::downgrade(self), Rc::clone(&self.deadlines)));
        }
    }

    /// Closes unusable connections, and shares those that this worker has not used for a while. Returns
    /// `false` if none is left.
    fn sweep(&self) -> bool {
        let now = clock::now();
        let is_alone = self.is_alone.get();
        let mut all = self.idle.borrow_mut();
        all.retain(|&number, pool| {
            pool.idle.retain_mut(|idle| idle.is_usable(now));
            if !is_alone {
                pool.share_unused(number, now);
            }
            // Its upstream's are closed by the workers that had them.
            let is_shared = pool.upstream.shared_idle.close_unusable(now);
            is_shared || !pool.idle.is_empty()
        });
        let is_left = !all.is_empty();
        self.is_swept.set(is_left);
        is_left
    }
}

impl Pool {
    /// Gives the connections that were not used since the last sweep to the shared pool, as long as it has room.
    fn share_unused(&mut self, number: usize, now: Instant) {
        while self.idle.front().is_some_and(|idle| idle.since + SWEEP <= now)
            && let Some(first) = self.idle.pop_front()
        {
            if let Some(first) = self.upstream.shared_idle.put(number, first, self.limit) {
                self.idle.push_front(first);
                return;
            }
        }
    }
}

/// Closes connections that are idle for too long, or that their server has closed, until there are none.
async fn sweep(pools: Weak<WorkerProxy>, deadlines: Rc<Deadlines>) {
    loop {
        let now = clock::now();
        deadlines.until(now + SWEEP, now).await;
        let is_left = pools.upgrade().is_some_and(|pools| pools.sweep());
        if !is_left {
            return;
        }
    }
}
