//! Whether the figures of a run may be used.

use crate::engine::Tally;
use crate::outcome::{Outcome, Verdict};

/// What a verdict is founded on.
pub struct Evidence {
    errors: u64,
}

impl Evidence {
    /// From what was told so far.
    #[must_use]
    pub fn of(outcome: &Outcome, _tally: &Tally) -> Self {
        Self { errors: outcome.errors }
    }
}

/// The verdict, and why.
#[must_use]
pub fn judge(evidence: &Evidence) -> (Verdict, Vec<String>) {
    if evidence.errors > 0 {
        (Verdict::WrongAnswers, Vec::new())
    } else {
        (Verdict::Valid, Vec::new())
    }
}
