//! Generators that are the limit, or lack a processor.

use super::evidence::Evidence;

/// Share of a processor from which on a worker is at its limit.
pub(super) const BUSY: f64 = 0.95;
/// Share of a processor below which a server is not at its limit.
pub(super) const SERVER_BUSY: f64 = 0.85;
/// Delay in milliseconds below which it is attributed to timers and the scheduler.
const LEAST_LAG: f64 = 1.0;
/// Share of the response time from which on the generator's delay invalidates it.
const LAG_SHARE: f64 = 0.25;
/// Share of the run from which on the generator's wait for a processor lowers its rate.
const WAITED: f64 = 0.25;
/// Share of one processor that generator and server use together if they share it.
const SHARED: std::ops::RangeInclusive<f64> = 0.9..=1.1;

pub(super) fn client_bound(e: &Evidence) -> Option<String> {
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
            "the generator used {:.0} % of its CPUs while the server used {:.0} % of one: requests/s is a lower bound",
            e.client_busy * 100.0,
            busy * 100.0
        ),
        None => format!(
            "the generator used {:.0} % of its CPUs: requests/s is a lower bound",
            e.client_busy * 100.0
        ),
    })
}

/// Returns the server or other programs use the generator's processor, which lowers the rate of a closed run.
pub(super) fn waited(e: &Evidence) -> Option<String> {
    let waits = e.closed && e.client_waited >= WAITED;
    waits.then(|| {
        format!(
            "the generator waited for a CPU for {:.0} % of the run, since the server or other programs used it: {}; requests/s is a lower bound",
            e.client_waited * 100.0,
            advice(e)
        )
    })
}

/// Neither side is at its limit, since both use the same processor.
pub(super) fn shared_processor(e: &Evidence) -> Option<String> {
    let server = e.server_busy?;
    let shared = e.crowded
        && e.client_busy < SERVER_BUSY
        && server < SERVER_BUSY
        && SHARED.contains(&(e.client_busy + server));
    shared.then(|| {
        format!(
            "the generator used {:.0} % and the server {:.0} % of one CPU, together all of it: {}; requests/s is a lower bound",
            e.client_busy * 100.0,
            server * 100.0,
            advice(e)
        )
    })
}

/// Returns the advice to a generator that lacks a processor.
fn advice(e: &Evidence) -> &'static str {
    match e.is_bound {
        true => "stop the other programs",
        false => "bind them to different ones (taskset)",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::Verdict;
    use crate::verdict::judge;
    use crate::verdict::tests::closed;

    #[test]
    fn the_generator_is_the_limit_only_if_the_server_is_not() {
        assert_eq!(judge(&closed(0.99, Some(0.5))).0, Verdict::ClientBound);
        assert_eq!(judge(&closed(0.99, Some(0.98))).0, Verdict::Valid);
        assert_eq!(judge(&closed(0.99, None)).0, Verdict::ClientBound);
        assert_eq!(judge(&closed(0.60, Some(0.5))).0, Verdict::Valid);
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
}
