//! The plan of a run, made from options that have been parsed and validated.
//!
//! The plan is printed before the run and stored with its outcome.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::segment::Segment;

/// A complete run. Times are in seconds, rates in events per second, sizes in bytes.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Plan {
    /// Absolute URLs, in the given order, including those of a list file or a log.
    pub urls: Vec<String>,
    /// Choice of the next URL.
    pub choice: Choice,
    /// Seed of all pseudo-random sequences. The same seed gives each server the same requests.
    pub seed: u64,
    /// Protocol of all connections.
    pub protocol: Protocol,
    /// Concurrent connections; in the open model over connections, their maximum.
    pub connections: u32,
    /// Workers of each generator, each on a thread of its own.
    pub threads: u32,
    /// End of the run.
    pub end: End,
    /// Longest duration of a run that ends after a number of requests, in seconds, the warm-up not counted; absent for no
    /// limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_seconds: Option<f64>,
    /// Duration of the load before the measurement, in seconds.
    pub warmup_seconds: f64,
    /// Start of requests or connections.
    pub model: Model,
    /// Use of a connection.
    pub reuse: Reuse,
    /// Requests in flight on a connection of HTTP/1.
    pub pipeline: u32,
    /// Streams in flight on a connection of HTTP/2.
    pub streams: u32,
    /// The requests.
    pub request: RequestShape,
    /// Timeout of connecting and of a response, in seconds.
    pub timeout_seconds: f64,
    /// Verification of responses.
    pub verify: Verify,
    /// Bits per second at which each connection reads; absent for no limit.
    pub modem_bits_per_second: Option<u64>,
    /// Local addresses of connections, in turn; empty for the system's choice.
    pub source_addresses: Vec<std::net::IpAddr>,
    /// `true` if all certificates are accepted.
    pub insecure: bool,
    /// `true` if connections of HTTP/3 that resume a session begin with a request as early data (0-RTT).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub early_data: bool,
    /// The name that TLS sends (SNI) and expects in the certificate; absent for the host of the URLs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_name: Option<String>,
    /// The part of this plan that the generator sends; absent for all of it. Connections, rates and counts are those of the
    /// whole plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub segment: Option<Segment>,
}

impl Plan {
    /// The part that the generator sends.
    #[must_use]
    pub fn part(&self) -> Segment {
        self.segment.unwrap_or(Segment::WHOLE)
    }

    /// The part that a thread sends.
    #[must_use]
    pub fn part_of_thread(&self, thread: u32) -> Segment {
        self.part().part(thread, self.threads.max(1))
    }

    /// Requests that can be in flight at a time.
    #[must_use]
    pub fn slots(&self) -> u64 {
        let each = if self.protocol.has_streams() { self.streams } else { self.pipeline };
        u64::from(self.connections) * u64::from(each.max(1))
    }

    /// Users of all connections, each with a sequence of requests of its own.
    #[must_use]
    pub fn users(&self) -> u32 {
        self.connections * if self.protocol.has_streams() { self.streams } else { 1 }
    }

    /// The connections of the generator.
    #[must_use]
    pub fn own_connections(&self) -> u64 {
        self.part().share(u64::from(self.connections))
    }
}

/// Choice of the next URL.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Choice {
    /// In the given order, repeatedly.
    InOrder,
    /// Uniformly random.
    Random,
    /// By Zipf's law: the k-th URL with a probability proportional to `1 / k^exponent`.
    Zipf {
        /// The exponent, above 0.
        exponent: f64,
    },
    /// From an access log, with its timing.
    Replay {
        /// The log: common, combined, or Dunlin's JSON.
        log: PathBuf,
        /// Speed relative to the recording.
        speed: f64,
    },
}

/// Protocol of the connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Protocol {
    /// HTTP/1.0: without a required `Host` and without persistent connections by default.
    #[serde(rename = "http/1.0")]
    Http10,
    /// HTTP/1.1.
    #[serde(rename = "http/1.1")]
    Http11,
    /// HTTP/2: by ALPN over TLS, with prior knowledge without TLS.
    #[serde(rename = "http/2")]
    Http2,
    /// HTTP/3, over QUIC.
    #[serde(rename = "http/3")]
    Http3,
}

impl Protocol {
    /// Returns the names of the protocol as it is reported, without and with TLS, its identifier in ALPN, and `true` if its
    /// connections have streams.
    const fn properties(self) -> ([&'static str; 2], &'static [u8], bool) {
        match self {
            Self::Http10 => (["http/1.0"; 2], b"http/1.1", false),
            Self::Http11 => (["http/1.1"; 2], b"http/1.1", false),
            Self::Http2 => (["h2c", "h2"], b"h2", true),
            Self::Http3 => (["h3"; 2], b"h3", true),
        }
    }

    /// Returns the name of the protocol of a connection.
    #[must_use]
    pub const fn name(self, is_tls: bool) -> &'static str {
        self.properties().0[is_tls as usize]
    }

    /// Returns the identifier of the protocol in ALPN (RFC 7301).
    #[must_use]
    pub const fn alpn(self) -> &'static [u8] {
        self.properties().1
    }

    /// Returns `true` if a connection has a stream for each request.
    #[must_use]
    pub const fn has_streams(self) -> bool {
        self.properties().2
    }
}

/// End of a run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum End {
    /// After that many seconds, the warm-up not counted.
    Seconds(f64),
    /// After that many requests, those of the warm-up not counted.
    Requests(u64),
}

/// Start of requests or connections.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Model {
    /// A request starts after the response to the previous one and the think time.
    Closed {
        /// Seconds between a response and the next request on the connection.
        think_seconds: f64,
    },
    /// Requests start by a schedule, independent of the server.
    OpenRequests(Arrivals),
    /// Connections start by a schedule, each with the requests that [`Reuse`] defines.
    OpenConnections(Arrivals),
}

/// A schedule of arrivals.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Arrivals {
    /// Evenly spaced.
    Constant {
        /// Per second.
        rate: f64,
    },
    /// A Poisson process: exponentially distributed intervals.
    Poisson {
        /// Per second, on average.
        rate: f64,
    },
    /// Evenly spaced, with a rate that changes linearly over the run.
    Ramp {
        /// Per second at the start.
        from: f64,
        /// Per second at the end.
        to: f64,
    },
}

/// Use of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Reuse {
    /// One request, after which the client closes.
    Never,
    /// That many requests, after which the client closes.
    Requests(u32),
    /// As long as the server permits.
    Kept,
}

/// Properties of all requests.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct RequestShape {
    /// The method.
    pub method: String,
    /// Additional fields.
    pub fields: Vec<(String, String)>,
    /// Length of the body.
    pub body_bytes: u64,
    /// SHA-256 of the body, in hexadecimal; absent without a body.
    pub body_sha256: Option<String>,
    /// `true` if head and body are sent in two writes.
    pub split_body: bool,
    /// `true` if `TCP_NODELAY` is set.
    pub no_delay: bool,
}

/// Verification of responses, which must always be well-formed and complete.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Verify {
    /// The status is an expected one, 2xx by default.
    Status,
    /// The status, and every body equals the first one of its URL.
    FirstResponse,
    /// The status, and every body equals the file with that path in a directory.
    Directory(PathBuf),
}
