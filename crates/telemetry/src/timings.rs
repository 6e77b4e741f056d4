//! Timestamps of requests, and the durations of their phases.

use std::time::Instant;

use dunlin_net::clock;

use super::LogChoice;
use super::metrics::Label;

/// Telemetry settings of a route.
#[derive(Debug, Clone, Copy, Default)]
pub struct RouteTelemetry {
    /// Label of the route's metrics.
    pub label: Label,
    /// Send `Server-Timing` with responses.
    pub server_timing: bool,
    /// The access log.
    pub log: LogChoice,
}

/// When the bytes of a request were read.
#[derive(Debug, Clone, Copy)]
pub struct ReadTimes {
    first_byte: Instant,
    last_read: Instant,
}

/// Timestamps of the start of a connection.
#[derive(Debug, Clone, Copy)]
pub struct ConnectionStart {
    /// The connection was accepted.
    pub accepted: Instant,
    /// The TLS handshake was done.
    pub secured: Option<Instant>,
}

/// Durations of the phases of a request in nanoseconds. `None` for a phase that the request did not have.
#[derive(Debug, Clone, Copy, Default)]
pub struct Timings {
    /// From accepting the connection to the end of the TLS handshake.
    pub tls: Option<u64>,
    /// From there to the first byte of the request.
    pub idle: Option<u64>,
    /// From the first byte to the end of the head.
    pub head: u64,
    /// From there to the end of routing, including the wait for earlier requests of the connection; `None` if it is
    /// not measured apart from `handler`.
    pub route: Option<u64>,
    /// Waiting for checks.
    pub checks: Option<u64>,
    /// From there to the first byte of the response.
    pub handler: Option<u64>,
    /// From there to the last byte of the response.
    pub send: Option<u64>,
}

/// Names of the phases in chronological order.
pub const PHASES: [&str; 7] = ["tls", "idle", "head", "route", "checks", "handler", "send"];

impl ConnectionStart {
    /// Creates the timestamps of a connection that is accepted now.
    #[inline]
    pub fn now() -> Self {
        Self { accepted: clock::now(), secured: None }
    }
}

impl ReadTimes {
    /// Updates `known` after a read. A request `begins` with the bytes if none was incomplete.
    #[inline]
    pub fn after_read(known: Option<Self>, begins: bool) -> Self {
        let now = clock::now();
        let first_byte = known.filter(|_| !begins).map_or(now, |known| known.first_byte);
        Self { first_byte, last_read: now }
    }

    /// Creates the times of a request that was read at once.
    #[inline]
    pub fn at(moment: Instant) -> Self {
        Self { first_byte: moment, last_read: moment }
    }

    /// Returns the timings of a request with a cached response that is only counted. It ended at `end`.
    #[inline]
    pub fn timings(self, routed: Option<Instant>, end: Instant) -> Timings {
        let handler = nanos(routed.unwrap_or(self.last_read), end);
        Timings {
            head: nanos(self.first_byte, self.last_read),
            route: routed.map(|routed| nanos(self.last_read, routed)),
            handler: Some(handler),
            send: Some(0),
            ..Timings::default()
        }
    }

    /// Returns when the last byte was read.
    #[inline]
    pub fn last_read(self) -> Instant {
        self.last_read
    }

    /// Returns when the first byte was read.
    #[inline]
    pub fn first_byte(self) -> Instant {
        self.first_byte
    }
}

impl Timings {
    /// Returns the durations in the order of [`PHASES`].
    #[inline]
    pub fn all(&self) -> [Option<u64>; PHASES.len()] {
        let Self { tls, idle, head, route, checks, handler, send } = *self;
        [tls, idle, Some(head), route, checks, handler, send]
    }

    /// Removes the phases of the response, for a request that is in progress.
    #[inline]
    pub fn begun(self) -> Self {
        Self { handler: None, send: None, ..self }
    }

    /// Returns name and microseconds of the phases that the request had.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let named = PHASES.into_iter().zip(self.all());
        named.filter_map(|(name, nanos)| Some((name, nanos? / 1_000)))
    }
}

/// Returns the nanoseconds between two timestamps.
#[inline]
pub fn nanos(from: Instant, to: Instant) -> u64 {
    u64::try_from(to.saturating_duration_since(from).as_nanos()).unwrap_or(u64::MAX)
}
