//! Findings.

use crate::engine::Tally;
use crate::outcome::{Finding, Outcome};

/// What stands out.
#[must_use]
pub fn findings(_: &Outcome, _: &Tally) -> Vec<Finding> {
    Vec::new()
}
