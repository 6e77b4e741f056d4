//! Bounds on cheap actions of a peer that cost this side work. Servers and clients have the same ones.
//!
//! Each kind of action has a counter per connection. Completed responses and elapsed time lower the counters, so that
//! ordinary use never reaches a bound, however long the connection lives; a flood does and ends the connection.

/// A bound that only an attack reaches: its description.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Abuse(pub(crate) &'static str);

/// Actions of a peer that are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Cost {
    /// Streams that the client reset before the response was complete, or opened beyond the limit (rapid reset,
    /// CVE-2023-44487).
    Reset,
    /// Streams that the server reset because of a client error (made you reset, CVE-2025-8671).
    StreamError,
    /// SETTINGS frames, which have to be acknowledged.
    Settings,
    /// PING frames, which have to be acknowledged.
    Ping,
    /// PRIORITY and PRIORITY_UPDATE frames.
    Priority,
    /// Frames without effect: empty DATA, acknowledgements, unknown types, frames of closed streams.
    Empty,
    /// WINDOW_UPDATE frames.
    WindowUpdate,
    /// Heads whose decoded size exceeds the limit (HPACK bomb).
    LargeHead,
    /// Insertions in the dynamic table of QPACK, which need no request.
    Insertion,
}

/// Applications read a body in pieces that are mostly not smaller.
const SMALLEST_READ: usize = 512;

struct Bound {
    /// Largest value of the counter.
    max: u16,
    /// Decrease per second.
    per_second: u16,
    /// Decrease per completed response.
    per_response: u16,
    reason: &'static str,
}

const BOUNDS: [Bound; 9] = [
    bound(200, 20, 1, "too many requests were cancelled (rapid reset)"),
    bound(100, 10, 0, "too many streams had to be reset (made you reset)"),
    bound(50, 5, 0, "too many SETTINGS frames"),
    bound(100, 10, 1, "too many PING frames"),
    bound(400, 40, 2, "too many priority frames"),
    bound(200, 20, 2, "too many empty frames"),
    bound(2000, 400, 4, "too many WINDOW_UPDATE frames"),
    bound(20, 2, 0, "too many heads beyond the limit (HPACK bomb)"),
    bound(4000, 400, 40, "too many insertions in the QPACK table"),
];

const fn bound(max: u16, per_second: u16, per_response: u16, reason: &'static str) -> Bound {
    Bound { max, per_second, per_response, reason }
}

/// The counters of one connection.
#[derive(Debug, Default)]
pub(crate) struct Budget {
    spent: [u16; BOUNDS.len()],
    /// Any counter is above 0.
    any: bool,
    /// Last time seen, in seconds of the caller's clock.
    second: u64,
}

impl Budget {
    /// Counts one action; an error if its bound is reached.
    pub(crate) fn spend(&mut self, cost: Cost) -> Result<(), Abuse> {
        let (spent, bound) = (&mut self.spent[cost as usize], &BOUNDS[cost as usize]);
        if *spent >= bound.max {
            return Err(Abuse(bound.reason));
        }
        *spent += 1;
        self.any = true;
        Ok(())
    }

    /// Records a completed response.
    #[inline]
    pub(crate) fn earn(&mut self) {
        if self.any {
            self.decrease(|bound| bound.per_response);
        }
    }

    /// Records a DATA frame of `length` bytes that was sent. The peer sends a WINDOW_UPDATE frame for the stream and one for the
    /// connection with each piece that its application reads, and a PING if it estimates the bandwidth, as gRPC does.
    #[inline]
    pub(crate) fn earn_data(&mut self, length: usize) {
        if self.any {
            let pieces = u16::try_from(length.div_ceil(SMALLEST_READ).max(1)).unwrap_or(u16::MAX);
            for (cost, amount) in [(Cost::WindowUpdate, pieces.saturating_mul(2)), (Cost::Ping, 1)]
            {
                let spent = &mut self.spent[cost as usize];
                *spent = spent.saturating_sub(amount);
            }
        }
    }

    /// Advances the clock to `second`.
    #[inline]
    pub(crate) fn advance(&mut self, second: u64) {
        let passed = second.saturating_sub(std::mem::replace(&mut self.second, second));
        if passed > 0 && self.any {
            let passed = u16::try_from(passed).unwrap_or(u16::MAX);
            self.decrease(|bound| bound.per_second.saturating_mul(passed));
        }
    }

    fn decrease(&mut self, amount: impl Fn(&Bound) -> u16) {
        self.any = false;
        for (spent, bound) in self.spent.iter_mut().zip(&BOUNDS) {
            *spent = spent.saturating_sub(amount(bound));
            self.any |= *spent > 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floods_reach_a_bound_and_ordinary_use_does_not() {
        let mut budget = Budget::default();
        budget.advance(1_000);
        for _ in 0..100 {
            budget.spend(Cost::Ping).unwrap();
        }
        assert_eq!(budget.spend(Cost::Ping), Err(Abuse("too many PING frames")));
        budget.advance(1_001);
        for _ in 0..10 {
            budget.spend(Cost::Ping).unwrap();
        }
        assert!(budget.spend(Cost::Ping).is_err());
        for _ in 0..1_000 {
            budget.earn();
            budget.spend(Cost::Ping).unwrap();
            budget.earn();
            budget.spend(Cost::Reset).unwrap();
        }
        for _ in 0..1_000 {
            budget.earn_data(0);
            budget.spend(Cost::Ping).unwrap();
        }
    }

    #[test]
    fn a_peer_may_open_its_windows_for_each_piece_that_it_reads() {
        for (length, updates) in [(0, 2), (1, 2), (512, 2), (513, 4), (16_384, 64)] {
            let mut budget = Budget::default();
            for _ in 0..3_000 {
                budget.earn_data(length);
                for _ in 0..updates {
                    budget.spend(Cost::WindowUpdate).unwrap();
                }
            }
        }
        let mut budget = Budget::default();
        budget.earn_data(usize::MAX);
        for _ in 0..2_000 {
            budget.spend(Cost::WindowUpdate).unwrap();
        }
        assert!(budget.spend(Cost::WindowUpdate).is_err());
    }
}
