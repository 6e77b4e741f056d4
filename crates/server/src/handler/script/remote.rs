//! Workers elsewhere: which address a request goes to, and connections that are kept.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::thread::ThreadId;
use std::time::Instant;

use hashbrown::HashMap;
use smallvec::SmallVec;
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;

use super::pool::Place;
use super::socket::Link;
use super::{Failure, descriptors};
use crate::config::{Address, Remote, Script};
use crate::temp_files::lacks_descriptors;
use crate::worker::WorkerContext;

/// The workers of all routes that are elsewhere.
#[derive(Debug, Default)]
pub(super) struct All {
    groups: RwLock<HashMap<usize, Arc<Group>>>,
}

/// The workers of one route.
#[derive(Debug)]
pub(super) struct Group {
    remote: Remote,
    targets: Vec<Target>,
}

#[derive(Debug)]
struct Target {
    address: Address,
    in_flight: AtomicUsize,
    /// It could not be reached, and is left alone until then.
    down: Mutex<Option<Instant>>,
    kept: Mutex<Vec<(ThreadId, Link)>>,
}

/// One request's connection to a worker elsewhere.
#[derive(Debug)]
pub(super) struct Visit {
    group: Arc<Group>,
    target: usize,
    _place: Place,
}

impl All {
    pub(super) fn of(&self, script: &Script, remote: &Remote) -> Arc<Group> {
        let groups = self.groups.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(group) = groups.get(&script.id) {
            return Arc::clone(group);
        }
        drop(groups);
        let mut groups = self.groups.write().unwrap_or_else(PoisonError::into_inner);
        let group = groups.entry(script.id).or_insert_with(|| Arc::new(Group::new(remote)));
        Arc::clone(group)
    }

    /// Has every worker tried again, and reported again when it cannot be reached.
    pub(super) fn resume(&self) {
        let groups = self.groups.read().unwrap_or_else(PoisonError::into_inner);
        for target in groups.values().flat_map(|group| &group.targets) {
            *target.down.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
    }

    /// Lets go of those of scripts that there are no longer.
    pub(super) fn retain(&self, has: &impl Fn(usize) -> bool) {
        self.groups.write().unwrap_or_else(PoisonError::into_inner).retain(|&id, _| has(id));
    }
}

impl Group {
    fn new(remote: &Remote) -> Self {
        let target = |address: &Address| Target {
            address: address.clone(),
            in_flight: AtomicUsize::new(0),
            down: Mutex::new(None),
            kept: Mutex::new(Vec::new()),
        };
        Self { targets: remote.addresses.iter().map(target).collect(), remote: remote.clone() }
    }

    /// Connects to the worker with the fewest requests; to the next one when it cannot be
    /// reached. `unlike` is the one that has just failed, which comes last. The link is one that
    /// was kept when `fresh` is not asked for.
    ///
    /// # Errors
    /// When none can be reached.
    pub(super) async fn connect(
        self: &Arc<Self>,
        ctx: &WorkerContext,
        place: Place,
        unlike: Option<usize>,
        fresh: bool,
    ) -> Result<(Visit, Link), Failure> {
        let now = Instant::now();
        let mut order: SmallVec<[usize; 4]> = (0..self.targets.len()).collect();
        order.sort_by_key(|&at| {
            let target = &self.targets[at];
            (target.is_down(now), unlike == Some(at), target.in_flight.load(Ordering::Relaxed))
        });
        let mut last = String::new();
        for at in order {
            let target = &self.targets[at];
            if !fresh && let Some(link) = target.take_kept() {
                return Ok((self.visit(at, place), link));
            }
            match descriptors::retry(ctx, async || self.open(target).await).await {
                Ok(link) => {
                    target.set_up();
                    return Ok((self.visit(at, place), link));
                }
                // Another worker would not help.
                Err(error) if lacks_descriptors(&error) => return Err(Failure::NoDescriptor),
                Err(error) => last = self.set_down(target, &error),
            }
        }
        Err(Failure::Unreachable(last))
    }

    fn visit(self: &Arc<Self>, target: usize, place: Place) -> Visit {
        self.targets[target].in_flight.fetch_add(1, Ordering::Relaxed);
        Visit { group: Arc::clone(self), target, _place: place }
    }

    async fn open(&self, target: &Target) -> std::io::Result<Link> {
        let connecting = async {
            Ok(match &target.address {
                Address::Unix(path) => Link::Unix(UnixStream::connect(path).await?),
                Address::Tcp(address) => {
                    let stream = TcpStream::connect(address).await?;
                    stream.set_nodelay(true)?;
                    Link::Tcp(stream)
                }
            })
        };
        let late = |_| std::io::Error::from(std::io::ErrorKind::TimedOut);
        timeout(self.remote.connect_timeout, connecting).await.map_err(late)?
    }

    /// Leaves a worker alone for a while, and tells of it once.
    fn set_down(&self, target: &Target, error: &std::io::Error) -> String {
        let what = format!("{} could not be reached: {error}", target.address);
        let mut down = target.down.lock().unwrap_or_else(PoisonError::into_inner);
        if down.is_none() && self.targets.len() > 1 {
            tracing::warn!(
                "the worker at {what}; others are asked for {:?}",
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

    fn set_up(&self) {
        let mut down = self.down.lock().unwrap_or_else(PoisonError::into_inner);
        if down.take().is_some() {
            tracing::info!("the worker at {} can be reached again", self.address);
        }
    }

    fn take_kept(&self) -> Option<Link> {
        let home = std::thread::current().id();
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let at =
                kept.iter().rposition(|(other, _)| *other == home).or(kept.len().checked_sub(1))?;
            let (other, link) = kept.swap_remove(at);
            if !link.is_reusable() {
                continue;
            }
            if other == home {
                return Some(link);
            }
            // Another loop's has to be registered with this one's.
            if let Ok(link) = link.reregister() {
                return Some(link);
            }
        }
    }
}

impl Visit {
    /// Which worker it is, to avoid it when it fails.
    pub(super) fn target(&self) -> usize {
        self.target
    }

    /// The request is done; `link` may be used again.
    pub(super) fn release(self, link: Option<Link>) {
        if let Some(link) = link {
            let target = &self.group.targets[self.target];
            let home = std::thread::current().id();
            target.kept.lock().unwrap_or_else(PoisonError::into_inner).push((home, link));
        }
    }

    /// Whether connections are to stay open.
    pub(super) fn keep_alive(&self) -> bool {
        self.group.remote.keep_alive
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        self.group.targets[self.target].in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}
