//! Reading at the pace of a modem, and the check that the server keeps up.

/// The pace of a connection. Windows of measurement begin with the first byte of a response.
pub(super) struct Pace {
    /// Bytes per second.
    rate: u64,
    /// Time when the request was sent.
    requested: u64,
    /// Time of the first byte of its response; 0 before.
    began: u64,
    /// Bytes of the response that were read.
    read: u64,
    window_ends: u64,
    window_read: u64,
    late: bool,
    short: bool,
    windows: u32,
    /// Time of the timer that is set.
    waits_until: u64,
}

/// Share of the pace that a conforming connection receives in each window.
const SHARE: f64 = 0.95;
/// Length of a window in nanoseconds: long enough that a single packet is not decisive.
const WINDOW: u64 = 2_000_000_000;
/// Limit for the first byte, in nanoseconds.
const FIRST_BYTE: u64 = 3_000_000_000;
/// Reads per second at full pace. At a modem's pace this is one packet per read and half of the receive window, so that tens
/// of thousands of users are no load for the generator.
const READS_PER_SECOND: u64 = 2;
/// Tolerance of a window, as the inverse share of a second: packets and reads do not align with windows.
const GRAIN: u64 = 10;

impl Pace {
    /// Creates the pace of a modem with that bit rate.
    pub(super) fn new(bits_per_second: u64) -> Self {
        Self {
            rate: (bits_per_second / 8).max(1),
            requested: 0,
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

    /// Records that a request was sent.
    pub(super) fn request(&mut self, now: u64) {
        self.requested = now;
        self.waits_until = 0;
        self.began = 0;
        self.read = 0;
    }

    /// Returns the bytes that can be read now.
    ///
    /// # Errors
    /// The time of the next read, if there are none.
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

    /// Returns `true` if a timer for that time has to be set. Events arrive between reads, and each would set another timer
    /// otherwise.
    pub(super) fn begins_to_wait(&mut self, due: u64) -> bool {
        std::mem::replace(&mut self.waits_until, due) != due
    }

    /// Records that `count` bytes were read.
    pub(super) fn read(&mut self, now: u64, count: u64) {
        if self.began == 0 {
            self.began = now;
            self.late |= now.saturating_sub(self.requested) > FIRST_BYTE;
            if self.window_ends == 0 {
                self.window_ends = now + WINDOW;
            }
        }
        self.read += count;
        self.window_read += count;
        self.close_window(now, self.rate / GRAIN);
    }

    /// Ends a response. No pace is required until the next one.
    pub(super) fn complete(&mut self) {
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

    /// Evaluates the connection at the end of the run: whether it conformed, and whether a first byte was late.
    pub(super) fn judge(&mut self, now: u64) -> (bool, bool) {
        // The last read may not be due yet, which is not the server's fault.
        self.close_window(now, self.rate / READS_PER_SECOND);
        let never = self.began == 0
            && self.requested != 0
            && now.saturating_sub(self.requested) > FIRST_BYTE;
        let late = self.late || never;
        // A connection without a complete window does not conform.
        (!late && !self.short && self.windows > 0, late)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn reads_follow_the_pace() {
        let mut pace = Pace::new(33_600);
        let (mut now, mut read) = (MS, 0);
        pace.request(0);
        while now < 10_000 * MS {
            match pace.allowance(now) {
                Ok(allowed) => {
                    read += allowed as u64;
                    pace.read(now, allowed as u64);
                }
                Err(due) => now = due,
            }
        }
        let step = 4_200 / READS_PER_SECOND;
        assert!((42_000..=42_000 + step).contains(&read), "{read} bytes in ten seconds");
        assert_eq!(pace.judge(now), (true, false));
    }

    #[test]
    fn a_slow_or_late_server_is_detected() {
        let mut slow = Pace::new(33_600);
        slow.request(0);
        for step in 1..60 {
            slow.read(step * 100 * MS, 300);
        }
        assert_eq!(slow.judge(6_000 * MS), (false, false));
        let mut late = Pace::new(33_600);
        late.request(1);
        assert_eq!(late.judge(4_000 * MS), (false, true));
    }
}
