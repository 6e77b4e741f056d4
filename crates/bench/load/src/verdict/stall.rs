//! Servers that stop responding, or pause.

use super::evidence::Evidence;

/// Age of a stalled request in flight at the end, as a multiple of the slowest service time.
const STALL_FACTOR: f64 = 5.0;
/// Smallest age of a stalled request, in milliseconds.
const LEAST_STALL: f64 = 100.0;
/// Share of silent time from which on the percentiles of a closed run are misleading.
const SILENT_SHARE: f64 = 0.1;

pub(super) fn stalled(e: &Evidence) -> Option<String> {
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

pub(super) fn silent(e: &Evidence) -> Option<String> {
    let silence = e.silence.as_ref().filter(|silence| e.closed && silence.share >= SILENT_SHARE)?;
    Some(format!(
        "the server was silent {}, for {:.0} % of the run and up to {:.0} ms; the percentiles of a closed run hide that: use --rate",
        silence.occurrences(),
        silence.share * 100.0,
        silence.longest_ms
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::Verdict;
    use crate::silence::Silence;
    use crate::verdict::judge;
    use crate::verdict::tests::closed;

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
}
