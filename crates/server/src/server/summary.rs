//! Reports for the log: what a reload has changed, and the totals at exit.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::listeners::Change;
use super::prepare::MovedDirectory;
use dunlin_config::{Config, Site};
use dunlin_limits::bandwidth::BandwidthCounts;
use dunlin_limits::concurrency::ConcurrencyCounts;
use dunlin_limits::rate::RateCounts;

use crate::checks::{Limited, RouteCounts};
use crate::worker::SharedState;
use dunlin_files::shared::Shared;

/// Describes what a reload has changed.
pub(super) fn describe_reload(
    config: &Config,
    before: &Config,
    change: &Change,
    moved: &[MovedDirectory],
    restart: &[&str],
) -> String {
    let file = config.path().map_or_else(String::new, |path| format!(" {}", path.display()));
    let sites = config.sites.iter().count();
    let has_moved =
        |site: &Site| site.directories().any(|path| moved.iter().any(|moved| moved.path == path));
    let same = config.unchanged_sites(before);
    let is_unchanged = |site: &&Arc<Site>| same.contains(&site.index) && !has_moved(site);
    let unchanged = config.sites.iter().filter(is_unchanged).count();
    let mut text = format!("reloaded{file}: {unchanged} of {sites} sites unchanged");
    for (what, addresses) in [("added", &change.opened), ("removed", &change.closed)] {
        if !addresses.is_empty() {
            let plural = if addresses.len() == 1 { "" } else { "s" };
            text += &format!("; {what} listener{plural} {}", addresses.join(", "));
        }
    }
    for directory in moved {
        text += &format!("; {directory}");
    }
    if !restart.is_empty() {
        text += &format!("; needs a restart: {}", restart.join(", "));
    }
    text
}

/// Logs the totals of the file cache, connections and limits of a server that has a configuration.
pub(super) fn log_totals(shared: &SharedState) {
    if shared.config.path().is_none() {
        return;
    }
    log_cache(shared);
    log_connections(shared);
    log_limits(shared);
}

fn log_cache(shared: &SharedState) {
    let Shared { cache, watch, .. } = &*shared.files;
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let (bytes, files, descriptors) = cache.usage();
    tracing::info!(
        hits = count(&cache.counters.hits),
        misses = count(&cache.counters.misses),
        admitted = count(&cache.counters.admitted),
        rejected = count(&cache.counters.rejected),
        evictions = cache.counters.evictions.by_reason().iter().map(|(_, n)| n).sum::<u64>(),
        changes = watch.as_ref().map_or(0, |watch| count(&watch.invalidations)),
        bytes,
        files,
        descriptors,
        "file cache: totals at exit"
    );
}

/// Logs how many connections were closed or rejected because of limits, if any.
fn log_connections(shared: &SharedState) {
    let evicted = shared.limiter.eviction().evicted();
    let rejected = shared.limiter.per_address().rejected();
    if evicted + rejected > 0 {
        tracing::info!(evicted, rejected, "connections closed because of limits: totals at exit");
    }
}

/// Logs the totals of the limits and throttles of routes.
fn log_limits(shared: &SharedState) {
    for counts in shared.sites.limits() {
        let RouteCounts { site, route, concurrency, bandwidth, limits } = counts;
        if let Some(Limited { counts, .. }) = concurrency {
            let ConcurrencyCounts { served, queued, overdue, rejected, expired, left, .. } = counts;
            tracing::info!(
                site,
                route,
                served,
                queued,
                overdue,
                rejected,
                expired,
                left,
                "concurrency throttle: totals at exit"
            );
        }
        if let Some(Limited { counts: BandwidthCounts { sent, rejected, .. }, .. }) = bandwidth {
            tracing::info!(site, route, sent, rejected, "bandwidth throttle: totals at exit");
        }
        for Limited { rule: limit, counts, .. } in limits {
            let RateCounts { passed, rejected } = counts;
            tracing::info!(site, route, limit, passed, rejected, "rate limit: totals at exit");
        }
    }
}
