//! The check of the rate limits.

use std::sync::Arc;

use dunlin_config::RateKey;
use dunlin_limits::rate::{RateLimit, RateStatus, seconds};

use super::{CheckInput, Decision, Rejection};

/// Checks all rate limits of a route. The first one that is exceeded rejects the request.
pub(super) fn check(limits: &[Arc<RateLimit>], input: &CheckInput<'_, '_>) -> Decision {
    for limit in limits {
        let status = count(limit, input);
        if status.allowed && !limit.rules().sends_fields {
            continue;
        }
        let (policy, state) = (limit.policy(), limit.state(&status));
        if status.allowed {
            input.context.add_field("RateLimit-Policy", policy);
            input.context.add_field("RateLimit", state);
            continue;
        }
        let rejection = Rejection::new(limit.rules().status)
            .with("Retry-After", seconds(status.retry).to_string())
            .with("RateLimit-Policy", policy)
            .with("RateLimit", state);
        return Decision::Reject(rejection);
    }
    Decision::Allow
}

/// Counts a request by the key of the limit.
fn count(limit: &RateLimit, input: &CheckInput<'_, '_>) -> RateStatus {
    let (address, now) = (|| input.context.client.address.network(), input.now);
    match &limit.rules().by {
        RateKey::Address => limit.request(address(), now),
        RateKey::Route => limit.request((), now),
        RateKey::User => match input.context.user() {
            Some(user) => limit.request(user, now),
            None => limit.request(address(), now),
        },
        RateKey::Header(name) => match field(input, name) {
            Some(value) => limit.request(value, now),
            None => limit.request(address(), now),
        },
    }
}

/// Returns the value of the request's first field of that name.
fn field<'a>(input: &CheckInput<'a, '_>, name: &str) -> Option<&'a [u8]> {
    let mut fields = input.request.fields();
    fields.find(|(other, _)| other.eq_ignore_ascii_case(name.as_bytes())).map(|(_, value)| value)
}
