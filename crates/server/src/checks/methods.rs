//! Request methods that a route allows.

use dunlin_config::MethodRules;

use super::{CheckInput, Decision, Rejection};

pub(super) fn check(rules: &MethodRules, input: &CheckInput<'_, '_>) -> Decision {
    if rules.allows(input.request.equivalent_method()) {
        return Decision::Allow;
    }
    Decision::Reject(Rejection::new(405).with("Allow", rules.allow()))
}
