//! Limits of routes, as the report shows them.

use serde::{Deserialize, Serialize};

use dunlin_limits::bandwidth::BandwidthCounts;
use dunlin_limits::concurrency::ConcurrencyCounts;
use dunlin_limits::rate::RateCounts;

use crate::checks::{Limited, RouteCounts};
use crate::route::sites::Sites;

/// The limits of a route. Counters count since the limit is in force.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RouteLimits {
    /// The site's name.
    pub site: String,
    /// The route's pattern.
    pub route: String,
    /// How many requests run at once.
    pub concurrency: Option<Concurrency>,
    /// The bandwidth limit.
    pub bandwidth: Option<Bandwidth>,
    /// The rate limits.
    pub rates: Vec<Rate>,
}

/// A concurrency limit. In a dry run, requests that count as queued or rejected have run.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Concurrency {
    /// What it says.
    pub rule: String,
    /// Whether it only counts.
    pub dry_run: bool,
    /// Requests that run.
    pub running: u64,
    /// Requests that wait.
    pub waiting: u64,
    /// Requests that have run, or are running.
    pub served: u64,
    /// Requests that have waited, or are waiting.
    pub queued: u64,
    /// Requests that ran because they had waited long enough.
    pub overdue: u64,
    /// Requests that found the queue full.
    pub rejected: u64,
    /// Requests that waited in vain.
    pub expired: u64,
    /// Requests whose client did not wait.
    pub left: u64,
}

/// A throttle of bandwidth.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Bandwidth {
    /// What it says.
    pub rule: String,
    /// Whether it only counts.
    pub dry_run: bool,
    /// Responses in progress.
    pub sending: u64,
    /// Bytes of bodies that were let through.
    pub sent: u64,
    /// Requests whose share was below the minimum.
    pub rejected: u64,
}

/// A rate limit.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Rate {
    /// What it says.
    pub rule: String,
    /// Whether it only counts.
    pub dry_run: bool,
    /// Requests within the limit.
    pub passed: u64,
    /// Requests beyond it.
    pub rejected: u64,
}

/// Those of every route that has any.
pub(super) fn report(sites: &Sites) -> Vec<RouteLimits> {
    sites.limits().map(RouteLimits::from).collect()
}

impl From<RouteCounts> for RouteLimits {
    fn from(counts: RouteCounts) -> Self {
        let RouteCounts { site, route, concurrency, bandwidth, limits } = counts;
        let mut rates: Vec<Rate> = Vec::with_capacity(limits.len());
        for rate in limits.into_iter().map(Rate::from) {
            // Two that say the same would be one series.
            if !rates.iter().any(|other| other.rule == rate.rule) {
                rates.push(rate);
            }
        }
        Self {
            site,
            route,
            concurrency: concurrency.map(Concurrency::from),
            bandwidth: bandwidth.map(Bandwidth::from),
            rates,
        }
    }
}

impl From<Limited<ConcurrencyCounts>> for Concurrency {
    fn from(Limited { rule, dry_run, counts }: Limited<ConcurrencyCounts>) -> Self {
        let ConcurrencyCounts {
            running,
            waiting,
            served,
            queued,
            overdue,
            rejected,
            expired,
            left,
        } = counts;
        let (running, waiting) = (running as u64, waiting as u64);
        Self { rule, dry_run, running, waiting, served, queued, overdue, rejected, expired, left }
    }
}

impl From<Limited<BandwidthCounts>> for Bandwidth {
    fn from(Limited { rule, dry_run, counts }: Limited<BandwidthCounts>) -> Self {
        let BandwidthCounts { senders, sent, rejected } = counts;
        Self { rule, dry_run, sending: senders as u64, sent, rejected }
    }
}

impl From<Limited<RateCounts>> for Rate {
    fn from(Limited { rule, dry_run, counts }: Limited<RateCounts>) -> Self {
        Self { rule, dry_run, passed: counts.passed, rejected: counts.rejected }
    }
}
