//! Findings: anomalies in a measurement, and their likely causes.

use hdrhistogram::Histogram;

use crate::engine::{MIN_RECEIVE_BUFFER, Tally};
use crate::outcome::{Finding, Outcome, Second};
use crate::plan::{Model, Reuse};
use crate::silence::Silence;

/// Returns all findings of a run.
#[must_use]
pub fn findings(outcome: &Outcome, tally: &Tally) -> Vec<Finding> {
    let mut found = Vec::new();
    found.extend(delayed_ack(&tally.service));
    found.extend(dropped_syn(&tally.connect));
    found.extend(stalls(&outcome.series).or_else(|| outcome.silence.as_ref().and_then(silence)));
    if outcome.plan.reuse == Reuse::Kept {
        found.extend(starved(&tally.each));
        found.extend(not_kept(outcome));
    }
    found.extend(lost(outcome));
    found.extend(streams_not_reached(outcome));
    let requested = f64::from(outcome.plan.pipeline);
    if requested > 1.0 && outcome.connections.depth_mean < requested * 0.9 {
        found.push(finding(
            "pipeline-not-reached",
            format!(
                "{:.1} requests were in flight where {requested} were requested: the server sends responses one by one, or closes early.",
                outcome.connections.depth_mean
            ),
        ));
    }
    if let (Some(bits), Some(window)) =
        (outcome.plan.modem_bits_per_second, outcome.connections.receive_window)
    {
        found.extend(wide_window(window, bits));
    }
    found
}

/// Share of all responses near a fixed delay from which on it is a finding.
const SHARE: f64 = 0.01;
/// Factor by which a mode exceeds its surroundings.
const PROMINENCE: u64 = 4;
const MS: u64 = 1_000_000;

/// Returns a cluster of service times at 40 or 200 milliseconds.
#[must_use]
pub fn delayed_ack(service: &Histogram<u64>) -> Option<Finding> {
    let modes = [(38 * MS, 48 * MS, "40"), (198 * MS, 212 * MS, "200")];
    modes.into_iter().find_map(|(from, to, name)| {
        let share = mode(service, from, to)?;
        Some(finding(
            "delayed-ack",
            format!(
                "{:.1} % of the responses took about {name} ms. The likely cause is a delayed acknowledgement (RFC 1122 §4.2.3.2), unless the server waits that long on purpose: one side sends a message in two small packets and waits for the acknowledgement of the first. Look for a head and a body in separate writes without TCP_NODELAY.",
                share * 100.0
            ),
        ))
    })
}

/// Connections that took about 1, 3 or 7 seconds.
#[must_use]
pub fn dropped_syn(connect: &Histogram<u64>) -> Option<Finding> {
    let windows = [(980, 1_300), (2_950, 3_400), (6_900, 7_600)];
    let late: u64 =
        windows.iter().map(|(from, to)| connect.count_between(from * MS, to * MS)).sum();
    // Lost packets leave gaps between the windows; a slow server fills them.
    let between =
        connect.count_between(500 * MS, 940 * MS) + connect.count_between(1_500 * MS, 2_800 * MS);
    (late > 0 && late >= PROMINENCE * between).then(|| {
        finding(
            "dropped-syn",
            format!(
                "{late} connections took about 1, 3 or 7 s. The first packet was lost and retransmitted: the server's backlog overflowed. A larger backlog or a faster accept helps; `nstat -az TcpExtListenDrops` counts them."
            ),
        )
    })
}

/// Returns the share of samples within the window, if it is a mode: prominent, and not only a few.
fn mode(samples: &Histogram<u64>, from: u64, to: u64) -> Option<f64> {
    let width = to - from;
    let within = samples.count_between(from, to);
    let below = samples.count_between(from - width.min(from), from - 1);
    let above = samples.count_between(to + 1, to + width);
    let share = within as f64 / samples.len().max(1) as f64;
    (within >= 5 && share >= SHARE && within >= PROMINENCE * below.max(above)).then_some(share)
}

/// Seconds with almost no responses.
#[must_use]
pub fn stalls(series: &[Second]) -> Option<Finding> {
    let whole: Vec<&Second> = series.iter().filter(|second| second.length >= 0.999).collect();
    if whole.len() < 4 {
        return None;
    }
    let mut counts: Vec<u64> = whole.iter().map(|second| second.requests).collect();
    counts.sort_unstable();
    let usual = counts[counts.len() / 2];
    let stalled: Vec<f64> = whole
        .iter()
        .filter(|second| second.requests * 10 < usual)
        .map(|second| second.at)
        .collect();
    let first = stalled.first()?;
    // If half of all seconds are slow, it is not a stall.
    (stalled.len() * 3 <= whole.len()).then(|| {
        let period = period(&stalled).map_or(String::new(), |seconds| format!(", every {seconds:.0} s"));
        finding(
            "stall",
            format!(
                "in {} of {} seconds there was less than a tenth of the usual number of responses (first at {first:.0} s{period}). Look for pauses of the server: garbage collection, log rotation, writes to disk.",
                stalled.len(),
                whole.len()
            ),
        )
    })
}

/// Longer pauses of the server.
#[must_use]
pub fn silence(silence: &Silence) -> Option<Finding> {
    let notable = silence.share >= 0.02 || silence.longest_ms >= 200.0;
    notable.then(|| {
        finding(
            "stall",
            format!(
                "there was no response on any connection {}, for up to {:.0} ms and {:.0} % of the run (first at {:.1} s). Look for pauses of the server: garbage collection, log rotation, writes to disk.",
                silence.occurrences(),
                silence.longest_ms,
                silence.share * 100.0,
                silence.first_at
            ),
        )
    })
}

/// Returns the period of the times, if they are regular.
fn period(times: &[f64]) -> Option<f64> {
    let gaps: Vec<f64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let (least, max) = gaps
        .iter()
        .fold((f64::INFINITY, 0.0_f64), |(least, max), gap| (least.min(*gap), max.max(*gap)));
    (gaps.len() >= 2 && least >= 2.0 && max - least <= 1.0)
        .then(|| gaps.iter().sum::<f64>() / gaps.len() as f64)
}

/// Connections with far fewer responses than others.
#[must_use]
pub fn starved(each: &[u64]) -> Option<Finding> {
    let mean = each.iter().sum::<u64>() / each.len().max(1) as u64;
    let starved = each.iter().filter(|&&count| count * 10 < mean).count();
    (each.len() >= 4 && mean >= 20 && starved > 0).then(|| {
        finding(
            "starved-connections",
            format!(
                "{starved} of {} connections received less than a tenth of the mean of {mean} responses. The server prefers some connections: look at how it distributes them over its workers.",
                each.len()
            ),
        )
    })
}

fn not_kept(outcome: &Outcome) -> Option<Finding> {
    let responses: u64 = outcome.status.values().sum();
    let closed = outcome.connections.closed_by_server;
    (responses >= 20 && closed * 2 >= responses).then(|| {
        finding(
            "not-kept",
            format!(
                "the server closed {closed} connections for {responses} responses, although they were to be kept: the measurement is of new connections."
            ),
        )
    })
}

/// Requests that were lost with connections that had served others.
fn lost(outcome: &Outcome) -> Option<Finding> {
    let lost = outcome.sent_again.lost;
    (lost > 0).then(|| {
        finding(
            "lost-connections",
            format!(
                "{lost} requests were sent again, since a connection that had served others ended before the first byte of their response. A reload of the server, or its limit of idle time, does that to requests that cross it; a server that crashes does it too."
            ),
        )
    })
}

/// Fewer streams of HTTP/2 at a time than requested, in a run that always has a next request.
fn streams_not_reached(outcome: &Outcome) -> Option<Finding> {
    let (requested, mean) = (f64::from(outcome.plan.streams), outcome.connections.depth_mean);
    let always = matches!(outcome.plan.model, Model::Closed { think_seconds: 0.0 });
    (always && requested > 1.0 && mean > 0.0 && mean < requested * 0.9).then(|| {
        finding(
            "streams-not-reached",
            format!(
                "{mean:.1} streams were in flight on a connection where {requested} were requested: the server permits fewer (SETTINGS_MAX_CONCURRENT_STREAMS), or closes connections early."
            ),
        )
    })
}

/// Returns a receive window that holds many seconds of data at a modem's pace, so that the server finishes long before its
/// users.
#[must_use]
pub fn wide_window(window: u32, bits_per_second: u64) -> Option<Finding> {
    let seconds = f64::from(window) * 8.0 / bits_per_second.max(1) as f64;
    // The smallest buffer cannot be reduced.
    (window as usize > 2 * MIN_RECEIVE_BUFFER && seconds > 2.0).then(|| {
        finding(
            "wide-window",
            format!(
                "the server can send {window} bytes ahead, {seconds:.0} s at this pace: it does not experience a modem at the other end. The system granted larger receive buffers than requested."
            ),
        )
    })
}

/// Findings in a curve of throughput over load: where it stops growing, and where it breaks down.
#[must_use]
pub fn curve(points: &[(f64, f64)]) -> Vec<Finding> {
    let mut found = Vec::new();
    let Some(best) = (0..points.len()).max_by(|&a, &b| points[a].1.total_cmp(&points[b].1)) else {
        return found;
    };
    let max = points[best].1;
    // The knee: the lowest load with nine tenths of the maximum, if half as much load again, or more, adds no more than a
    // tenth. On a straight line only the last part would qualify.
    if let Some((load, value)) = points.iter().find(|(_, value)| *value >= 0.9 * max)
        && points.last().is_some_and(|(last, _)| *last >= 1.5 * load)
    {
        found.push(finding(
            "knee",
            format!("from {load} on it hardly grows: {value:.0} of at most {max:.0}."),
        ));
    }
    let cliff = points[best..].windows(2).find(|pair| pair[1].1 < 0.6 * pair[0].1);
    if let Some([before, after]) = cliff {
        found.push(finding(
            "cliff",
            format!(
                "between {} and {} it breaks down from {:.0} to {:.0}.",
                before.0, after.0, before.1, after.1
            ),
        ));
    }
    found
}

fn finding(kind: &str, text: String) -> Finding {
    Finding { kind: kind.to_owned(), text }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::SplitMix64;

    fn samples(times_ms: impl IntoIterator<Item = f64>) -> Histogram<u64> {
        let mut samples = Histogram::new_with_bounds(1, 3_600_000_000_000, 3).unwrap();
        times_ms.into_iter().for_each(|ms| samples.saturating_record((ms * 1e6) as u64));
        samples
    }

    fn exponential(mean: f64, count: usize) -> Vec<f64> {
        let mut rng = SplitMix64::new(1);
        (0..count).map(|_| -(1.0 - rng.next_f64()).ln() * mean).collect()
    }

    #[test]
    fn a_window_of_many_seconds_is_a_finding() {
        assert_eq!(
            wide_window(65_536, 33_600).map(|found| found.kind).as_deref(),
            Some("wide-window")
        );
        assert!(wide_window(65_536, 10_000_000).is_none());
        // The smallest buffer.
        assert!(wide_window(4_608, 2_400).is_none());
    }

    #[test]
    fn a_mode_at_40_ms_is_a_delayed_ack_and_a_slow_server_is_not() {
        let mut times = exponential(0.5, 1000);
        times.extend((0..50).map(|n| 40.0 + f64::from(n) * 0.05));
        assert_eq!(delayed_ack(&samples(times)).unwrap().kind, "delayed-ack");
        assert_eq!(delayed_ack(&samples((0..50).map(|_| 204.0))).unwrap().kind, "delayed-ack");
        assert_eq!(delayed_ack(&samples(exponential(40.0, 10_000))), None);
        assert_eq!(delayed_ack(&samples(exponential(0.5, 10_000))), None);
    }

    #[test]
    fn connects_at_one_three_and_seven_seconds_are_dropped_packets() {
        let mut times = exponential(0.2, 100);
        times.extend([1010.0, 3020.0, 7100.0]);
        assert_eq!(dropped_syn(&samples(times)).unwrap().kind, "dropped-syn");
        assert_eq!(dropped_syn(&samples(exponential(1000.0, 1000))), None);
        assert_eq!(dropped_syn(&samples(exponential(0.2, 1000))), None);
    }

    #[test]
    fn a_second_without_responses_is_a_stall_with_its_period() {
        let series = |stalled: &[usize]| -> Vec<Second> {
            let second = |n: usize| Second {
                at: n as f64,
                length: 1.0,
                requests: if stalled.contains(&n) { 3 } else { 1000 },
                ..Second::default()
            };
            (0..20).map(second).collect()
        };
        assert!(stalls(&series(&[2, 7, 12, 17])).unwrap().text.contains("every 5 s"));
        assert!(!stalls(&series(&[2, 3])).unwrap().text.contains("each"));
        assert_eq!(stalls(&series(&[])), None);
    }

    #[test]
    fn a_pause_shorter_than_a_second_is_a_stall() {
        let of =
            |longest_ms, share| silence(&Silence { times: 1, share, longest_ms, first_at: 0.3 });
        assert!(
            of(1400.0, 0.01)
                .unwrap()
                .text
                .contains("up to 1400 ms and 1 % of the run (first at 0.3 s)")
        );
        assert!(of(30.0, 0.05).is_some());
        assert_eq!(of(30.0, 0.005), None);
    }

    #[test]
    fn connections_with_few_responses_are_starved() {
        assert!(starved(&[100, 100, 2, 100]).is_some());
        assert_eq!(starved(&[100, 80, 60, 120]), None);
        assert_eq!(starved(&[1, 0, 2, 1]), None);
    }

    #[test]
    fn knee_and_cliff_of_a_curve_are_found() {
        let kinds = |points: &[(f64, f64)]| {
            curve(points).into_iter().map(|finding| finding.kind).collect::<Vec<_>>()
        };
        let broken =
            [(1.0, 100.0), (2.0, 200.0), (4.0, 390.0), (8.0, 400.0), (16.0, 395.0), (32.0, 90.0)];
        assert_eq!(kinds(&broken), ["knee", "cliff"]);
        let straight = |step: usize| -> Vec<(f64, f64)> {
            (1..=100).step_by(step).map(|n| (n as f64, n as f64 * 50.0)).collect()
        };
        assert_eq!(kinds(&straight(25)), Vec::<String>::new());
        assert_eq!(kinds(&straight(1)), Vec::<String>::new());
    }
}
