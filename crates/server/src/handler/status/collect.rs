//! The report of this server: what its workers count and what its shared state has.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use dunlin_files::objects::registry::Buckets;
use dunlin_limits::bandwidth::BandwidthCounts;
use dunlin_limits::concurrency::ConcurrencyCounts;
use dunlin_limits::rate::RateCounts;
use dunlin_net::connections::{STATES, Waiting};
use dunlin_proxy::UpstreamReport;
use dunlin_script::report::PoolReport;
use dunlin_status::{
    Bandwidth, Cache, Certificate, Client, Concurrency, Connections, Disk, FleetReport,
    ObjectStore, ProcessReport, Rate, Report, Requests, Responses, Route, RouteLimits, Scripts,
    ServerReport, Tls, Upstream, seconds,
};
use dunlin_telemetry::metrics::{Counts, Process};
use dunlin_tls::CertificateStatus;

use crate::checks::{Limited, RouteCounts};
use crate::component;
use crate::fleet::servers::servers;
use crate::fleet::{Fleet, FleetState};
use crate::worker::{SharedState, WorkerContext};

/// Returns the report. `counts` are the sums of all workers.
pub(super) fn report(ctx: &WorkerContext, counts: &Counts) -> Report {
    let shared = &*ctx.shared;
    let process = Process::read();
    Report {
        server: ServerReport {
            version: env!("CARGO_PKG_VERSION").into(),
            pid: std::process::id(),
            threads: shared.config.server.threads,
            started: seconds(shared.started),
            time: seconds(SystemTime::now()),
        },
        process: ProcessReport {
            cpu: process.cpu,
            resident: process.resident,
            held: dunlin_memory::held(),
            held_limit: shared.config.server.memory,
            rejected: dunlin_memory::rejected(),
            compressed: shared.coding.responses.load(Ordering::Relaxed),
            plain_bytes: shared.coding.plain_bytes.load(Ordering::Relaxed),
            compressed_bytes: shared.coding.coded_bytes.load(Ordering::Relaxed),
            lowered: shared.coding.lowered.load(Ordering::Relaxed),
            decoded: shared.coding.decoded.load(Ordering::Relaxed),
            uncompressed: shared.coding.skipped.load(Ordering::Relaxed),
            dictionary_responses: count(&shared.files.dictionaries.responses),
            dictionary_plain_bytes: count(&shared.files.dictionaries.plain_bytes),
            dictionary_bytes: count(&shared.files.dictionaries.coded_bytes),
            dictionaries: shared.files.history.usage().0 as u64,
            dictionaries_bytes: shared.files.history.usage().1,
            descriptors: process.descriptors,
            descriptor_limit: process.descriptor_limit,
        },
        connections: Connections {
            accepted: counts.accepted,
            max: shared.limiter.max() as u64,
            evicted: shared.limiter.eviction().evicted(),
            rejected: shared.limiter.per_address().rejected(),
            open: (0..STATES)
                .map(|state| (Waiting::NAMES[state].into(), counts.connections[state]))
                .collect(),
        },
        tls: {
            let [full, resumed, failed, late] = counts.handshakes;
            Tls { full, resumed, failed, late }
        },
        tunnels: counts.tunnels,
        requests: Requests::new(counts),
        cache: cache(shared),
        responses: responses(shared),
        routes: Route::all(counts),
        clients: Client::all(counts),
        scripts: shared.scripts.pools.report().into_iter().map(scripts).collect(),
        components: component::describe(&shared.components),
        upstreams: shared.sites.upstreams().map(upstream).collect(),
        object_stores: object_stores(&shared.files.buckets),
        limits: shared.sites.limits().map(route_limits).collect(),
        fleet: shared.fleet.as_deref().map(fleet),
        replicas: None,
        certificates: shared.certificates.status().into_iter().map(certificate).collect(),
        log_lines_lost: ctx.lost_lines(),
        spans: shared.tracer.as_ref().map_or((0, 0), |tracer| {
            let counts = tracer.counts();
            (counts.sent.load(Ordering::Relaxed), counts.lost.load(Ordering::Relaxed))
        }),
    }
}

fn cache(shared: &SharedState) -> Cache {
    let counters = &shared.files.cache.counters;
    let (bytes, files, descriptors) = shared.files.cache.usage();
    let eviction = counters.evictions.by_reason().map(|(reason, n)| (reason.to_owned(), n));
    Cache {
        hits: count(&counters.hits),
        misses: count(&counters.misses),
        hit_bytes: count(&counters.hit_bytes),
        miss_bytes: count(&counters.miss_bytes),
        admitted: count(&counters.admitted),
        rejected: count(&counters.rejected),
        evictions: eviction.iter().map(|(_, count)| count).sum(),
        eviction: eviction.into(),
        files: files as u64,
        bytes: bytes as u64,
        max_bytes: shared.config.server.cache.size as u64,
        descriptors: descriptors as u64,
    }
}

fn responses(shared: &SharedState) -> Responses {
    let disk = shared.disk.as_ref().map_or_else(Disk::default, |disk| stored(&disk.disk));
    let Some(cache) = &shared.responses else {
        return Responses {
            disk,
            requests: Responses::RESULTS.map(|name| (name.to_owned(), 0)).into(),
            ..Responses::default()
        };
    };
    let (counts, counters) = (&cache.counts, &cache.memory.counters);
    let requests = [
        &counts.hits,
        &counts.stale,
        &counts.revalidated,
        &counts.collapsed,
        &counts.misses,
        &counts.bypassed,
    ];
    let requests = Responses::RESULTS.iter().zip(requests);
    let (bytes, urls) = cache.memory.usage();
    let (in_flight, in_flight_bytes) = cache.flights.usage();
    Responses {
        requests: requests.map(|(name, counter)| ((*name).to_owned(), count(counter))).collect(),
        stored: count(&counters.stored),
        rejected: count(&counters.rejected),
        evicted: count(&counters.evicted),
        purged: count(&counters.purged),
        urls: urls as u64,
        bytes: bytes as u64,
        max_bytes: cache.memory.store().bounds().bytes as u64,
        in_flight: in_flight as u64,
        in_flight_bytes,
        disk,
    }
}

fn stored(disk: &dunlin_response_disk::Disk) -> Disk {
    let (bytes, urls) = disk.usage();
    let counters = &disk.counters;
    Disk {
        urls: urls as u64,
        bytes,
        max_bytes: disk.bounds().0,
        read: count(&counters.read),
        written: count(&counters.written),
        rejected: count(&counters.rejected),
        failed: count(&counters.failed),
        evicted: count(&counters.evicted),
        damaged: count(&counters.damaged),
    }
}

fn scripts(pool: PoolReport) -> Scripts {
    let PoolReport { name, kind, max, processes, busy, waiting, longest, longest_script } = pool;
    Scripts { name, kind, max, processes, busy, waiting, longest, longest_script }
}

/// Returns an error without the number that the system has for it.
fn without_number(error: &str) -> String {
    match error.split_once(" (os error ") {
        Some((what, rest)) => {
            format!("{what}{}", rest.split_once(')').map_or("", |(_, rest)| rest))
        }
        None => error.to_owned(),
    }
}

fn upstream((site, route, report): (&str, &str, UpstreamReport)) -> Upstream {
    let (last_failure, last_error) = report.last_failure.unzip();
    Upstream {
        site: site.into(),
        route: route.into(),
        name: report.name,
        in_flight: report.in_flight,
        waiting: report.waiting,
        requests: report.requests,
        failures: report.failures,
        connections: report.connections,
        tunnels: report.tunnels,
        is_available: report.is_available,
        failing: report.failing,
        last_error: last_error.map(|error| without_number(&error)),
        last_failure: last_failure.map(seconds),
    }
}

/// Returns the buckets of the configuration, by name.
fn object_stores(buckets: &Buckets) -> Vec<ObjectStore> {
    let of = buckets.iter().map(|bucket| {
        let client = &bucket.client;
        let counters = &client.counters;
        ObjectStore {
            name: client.name.to_string(),
            is_available: !client.is_down(),
            gets: count(&counters.gets),
            not_modified: count(&counters.not_modified),
            lists: count(&counters.lists),
            errors: count(&counters.errors),
            bytes: count(&counters.bytes),
            joined: count(&counters.joined),
            stale: count(&counters.stale),
        }
    });
    let mut all: Vec<_> = of.collect();
    all.sort_by(|one, other| one.name.cmp(&other.name));
    all
}

fn route_limits(counts: RouteCounts) -> RouteLimits {
    let RouteCounts { site, route, concurrency, bandwidth, limits } = counts;
    let mut rates: Vec<Rate> = Vec::with_capacity(limits.len());
    for rate in limits.into_iter().map(rate) {
        // Equal limits would be the same series of a metric.
        if !rates.iter().any(|other| other.rule == rate.rule) {
            rates.push(rate);
        }
    }
    RouteLimits {
        site,
        route,
        concurrency: concurrency.map(throttle),
        bandwidth: bandwidth.map(self::bandwidth),
        rates,
    }
}

fn throttle(limit: Limited<ConcurrencyCounts>) -> Concurrency {
    let Limited { rule, dry_run, counts } = limit;
    let ConcurrencyCounts { running, waiting, served, queued, overdue, rejected, expired, left } =
        counts;
    let (running, waiting) = (running as u64, waiting as u64);
    Concurrency {
        rule,
        dry_run,
        running,
        waiting,
        served,
        queued,
        overdue,
        rejected,
        expired,
        left,
    }
}

fn bandwidth(limit: Limited<BandwidthCounts>) -> Bandwidth {
    let Limited { rule, dry_run, counts } = limit;
    let BandwidthCounts { senders, sent, rejected } = counts;
    Bandwidth { rule, dry_run, sending: senders as u64, sent, rejected }
}

fn rate(limit: Limited<RateCounts>) -> Rate {
    let Limited { rule, dry_run, counts } = limit;
    Rate { rule, dry_run, passed: counts.passed, rejected: counts.rejected }
}

fn fleet(fleet: &Fleet) -> FleetReport {
    let FleetState { is_connected, counts } = &*fleet.state;
    FleetReport {
        connected: is_connected.load(Ordering::Relaxed),
        servers: servers().count().into(),
        exchanges: count(&counts.exchanges),
        messages: count(&counts.messages),
        losses: count(&counts.losses),
    }
}

fn certificate((site, status): (String, CertificateStatus)) -> Certificate {
    let time = |time: Option<SystemTime>| time.map(seconds);
    let failure = status.failure.as_ref();
    Certificate {
        site,
        file: status.file.display().to_string(),
        expires: time(status.expires()),
        renewal: time(status.renewal.as_ref().map(|(_, time)| *time)),
        failures: failure.map_or(0, |failure| failure.failures.into()),
        error: failure.map(|failure| failure.error.clone()),
        failed_at: time(failure.map(|failure| failure.failed_at)),
        next_try: time(failure.and_then(|failure| failure.next_try)),
        names: status.names,
    }
}

fn count(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}
