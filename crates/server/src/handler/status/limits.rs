//! The report on the limits of routes.

use serde::{Deserialize, Serialize};

use dunlin_limits::bandwidth::BandwidthCounts;
use dunlin_limits::concurrency::ConcurrencyCounts;
use dunlin_limits::rate::RateCounts;

use crate::checks::{Limited, RouteCounts};
use crate::route::sites::Sites;

/// The limits of a route. Counters start at 0 when the limit comes into force.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RouteLimits {
    /// Name of the site.
    pub site: String,
    /// Pattern of the route.
    pub route: String,
    /// The concurrency limit.
    pub concurrency: Option<Concurrency>,
    /// The bandwidth limit.
    pub bandwidth: Option<Bandwidth>,
    /// The rate limits.
    pub rates: Vec<Rate>,
}

/// A concurrency limit. In a dry run, requests that are counted as queued or rejected are processed.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Concurrency {
    /// The limit as text.
    pub rule: String,
    /// Requests are only counted (`dry_run`).
    pub dry_run: bool,
    /// Requests in progress.
    pub running: u64,
    /// Requests in the queue.
    pub waiting: u64,
    /// Requests that were or are in progress.
    pub served: u64,
    /// Requests that were or are in the queue.
    pub queued: u64,
    /// Requests that were processed beyond the limit after they had waited for `burst_after`.
    pub overdue: u64,
    /// Requests that were rejected because the queue was full.
    pub rejected: u64,
    /// Requests that were rejected after `queue_timeout`.
    pub expired: u64,
    /// Requests whose client disconnected while they were in the queue.
    pub left: u64,
}

/// A bandwidth limit.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Bandwidth {
    /// The limit as text.
    pub rule: String,
    /// Requests are only counted (`dry_run`).
    pub dry_run: bool,
    /// Responses in progress.
    pub sending: u64,
    /// Bytes of response bodies that were sent.
    pub sent: u64,
    /// Requests that were rejected because their share was below the minimum.
    pub rejected: u64,
}

/// A rate limit.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Rate {
    /// The limit as text.
    pub rule: String,
    /// Requests are only counted (`dry_run`).
    pub dry_run: bool,
    /// Requests within the limit.
    pub passed: u64,
    /// Requests beyond the limit.
    pub rejected: u64,
}

/// Reports the limits of all routes that have limits.
pub(super) fn report(sites: &Sites) -> Vec<RouteLimits> {
    sites.limits().map(RouteLimits::from).collect()
}

impl From<RouteCounts> for RouteLimits {
    fn from(counts: RouteCounts) -> Self {
        let RouteCounts { site, route, concurrency, bandwidth, limits } = counts;
        let mut rates: Vec<Rate> = Vec::with_capacity(limits.len());
        for rate in limits.into_iter().map(Rate::from) {
            // Equal limits would be the same series of a metric.
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
