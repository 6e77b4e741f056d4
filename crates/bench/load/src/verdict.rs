//! The verdict: whether the figures of a run can be used.

use std::fs;

use crate::engine::Tally;
use crate::outcome::{Latency, Outcome, ProcessUse, RateLimit, Second, Verdict};
use crate::plan::{Arrivals, Choice, Model};
use crate::processes;
use crate::silence::Silence;

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

/// Share of a processor from which on a worker is at its limit.
const BUSY: f64 = 0.95;
/// Share of a processor below which a server is not at its limit.
const SERVER_BUSY: f64 = 0.85;
/// Delay in milliseconds below which it is attributed to timers and the scheduler.
const LEAST_LAG: f64 = 1.0;
/// Share of the response time from which on the generator's delay invalidates it.
const LAG_SHARE: f64 = 0.25;
/// Scatter of rates, as a share of their median, from which on they are noise.
const SCATTER: f64 = 0.15;
/// The same for intervals below a second, in which a server's batches are visible.
const SCATTER_OF_PARTS: f64 = 0.30;
/// Smallest number of intervals for an estimate of scatter.
const LEAST_INTERVALS: usize = 4;
/// Age of a stalled request in flight at the end, as a multiple of the slowest service time.
const STALL_FACTOR: f64 = 5.0;
/// Smallest age of a stalled request, in milliseconds.
const LEAST_STALL: f64 = 100.0;
/// Share of silent time from which on the percentiles of a closed run are misleading.
const SILENT_SHARE: f64 = 0.1;
/// Shortest wait of arrivals at the end that matters, in milliseconds: connections are established, and processes scheduled.
const LEAST_WAIT: f64 = 50.0;
/// Share of the arrivals that may wait at the end although the rate was held.
const BACKLOG_SHARE: f64 = 0.02;
/// Growth of the response time from the first quarter of the run to the last from which on the server does not keep up.
const GROWTH: f64 = 1.5;
/// The least share of that growth from one quarter to the next; a third if it is even.
const LEAST_PART: f64 = 0.1;
/// Share of the run from which on the generator's wait for a processor lowers its rate.
const WAITED: f64 = 0.25;
/// Shortest run in seconds whose wait is judged: the start of its threads counts too.
const LEAST_DURATION: f64 = 0.25;
/// Share of one processor that generator and server use together if they share it.
const SHARED: std::ops::RangeInclusive<f64> = 0.9..=1.1;

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

impl Evidence {
    /// Returns the share of the arrivals that neither waited nor are overdue, 0 to 1.
    #[must_use]
    pub fn held(&self) -> f64 {
        let backlog = self.waiting + self.overdue;
        self.due.saturating_sub(backlog) as f64 / self.due.max(1) as f64
    }

    /// Returns what the rate met; `None` if it was held: no more arrivals wait at the end than chance explains.
    #[must_use]
    pub fn limit_of_rate(&self) -> Option<RateLimit> {
        let (least, mean) = self.occupied_ms;
        let many = (self.due as f64 * BACKLOG_SHARE).max(1.0);
        // What fits into the time of one more response may wait.
        let is_held = self.waiting as f64 <= many || self.longest_wait_ms <= mean.max(LEAST_WAIT);
        if is_held && self.overdue as f64 <= many {
            return None;
        }
        // Even if all responses took the shortest time.
        if self.rate * least / 1e3 > self.slots as f64 {
            return Some(RateLimit::Connections);
        }
        if self.failed_connections > 0 {
            return Some(RateLimit::Unreachable);
        }
        let has_spare = self.server_busy.is_none_or(|busy| busy < SERVER_BUSY);
        match self.client_busy >= BUSY && has_spare {
            true => Some(RateLimit::Generator),
            false => Some(RateLimit::Server),
        }
    }

    /// Returns what the rate met as a sentence; `None` if it was held.
    #[must_use]
    pub fn why_rate_not_held(&self) -> Option<String> {
        let e = self;
        let limit = e.limit_of_rate()?;
        let held = e.held();
        let (_, mean) = e.occupied_ms;
        let cause = match limit {
            RateLimit::Connections => format!(
                "all {} connections (-c), or streams, were in use, and {:.0}/s that take {mean:.1} ms each need more than {:.0}",
                e.slots,
                e.rate,
                (e.rate * mean / 1e3).floor()
            ),
            RateLimit::Unreachable => {
                format!("{} attempts to connect to the server failed", e.failed_connections)
            }
            RateLimit::Generator => {
                format!("the generator used {:.0} % of its processors", e.client_busy * 100.0)
            }
            RateLimit::Server => {
                format!("the server is slower than the rate, and took {:.1}/s", e.rate * held)
            }
        };
        let backlog = match e.overdue > e.waiting {
            true => {
                format!(
                    "{} of {} requests are in flight at the end, and ever longer",
                    e.overdue, e.due
                )
            }
            false => {
                format!(
                    "{} of {} arrivals still waited for a connection at the end",
                    e.waiting, e.due
                )
            }
        };
        Some(format!("{backlog}, so that {:.0} % of the rate was held: {cause}", held * 100.0))
    }
}

/// Of the requests in flight at the end, those that a server that keeps up would have responded to: in the second half of the
/// run there were fewer responses than arrivals, and they took longer from quarter to quarter. If the response time has changed
/// once, as many requests more are in flight, but no longer gather. The number of `independent` arrivals scatters with its square
/// root.
fn overdue(tally: &Tally, independent: bool) -> u64 {
    let quarters = &tally.quarters;
    if quarters.iter().any(|quarter| quarter.responses == 0) {
        return 0;
    }
    let means = quarters.map(|quarter| quarter.time as f64 / quarter.responses as f64);
    let growth = means[3] - means[0];
    let steady = means.windows(2).all(|pair| pair[1] - pair[0] > LEAST_PART * growth);
    if growth < LEAST_WAIT * 1e6 || means[3] < GROWTH * means[0] || !steady {
        return 0;
    }
    let due = tally.due as f64 / 2.0;
    let chance = if independent { 2.0 * due.sqrt() } else { 0.0 };
    let lacking = due - (quarters[2].responses + quarters[3].responses) as f64;
    if lacking > chance { (2.0 * lacking).min(tally.unfinished as f64) as u64 } else { 0 }
}

/// Returns the verdict, and a sentence for each reason against the figures.
#[must_use]
pub fn judge(evidence: &Evidence) -> (Verdict, Vec<String>) {
    let tests = [
        (Verdict::WrongResponses, invalid_responses(evidence)),
        (Verdict::Stalled, stalled(evidence)),
        (Verdict::Stalled, silent(evidence)),
        (Verdict::RateNotHeld, evidence.why_rate_not_held()),
        (Verdict::ClientBound, client_bound(evidence)),
        (Verdict::ClientBound, waited(evidence).or_else(|| shared_processor(evidence))),
        (Verdict::LinkBound, link_bound(evidence)),
        (Verdict::Noisy, noisy(evidence)),
    ];
    let mut verdict = Verdict::Valid;
    let mut reasons = Vec::new();
    for (kind, reason) in tests {
        if let Some(reason) = reason {
            if verdict == Verdict::Valid {
                verdict = kind;
            }
            reasons.push(reason);
        }
    }
    if evidence.failed_connections > 0 && evidence.limit_of_rate().is_none() {
        reasons.push(format!(
            "{} attempts to connect failed; requests waited meanwhile, which is in their response times",
            evidence.failed_connections
        ));
    }
    if evidence.warmup_errors > 0 {
        reasons.push(format!(
            "{} failures during the warm-up, which do not count",
            evidence.warmup_errors
        ));
    }
    (verdict, reasons)
}

fn invalid_responses(e: &Evidence) -> Option<String> {
    match (e.errors, e.requests) {
        // At a modem's pace a response may take longer than the run.
        (0, 0) if e.conforming > 0 => None,
        (0, 0) => Some("there was no response".to_owned()),
        (0, _) => None,
        (errors, requests) => Some(format!("{errors} failures and {requests} valid responses")),
    }
}

fn stalled(e: &Evidence) -> Option<String> {
    let stalled = e.requests > 0
        && e.in_flight > 0
        && e.oldest_ms >= LEAST_STALL
        && e.oldest_ms > STALL_FACTOR * e.slowest_ms;
    stalled.then(|| {
        format!(
            "{} requests were in flight at the end, the oldest for {:.0} ms, while the slowest response took {:.1} ms: the server has stopped responding",
            e.in_flight, e.oldest_ms, e.slowest_ms
        )
    })
}

fn silent(e: &Evidence) -> Option<String> {
    let silence = e.silence.as_ref().filter(|silence| e.closed && silence.share >= SILENT_SHARE)?;
    Some(format!(
        "the server was silent {}, for {:.0} % of the run and up to {:.0} ms; the percentiles of a closed run hide that: use --rate",
        silence.occurrences(),
        silence.share * 100.0,
        silence.longest_ms
    ))
}

/// Returns the advice to a generator that lacks a processor.
fn advice(e: &Evidence) -> &'static str {
    match e.is_bound {
        true => "stop the other programs",
        false => "bind them to different ones (taskset)",
    }
}

/// Returns the server or other programs use the generator's processor, which lowers the rate of a closed run.
fn waited(e: &Evidence) -> Option<String> {
    let waits = e.closed && e.client_waited >= WAITED;
    waits.then(|| {
        format!(
            "the generator waited for a processor for {:.0} % of the run, since the server or other programs used it: {}; requests/s is a lower bound",
            e.client_waited * 100.0,
            advice(e)
        )
    })
}

/// Neither side is at its limit, since both use the same processor.
fn shared_processor(e: &Evidence) -> Option<String> {
    let server = e.server_busy?;
    let shared = e.crowded
        && e.client_busy < SERVER_BUSY
        && server < SERVER_BUSY
        && SHARED.contains(&(e.client_busy + server));
    shared.then(|| {
        format!(
            "the generator used {:.0} % and the server {:.0} % of one processor, together all of it: {}; requests/s is a lower bound",
            e.client_busy * 100.0,
            server * 100.0,
            advice(e)
        )
    })
}

fn client_bound(e: &Evidence) -> Option<String> {
    if !e.closed {
        let late = e.lag_p99_ms > LEAST_LAG && e.lag_p99_ms > LAG_SHARE * e.latency_p99_ms;
        return late.then(|| {
            format!(
                "the generator itself was late: p99 of its lag is {:.2} ms, of the response time {:.2} ms",
                e.lag_p99_ms, e.latency_p99_ms
            )
        });
    }
    let spare = e.server_busy.is_none_or(|busy| busy < SERVER_BUSY);
    (e.client_busy >= BUSY && spare).then(|| match e.server_busy {
        Some(busy) => format!(
            "the generator used {:.0} % of its processors while the server used {:.0} % of one: requests/s is a lower bound",
            e.client_busy * 100.0,
            busy * 100.0
        ),
        None => format!(
            "the generator used {:.0} % of its processors: requests/s is a lower bound",
            e.client_busy * 100.0
        ),
    })
}

fn link_bound(e: &Evidence) -> Option<String> {
    let (bits, speed) = e.link?;
    (bits > 0.9 * speed).then(|| {
        format!("{:.2} Gbit/s were received on a link of {:.2} Gbit/s", bits / 1e9, speed / 1e9)
    })
}

fn noisy(e: &Evidence) -> Option<String> {
    if e.rates.len() < LEAST_INTERVALS {
        return None;
    }
    let middle = median(&e.rates);
    let (limit, of) = match e.interval >= 0.999 {
        true => (SCATTER, "from second to second".to_owned()),
        false => (SCATTER_OF_PARTS, format!("from one {:.0} ms to the next", e.interval * 1e3)),
    };
    // Counts of independent events scatter with the square root of their number.
    let chance = 2.0 / (middle * e.interval).max(1.0).sqrt();
    let distances: Vec<f64> = e.rates.iter().map(|rate| (rate - middle).abs()).collect();
    // 1.4826 converts the median absolute deviation to the standard deviation of a normal distribution.
    let scatter = 1.4826 * median(&distances) / middle.max(f64::MIN_POSITIVE);
    (scatter > limit + chance)
        .then(|| format!("requests/s scatter by {:.0} % {of}", scatter * 100.0))
}

/// Returns whether the rates of whole seconds are noisy, with the reason. `None` if there are too few of them.
pub(crate) fn noise(series: &[Second]) -> Option<Option<String>> {
    let rates = whole_seconds(series);
    let enough = rates.len() >= LEAST_INTERVALS;
    enough.then(|| noisy(&Evidence { rates, interval: 1.0, ..Evidence::default() }))
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => 0.0,
        n if n % 2 == 1 => sorted[n / 2],
        n => (sorted[n / 2 - 1] + sorted[n / 2]) / 2.0,
    }
}

fn whole_seconds(series: &[Second]) -> Vec<f64> {
    let whole = series.iter().filter(|second| second.length >= 0.999);
    whole.map(|second| second.requests as f64 / second.length).collect()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Quarter;

    #[test]
    fn responses_longer_than_the_run_are_no_error_at_a_modems_pace() {
        let paced = Evidence { closed: true, conforming: 3, ..Evidence::default() };
        assert_eq!(judge(&paced).0, Verdict::Valid);
        assert_eq!(judge(&Evidence { conforming: 0, ..paced }).0, Verdict::WrongResponses);
    }

    fn closed(client: f64, server: Option<f64>) -> Evidence {
        Evidence {
            requests: 1000,
            closed: true,
            client_busy: client,
            server_busy: server,
            ..Evidence::default()
        }
    }

    #[test]
    fn the_generator_is_the_limit_only_if_the_server_is_not() {
        assert_eq!(judge(&closed(0.99, Some(0.5))).0, Verdict::ClientBound);
        assert_eq!(judge(&closed(0.99, Some(0.98))).0, Verdict::Valid);
        assert_eq!(judge(&closed(0.99, None)).0, Verdict::ClientBound);
        assert_eq!(judge(&closed(0.60, Some(0.5))).0, Verdict::Valid);
    }

    #[test]
    fn one_invalid_response_decides_the_verdict() {
        let (verdict, reasons) = judge(&Evidence { errors: 1, ..closed(0.99, Some(0.1)) });
        assert_eq!((verdict, reasons.len()), (Verdict::WrongResponses, 2));
        assert_eq!(judge(&Evidence::default()).0, Verdict::WrongResponses);
    }

    #[test]
    fn delay_counts_if_it_explains_the_response_time() {
        let late = |lag, latency| {
            let open = Evidence {
                requests: 1,
                lag_p99_ms: lag,
                latency_p99_ms: latency,
                ..Evidence::default()
            };
            judge(&open).0
        };
        assert_eq!(late(1.5, 2.0), Verdict::ClientBound);
        assert_eq!(late(1.5, 50.0), Verdict::Valid);
        assert_eq!(late(0.5, 0.6), Verdict::Valid);
    }

    #[test]
    fn a_rate_that_was_not_held_names_its_limit() {
        let open = |waiting, longest_wait_ms, least: f64, mean| Evidence {
            requests: 1000,
            due: 1000,
            rate: 1000.0,
            slots: 10,
            waiting,
            longest_wait_ms,
            occupied_ms: (least, mean),
            ..Evidence::default()
        };
        let limit = |evidence: &Evidence| evidence.limit_of_rate();
        assert_eq!(limit(&open(500, 500.0, 20.0, 21.0)), Some(RateLimit::Connections));
        assert_eq!(limit(&open(500, 500.0, 1.0, 21.0)), Some(RateLimit::Server), "one at a time");
        assert_eq!(limit(&open(20, 500.0, 20.0, 21.0)), None, "2 % of the arrivals");
        assert_eq!(limit(&open(30, 20.0, 20.0, 21.0)), None, "the time of one response");
        let gone = Evidence { failed_connections: 3, ..open(500, 500.0, 1.0, 1.0) };
        assert_eq!(limit(&gone), Some(RateLimit::Unreachable));
        let behind = Evidence { overdue: 300, ..open(0, 0.0, 1.0, 400.0) };
        assert_eq!(limit(&behind), Some(RateLimit::Server), "with connections enough");
        assert!(judge(&behind).1[0].contains("in flight at the end, and ever longer"));
        let busy = Evidence { client_busy: 0.99, ..open(500, 500.0, 1.0, 1.0) };
        assert_eq!(limit(&busy), Some(RateLimit::Generator));
        let (verdict, reasons) = judge(&open(500, 500.0, 20.0, 21.0));
        assert_eq!(verdict, Verdict::RateNotHeld);
        assert!(reasons[0].contains("50 % of the rate") && reasons[0].contains("more than 21"));
    }

    #[test]
    fn requests_gather_in_flight_if_each_quarter_takes_longer() {
        let overdue_of = |counts: [u64; 4], means: [u64; 4]| {
            let mut tally = Tally::new(0);
            (tally.due, tally.unfinished) = (400, 300);
            for (quarter, (responses, mean)) in
                tally.quarters.iter_mut().zip(counts.into_iter().zip(means))
            {
                *quarter = Quarter { responses, time: responses * mean * 1_000_000 };
            }
            overdue(&tally, false)
        };
        assert_eq!(overdue_of([25; 4], [180, 560, 940, 1300]), 300);
        assert_eq!(overdue_of([100, 100, 86, 100], [10, 10, 150, 150]), 0, "it is slower once");
        assert_eq!(overdue_of([100, 100, 93, 93], [10, 10, 80, 150]), 0, "within a quarter");
        assert_eq!(overdue_of([40, 60, 60, 60], [600; 4]), 0, "responses are slow");
        assert_eq!(overdue_of([100; 4], [10, 60, 110, 160]), 0, "no response is lacking");
    }

    #[test]
    fn scatter_is_noise_but_one_slow_second_is_not() {
        let with = |rates: &[f64], interval| {
            let rates = rates.to_vec();
            judge(&Evidence { rates, interval, ..closed(0.1, None) }).0
        };
        let scattered = [1e4, 1.6e4, 0.9e4, 1.5e4, 0.7e4, 1.3e4];
        assert_eq!(with(&scattered, 1.0), Verdict::Noisy);
        assert_eq!(with(&scattered, 0.1), Verdict::Noisy);
        assert_eq!(with(&scattered, 0.001), Verdict::Valid, "ten responses scatter by chance");
        assert_eq!(with(&[1e4, 1.01e4, 0.99e4, 1e3, 1e4, 1.02e4], 1.0), Verdict::Valid);
        assert_eq!(with(&[1e4, 2e4, 0.5e4], 1.0), Verdict::Valid);
    }

    #[test]
    fn requests_much_older_than_the_slowest_response_are_a_stall() {
        let ends = |in_flight, oldest_ms, slowest_ms| {
            judge(&Evidence { in_flight, oldest_ms, slowest_ms, ..closed(0.1, None) }).0
        };
        assert_eq!(ends(4, 3000.0, 1.4), Verdict::Stalled);
        assert_eq!(ends(4, 3000.0, 1000.0), Verdict::Valid, "slow, and no slower at the end");
        assert_eq!(ends(4, 20.0, 0.2), Verdict::Valid, "a moment");
        assert_eq!(ends(0, 0.0, 0.2), Verdict::Valid);
    }

    #[test]
    fn silence_in_a_closed_run_invalidates_its_latency() {
        let with = |share, closed_model| {
            let silence = Silence { times: 3, share, longest_ms: 200.0, first_at: 0.1 };
            let evidence = Evidence { silence: Some(silence), ..closed(0.1, None) };
            judge(&Evidence { closed: closed_model, ..evidence }).0
        };
        assert_eq!(with(0.2, true), Verdict::Stalled);
        assert_eq!(with(0.02, true), Verdict::Valid);
        assert_eq!(with(0.2, false), Verdict::Valid, "an open run shows it in its percentiles");
    }

    #[test]
    fn a_processor_shared_by_both_sides_is_reported() {
        let shared = |client, server, crowded| {
            judge(&Evidence { crowded, ..closed(client, Some(server)) }).0
        };
        assert_eq!(shared(0.47, 0.52, true), Verdict::ClientBound);
        assert_eq!(shared(0.47, 0.52, false), Verdict::Valid, "in turn, on two processors");
        assert_eq!(shared(0.10, 0.88, true), Verdict::Valid);
    }

    #[test]
    fn a_generator_without_a_processor_of_its_own_is_reported() {
        let waits = |client_waited, closed_model| {
            let evidence = Evidence { client_waited, ..closed(0.47, Some(0.52)) };
            judge(&Evidence { closed: closed_model, ..evidence })
        };
        let (verdict, reasons) = waits(0.45, true);
        assert_eq!((verdict, reasons.len()), (Verdict::ClientBound, 1));
        assert!(reasons[0].contains("for 45 % of the run"), "{reasons:?}");
        assert_eq!(waits(0.05, true).0, Verdict::Valid);
        assert_eq!(waits(0.45, false).0, Verdict::Valid, "the lag of an open run shows it");
    }

    #[test]
    fn a_full_link_is_reported() {
        let full = Evidence { link: Some((0.95e9, 1e9)), ..closed(0.2, None) };
        assert_eq!(judge(&full).0, Verdict::LinkBound);
    }
}
