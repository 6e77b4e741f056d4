//! The measurements that a verdict is based on.

use std::fs;

use super::overdue::overdue;
use crate::engine::Tally;
use crate::outcome::{Latency, Outcome, ProcessUse, Second};
use crate::plan::{Arrivals, Choice, Model};
use crate::processes;
use crate::silence::Silence;

/// Smallest number of intervals for an estimate of scatter.
pub(super) const LEAST_INTERVALS: usize = 4;

/// The measurements that a verdict is based on.
#[derive(Clone, Debug, Default)]
pub struct Evidence {
    /// Failures that invalidate the run.
    pub errors: u64,
    /// Valid responses.
    pub requests: u64,
    /// The model is closed.
    pub closed: bool,
    /// Processor usage of the generator per worker, 0 to 1.
    pub client_busy: f64,
    /// Time in which the generator waited for a processor, as a share of the run and per worker.
    pub client_waited: f64,
    /// Processors that the server kept busy, if known.
    pub server_busy: Option<f64>,
    /// 99th percentile of the generator's delay, in milliseconds; open models only.
    pub lag_p99_ms: f64,
    /// 99th percentile of the response time, in milliseconds.
    pub latency_p99_ms: f64,
    /// Requests per second in equal intervals, if they are expected to be equal.
    pub rates: Vec<f64>,
    /// Length of the intervals in seconds.
    pub interval: f64,
    /// Requests in flight at the end.
    pub in_flight: u64,
    /// Time since the oldest request in flight at the end was sent, in milliseconds.
    pub oldest_ms: f64,
    /// Service time of the slowest complete response, in milliseconds.
    pub slowest_ms: f64,
    /// The silent times of the server.
    pub silence: Option<Silence>,
    /// More requests were in flight than server and generator can work on at a time.
    pub crowded: bool,
    /// Bits per second received, and the speed of the fastest link; absent on loopback.
    pub link: Option<(f64, f64)>,
    /// Arrivals that were due; open models only.
    pub due: u64,
    /// Arrivals that waited for a connection at the end, or when the last of a number of requests was due.
    pub waiting: u64,
    /// The longest time that one of them has waited, in milliseconds.
    pub longest_wait_ms: f64,
    /// Of the requests in flight at the end, those that a server that keeps up would have responded to.
    pub overdue: u64,
    /// Arrivals per second.
    pub rate: f64,
    /// Requests, or connections of an open model over connections, that can be in progress at a time.
    pub slots: u64,
    /// Of the time that one of them takes: the shortest and the mean, in milliseconds.
    pub occupied_ms: (f64, f64),
    /// Attempts to connect that failed, where requests wait for another connection: open models over requests.
    pub failed_connections: u64,
    /// Failures during the warm-up.
    pub warmup_errors: u64,
    /// The generator is bound to some of the machine's processors.
    pub is_bound: bool,
    /// With a modem pace: users that received their share in every window.
    pub conforming: u32,
}

/// Shortest run in seconds whose wait is judged: the start of its threads counts too.
const LEAST_DURATION: f64 = 0.25;

impl Evidence {
    /// Creates the evidence of a run.
    #[must_use]
    pub fn of(outcome: &Outcome, tally: &Tally) -> Self {
        let plan = &outcome.plan;
        // The start of threads counts too, which is most of a very short run.
        let is_long = outcome.duration_seconds >= LEAST_DURATION;
        let busy = |used: &ProcessUse| if is_long { used.cpus_busy } else { 0.0 };
        let occupied = match plan.model {
            Model::OpenConnections(_) => &outcome.connection_ms,
            _ => &outcome.service_ms,
        };
        let steady = !matches!(
            plan.model,
            Model::OpenRequests(Arrivals::Ramp { .. })
                | Model::OpenConnections(Arrivals::Ramp { .. })
        );
        let whole = whole_seconds(&outcome.series);
        let (rates, interval) = match whole.len() >= LEAST_INTERVALS {
            true => (whole, 1.0),
            false => {
                let rates = tally.series.rates((outcome.duration_seconds * 1e9) as u64);
                let interval = outcome.duration_seconds / rates.len().max(1) as f64;
                (rates, interval)
            }
        };
        let loopback = plan.urls.first().is_none_or(|url| is_local(url));
        let p99 = |latency: &Option<Latency>| latency.as_ref().map_or(0.0, |latency| latency.p99);
        let unfinished = &outcome.unfinished;
        let (waiting, longest_wait, seconds) = match tally.backlog {
            Some(backlog) => (backlog.waiting, backlog.longest_wait, backlog.at as f64 / 1e9),
            None => (tally.waiting, tally.longest_wait, outcome.duration_seconds),
        };
        let processors = std::thread::available_parallelism().map_or(1, |count| count.get() as u32);
        Self {
            errors: outcome.failures(),
            requests: outcome.requests,
            closed: matches!(plan.model, Model::Closed { .. }),
            client_busy: busy(&outcome.client) / f64::from(plan.threads.clamp(1, processors)),
            client_waited: match is_long {
                true => {
                    let seconds = outcome.duration_seconds * f64::from(plan.threads.max(1));
                    (outcome.client.waited_seconds / seconds).min(1.0)
                }
                false => 0.0,
            },
            server_busy: outcome.server.as_ref().filter(|_| is_long).map(busy),
            lag_p99_ms: p99(&outcome.lag_ms),
            latency_p99_ms: p99(&outcome.latency_ms),
            rates: if steady { rates } else { Vec::new() },
            interval,
            in_flight: unfinished.in_flight,
            oldest_ms: unfinished.oldest_ms,
            slowest_ms: unfinished.slowest_ms,
            silence: outcome.silence.clone(),
            crowded: plan.connections >= 4
                && plan.threads == 1
                && processors > 1
                && matches!(plan.model, Model::Closed { think_seconds: 0.0 })
                && plan.modem_bits_per_second.is_none(),
            link: (!loopback)
                .then(|| fastest_link().map(|speed| (outcome.bytes_per_second * 8.0, speed)))
                .flatten(),
            due: tally.due,
            waiting,
            longest_wait_ms: longest_wait as f64 / 1e6,
            overdue: match (&plan.model, &plan.choice) {
                (_, Choice::Replay { .. }) => 0,
                (Model::OpenRequests(Arrivals::Constant { .. }), _) => overdue(tally, false),
                (Model::OpenRequests(Arrivals::Poisson { .. }), _) => overdue(tally, true),
                _ => 0,
            },
            rate: tally.due as f64 / seconds.max(1e-9),
            slots: match plan.model {
                Model::OpenConnections(_) => u64::from(plan.connections),
                _ => plan.slots(),
            } / u64::from(plan.part().of.max(1)),
            occupied_ms: occupied.as_ref().map_or((0.0, 0.0), |times| (times.min, times.mean)),
            failed_connections: outcome.errors - outcome.failures(),
            warmup_errors: tally.warmup.errors,
            is_bound: processes::is_bound(),
            conforming: tally.conformance.conforming,
        }
    }
}

fn is_local(url: &str) -> bool {
    let host = url::Url::parse(url).ok();
    match host.as_ref().and_then(url::Url::host) {
        Some(url::Host::Ipv4(address)) => address.is_loopback(),
        Some(url::Host::Ipv6(address)) => address.is_loopback(),
        Some(url::Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        None => true,
    }
}

/// Bits per second of the fastest network interface with a known speed.
fn fastest_link() -> Option<f64> {
    let interfaces = fs::read_dir("/sys/class/net").ok()?;
    let speeds = interfaces.flatten().filter_map(|interface| {
        let megabits = fs::read_to_string(interface.path().join("speed")).ok()?;
        megabits.trim().parse::<f64>().ok().filter(|megabits| *megabits > 0.0)
    });
    speeds.map(|megabits| megabits * 1e6).reduce(f64::max)
}

/// Returns the rates of the seconds that are whole.
pub(super) fn whole_seconds(series: &[Second]) -> Vec<f64> {
    let whole = series.iter().filter(|second| second.length >= 0.999);
    whole.map(|second| second.requests as f64 / second.length).collect()
}
