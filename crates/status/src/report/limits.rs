//! The report on the limits of routes.

use serde::{Deserialize, Serialize};

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
