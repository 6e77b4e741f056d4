//! How long a client may take nothing of what is sent.

use crate::transport::Transport;

/// The time of one client to take something.
///
/// Writing tells little of that: the kernel takes up to a megabyte ahead of a client, and tells of room when a good part
/// of that is gone, which takes a slow one minutes. So it is asked what the client has not acknowledged,
/// four times in the time that there is.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Patience {
    /// Since when nothing is known to have been taken, in milliseconds of the worker's clock.
    since: u64,
    /// When to look, of the same clock.
    look: u64,
    /// Bytes that were not acknowledged at the last look.
    left: Option<u32>,
}

impl Patience {
    /// The client, which has just been sent something, has `limit` milliseconds from `now` on.
    pub(super) fn begin(now: u64, limit: u64) -> Self {
        Self { since: now, look: now + limit / 4, left: None }
    }

    /// When to ask whether it is over.
    pub(super) fn look(&self) -> u64 {
        self.look
    }

    /// Whether the client has taken nothing for `limit` milliseconds. Found a quarter later at the latest, and half of it
    /// when nothing was taken at all: what was there at first is known from the first look.
    pub(super) fn is_over(&mut self, stream: &Transport, now: u64, limit: u64) -> bool {
        if now < self.look {
            return false;
        }
        let left = stream.unacknowledged();
        if left.is_some() && left != self.left {
            self.left = left;
            self.since = now;
        }
        let end = self.since + limit;
        self.look = end.min(now + limit / 4).max(now + 1);
        now >= end
    }
}
