//! The rate of an open run: how far it was held, and what it met.

use super::evidence::Evidence;
use super::generator::{BUSY, SERVER_BUSY};
use super::overdue::LEAST_WAIT;
use crate::outcome::RateLimit;

/// Share of the arrivals that may wait at the end although the rate was held.
const BACKLOG_SHARE: f64 = 0.02;

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
                format!("the generator used {:.0} % of its CPUs", e.client_busy * 100.0)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Quarter;
    use crate::engine::Tally;
    use crate::outcome::Verdict;
    use crate::verdict::judge;
    use crate::verdict::overdue::overdue;

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
}
