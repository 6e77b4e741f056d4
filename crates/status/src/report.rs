//! The report on the state of the server, as JSON for the status page and `dunlin top`.

mod backends;
mod caches;
mod certificate;
mod limits;
mod requests;
mod servers;

use std::time::{SystemTime, UNIX_EPOCH};

use dunlin_telemetry::metrics::Tunnels;
use serde::{Deserialize, Serialize};

pub use self::backends::{Component, ObjectStore, Scripts, Upstream};
pub use self::caches::{Cache, Disk, Responses};
pub use self::certificate::Certificate;
pub use self::limits::{Bandwidth, Concurrency, Rate, RouteLimits};
pub use self::requests::{Client, Requests, Route};
pub use self::servers::{FleetReport, Replica, ReplicaSum};

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
    /// Responses that were compressed for one request each.
    pub compressed: u64,
    /// Bytes of their bodies before compression.
    pub plain_bytes: u64,
    /// Bytes of their bodies after it.
    pub compressed_bytes: u64,
    /// Responses that were compressed at the fastest level because compression took a large share of the processor.
    pub lowered: u64,
    /// Responses of upstreams and scripts that were decoded for clients that do not accept their coding.
    pub decoded: u64,
    /// Responses that were not compressed because compression took too large a share of the processor.
    pub uncompressed: u64,
    /// Responses that were compressed with a dictionary.
    pub dictionary_responses: u64,
    /// Bytes of their files.
    pub dictionary_plain_bytes: u64,
    /// Bytes of their bodies.
    pub dictionary_bytes: u64,
    /// Dictionaries that are kept: versions of files, and those for pages.
    pub dictionaries: u64,
    /// Bytes of these versions.
    pub dictionaries_bytes: u64,
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

/// Returns the seconds since 1970.
pub fn seconds(time: SystemTime) -> f64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}
