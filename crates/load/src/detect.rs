//! What stands out in the figures, and its likely cause.

use hdrhistogram::Histogram;

use crate::engine::{MIN_RECEIVE_BUFFER, Tally};
use crate::outcome::{Finding, Outcome, Second};
use crate::plan::Reuse;
use crate::silence::Silence;

/// Everything that stands out in a run.
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
    let asked = f64::from(outcome.plan.pipeline);
    if asked > 1.0 && outcome.connections.depth_mean < asked * 0.9 {
        found.push(finding(
            "pipeline-not-reached",
            format!(
                "{:.1} requests were in flight where {asked} were asked for: answers come one by one, or the server closes early.",
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

/// More than this share of all answers near a fixed delay is no accident.
const SHARE: f64 = 0.01;
/// A mode has this many times as many samples as its surroundings.
const PROMINENCE: u64 = 4;
const MS: u64 = 1_000_000;

/// Service times that gather at 40 or at 200 milliseconds.
#[must_use]
pub fn delayed_ack(service: &Histogram<u64>) -> Option<Finding> {
    let modes = [(38 * MS, 48 * MS, "40"), (198 * MS, 212 * MS, "200")];
    modes.into_iter().find_map(|(from, to, name)| {
        let share = mode(service, from, to)?;
        Some(finding(
            "delayed-ack",
            format!(
                "{:.1} % of the answers took about {name} ms. That is most likely a delayed acknowledgement (RFC 1122 §4.2.3.2), unless the server waits that long on purpose: one side sends a message in two small packets and waits for the first to be acknowledged. Look for a head and a body written apart without TCP_NODELAY.",
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
    // Between the windows there is nothing when packets were lost; a slow server fills all of it.
    let between =
        connect.count_between(500 * MS, 940 * MS) + connect.count_between(1_500 * MS, 2_800 * MS);
    (late > 0 && late >= PROMINENCE * between).then(|| {
        finding(
            "dropped-syn",
            format!(
                "{late} connections took about 1, 3 or 7 s. The first packet was lost and sent again: the server's backlog overflowed. A larger backlog, or a faster accept, helps; `nstat -az TcpExtListenDrops` counts them."
            ),
        )
    })
}

/// The share of all samples within the window, when it is a mode: prominent, and more than a few.
fn mode(samples: &Histogram<u64>, from: u64, to: u64) -> Option<f64> {
    let width = to - from;
    let within = samples.count_between(from, to);
    let below = samples.count_between(from - width.min(from), from - 1);
    let above = samples.count_between(to + 1, to + width);
    let share = within as f64 / samples.len().max(1) as f64;
    (within >= 5 && share >= SHARE && within >= PROMINENCE * below.max(above)).then_some(share)
}

/// Whole seconds in which next to nothing was answered.
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
    // Half of all being slow is not a stall but the way the server is.
    (stalled.len() * 3 <= whole.len()).then(|| {
        let period = period(&stalled).map_or(String::new(), |seconds| format!(", each {seconds:.0} s"));
        finding(
            "stall",
            format!(
                "in {} of {} seconds less than a tenth of the usual number was answered (first at {first:.0} s{period}). Look for a pause of the server: a collection of garbage, a log that is rotated, a disk that is written to.",
                stalled.len(),
                whole.len()
            ),
        )
    })
}

/// Silent times of the server that are more than a moment.
#[must_use]
pub fn silence(silence: &Silence) -> Option<Finding> {
    let notable = silence.share >= 0.02 || silence.longest_ms >= 200.0;
    notable.then(|| {
        finding(
            "stall",
            format!(
                "{} times no response came on any connection, for up to {:.1} s and {:.0} % of the run (first at {:.1} s). Look for a pause of the server: a collection of garbage, a log that is rotated, a disk that is written to.",
                silence.times,
                silence.longest_ms / 1e3,
                silence.share * 100.0,
                silence.first_at
            ),
        )
    })
}

/// The distance between times, when it is the same for all.
fn period(times: &[f64]) -> Option<f64> {
    let gaps: Vec<f64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let (least, most) = gaps
        .iter()
        .fold((f64::INFINITY, 0.0_f64), |(least, most), gap| (least.min(*gap), most.max(*gap)));
    (gaps.len() >= 2 && least >= 2.0 && most - least <= 1.0)
        .then(|| gaps.iter().sum::<f64>() / gaps.len() as f64)
}

/// Connections that were answered much less often than others.
#[must_use]
pub fn starved(each: &[u64]) -> Option<Finding> {
    let mean = each.iter().sum::<u64>() / each.len().max(1) as u64;
    let starved = each.iter().filter(|&&count| count * 10 < mean).count();
    (each.len() >= 4 && mean >= 20 && starved > 0).then(|| {
        finding(
            "starved-connections",
            format!(
                "{starved} of {} connections got less than a tenth of the mean of {mean} answers. The server prefers some: look at how it spreads connections over its workers.",
                each.len()
            ),
        )
    })
}

fn not_kept(outcome: &Outcome) -> Option<Finding> {
    let answers: u64 = outcome.status.values().sum();
    let closed = outcome.connections.closed_by_server;
    (answers >= 20 && closed * 2 >= answers).then(|| {
        finding(
            "not-kept",
            format!(
                "the server closed {closed} connections for {answers} answers although they were to be kept: the figures are those of new connections."
            ),
        )
    })
}

/// A server that can send many seconds ahead at a modem's pace, and so is done with its users before they are.
#[must_use]
pub fn wide_window(window: u32, bits_per_second: u64) -> Option<Finding> {
    let seconds = f64::from(window) * 8.0 / bits_per_second.max(1) as f64;
    // What follows from the smallest buffer cannot be helped.
    (window as usize > 2 * MIN_RECEIVE_BUFFER && seconds > 2.0).then(|| {
        finding(
            "wide-window",
            format!(
                "the server can send {window} bytes ahead, {seconds:.0} s at this pace: it does not feel a modem at the other end. The system has granted larger receive buffers than were asked for."
            ),
        )
    })
}

/// What stands out in a curve of load and throughput, in the order of load: where it stops growing, and where
/// it breaks down.
#[must_use]
pub fn curve(points: &[(f64, f64)]) -> Vec<Finding> {
    let mut found = Vec::new();
    let Some(best) = (0..points.len()).max_by(|&a, &b| points[a].1.total_cmp(&points[b].1)) else {
        return found;
    };
    let most = points[best].1;
    // The knee: the least load that gives nine tenths of the most there is, when half as much again, or more,
    // gives no more than a tenth; on a straight line that is its last stretch only.
    if let Some((load, value)) = points.iter().find(|(_, value)| *value >= 0.9 * most)
        && points.last().is_some_and(|(last, _)| *last >= 1.5 * load)
    {
        found.push(finding(
            "knee",
            format!("from {load} on it hardly grows: {value:.0} of at most {most:.0}."),
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
    fn a_window_of_many_seconds_is_no_modem() {
        assert_eq!(
            wide_window(65_536, 33_600).map(|found| found.kind).as_deref(),
            Some("wide-window")
        );
        assert!(wide_window(65_536, 10_000_000).is_none());
        // A buffer cannot be made smaller.
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
    fn a_second_without_answers_is_a_stall_and_its_period_is_told() {
        let series = |stalled: &[usize]| -> Vec<Second> {
            let second = |n: usize| Second {
                at: n as f64,
                length: 1.0,
                requests: if stalled.contains(&n) { 3 } else { 1000 },
                ..Second::default()
            };
            (0..20).map(second).collect()
        };
        assert!(stalls(&series(&[2, 7, 12, 17])).unwrap().text.contains("each 5 s"));
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
                .contains("up to 1.4 s and 1 % of the run (first at 0.3 s)")
        );
        assert!(of(30.0, 0.05).is_some());
        assert_eq!(of(30.0, 0.005), None);
    }

    #[test]
    fn connections_that_hardly_get_anything_are_starved() {
        assert!(starved(&[100, 100, 2, 100]).is_some());
        assert_eq!(starved(&[100, 80, 60, 120]), None);
        assert_eq!(starved(&[1, 0, 2, 1]), None);
    }

    #[test]
    fn knee_and_cliff_of_a_curve_are_told() {
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
