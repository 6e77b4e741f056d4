//! The verdict: whether the figures of a run can be used.

mod evidence;
mod generator;
mod noise;
mod overdue;
mod rate;
mod stall;

pub use evidence::Evidence;
pub(crate) use noise::noise;

use crate::outcome::Verdict;

/// Returns the verdict, and a sentence for each reason against the figures.
#[must_use]
pub fn judge(evidence: &Evidence) -> (Verdict, Vec<String>) {
    let tests = [
        (Verdict::WrongResponses, invalid_responses(evidence)),
        (Verdict::Stalled, stall::stalled(evidence)),
        (Verdict::Stalled, stall::silent(evidence)),
        (Verdict::RateNotHeld, evidence.why_rate_not_held()),
        (Verdict::ClientBound, generator::client_bound(evidence)),
        (
            Verdict::ClientBound,
            generator::waited(evidence).or_else(|| generator::shared_processor(evidence)),
        ),
        (Verdict::LinkBound, link_bound(evidence)),
        (Verdict::Noisy, noise::noisy(evidence)),
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

fn link_bound(e: &Evidence) -> Option<String> {
    let (bits, speed) = e.link?;
    (bits > 0.9 * speed).then(|| {
        format!("{:.2} Gbit/s were received on a link of {:.2} Gbit/s", bits / 1e9, speed / 1e9)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the evidence of a closed run with this usage of processors.
    pub(super) fn closed(client: f64, server: Option<f64>) -> Evidence {
        Evidence {
            requests: 1000,
            closed: true,
            client_busy: client,
            server_busy: server,
            ..Evidence::default()
        }
    }

    #[test]
    fn responses_longer_than_the_run_are_no_error_at_a_modems_pace() {
        let paced = Evidence { closed: true, conforming: 3, ..Evidence::default() };
        assert_eq!(judge(&paced).0, Verdict::Valid);
        assert_eq!(judge(&Evidence { conforming: 0, ..paced }).0, Verdict::WrongResponses);
    }

    #[test]
    fn one_invalid_response_decides_the_verdict() {
        let (verdict, reasons) = judge(&Evidence { errors: 1, ..closed(0.99, Some(0.1)) });
        assert_eq!((verdict, reasons.len()), (Verdict::WrongResponses, 2));
        assert_eq!(judge(&Evidence::default()).0, Verdict::WrongResponses);
    }

    #[test]
    fn a_full_link_is_reported() {
        let full = Evidence { link: Some((0.95e9, 1e9)), ..closed(0.2, None) };
        assert_eq!(judge(&full).0, Verdict::LinkBound);
    }
}
