//! The report on the state of the server, as JSON for the status page and `dunlin top`.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use dunlin_net::connections::{STATES, Waiting};
use dunlin_proxy::UpstreamReport;
use dunlin_script::report::PoolReport;
use dunlin_telemetry::metrics::{Counts, Fine, Label, Process, Route as RouteCounts, named};
use serde::{Deserialize, Serialize};

use super::certificates::{self, Certificate};
use super::limits::{self, RouteLimits};
use super::object_stores::{self, ObjectStore};
use super::responses::Responses;
use crate::component::{Component, Describe};
use crate::fleet::servers::servers;
use crate::fleet::{Fleet, FleetState};
use crate::worker::{SharedState, WorkerContext};

/// The state of the server. Counters start at 0 with the process: a rate is the difference of two reports divided by the
/// difference of their times.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "each type describes its fields")]
pub struct Report {
    pub server: ServerReport,
    pub process: ProcessReport,
    pub connections: Connections,
    pub tls: Tls,
    /// Connections and streams that use another protocol than HTTP, such as WebSocket.
    pub tunnels: Tunnels,
    pub requests: Requests,
    pub cache: Cache,
    pub responses: Responses,
    /// Routes with at least one request.
    pub routes: Vec<Route>,
    /// The clients with the most requests, counted while reports are read; at most 64.
    pub clients: Vec<Client>,
    /// Pools of scripts with at least one request.
    pub scripts: Vec<Scripts>,
    /// WebAssembly components.
    pub components: Vec<Component>,
    /// The upstreams of routes with a proxy.
    pub upstreams: Vec<Upstream>,
    /// The buckets of roots in object storage.
    pub object_stores: Vec<ObjectStore>,
    /// Limits of routes and their counters.
    pub limits: Vec<RouteLimits>,
    /// The servers that share their state with this one; `None` if it shares none.
    pub fleet: Option<FleetReport>,
    /// The servers that this report adds up; `None` if it is the report of one.
    pub replicas: Option<ReplicaSum>,
    /// Certificates of sites.
    pub certificates: Vec<Certificate>,
    /// Lost lines of the access log.
    pub log_lines_lost: u64,
    /// Spans that the collector has accepted, and lost spans.
    pub spans: (u64, u64),
}

/// The servers that share their state, as this one sees them. Counters start at 0 with the process.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct FleetReport {
    /// The store is reachable.
    pub connected: bool,
    /// Servers that were seen lately, with this one.
    pub servers: u64,
    /// Exchanges of rate limits with the store.
    pub exchanges: u64,
    /// Messages of other servers.
    pub messages: u64,
    /// Times that the store was lost.
    pub losses: u64,
}

/// The servers that a report adds up.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ReplicaSum {
    /// Name of the SRV records that have their addresses.
    pub name: String,
    /// Why the name cannot be resolved; the servers are those of before.
    pub error: Option<String>,
    /// By address.
    pub each: Vec<Replica>,
}

/// One of the servers that a report adds up.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Replica {
    /// Address and port.
    pub address: String,
    /// Time of its start, in seconds since 1970; `None` if it has never responded.
    pub started: Option<f64>,
    /// Age of its report in seconds.
    pub age: Option<f64>,
    /// Requests since its start.
    pub requests: u64,
    /// Why it has no newer report.
    pub error: Option<String>,
}

impl ReplicaSum {
    /// Returns `true` if `other` adds up the same processes, so that the difference of the reports is what happened between
    /// them.
    pub fn is_of_same(&self, other: &Self) -> bool {
        let processes = |sum: &Self| -> Vec<_> {
            let counted = sum.each.iter().filter(|replica| replica.started.is_some());
            counted.map(|replica| (replica.address.clone(), replica.started)).collect()
        };
        processes(self) == processes(other)
    }
}

impl FleetReport {
    fn of(fleet: &Fleet) -> Self {
        let FleetState { is_connected, counts } = &*fleet.state;
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Self {
            connected: is_connected.load(Ordering::Relaxed),
            servers: servers().count().into(),
            exchanges: count(&counts.exchanges),
            messages: count(&counts.messages),
            losses: count(&counts.losses),
        }
    }
}

/// The server process.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ServerReport {
    /// Version of the program.
    pub version: String,
    /// Process id.
    pub pid: u32,
    /// Number of workers.
    pub threads: usize,
    /// Time of the start, in seconds since 1970.
    pub started: f64,
    /// Time of this report, in seconds since 1970.
    pub time: f64,
}

/// Resource usage of the process.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ProcessReport {
    /// CPU time in seconds.
    pub cpu: f64,
    /// Resident memory in bytes.
    pub resident: u64,
    /// Memory of requests and responses on their way in bytes.
    pub held: u64,
    /// Maximum of that memory, beyond which new requests are rejected.
    pub held_limit: u64,
    /// Requests that were rejected because of it.
    pub rejected: u64,
    /// Open file descriptors.
    pub descriptors: u64,
    /// Maximum of open file descriptors.
    pub descriptor_limit: u64,
}

/// Connections.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Connections {
    /// Connections accepted since the start.
    pub accepted: u64,
    /// Maximum of open connections.
    pub max: u64,
    /// Idle connections that were closed to make room for new ones.
    pub evicted: u64,
    /// New connections that were closed because their address had reached its limit.
    pub rejected: u64,
    /// Open connections by state.
    pub open: Vec<(String, u64)>,
}

/// TLS handshakes since the start.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "the fields are named after the result of the handshake")]
pub struct Tls {
    pub full: u64,
    pub resumed: u64,
    pub failed: u64,
    pub late: u64,
}

/// Tunnels: connections and streams that use another protocol than HTTP, such as WebSocket.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Tunnels {
    /// Open tunnels.
    pub open: u64,
    /// Tunnels opened since the start.
    pub opened: u64,
    /// Bytes that clients have sent since the start.
    pub received: u64,
    /// Bytes that were sent to clients since the start.
    pub sent: u64,
}

/// Requests since the start.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Requests {
    /// All requests.
    pub total: u64,
    /// Bytes of response bodies that were sent.
    pub sent: u64,
    /// Requests by the first digit of the status.
    pub status: Vec<(String, u64)>,
    /// Requests by method.
    pub method: Vec<(String, u64)>,
    /// Requests by protocol.
    pub protocol: Vec<(String, u64)>,
    /// Histogram of durations: the upper bound of each bucket in nanoseconds, and its count.
    pub latency: Vec<(u64, u64)>,
}

/// The file cache.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Cache {
    /// Responses from the cache since the start.
    pub hits: u64,
    /// Responses that were not in the cache.
    pub misses: u64,
    /// Bytes of the files that came from the cache.
    pub hit_bytes: u64,
    /// Bytes of the files that the cache did not have.
    pub miss_bytes: u64,
    /// Files that were admitted to the cache.
    pub admitted: u64,
    /// Requests for files that are used less than those in the cache.
    pub rejected: u64,
    /// Files that were removed from the cache.
    pub evictions: u64,
    /// By reason: `room` for files that are used more often, a `changed` file, `descriptors` for connections, and
    /// `cleared` by a reload or when everything was checked again.
    pub eviction: Vec<(String, u64)>,
    /// Files in the cache.
    pub files: u64,
    /// Used memory in bytes.
    pub bytes: u64,
    /// Maximum of used memory in bytes.
    pub max_bytes: u64,
    /// File descriptors of cached files.
    pub descriptors: u64,
}

/// Counters of a route.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Route {
    /// Name of the site.
    pub site: String,
    /// Pattern of the route.
    pub route: String,
    /// Requests since the start.
    pub requests: u64,
    /// Responses with status 500 or more.
    pub failed: u64,
    /// Bytes of response bodies that were sent.
    pub sent: u64,
    /// Sum of the durations in nanoseconds.
    pub took: u64,
    /// Histogram of durations, as [`Requests::latency`].
    pub latency: Vec<(u64, u64)>,
}

/// Counters of a client.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Client {
    /// Address of the client.
    pub address: String,
    /// Requests of the client.
    pub requests: u64,
    /// Bytes of response bodies that were sent to it.
    pub sent: u64,
    /// Sum of the durations in nanoseconds.
    pub took: u64,
    /// The longest duration in nanoseconds.
    pub slowest: u64,
}

/// A pool of scripts.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Scripts {
    /// Name of the script or application.
    pub name: String,
    /// Kind of scripts.
    pub kind: String,
    /// Maximum of processes.
    pub max: u64,
    /// Running processes.
    pub processes: u64,
    /// Requests in progress.
    pub busy: u64,
    /// Requests in the queue.
    pub waiting: u64,
    /// Duration of the oldest request in progress, in milliseconds.
    pub longest: u64,
    /// Script that handles this request.
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
    /// It gets requests.
    pub is_available: bool,
    /// Requests in a row, up to the last one, that have failed.
    pub failing: u64,
    /// The reason of its last failure.
    pub last_error: Option<String>,
    /// Time of its last failure, in seconds since 1970.
    pub last_failure: Option<f64>,
}

impl From<(&str, &str, UpstreamReport)> for Upstream {
    fn from((site, route, report): (&str, &str, UpstreamReport)) -> Self {
        let (last_failure, last_error) = report.last_failure.unzip();
        let seconds = |at: SystemTime| at.duration_since(UNIX_EPOCH).unwrap_or_default();
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
            failing: report.failing,
            last_error,
            last_failure: last_failure.map(|at| seconds(at).as_secs_f64()),
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
    /// Creates the report. `counts` are the sums of all workers.
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
                held: dunlin_memory::held(),
                held_limit: shared.config.server.memory,
                rejected: dunlin_memory::rejected(),
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
            tunnels: Tunnels {
                open: counts.tunnels.open,
                opened: counts.tunnels.opened,
                received: counts.tunnels.received,
                sent: counts.tunnels.sent,
            },
            requests: Requests::new(counts),
            cache: Cache::new(shared),
            responses: Responses::new(shared),
            routes: routes(counts),
            clients: clients(counts),
            scripts: shared.scripts.pools.report().into_iter().map(Scripts::from).collect(),
            components: shared.components.describe(),
            upstreams: shared.sites.upstreams().map(Upstream::from).collect(),
            object_stores: object_stores::report(&shared.files.buckets),
            limits: limits::report(&shared.sites),
            fleet: shared.fleet.as_deref().map(FleetReport::of),
            replicas: None,
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
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let eviction = counters.evictions.by_reason().map(|(reason, n)| (reason.to_owned(), n));
        Self {
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

/// Returns the seconds since 1970.
pub(super) fn seconds(time: SystemTime) -> f64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}
