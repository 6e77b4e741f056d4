//! Request methods that a route allows.

use super::{CheckInput, Decision, Rejection};
use crate::config::MethodRules;

pub(super) fn check(rules: &MethodRules, input: &CheckInput<'_, '_>) -> Decision {
    if rules.allows(input.request.method_text()) {
        return Decision::Allow;
    }
    Decision::Reject(Rejection::new(405).with("Allow", rules.allow()))
}
