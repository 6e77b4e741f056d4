//! What came of a run: the schema of `dunlin load --json`.

use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::plan::Plan;
use crate::silence::Silence;

/// What came of a run.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Outcome {
    /// Version of the generator.
    pub version: String,
    /// What was run.
    pub plan: Plan,
    /// When counting began, RFC 3339, UTC.
    pub started: String,
    /// Seconds from then to the end.
    pub duration_seconds: f64,
    /// Answers that were right.
    pub requests: u64,
    /// Right answers per second.
    pub requests_per_second: f64,
    /// Bytes received per second, heads and bodies.
    pub bytes_per_second: f64,
    /// Bytes received, heads and bodies.
    pub bytes: u64,
    /// Requests and connections that failed, of every kind.
    pub errors: u64,
    /// The same by kind; kinds that did not occur are absent.
    pub errors_by_kind: BTreeMap<ErrorKind, u64>,
    /// Answers by status code.
    pub status: BTreeMap<u16, u64>,
    /// What the first failure of each kind was.
    #[serde(default)]
    pub first_errors: BTreeMap<ErrorKind, String>,
    /// Requests without a complete response at the end.
    #[serde(default)]
    pub unfinished: Unfinished,
    /// Times in which the server sent nothing though requests were in flight; absent when there were none.
    #[serde(default)]
    pub silence: Option<Silence>,
    /// Whether the figures may be used.
    pub verdict: Verdict,
    /// Why, one sentence each.
    pub reasons: Vec<String>,
    /// Response time: from the moment at which the request was due (in the closed model: was sent) to the last byte
    /// of its response. Requests without a complete response at the end count by their age when it is above the
    /// median. Absent when there was no right response.
    pub latency_ms: Option<Latency>,
    /// Service time: from the moment at which the request was sent to the last byte of its response.
    pub service_ms: Option<Latency>,
    /// From `connect` to the established connection.
    pub connect_ms: Option<Latency>,
    /// From the established connection to the end of the TLS handshake.
    pub tls_ms: Option<Latency>,
    /// From `connect` to the end of a connection; absent when none ended.
    pub connection_ms: Option<Latency>,
    /// From the request's sending to its answer's first byte.
    pub first_byte_ms: Option<Latency>,
    /// How late the generator itself was in sending what was due; open model only.
    pub lag_ms: Option<Latency>,
    /// The connections.
    pub connections: Connections,
    /// The run, second by second.
    pub series: Vec<Second>,
    /// Samples of the rate of answers, as httperf takes them.
    pub reply_rate: Option<ReplyRate>,
    /// What the server used, when it runs on this machine.
    pub server: Option<ProcessUse>,
    /// What the generator used.
    pub client: ProcessUse,
    /// What stands out in the figures, with its likely cause.
    pub findings: Vec<Finding>,
    /// What `--find-users` or `--find-rate` found.
    pub search: Option<Search>,
}

/// Kinds of failure, each counted apart.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    /// The connection was refused.
    Refused,
    /// The connection was reset.
    Reset,
    /// The connection ended before the answer did.
    Closed,
    /// No answer, or no connection, in time.
    Timeout,
    /// No local address and port was left.
    NoAddress,
    /// No descriptor was left.
    NoDescriptor,
    /// The TLS handshake failed.
    Tls,
    /// The answer is not HTTP.
    Protocol,
    /// The status is not one of those expected.
    Status,
    /// The body has another length than expected.
    Length,
    /// The body has other bytes than expected.
    Hash,
    /// Anything else that the system reports.
    Other,
}

/// Whether the figures of a run may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "SCREAMING-KEBAB-CASE")]
pub enum Verdict {
    /// They may.
    Valid,
    /// The generator, not the server, set the limit.
    ClientBound,
    /// The network set the limit.
    LinkBound,
    /// The figures vary too much within the run.
    Noisy,
    /// The server stopped responding: requests were in flight at the end for far longer than any response took, or
    /// a closed run does not show in its percentiles how long the server was silent.
    Stalled,
    /// At least one response was wrong or missing.
    WrongAnswers,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Valid => "VALID",
            Self::ClientBound => "CLIENT-BOUND",
            Self::LinkBound => "LINK-BOUND",
            Self::Noisy => "NOISY",
            Self::Stalled => "STALLED",
            Self::WrongAnswers => "WRONG-ANSWERS",
        })
    }
}

/// Requests without a complete response at the end of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Unfinished {
    /// Requests in flight.
    pub in_flight: u64,
    /// Time since the oldest of them was sent, in milliseconds.
    pub oldest_ms: f64,
    /// The longest that any complete response took, in milliseconds.
    pub slowest_ms: f64,
    /// Requests that were due and waited for a connection; open model only.
    pub waiting: u64,
}

/// A distribution of times, in milliseconds.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Latency {
    /// Samples.
    pub count: u64,
    /// Shortest.
    pub min: f64,
    /// Arithmetic mean.
    pub mean: f64,
    /// Standard deviation.
    pub stddev: f64,
    /// Median.
    pub p50: f64,
    /// 90th percentile.
    pub p90: f64,
    /// 99th percentile.
    pub p99: f64,
    /// 99.9th percentile.
    pub p999: f64,
    /// Longest.
    pub max: f64,
    /// All samples, in nanoseconds: an HdrHistogram, V2 encoding with deflate, in Base64.
    pub histogram: String,
}

/// The connections of a run.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Connections {
    /// Established.
    pub opened: u64,
    /// Closed by the server.
    pub closed_by_server: u64,
    /// Mean number of requests answered on each.
    pub requests_each: f64,
    /// Mean number of requests in flight after each write.
    pub depth_mean: f64,
    /// Highest number of requests in flight on one connection.
    pub depth_max: u32,
    /// TLS sessions that were resumed.
    pub tls_resumed: u64,
    /// With `--modem`: the most bytes that the server could send ahead, by the receive windows of the first connections
    /// as TCP_INFO tells them; absent when the system does not.
    pub receive_window: Option<u32>,
    /// Protocol that was agreed: `http/1.1`, `h2`, `h2c`.
    pub protocol: String,
    /// Jain's index of the requests answered on each connection: 1 when all were served alike; absent when
    /// connections are not kept.
    pub fairness: Option<f64>,
}

/// One second of a run.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Second {
    /// Its start, in seconds since counting began.
    pub at: f64,
    /// Its length in seconds: 1, but for the last.
    pub length: f64,
    /// Right answers.
    pub requests: u64,
    /// Bytes received.
    pub bytes: u64,
    /// Failures.
    pub errors: u64,
    /// Median response time, in milliseconds.
    pub p50_ms: f64,
    /// 99th percentile of the response time, in milliseconds.
    pub p99_ms: f64,
}

/// Samples of the rate of answers.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct ReplyRate {
    /// Seconds that one sample covers.
    pub sample_seconds: f64,
    /// Samples.
    pub samples: u32,
    /// Lowest, per second.
    pub min: f64,
    /// Mean, per second.
    pub mean: f64,
    /// Highest, per second.
    pub max: f64,
    /// Standard deviation, per second.
    pub stddev: f64,
}

/// What a group of processes used during a run.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct ProcessUse {
    /// Name of the first process.
    pub name: String,
    /// Processes.
    pub processes: u32,
    /// Processor time, in seconds.
    pub cpu_seconds: f64,
    /// Processor time per right response, in microseconds; absent when there was none.
    pub cpu_us_per_request: Option<f64>,
    /// Share of the time of the processors that it may use, 0 to 1.
    pub cpu_share: f64,
    /// Memory of its own at the end (proportional set size), in bytes.
    pub memory_bytes: u64,
    /// Context switches that it asked for.
    pub voluntary_switches: u64,
    /// Context switches that it did not ask for.
    pub involuntary_switches: u64,
}

/// Something that stands out in the figures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Finding {
    /// A short fixed name, such as `delayed-ack`.
    pub kind: String,
    /// What was seen and what is its likely cause, in a sentence or two.
    pub text: String,
}

/// What a search found.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Search {
    /// `users` or `requests per second`.
    pub of: String,
    /// The highest level that held.
    pub found: f64,
    /// Whether the search ended at its own upper bound rather than at the server's.
    pub bounded: bool,
    /// Whether it was given up before the answer was as precise as it should be.
    #[serde(default)]
    pub unfinished: bool,
    /// Every level that was tried, in order.
    pub levels: Vec<Level>,
}

/// One level of a search.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Level {
    /// Users, or requests per second.
    pub level: f64,
    /// Whether it held.
    pub held: bool,
    /// Users that conformed, or requests per second that were achieved.
    pub achieved: f64,
    /// 99th percentile of the response time, in milliseconds; 0 where it has no meaning.
    pub p99_ms: f64,
    /// Memory of the server at that level, in bytes, when it runs on this machine.
    pub server_memory_bytes: Option<u64>,
    /// Why it did not hold; empty when it did.
    pub why: String,
}
