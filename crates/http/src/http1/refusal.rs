//! Why a message is refused.

/// A message that is not served: the status that says so, and the reason for the log.
///
/// After most refusals the connection has to be closed, because where the next request begins
/// cannot be known any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refusal {
    /// The status of the answer.
    pub status: u16,
    /// What was wrong, in a few words.
    pub reason: &'static str,
}

impl Refusal {
    pub(crate) const fn new(status: u16, reason: &'static str) -> Self {
        Self { status, reason }
    }

    /// A message that cannot be read: 400.
    pub(crate) const fn bad(reason: &'static str) -> Self {
        Self::new(400, reason)
    }
}
