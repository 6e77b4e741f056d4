//! What a run does, after all options have been read and checked against each other.
//!
//! The plan is printed before the run and stored with its outcome: what stands here is what happened.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A run, whole. Times are in seconds, rates in events per second, sizes in bytes.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Plan {
    /// Absolute URLs, in the order given; a list file or a log adds its own.
    pub urls: Vec<String>,
    /// How the next URL is chosen.
    pub choice: Choice,
    /// Start of every pseudo-random sequence: the same seed gives each server the same requests.
    pub seed: u64,
    /// Protocol spoken on every connection.
    pub protocol: Protocol,
    /// Connections at a time; in the open model over connections, the most at a time.
    pub connections: u32,
    /// Loops of the generator, each on a thread of its own.
    pub threads: u32,
    /// What ends the run.
    pub end: End,
    /// Seconds of load before anything is counted.
    pub warmup_seconds: f64,
    /// When a request, or a connection, begins.
    pub model: Model,
    /// How long a connection is used.
    pub reuse: Reuse,
    /// Requests in flight on a connection of HTTP/1.
    pub pipeline: u32,
    /// Streams in flight on a connection of HTTP/2.
    pub streams: u32,
    /// What is sent.
    pub request: RequestShape,
    /// Seconds that a connection, or an answer, may take before it counts as a timeout.
    pub timeout_seconds: f64,
    /// How the answers are checked.
    pub verify: Verify,
    /// Bits per second at which each connection reads; absent: as fast as it can.
    pub modem_bits_per_second: Option<u64>,
    /// Local addresses that connections start from, in turn; empty: the system's choice.
    pub source_addresses: Vec<std::net::IpAddr>,
    /// Whether certificates that cannot be checked are accepted.
    pub insecure: bool,
}

/// How the next URL is chosen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Choice {
    /// One after the other, from the start again after the last.
    InOrder,
    /// Each as likely as any other.
    Random,
    /// The k-th with a likelihood in proportion to `1 / k^exponent`.
    Zipf {
        /// The exponent, above 0.
        exponent: f64,
    },
    /// As an access log tells, with its timing.
    Replay {
        /// The log: common, combined, or Dunlin's JSON.
        log: PathBuf,
        /// How many times as fast as it was recorded.
        speed: f64,
    },
}

/// The protocol spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Protocol {
    /// HTTP/1.0: no `Host` is needed, and no connection is kept.
    #[serde(rename = "http/1.0")]
    Http10,
    /// HTTP/1.1.
    #[serde(rename = "http/1.1")]
    Http11,
    /// HTTP/2, by ALPN over TLS and with prior knowledge in the clear.
    #[serde(rename = "http/2")]
    Http2,
}

/// What ends a run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum End {
    /// Seconds after the warm-up.
    Seconds(f64),
    /// That many requests, all answered or failed.
    Requests(u64),
}

/// When a request, or a connection, begins.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Model {
    /// The next request begins when the last was answered, and after the think time.
    Closed {
        /// Seconds between an answer and the next request on the same connection.
        think_seconds: f64,
    },
    /// Requests begin by a schedule, whatever the server does.
    OpenRequests(Arrivals),
    /// Connections begin by a schedule, each with as many requests as [`Reuse`] says.
    OpenConnections(Arrivals),
}

/// A schedule of beginnings.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Arrivals {
    /// Evenly spaced.
    Constant {
        /// Per second.
        rate: f64,
    },
    /// Independent of each other: exponentially distributed gaps.
    Poisson {
        /// Per second, on average.
        rate: f64,
    },
    /// Evenly spaced, at a rate that goes in a straight line from one to the other over the run.
    Ramp {
        /// Per second at the start.
        from: f64,
        /// Per second at the end.
        to: f64,
    },
}

/// How long a connection is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Reuse {
    /// One request, then the client closes, whatever the server says.
    Never,
    /// That many requests, then the client closes.
    Requests(u32),
    /// As long as the server allows.
    Kept,
}

/// What is sent with each request.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct RequestShape {
    /// The method.
    pub method: String,
    /// Fields beside those that the protocol asks for.
    pub fields: Vec<(String, String)>,
    /// Length of the body.
    pub body_bytes: u64,
    /// SHA-256 of the body, in hexadecimal; absent without a body.
    pub body_sha256: Option<String>,
    /// Whether the head and the body leave in two writes.
    pub split_body: bool,
    /// Whether `TCP_NODELAY` is set.
    pub no_delay: bool,
}

/// How answers are checked, beside that they are well-formed and complete.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Verify {
    /// The status is one of those expected (2xx unless told otherwise).
    Status,
    /// Also: every body is the first one that came for its URL.
    FirstAnswer,
    /// Also: every body is the file of that path in a directory.
    Directory(PathBuf),
}
