//! Workers that the server does not start: choice of an address, and idle connections.

mod target;
mod targets;

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Instant;

use hashbrown::HashMap;
use smallvec::SmallVec;
use tokio::time::timeout;

use self::target::RemoteTarget;
use self::targets::{Choice, Targets};
use super::context::Context;
use super::failure::Failure;
use super::process_limit::ProcessPermit;
use super::retry_on_emfile;
use super::socket::connection::WorkerSocket;
use dunlin_config::{Remote, Script};
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
    targets: Targets,
}

/// One request's right to use an address.
#[derive(Debug)]
pub(super) struct RemoteCheckout {
    group: Arc<RemoteGroup>,
    target: Arc<RemoteTarget>,
    _place: ProcessPermit,
}

/// An address that has just failed.
#[derive(Debug, Clone)]
pub(super) struct Tried(Arc<RemoteTarget>);

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
        for group in groups.values() {
            group.targets.last().iter().for_each(|choice| choice.target.resume());
        }
    }

    /// Removes the addresses of scripts for which `has` is false.
    pub(super) fn retain(&self, has: &impl Fn(usize) -> bool) {
        self.groups.write().unwrap_or_else(PoisonError::into_inner).retain(|&id, _| has(id));
    }
}

impl RemoteGroup {
    fn new(remote: &Remote) -> Self {
        Self { targets: Targets::new(&remote.addresses), remote: remote.clone() }
    }

    /// Connects to the address with the fewest requests for its weight, and to the next one if it cannot be reached. `avoided` has
    /// just failed and comes last. Uses an idle connection unless `fresh`.
    ///
    /// # Errors
    /// [`Failure::Unreachable`] when no address can be reached; [`Failure::NoDescriptor`] when no descriptor is left.
    pub(super) async fn connect(
        self: &Arc<Self>,
        ctx: &Context,
        permit: ProcessPermit,
        avoided: Option<&Tried>,
        fresh: bool,
    ) -> Result<(RemoteCheckout, WorkerSocket), Failure> {
        let choices = self.targets.present(&ctx.shared.name_servers).await?;
        let mut last = String::new();
        for at in order(&choices, avoided, Instant::now()) {
            let target = &choices[at].target;
            if !fresh && let Some(socket) = target.take_idle() {
                return Ok((self.checkout(target, permit), socket));
            }
            match retry_on_emfile::retry(ctx, async || self.open(target).await).await {
                Ok(socket) => {
                    target.mark_up();
                    return Ok((self.checkout(target, permit), socket));
                }
                // Another address would not help.
                Err(error) if lacks_descriptors(&error) => return Err(Failure::NoDescriptor),
                Err(error) => last = self.mark_down(target, choices.len() > 1, &error),
            }
        }
        Err(Failure::Unreachable(last))
    }

    fn checkout(
        self: &Arc<Self>,
        target: &Arc<RemoteTarget>,
        permit: ProcessPermit,
    ) -> RemoteCheckout {
        target.begin();
        RemoteCheckout { group: Arc::clone(self), target: Arc::clone(target), _place: permit }
    }

    async fn open(&self, target: &RemoteTarget) -> std::io::Result<WorkerSocket> {
        let late = |_| std::io::Error::from(std::io::ErrorKind::TimedOut);
        timeout(self.remote.connect_timeout, target.open()).await.map_err(late)?
    }

    /// Marks an address as unreachable for a while, and logs the first failure.
    fn mark_down(&self, target: &RemoteTarget, has_others: bool, error: &std::io::Error) -> String {
        let what = format!("{} could not be reached: {error}", target.address);
        let cool_down = self.remote.cool_down;
        if !target.mark_down(cool_down) {
            return what;
        }
        if has_others {
            tracing::warn!("the worker at {what}; other addresses are used for {cool_down:?}");
        } else {
            tracing::error!("the worker at {what}; requests get 502 until it can be reached");
        }
        what
    }
}

/// The load of one request with weight 1: more than the largest weight.
const LOAD: u64 = 1 << 20;

/// Returns the order in which the targets are tried.
fn order(choices: &[Choice], avoided: Option<&Tried>, now: Instant) -> SmallVec<[usize; 4]> {
    let mut order: SmallVec<[usize; 4]> = (0..choices.len()).collect();
    let rank = |Choice { target, priority, weight }: &Choice| {
        let is_avoided = avoided.is_some_and(|tried| Arc::ptr_eq(&tried.0, target));
        let load = (target.in_flight() as u64 + 1) * LOAD / u64::from(*weight);
        (target.is_down(now), is_avoided, *priority, load)
    };
    // Other requests may change the load during the sort.
    let ranks: SmallVec<[_; 4]> = choices.iter().map(rank).collect();
    order.sort_by_key(|&at| ranks[at]);
    order
}

impl RemoteCheckout {
    /// Returns the address, to avoid it after a failure.
    pub(super) fn target(&self) -> Tried {
        Tried(Arc::clone(&self.target))
    }

    /// Ends the request. `socket` is the connection, if it can carry another request.
    pub(super) fn release(self, socket: Option<WorkerSocket>) {
        if let Some(socket) = socket {
            self.target.keep(socket);
        }
    }

    /// Returns `true` if connections stay open between requests.
    pub(super) fn keep_alive(&self) -> bool {
        self.group.remote.keep_alive
    }
}

impl Drop for RemoteCheckout {
    fn drop(&mut self) {
        self.target.end();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use dunlin_config::Address;

    use super::*;

    fn choice(number: u16, priority: u16, weight: u16, in_flight: usize) -> Choice {
        let target = RemoteTarget::new(Address::Tcp(([127, 0, 0, 1], number).into()));
        (0..in_flight).for_each(|_| target.begin());
        Choice { target: Arc::new(target), priority, weight }
    }

    #[test]
    fn targets_are_tried_by_reachability_priority_and_load() {
        let choices = [
            choice(1, 0, 1, 2),
            choice(2, 0, 1, 1),
            choice(3, 0, 4, 5),
            choice(4, 1, 1, 0),
            choice(5, 0, 1, 0),
        ];
        let now = Instant::now();
        assert_eq!(order(&choices, None, now)[..], [4, 2, 1, 0, 3]);
        choices[4].target.mark_down(Duration::from_secs(1));
        let tried = Tried(Arc::clone(&choices[2].target));
        assert_eq!(order(&choices, Some(&tried), now)[..], [1, 0, 3, 2, 4]);
    }
}
