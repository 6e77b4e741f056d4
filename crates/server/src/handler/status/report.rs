//! What the server is doing, in one structure: the JSON of the status page, and what `dunlin top`
//! reads.

use std::sync::atomic::Ordering;
use std::time::{SystemTime, UNIX_EPOCH};

use dunlin_net::connections::{STATES, Waiting};
use dunlin_proxy::UpstreamReport;
use dunlin_script::report::PoolReport;
use dunlin_telemetry::metrics::{Counts, Fine, Label, Process, Route as RouteCounts, named};
use serde::{Deserialize, Serialize};

use super::certificates::{self, Certificate};
use super::limits::{self, RouteLimits};
use crate::worker::{SharedState, WorkerContext};

/// What the server is doing. Counters count from its start, so that a rate is the difference of two
/// reports over that of their times.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "each is described at its type")]
pub struct Report {
    pub server: ServerReport,
    pub process: ProcessReport,
    pub connections: Connections,
    pub tls: Tls,
    pub requests: Requests,
    pub cache: Cache,
    /// Every route that had a request.
    pub routes: Vec<Route>,
    /// The clients with the most requests since the report has readers; at most 64.
    pub clients: Vec<Client>,
    /// The pools of scripts that had requests.
    pub scripts: Vec<Scripts>,
    /// The upstreams of routes with a proxy.
    pub upstreams: Vec<Upstream>,
    /// What the limits of routes do and have done.
    pub limits: Vec<RouteLimits>,
    /// What is known of the certificates of sites.
    pub certificates: Vec<Certificate>,
    /// Lines of the access log that were lost.
    pub log_lines_lost: u64,
    /// Spans that a collector has taken, and spans that were lost.
    pub spans: (u64, u64),
}

/// The server.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ServerReport {
    /// Its version.
    pub version: String,
    /// Its process.
    pub pid: u32,
    /// Its workers.
    pub threads: usize,
    /// When it was started, in seconds since 1970.
    pub started: f64,
    /// When this report was made, in seconds since 1970.
    pub time: f64,
}

/// Its process.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ProcessReport {
    /// Processor time in seconds.
    pub cpu: f64,
    /// Bytes of memory.
    pub resident: u64,
    /// Open descriptors.
    pub descriptors: u64,
    /// The most that may be open.
    pub descriptor_limit: u64,
}

/// Connections.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Connections {
    /// Accepted since the start.
    pub accepted: u64,
    /// The most that may be open.
    pub max: u64,
    /// Idle connections that were closed for new ones.
    pub evicted: u64,
    /// Those that were closed at once because their address had as many as it may.
    pub rejected: u64,
    /// Open ones by what they wait for.
    pub open: Vec<(String, u64)>,
}

/// TLS handshakes since the start.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "named after what came of the handshake")]
pub struct Tls {
    pub full: u64,
    pub resumed: u64,
    pub failed: u64,
    pub late: u64,
}

/// Requests since the start.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Requests {
    /// All of them.
    pub total: u64,
    /// Bytes of bodies that were sent.
    pub sent: u64,
    /// By the first digit of the status.
    pub status: Vec<(String, u64)>,
    /// By method.
    pub method: Vec<(String, u64)>,
    /// By protocol.
    pub protocol: Vec<(String, u64)>,
    /// How long they took: an upper bound in nanoseconds, and how many are below it and above the
    /// one before.
    pub latency: Vec<(u64, u64)>,
}

/// The file cache.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Cache {
    /// Responses from the cache since the start.
    pub hits: u64,
    /// Responses that the cache did not have.
    pub misses: u64,
    /// Files that made room for others.
    pub evictions: u64,
    /// Files that it has.
    pub files: u64,
    /// Bytes of memory.
    pub bytes: u64,
    /// Bytes of memory that it may have.
    pub max_bytes: u64,
    /// Descriptors that it keeps open.
    pub descriptors: u64,
}

/// A route.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Route {
    /// The site's name.
    pub site: String,
    /// The route's pattern.
    pub route: String,
    /// Requests since the start.
    pub requests: u64,
    /// Responses with status 500 or more.
    pub failed: u64,
    /// Bytes of bodies that were sent.
    pub sent: u64,
    /// Nanoseconds that they took together.
    pub took: u64,
    /// As [`Requests::latency`].
    pub latency: Vec<(u64, u64)>,
}

/// A client.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Client {
    /// Its address.
    pub address: String,
    /// Its requests.
    pub requests: u64,
    /// Bytes of bodies that were sent to it.
    pub sent: u64,
    /// Nanoseconds that its requests took together.
    pub took: u64,
    /// Nanoseconds of the slowest.
    pub slowest: u64,
}

/// A pool of scripts.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Scripts {
    /// What is run.
    pub name: String,
    /// The kind of scripts.
    pub kind: String,
    /// The most processes.
    pub max: u64,
    /// Processes that are there.
    pub processes: u64,
    /// Requests that are being worked on.
    pub busy: u64,
    /// Requests that wait.
    pub waiting: u64,
    /// How long the oldest request has been worked on, in milliseconds.
    pub longest: u64,
    /// The script that works on it.
    pub longest_script: String,
}

/// An upstream of a proxy.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Upstream {
    /// The site's name.
    pub site: String,
    /// The pattern of the route that names it.
    pub route: String,
    /// Its address as in the configuration.
    pub name: String,
    /// Requests that it works on.
    pub in_flight: u64,
    /// Requests that wait for a connection.
    pub waiting: u64,
    /// Requests that it was sent.
    pub requests: u64,
    /// Attempts that brought no response.
    pub failures: u64,
    /// Connections that were opened.
    pub connections: u64,
    /// Connections that use another protocol, such as WebSocket.
    pub tunnels: u64,
    /// Whether it gets requests.
    pub is_available: bool,
}

impl From<(&str, &str, UpstreamReport)> for Upstream {
    fn from((site, route, report): (&str, &str, UpstreamReport)) -> Self {
        Self {
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
        }
    }
}

impl From<PoolReport> for Scripts {
    fn from(pool: PoolReport) -> Self {
        let PoolReport { name, kind, max, processes, busy, waiting, longest, longest_script } =
            pool;
        Self { name, kind, max, processes, busy, waiting, longest, longest_script }
    }
}

impl Report {
    /// What the server is doing now; `counts` are those of all workers.
    pub(super) fn new(ctx: &WorkerContext, counts: &Counts) -> Self {
        let shared = &*ctx.shared;
        let process = Process::read();
        Self {
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
            requests: Requests::new(counts),
            cache: Cache::new(shared),
            routes: routes(counts),
            clients: clients(counts),
            scripts: shared.scripts.pools.report().into_iter().map(Scripts::from).collect(),
            upstreams: shared.sites.upstreams().map(Upstream::from).collect(),
            limits: limits::report(&shared.sites),
            certificates: certificates::report(&shared.certificates),
            log_lines_lost: ctx.lost_lines(),
            spans: shared.tracer.as_ref().map_or((0, 0), |tracer| {
                let counts = tracer.counts();
                (counts.sent.load(Ordering::Relaxed), counts.lost.load(Ordering::Relaxed))
            }),
        }
    }
}

impl Requests {
    fn new(counts: &Counts) -> Self {
        let mut requests = Self::default();
        for series in &counts.series {
            let count = series.durations.count;
            requests.total += count;
            requests.sent += series.sizes.sum;
            add(&mut requests.status, &format!("{}xx", series.key.status / 100), count);
            add(&mut requests.method, series.key.method.as_str(), count);
            add(&mut requests.protocol, series.key.version.as_str(), count);
        }
        requests.status.sort();
        let mut all = Fine::default();
        for route in &counts.routes {
            all.add(&route.durations);
        }
        requests.latency = all.iter().collect();
        requests
    }
}

impl Cache {
    fn new(shared: &SharedState) -> Self {
        let counters = &shared.files.cache.counters;
        let (bytes, files, descriptors) = shared.files.cache.usage();
        Self {
            hits: counters.hits.load(Ordering::Relaxed),
            misses: counters.misses.load(Ordering::Relaxed),
            evictions: counters.evictions.load(Ordering::Relaxed),
            files: files as u64,
            bytes: bytes as u64,
            max_bytes: shared.config.server.cache.size as u64,
            descriptors: descriptors as u64,
        }
    }
}

fn add(counts: &mut Vec<(String, u64)>, name: &str, count: u64) {
    match counts.iter_mut().find(|(other, _)| other == name) {
        Some((_, sum)) => *sum += count,
        None => counts.push((name.to_owned(), count)),
    }
}

fn routes(counts: &Counts) -> Vec<Route> {
    let report = |(label, counts): (Label, &RouteCounts)| {
        let (site, route) = named(label);
        Route {
            site: site.into(),
            route: route.into(),
            requests: counts.requests,
            failed: counts.failed,
            sent: counts.sent,
            took: counts.durations.sum,
            latency: counts.durations.iter().collect(),
        }
    };
    let numbered = Label::all().zip(&counts.routes);
    numbered.filter(|(_, counts)| counts.requests > 0).map(report).collect()
}

fn clients(counts: &Counts) -> Vec<Client> {
    let mut clients: Vec<_> = counts.clients.iter().collect();
    clients.sort_by_key(|client| std::cmp::Reverse(client.requests));
    let report = |client: &dunlin_telemetry::metrics::Client| Client {
        address: client.address.to_string(),
        requests: client.requests,
        sent: client.sent,
        took: client.sum,
        slowest: client.slowest,
    };
    clients.into_iter().map(report).collect()
}

/// Seconds since 1970.
pub(super) fn seconds(time: SystemTime) -> f64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}
