//! Reading at the pace of a modem, and whether the server keeps up with it.

/// One connection's pace. A window counts from the first byte on.
pub(super) struct Pace {
    /// Bytes per second.
    rate: u64,
    /// When the request was sent whose answer is being read.
    asked: u64,
    /// When its first byte came; 0 before.
    began: u64,
    /// Bytes read since then.
    read: u64,
    window_ends: u64,
    window_read: u64,
    late: bool,
    short: bool,
    windows: u32,
    /// For when the connection is to be woken.
    waits_until: u64,
}

/// A connection that conforms has had this share of its pace in each window.
const SHARE: f64 = 0.95;
/// A window, in nanoseconds: long enough that a packet more or less does not decide.
const WINDOW: u64 = 2_000_000_000;
/// The first byte has to come within this time, in nanoseconds.
const FIRST_BYTE: u64 = 3_000_000_000;
/// Reads are made when this much of a second's worth may be read: a packet at a modem's pace, which is half of the
/// window that the server sees, so that tens of thousands of users are no load for the generator: what a
/// read costs is the window's update, and the server's next packet.
const READS_PER_SECOND: u64 = 2;
/// Of a second's worth: less than that is no shortage, since packets and reads have other bounds.
const GRAIN: u64 = 10;

impl Pace {
    /// For a modem of so many bits per second.
    pub(super) fn new(bits_per_second: u64) -> Self {
        Self {
            rate: (bits_per_second / 8).max(1),
            asked: 0,
            began: 0,
            read: 0,
            window_ends: 0,
            window_read: 0,
            late: false,
            short: false,
            windows: 0,
            waits_until: 0,
        }
    }

    /// A request has been sent.
    pub(super) fn ask(&mut self, now: u64) {
        self.asked = now;
        self.waits_until = 0;
        self.began = 0;
        self.read = 0;
    }

    /// How much may be read now, or when there is something to read.
    pub(super) fn allowance(&self, now: u64) -> Result<usize, u64> {
        let step = (self.rate / READS_PER_SECOND).max(1);
        if self.began == 0 {
            return Ok(step as usize);
        }
        let due = |bytes: u64| {
            self.began + (u128::from(bytes) * 1_000_000_000 / u128::from(self.rate)) as u64
        };
        let next = due(self.read);
        if next <= now { Ok(step as usize) } else { Err(next) }
    }

    /// Whether a timer for that moment is still to be set: events come in between, and each would
    /// set one more that never ends.
    pub(super) fn begins_to_wait(&mut self, due: u64) -> bool {
        std::mem::replace(&mut self.waits_until, due) != due
    }

    /// That many bytes were read.
    pub(super) fn took(&mut self, now: u64, count: u64) {
        if self.began == 0 {
            self.began = now;
            self.late |= now.saturating_sub(self.asked) > FIRST_BYTE;
            if self.window_ends == 0 {
                self.window_ends = now + WINDOW;
            }
        }
        self.read += count;
        self.window_read += count;
        self.close_window(now, self.rate / GRAIN);
    }

    /// Between two answers no pace is owed.
    pub(super) fn answered(&mut self) {
        self.window_ends = 0;
        self.window_read = 0;
    }

    fn close_window(&mut self, now: u64, grain: u64) {
        if self.window_ends == 0 || now < self.window_ends {
            return;
        }
        let lasted = (now - (self.window_ends - WINDOW)) as f64 / 1e9;
        let read = (self.window_read + grain) as f64;
        self.short |= read < self.rate as f64 * lasted * SHARE;
        self.windows += 1;
        self.window_ends = now + WINDOW;
        self.window_read = 0;
    }

    /// At the end of the run: whether it conformed, and whether its first byte was late.
    pub(super) fn judge(&mut self, now: u64) -> (bool, bool) {
        // A read that is not due yet is not the server's.
        self.close_window(now, self.rate / READS_PER_SECOND);
        let never =
            self.began == 0 && self.asked != 0 && now.saturating_sub(self.asked) > FIRST_BYTE;
        let late = self.late || never;
        // Who has had no whole window has shown nothing.
        (!late && !self.short && self.windows > 0, late)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn reading_keeps_to_the_pace() {
        let mut pace = Pace::new(33_600);
        let (mut now, mut read) = (MS, 0);
        pace.ask(0);
        while now < 10_000 * MS {
            match pace.allowance(now) {
                Ok(most) => {
                    read += most as u64;
                    pace.took(now, most as u64);
                }
                Err(due) => now = due,
            }
        }
        let step = 4_200 / READS_PER_SECOND;
        assert!((42_000..=42_000 + step).contains(&read), "{read} bytes in ten seconds");
        assert_eq!(pace.judge(now), (true, false));
    }

    #[test]
    fn a_server_that_gives_too_little_or_too_late_is_seen() {
        let mut slow = Pace::new(33_600);
        slow.ask(0);
        for step in 1..60 {
            slow.took(step * 100 * MS, 300);
        }
        assert_eq!(slow.judge(6_000 * MS), (false, false));
        let mut late = Pace::new(33_600);
        late.ask(1);
        assert_eq!(late.judge(4_000 * MS), (false, true));
    }
}
