//! Access by client address.

use dunlin_config::AccessRules;

use super::{CheckInput, Decision, Rejection};

pub(super) fn check(rules: &AccessRules, input: &CheckInput<'_, '_>) -> Decision {
    if rules.allows(input.context.client.address.ip()) {
        return Decision::Allow;
    }
    Decision::Reject(Rejection::new(403))
}
