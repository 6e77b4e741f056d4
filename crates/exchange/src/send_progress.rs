//! Timeout of clients that receive nothing.

use dunlin_tls::Transport;

/// Progress of one client that receives.
///
/// Writes show little of it: the kernel accepts up to a megabyte ahead of a client, and reports room when a good part of that
/// is gone, which takes minutes with a slow client. So the unacknowledged bytes are checked four times per timeout.
#[derive(Debug, Clone, Copy, Default)]
pub struct SendProgress {
    /// Time of the last known progress, in milliseconds of the worker's clock.
    since: u64,
    /// Time of the next check.
    next_check: u64,
    /// Unacknowledged bytes at the last check.
    left: Option<u32>,
}

impl SendProgress {
    /// Starts the timeout of `limit` milliseconds for a client that was sent bytes at `now`.
    pub fn begin(now: u64, limit: u64) -> Self {
        Self { since: now, next_check: now + limit / 4, left: None }
    }

    /// Returns the time of the next check.
    pub fn next_check(&self) -> u64 {
        self.next_check
    }

    /// Returns `true` if the client has received nothing for `limit` milliseconds. Detects this a quarter later at the latest, and
    /// half of it if nothing was received at all: the first check finds out what was unacknowledged.
    pub fn has_timed_out(&mut self, stream: &Transport, now: u64, limit: u64) -> bool {
        if now < self.next_check {
            return false;
        }
        let left = stream.unacknowledged();
        if left.is_some() && left != self.left {
            self.left = left;
            self.since = now;
        }
        let end = self.since + limit;
        self.next_check = end.min(now + limit / 4).max(now + 1);
        now >= end
    }
}
