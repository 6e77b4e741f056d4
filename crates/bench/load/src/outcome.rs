//! The outcome of a run: the schema of `dunlin load --json`.

use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::plan::{Model, Plan};
use crate::segment::Segment;
use crate::silence::Silence;

/// The outcome of a run.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Outcome {
    /// Version of the generator.
    pub version: String,
    /// The plan that was run.
    pub plan: Plan,
    /// Start of the measurement, RFC 3339, UTC.
    pub started: String,
    /// Duration of the measurement in seconds.
    pub duration_seconds: f64,
    /// Valid responses.
    pub requests: u64,
    /// Valid responses per second.
    pub requests_per_second: f64,
    /// Bytes received per second, of heads and bodies.
    pub bytes_per_second: f64,
    /// Bytes received, of heads and bodies.
    pub bytes: u64,
    /// Requests and attempts to connect that failed.
    pub errors: u64,
    /// Requests that failed, and responses to no request.
    #[serde(default)]
    pub failed_requests: u64,
    /// Attempts to connect that failed. In the open model over requests, their requests wait for another connection.
    #[serde(default)]
    pub failed_connections: u64,
    /// Failures by kind. Kinds that did not occur are absent.
    pub errors_by_kind: BTreeMap<ErrorKind, u64>,
    /// Responses by status code.
    pub status: BTreeMap<u16, u64>,
    /// Description of the first failure of each kind.
    #[serde(default)]
    pub first_errors: BTreeMap<ErrorKind, String>,
    /// Requests without a complete response at the end.
    #[serde(default)]
    pub unfinished: Unfinished,
    /// Requests that were sent more than once, which is no failure.
    #[serde(default)]
    pub sent_again: SentAgain,
    /// The arrivals, and the share of them that was held; absent in the closed model.
    #[serde(default)]
    pub rate: Option<HeldRate>,
    /// The counts of the warm-up, which are in no other figure.
    #[serde(default)]
    pub warmup: Warmup,
    /// The address of the server that was used; absent if it differs between generators.
    #[serde(default)]
    pub address: Option<String>,
    /// Times in which the server sent nothing although requests were in flight; absent if there were none.
    #[serde(default)]
    pub silence: Option<Silence>,
    /// The verdict on the figures.
    pub verdict: Verdict,
    /// Reasons of the verdict, a sentence each.
    pub reasons: Vec<String>,
    /// Response time: from the time when the request was due (in the closed model: was sent) to the last byte of its
    /// response. Requests that timed out count by their age, and so do requests without a complete response at the end if it
    /// is above the median. Absent if there is no sample.
    pub latency_ms: Option<Latency>,
    /// Service time: from sending the request to the last byte of its response.
    pub service_ms: Option<Latency>,
    /// From `connect` to the established connection.
    pub connect_ms: Option<Latency>,
    /// From the established connection to the end of the TLS handshake.
    pub tls_ms: Option<Latency>,
    /// From `connect` to the end of a connection; absent if none ended.
    pub connection_ms: Option<Latency>,
    /// From sending the request to the first byte of its response.
    pub first_byte_ms: Option<Latency>,
    /// Delay of the generator in sending due requests; open model only.
    pub lag_ms: Option<Latency>,
    /// The connections.
    pub connections: Connections,
    /// The run, second by second.
    pub series: Vec<Second>,
    /// Samples of the rate of responses, as httperf takes them.
    pub reply_rate: Option<ReplyRate>,
    /// Resource usage of the server, if it runs on this machine.
    pub server: Option<ProcessUse>,
    /// Resource usage of the generator.
    pub client: ProcessUse,
    /// Anomalies with their likely causes.
    pub findings: Vec<Finding>,
    /// Result of `--find-users` or `--find-rate`.
    pub search: Option<Search>,
    /// The generators, if there were several at the same time.
    #[serde(default)]
    pub generators: Option<Generators>,
}

/// Kinds of failure.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    /// The connection was refused.
    Refused,
    /// The connection was reset.
    Reset,
    /// The server reset the stream; HTTP/2 only.
    StreamReset,
    /// The connection ended before the response was complete.
    Closed,
    /// No complete response, or no connection, in time.
    Timeout,
    /// No local address and port was free.
    NoAddress,
    /// No descriptor was free.
    NoDescriptor,
    /// The TLS handshake failed.
    Tls,
    /// The response is not valid HTTP.
    Protocol,
    /// The status is not one of those expected.
    Status,
    /// The body has another length than expected.
    Length,
    /// The body has other bytes than expected.
    Hash,
    /// Any other system error.
    Other,
}

/// Description of a response that is a TLS record.
pub(crate) const TLS_RECORD: &str = "the server sent a TLS record, not HTTP";

/// The verdict on the figures of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "SCREAMING-KEBAB-CASE")]
pub enum Verdict {
    /// The figures can be used.
    Valid,
    /// The generator, not the server, set the limit.
    ClientBound,
    /// The network set the limit.
    LinkBound,
    /// The figures vary too much within the run.
    Noisy,
    /// The requested rate was not held: requests that were due waited, and ever longer.
    RateNotHeld,
    /// Not all generators have sent their share of the load at the same time.
    Incomplete,
    /// The server stopped responding: requests were in flight at the end for far longer than any response took, or
    /// a closed run does not show in its percentiles how long the server was silent.
    Stalled,
    /// At least one response was invalid or missing.
    #[serde(rename = "WRONG-ANSWERS")]
    WrongResponses,
}

impl Verdict {
    /// All verdicts.
    pub const ALL: [Self; 8] = [
        Self::Valid,
        Self::ClientBound,
        Self::LinkBound,
        Self::Noisy,
        Self::RateNotHeld,
        Self::Incomplete,
        Self::Stalled,
        Self::WrongResponses,
    ];

    /// The verdict as it is printed, and as JSON has it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Valid => "VALID",
            Self::ClientBound => "CLIENT-BOUND",
            Self::LinkBound => "LINK-BOUND",
            Self::Noisy => "NOISY",
            Self::RateNotHeld => "RATE-NOT-HELD",
            Self::Incomplete => "INCOMPLETE",
            Self::Stalled => "STALLED",
            Self::WrongResponses => "WRONG-ANSWERS",
        }
    }
}

impl Outcome {
    /// Failures that invalidate the run. In the open model over requests, an attempt to connect that fails is none: requests
    /// wait for another connection, which is in their response times, or in the rate that is not held.
    #[must_use]
    pub fn failures(&self) -> u64 {
        match self.plan.model {
            Model::OpenRequests(_) => self.failed_requests,
            _ => self.errors,
        }
    }
}

impl Verdict {
    /// Returns `true` if a run with this verdict fails, rather than having figures that are uncertain.
    #[must_use]
    pub fn is_failure(self) -> bool {
        matches!(self, Self::RateNotHeld | Self::Incomplete | Self::WrongResponses)
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Requests without a complete response at the end of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Unfinished {
    /// Requests in flight.
    pub in_flight: u64,
    /// Time since the oldest of them was sent, in milliseconds.
    pub oldest_ms: f64,
    /// Service time of the slowest complete response, in milliseconds.
    pub slowest_ms: f64,
    /// Requests that were due and waited for a connection; open model only.
    pub waiting: u64,
}

/// Requests that were sent more than once. Each is due at its first time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SentAgain {
    /// Safe requests that were lost with a connection that had served others and ended before the first byte of their response
    /// (RFC 9112 §9.3.1).
    pub lost: u64,
    /// Requests whose HTTP/2 stream the server had refused before any processing (RFC 9113 §8.7).
    pub refused: u64,
}

/// The arrivals of an open run, and the share of them that was held.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HeldRate {
    /// Arrivals that were due.
    pub due: u64,
    /// The share of them that neither waited for a connection at the end, or when the last of a number of requests was due,
    /// nor were in flight because the server did not keep up, 0 to 1.
    pub held: f64,
    /// The limit that the rate met; absent if it was held.
    #[serde(default)]
    pub limit: Option<RateLimit>,
    /// That limit as a sentence.
    #[serde(default)]
    pub reason: Option<String>,
}

/// The limit that a rate met that was not held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RateLimit {
    /// All connections, or streams, were in use: the rate and the time of a response need more.
    Connections,
    /// Attempts to connect to the server failed.
    Unreachable,
    /// The generator used all its processors.
    Generator,
    /// The server is slower than the rate.
    Server,
}

/// The counts of the warm-up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Warmup {
    /// Valid responses.
    pub requests: u64,
    /// Requests and attempts to connect that failed.
    pub errors: u64,
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
    /// Established or used within the measurement.
    pub opened: u64,
    /// Closed by the server.
    pub closed_by_server: u64,
    /// Closed by the generator before the end.
    #[serde(default)]
    pub closed_by_generator: u64,
    /// Mean number of responses on a connection.
    pub requests_each: f64,
    /// Mean number of requests in flight on a connection after each write; those of HTTP/2 are streams.
    pub depth_mean: f64,
    /// Highest number of requests in flight on one connection.
    pub depth_max: u32,
    /// TLS sessions that were resumed; with HTTP/3, those with early data.
    pub tls_resumed: u64,
    /// With HTTP/3: packets, losses and round-trip times.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quic: Option<Quic>,
    /// With `--modem`: the bytes that the server could send ahead, by the receive windows of the first connections in
    /// TCP_INFO; absent if the system does not report them.
    pub receive_window: Option<u32>,
    /// Negotiated protocol: `http/1.1`, `h2`, `h2c`.
    pub protocol: String,
    /// Jain's fairness index of the responses per connection: 1 if all are equal; absent if connections are not kept.
    pub fairness: Option<f64>,
}

/// The transport of connections of HTTP/3, as the generator sees it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Quic {
    /// Packets that the generator has sent.
    pub packets_sent: u64,
    /// Of them, those that were lost. What the server sends and is lost delays responses; the generator cannot count it.
    pub packets_lost: u64,
    /// Datagrams that have arrived.
    pub datagrams_received: u64,
    /// Mean of the connections' smoothed round-trip times, in milliseconds.
    pub rtt_ms: f64,
    /// Connections that are in these figures.
    pub connections: u64,
    /// Of them, those whose early data the server has accepted.
    pub early_accepted: u64,
    /// Of them, those whose early data the server has rejected; their requests were sent again.
    pub early_rejected: u64,
}

impl Quic {
    /// Adds the figures of other connections.
    pub(crate) fn add(&mut self, other: &Self) {
        let all = self.connections + other.connections;
        if all > 0 {
            let weighted =
                self.rtt_ms * self.connections as f64 + other.rtt_ms * other.connections as f64;
            self.rtt_ms = weighted / all as f64;
        }
        self.connections = all;
        self.packets_sent += other.packets_sent;
        self.packets_lost += other.packets_lost;
        self.datagrams_received += other.datagrams_received;
        self.early_accepted += other.early_accepted;
        self.early_rejected += other.early_rejected;
    }
}

/// One second of a run.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Second {
    /// Start in seconds since the start of the measurement.
    pub at: f64,
    /// Length in seconds: 1 except for the last.
    pub length: f64,
    /// Valid responses.
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

/// Samples of the rate of responses.
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

/// Resource usage of a group of processes during a run.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct ProcessUse {
    /// Name of the first process.
    pub name: String,
    /// Processes.
    pub processes: u32,
    /// Processor time, in seconds.
    pub cpu_seconds: f64,
    /// Processor time per valid response, in microseconds; absent if there was none.
    pub cpu_us_per_request: Option<f64>,
    /// Share of the processors that the group may use, 0 to 1.
    pub cpu_share: f64,
    /// Processors kept busy, on average: 0.5 for half of one.
    #[serde(default)]
    pub cpus_busy: f64,
    /// Time in which threads were ready and waited for a processor, in seconds.
    #[serde(default)]
    pub waited_seconds: f64,
    /// Memory at the end (proportional set size), in bytes.
    pub memory_bytes: u64,
    /// Voluntary context switches.
    pub voluntary_switches: u64,
    /// Involuntary context switches.
    pub involuntary_switches: u64,
}

/// An anomaly in the measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Finding {
    /// A short, stable name such as `delayed-ack`.
    pub kind: String,
    /// The observation and its likely cause, in a sentence or two.
    pub text: String,
}

/// The generators of a run that ran at the same time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Generators {
    /// From the first start of a generator to the last, in milliseconds.
    pub skew_ms: f64,
    /// Largest error of a start, in milliseconds: what is unknown about the clocks; absent if they were not compared, but
    /// each start is by the clock of its own machine.
    pub uncertainty_ms: Option<f64>,
    /// The generators.
    pub each: Vec<Generator>,
}

/// One of several generators.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Generator {
    /// The machine of the generator, or the file of its results.
    pub name: String,
    /// The part of the plan that it was to send.
    pub segment: Option<Segment>,
    /// The generator's own verdict; absent without results.
    pub verdict: Option<Verdict>,
    /// Valid responses.
    pub requests: u64,
    /// Valid responses per second.
    pub requests_per_second: f64,
    /// Requests and connections that failed.
    pub errors: u64,
    /// 99th percentile of its response times, in milliseconds.
    pub p99_ms: Option<f64>,
    /// Processors that it kept busy, on average.
    pub cpus_busy: f64,
    /// The start relative to the agreed instant, or else to the first start, in milliseconds; absent if it did not start.
    pub start_ms: Option<f64>,
    /// Largest error of the start, in milliseconds; absent if the clocks were not compared.
    pub uncertainty_ms: Option<f64>,
    /// The reason why it has no results; absent if it has.
    pub lost: Option<String>,
}

/// The result of a search.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Search {
    /// `users` or `requests per second`.
    pub of: String,
    /// The highest level that held.
    pub found: f64,
    /// `true` if the search ended at its upper bound or at the generator's limit rather than at the server's.
    pub bounded: bool,
    /// The limit that the lowest level that failed met, if it was not the server: such as the number of connections.
    #[serde(default)]
    pub limit: Option<String>,
    /// `true` if the search was stopped before it had reached its precision.
    #[serde(default)]
    pub unfinished: bool,
    /// All levels that were tried, in order.
    pub levels: Vec<Level>,
}

/// One level of a search.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Level {
    /// Users, or requests per second.
    pub level: f64,
    /// `true` if it held.
    pub held: bool,
    /// Users that conformed, or requests per second that were achieved.
    pub achieved: f64,
    /// 99th percentile of the response time, in milliseconds; 0 where it has no meaning.
    pub p99_ms: f64,
    /// Memory of the server at that level, in bytes, when it runs on this machine.
    pub server_memory_bytes: Option<u64>,
    /// The reason why the level did not hold; empty if it did.
    pub why: String,
}
