//! The retry policy of all workers.
//!
//! A request that may have begun is never run twice, unless its method is idempotent (RFC 9110 §9.2.2):
//!
//! | what happened | the request goes to another worker |
//! | --- | --- |
//! | the worker could not be reached, or nothing could be written to it | always, once |
//! | the worker rejected the request before it began (FastCGI's overload) | when the server still has all of it, once |
//! | the worker was lost before the first byte of its response | when the server still has all of it and the method is idempotent, once |
//! | anything else: a response has begun, a time limit has passed | never |
//!
//! The server has all of a request as long as no part of its body was taken from the client's stream to be written. A request that
//! was rejected and then lost is not sent a third time.

use super::super::failure::Failure;

/// The retries that one request has left.
#[derive(Debug, Default)]
pub(super) struct Retries {
    /// It was sent again after a worker that could not be reached.
    unreached: bool,
    /// It was sent again after a worker that had it.
    sent: bool,
}

impl Retries {
    /// Returns `true` if the request may be sent again after `failure`, which then counts. `is_whole`: the server has all of the
    /// request.
    pub(super) fn allow(&mut self, failure: &Failure, is_whole: bool, is_idempotent: bool) -> bool {
        let used = match failure {
            Failure::NotSent(_) => &mut self.unreached,
            Failure::Rejected(_) if is_whole => &mut self.sent,
            Failure::Lost(_) if is_whole && is_idempotent => &mut self.sent,
            _ => return false,
        };
        !std::mem::replace(used, true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn not_sent() -> Failure {
        Failure::NotSent("connection refused".into())
    }

    fn rejected() -> Failure {
        Failure::Rejected("overloaded".into())
    }

    fn lost() -> Failure {
        Failure::Lost("connection closed".into())
    }

    #[test]
    fn a_request_that_was_not_sent_is_retried_once_whatever_its_method() {
        let mut retries = Retries::default();
        assert!(retries.allow(&not_sent(), false, false));
        assert!(!retries.allow(&not_sent(), true, true));
    }

    #[test]
    fn a_rejected_request_is_retried_when_it_is_whole() {
        assert!(Retries::default().allow(&rejected(), true, false));
        assert!(!Retries::default().allow(&rejected(), false, true));
    }

    #[test]
    fn a_lost_request_is_retried_when_it_is_whole_and_idempotent() {
        assert!(Retries::default().allow(&lost(), true, true));
        assert!(!Retries::default().allow(&lost(), true, false), "it may have begun");
        assert!(!Retries::default().allow(&lost(), false, true), "its body is gone");
    }

    #[test]
    fn a_request_is_sent_to_two_workers_at_most() {
        let mut retries = Retries::default();
        assert!(retries.allow(&rejected(), true, true));
        assert!(!retries.allow(&lost(), true, true));
        assert!(retries.allow(&not_sent(), true, true), "it was not sent to this one");
        assert!(!retries.allow(&not_sent(), true, true));
    }

    #[test]
    fn a_request_whose_response_has_begun_is_not_retried() {
        let failures = [
            Failure::Malformed("no header".into()),
            Failure::Late("timeout"),
            Failure::Abandoned,
            Failure::Failed(String::new()),
            Failure::Busy,
            Failure::Unreachable("down".into()),
        ];
        for failure in failures {
            assert!(!Retries::default().allow(&failure, true, true), "{failure:?}");
        }
    }
}
