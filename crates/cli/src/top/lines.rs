//! Lines of script pools, upstreams, object stores, limits and certificates.

use std::fmt::Write;

use dunlin_status::{Certificate, Component, ObjectStore, Report, RouteLimits, Scripts, Upstream};

use super::figures::grouped;
use crate::watch::{size, took};

/// A line, and whether it needs attention.
pub(super) struct ListLine {
    pub(super) text: String,
    pub(super) calls: bool,
}

/// Lines of script pools and components. Those with waiting requests, and components whose file cannot be loaded, need
/// attention.
pub(super) fn scripts(report: &Report) -> Vec<ListLine> {
    let line = |pool: &Scripts| {
        let mut text = format!(
            "{} ({}): {} of {} processes, {} busy, {} waiting",
            pool.name, pool.kind, pool.processes, pool.max, pool.busy, pool.waiting
        );
        if pool.longest > 0 {
            let took = took(pool.longest * 1_000);
            // Writing to a String cannot fail.
            let _ = write!(text, ", longest {took} {}", pool.longest_script);
        }
        ListLine { text, calls: pool.waiting > 0 }
    };
    report.scripts.iter().map(line).chain(report.components.iter().map(component)).collect()
}

/// Returns the counts that are not 0.
pub(super) fn nonzero(counts: &[(String, u64)]) -> impl Iterator<Item = &(String, u64)> {
    counts.iter().filter(|(_, count)| *count > 0)
}

fn component(of: &Component) -> ListLine {
    let mut text = format!(
        "{} ({}): {} instances, {} fresh, {} reused, {} rejected",
        of.name, of.kind, of.live, of.fresh, of.reused, of.rejected
    );
    for (reason, count) in nonzero(&of.stops) {
        let _ = write!(text, ", {count} stopped ({reason})");
    }
    if let Some(error) = &of.error {
        let _ = write!(text, ", not loaded: {error}");
    }
    ListLine { text, calls: of.error.is_some() || of.rejected > 0 }
}

/// Lines of upstreams. Those that fail, or get no requests, need attention.
pub(super) fn upstreams(report: &Report) -> Vec<ListLine> {
    let line = |of: &Upstream| {
        let state = match (of.is_available, of.failing) {
            (false, _) => "not used",
            (true, 0) => "available",
            (true, _) => "failing",
        };
        let mut text = format!("{} ({} {}): {state}", of.name, of.site, of.route);
        let calls = !of.is_available || of.failing > 0;
        if let Some(error) = of.last_error.as_ref().filter(|_| calls) {
            let _ = write!(text, ", {error}");
        }
        let _ = write!(
            text,
            ", {} in flight, {} waiting, {} requests, {} failures",
            of.in_flight,
            of.waiting,
            grouped(of.requests),
            grouped(of.failures)
        );
        ListLine { text, calls }
    };
    report.upstreams.iter().map(line).collect()
}

/// Lines of object stores. Those that do not respond need attention.
pub(super) fn object_stores(report: &Report) -> Vec<ListLine> {
    let line = |of: &ObjectStore| {
        let state = if of.is_available { "responds" } else { "does not respond" };
        let received = size(of.bytes);
        let text = format!(
            "{}: {state}, {} objects requested, {} unchanged, {} joined, {received} received, {} errors, {} sent stale",
            of.name,
            grouped(of.gets),
            grouped(of.not_modified),
            grouped(of.joined),
            grouped(of.errors),
            grouped(of.stale)
        );
        ListLine { text, calls: !of.is_available }
    };
    report.object_stores.iter().map(line).collect()
}

/// Lines of limits. Those with rejected requests need attention.
pub(super) fn limits(report: &Report) -> Vec<ListLine> {
    report.limits.iter().flat_map(of_route).collect()
}

/// Returns how many lines the limits of a route have.
pub(super) fn count(of: &RouteLimits) -> usize {
    usize::from(of.concurrency.is_some()) + usize::from(of.bandwidth.is_some()) + of.rates.len()
}

fn of_route(of: &RouteLimits) -> Vec<ListLine> {
    let line = |rule: &str, dry_run: bool, counts: String, rejected: u64| ListLine {
        text: format!(
            "{} {} {rule}{}: {counts}, {} rejected",
            of.site,
            of.route,
            if dry_run { " (dry run)" } else { "" },
            grouped(rejected)
        ),
        calls: rejected > 0,
    };
    let concurrency = of.concurrency.iter().map(|of| {
        let counts = format!(
            "{} running, {} waiting, {} served",
            of.running,
            of.waiting,
            grouped(of.served)
        );
        line(&of.rule, of.dry_run, counts, of.rejected + of.expired)
    });
    let bandwidth = of.bandwidth.iter().map(|of| {
        let counts = format!("{} sending, {} sent", of.sending, size(of.sent));
        line(&of.rule, of.dry_run, counts, of.rejected)
    });
    let rates = of.rates.iter().map(|of| {
        line(&of.rule, of.dry_run, format!("{} allowed", grouped(of.passed)), of.rejected)
    });
    concurrency.chain(bandwidth).chain(rates).collect()
}

/// Lines of certificates. Those that are missing, expired or not renewed need attention.
pub(super) fn certificates(report: &Report) -> Vec<ListLine> {
    let now = report.server.time;
    let days = |until: f64| format!("{:.0} days", ((until - now) / 86_400.0).floor());
    let line = |of: &Certificate| {
        let names = if of.names.is_empty() { &of.file } else { &of.names.join(", ") };
        let good = match of.expires {
            None => "not there yet".to_owned(),
            Some(until) if until <= now => "expired".to_owned(),
            Some(until) => format!("expires in {}", days(until)),
        };
        let mut text = format!("{} {names}: {good}", of.site);
        if let Some(renewal) = of.renewal.filter(|&renewal| renewal > now) {
            let _ = write!(text, ", renewal in {}", days(renewal));
        }
        if let Some(error) = &of.error {
            let times = match of.failures {
                1 => "once".to_owned(),
                failures => format!("{failures} times"),
            };
            let _ = write!(text, ", failed {times}: {error}");
        }
        let calls = of.error.is_some() || of.expires.is_none_or(|until| until <= now);
        ListLine { text, calls }
    };
    report.certificates.iter().map(line).collect()
}
