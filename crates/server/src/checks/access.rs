//! Access by client address.

use super::{CheckInput, Decision, Rejection};
use crate::config::AccessRules;

pub(super) fn check(rules: &AccessRules, input: &CheckInput<'_, '_>) -> Decision {
    if rules.allows(input.context.client.address.ip()) {
        return Decision::Allow;
    }
    Decision::Reject(Rejection::new(403))
}
