//! Workers that the server does not start: choice of an address, and idle connections.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::thread::ThreadId;
use std::time::Instant;

use hashbrown::HashMap;
use smallvec::SmallVec;
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;

use super::context::Context;
use super::descriptors;
use super::failure::Failure;
use super::process_limit::ProcessPermit;
use super::socket::connection::WorkerSocket;
use dunlin_config::{Address, Remote, Script};
use dunlin_net::temp_files::lacks_descriptors;

/// The addresses of all routes.
#[derive(Debug, Default)]
pub(super) struct RemoteRegistry {
    groups: RwLock<HashMap<usize, Arc<RemoteGroup>>>,
}

/// The addresses of one route.
#[derive(Debug)]
pub(super) struct RemoteGroup {
    remote: Remote,
    targets: Vec<Target>,
}

#[derive(Debug)]
struct Target {
    address: Address,
    in_flight: AtomicUsize,
    /// Unreachable: not tried before this time unless all others are unreachable too.
    down: Mutex<Option<Instant>>,
    idle: Mutex<Vec<(ThreadId, WorkerSocket)>>,
}

/// One request's right to use an address.
#[derive(Debug)]
pub(super) struct RemoteCheckout {
    group: Arc<RemoteGroup>,
    target: usize,
    _place: ProcessPermit,
}

impl RemoteRegistry {
    pub(super) fn of(&self, script: &Script, remote: &Remote) -> Arc<RemoteGroup> {
        let groups = self.groups.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(group) = groups.get(&script.id) {
            return Arc::clone(group);
        }
        drop(groups);
        let mut groups = self.groups.write().unwrap_or_else(PoisonError::into_inner);
        let group = groups.entry(script.id).or_insert_with(|| Arc::new(RemoteGroup::new(remote)));
        Arc::clone(group)
    }

    /// Clears all failures: each address is tried, and reported, again.
    pub(super) fn resume(&self) {
        let groups = self.groups.read().unwrap_or_else(PoisonError::into_inner);
        for target in groups.values().flat_map(|group| &group.targets) {
            *target.down.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
    }

    /// Removes the addresses of scripts for which `has` is false.
    pub(super) fn retain(&self, has: &impl Fn(usize) -> bool) {
        self.groups.write().unwrap_or_else(PoisonError::into_inner).retain(|&id, _| has(id));
    }
}

impl RemoteGroup {
    fn new(remote: &Remote) -> Self {
        let target = |address: &Address| Target {
            address: address.clone(),
            in_flight: AtomicUsize::new(0),
            down: Mutex::new(None),
            idle: Mutex::new(Vec::new()),
        };
        Self { targets: remote.addresses.iter().map(target).collect(), remote: remote.clone() }
    }

    /// Connects to the address with the fewest requests, and to the next one if it cannot be reached. `avoided` has
    /// just failed and comes last. Uses an idle connection unless `fresh`.
    ///
    /// # Errors
    /// [`Failure::Unreachable`] when no address can be reached; [`Failure::NoDescriptor`] when no descriptor is left.
    pub(super) async fn connect(
        self: &Arc<Self>,
        ctx: &Context,
        permit: ProcessPermit,
        avoided: Option<usize>,
        fresh: bool,
    ) -> Result<(RemoteCheckout, WorkerSocket), Failure> {
        let now = Instant::now();
        let mut order: SmallVec<[usize; 4]> = (0..self.targets.len()).collect();
        order.sort_by_key(|&at| {
            let target = &self.targets[at];
            (target.is_down(now), avoided == Some(at), target.in_flight.load(Ordering::Relaxed))
        });
        let mut last = String::new();
        for at in order {
            let target = &self.targets[at];
            if !fresh && let Some(socket) = target.take_idle() {
                return Ok((self.checkout(at, permit), socket));
            }
            match descriptors::retry(ctx, async || self.open(target).await).await {
                Ok(socket) => {
                    target.mark_up();
                    return Ok((self.checkout(at, permit), socket));
                }
                // Another address would not help.
                Err(error) if lacks_descriptors(&error) => return Err(Failure::NoDescriptor),
                Err(error) => last = self.mark_down(target, &error),
            }
        }
        Err(Failure::Unreachable(last))
    }

    fn checkout(self: &Arc<Self>, target: usize, permit: ProcessPermit) -> RemoteCheckout {
        self.targets[target].in_flight.fetch_add(1, Ordering::Relaxed);
        RemoteCheckout { group: Arc::clone(self), target, _place: permit }
    }

    async fn open(&self, target: &Target) -> std::io::Result<WorkerSocket> {
        let connecting = async {
            Ok(match &target.address {
                Address::Unix(path) => WorkerSocket::Unix(UnixStream::connect(path).await?),
                Address::Tcp(address) => {
                    let stream = TcpStream::connect(address).await?;
                    stream.set_nodelay(true)?;
                    WorkerSocket::Tcp(stream)
                }
            })
        };
        let late = |_| std::io::Error::from(std::io::ErrorKind::TimedOut);
        timeout(self.remote.connect_timeout, connecting).await.map_err(late)?
    }

    /// Marks an address as unreachable for a while, and logs the first failure.
    fn mark_down(&self, target: &Target, error: &std::io::Error) -> String {
        let what = format!("{} could not be reached: {error}", target.address);
        let mut down = target.down.lock().unwrap_or_else(PoisonError::into_inner);
        if down.is_none() && self.targets.len() > 1 {
            tracing::warn!(
                "the worker at {what}; other addresses are used for {:?}",
                self.remote.cool_down
            );
        } else if down.is_none() {
            tracing::error!("the worker at {what}; requests get 502 until it can be reached");
        }
        *down = Some(Instant::now() + self.remote.cool_down);
        what
    }
}

impl Target {
    fn is_down(&self, now: Instant) -> bool {
        self.down.lock().unwrap_or_else(PoisonError::into_inner).is_some_and(|until| until > now)
    }

    fn mark_up(&self) {
        let mut down = self.down.lock().unwrap_or_else(PoisonError::into_inner);
        if down.take().is_some() {
            tracing::info!("the worker at {} can be reached again", self.address);
        }
    }

    fn take_idle(&self) -> Option<WorkerSocket> {
        let owner = std::thread::current().id();
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let at = idle
                .iter()
                .rposition(|(other, _)| *other == owner)
                .or(idle.len().checked_sub(1))?;
            let (other, socket) = idle.swap_remove(at);
            if !socket.is_reusable() {
                continue;
            }
            if other == owner {
                return Some(socket);
            }
            // A connection of another worker thread has to be registered with this one.
            if let Ok(socket) = socket.reregister() {
                return Some(socket);
            }
        }
    }
}

impl RemoteCheckout {
    /// The number of the address, to avoid it after a failure.
    pub(super) fn target(&self) -> usize {
        self.target
    }

    /// Ends the request. `socket` is the connection, if it can carry another request.
    pub(super) fn release(self, socket: Option<WorkerSocket>) {
        if let Some(socket) = socket {
            let target = &self.group.targets[self.target];
            let owner = std::thread::current().id();
            target.idle.lock().unwrap_or_else(PoisonError::into_inner).push((owner, socket));
        }
    }

    /// Whether connections stay open between requests.
    pub(super) fn keep_alive(&self) -> bool {
        self.group.remote.keep_alive
    }
}

impl Drop for RemoteCheckout {
    fn drop(&mut self) {
        self.group.targets[self.target].in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}
