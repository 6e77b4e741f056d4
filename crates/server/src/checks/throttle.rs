//! Throttle of a route: a concurrency limit and a bandwidth limit.

use std::hash::{BuildHasher, RandomState};
use std::rc::Rc;
use std::sync::Arc;

use dunlin_config::{ClientBy, ThrottleRules};
use dunlin_limits::bandwidth::{Bandwidth, BandwidthCounts};
use dunlin_limits::concurrency::{Concurrency, ConcurrencyCounts, Entry};
use dunlin_limits::rate::RateCounts;

use super::{CheckInput, Decision, Rejection};

/// The throttle of a route. All workers share it.
#[derive(Debug)]
pub(crate) struct Throttle {
    pub(crate) concurrency: Option<Arc<Concurrency>>,
    pub(crate) bandwidth: Option<Arc<Bandwidth>>,
    client_by: ClientBy,
    /// Status of requests that are rejected.
    status: u16,
    hasher: RandomState,
}

/// Counters of all limits of a route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RouteCounts {
    /// The site's name.
    pub(crate) site: String,
    /// The route's pattern.
    pub(crate) route: String,
    pub(crate) concurrency: Option<Limited<ConcurrencyCounts>>,
    pub(crate) bandwidth: Option<Limited<BandwidthCounts>>,
    pub(crate) limits: Vec<Limited<RateCounts>>,
}

/// Counters of one limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Limited<C> {
    /// Description of the limit.
    pub(crate) rule: String,
    /// The limit only counts.
    pub(crate) dry_run: bool,
    pub(crate) counts: C,
}

/// `Retry-After` in seconds of requests that the bandwidth limit rejects.
const RETRY_BANDWIDTH: &str = "10";

impl Throttle {
    pub(crate) fn new(rules: &ThrottleRules) -> Self {
        Self {
            concurrency: rules.concurrency.map(|rules| Arc::new(Concurrency::new(rules))),
            bandwidth: rules.bandwidth.map(|rules| Arc::new(Bandwidth::new(rules))),
            client_by: rules.client_by,
            status: rules.status,
            hasher: RandomState::default(),
        }
    }

    pub(super) fn check(&self, input: &CheckInput<'_, '_>) -> Decision {
        let Some(throttle) = &self.concurrency else { return Decision::Allow };
        let owner =
            throttle.rules().max_per_client.map(|_| match (self.client_by, input.context.user()) {
                (ClientBy::User, Some(user)) => self.hasher.hash_one(user),
                _ => self.hasher.hash_one(input.context.client.address.network()),
            });
        if let Some(bytes) = input.at_once {
            let leaves = || {
                self.bandwidth
                    .as_ref()
                    .is_none_or(|ceiling| ceiling.takes_at_once(bytes, input.now))
            };
            if throttle.passes_at_once(owner, leaves) {
                input.context.throttle(None);
                return Decision::Allow;
            }
        }
        match throttle.enter(owner, input.now) {
            Entry::Run(permit) => {
                input.context.hold_permit(permit);
                Decision::Allow
            }
            Entry::Busy(seconds) => Decision::Reject(busy(self.status, seconds)),
            Entry::Wait(waiter) => {
                let (context, seconds) = (Rc::clone(input.context), throttle.retry_after());
                let status = self.status;
                Decision::Wait(Box::pin(async move {
                    context.hold_permit(waiter.await.ok_or_else(|| busy(status, seconds))?);
                    Ok(())
                }))
            }
        }
    }

    pub(super) fn check_bandwidth(&self, input: &CheckInput<'_, '_>) -> Decision {
        let Some(throttle) = &self.bandwidth else { return Decision::Allow };
        let leaves = |bytes| throttle.takes_at_once(bytes, input.now);
        if input.context.is_throttled() || input.at_once.is_some_and(leaves) {
            return Decision::Allow;
        }
        match throttle.enter() {
            Some(sender) => {
                input.context.throttle(Some(sender));
                Decision::Allow
            }
            None => {
                Decision::Reject(Rejection::new(self.status).with("Retry-After", RETRY_BANDWIDTH))
            }
        }
    }
}

fn busy(status: u16, seconds: u64) -> Rejection {
    Rejection::new(status).with("Retry-After", seconds.to_string())
}
