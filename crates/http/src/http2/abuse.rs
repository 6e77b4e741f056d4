//! Bounds of what costs a client nothing and the server something.
//!
//! Each such thing is counted. Served requests and the time that passes are set against it, so that
//! a long-lived connection never comes to an end by what is usual; a flood does.

use super::Failure;
use super::frame::ErrorCode;

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Cost {
    /// Streams that the client ended before they were answered, or opened past the limit
    /// (rapid reset, CVE-2023-44487).
    Reset,
    /// Streams that the client had the server end by an error of its own making (made you reset,
    /// CVE-2025-8671).
    StreamError,
    /// SETTINGS frames, each of which has to be acknowledged.
    Settings,
    /// PING frames, likewise.
    Ping,
    /// PRIORITY and PRIORITY_UPDATE frames.
    Priority,
    /// Frames that carry nothing: DATA without bytes, acknowledgements, unknown ones.
    Empty,
    /// WINDOW_UPDATE frames.
    WindowUpdate,
    /// Heads that are larger than the limit once they are decoded (HPACK bomb).
    LargeHead,
}

struct Bound {
    /// At once.
    most: u16,
    /// Forgiven each second.
    each_second: u16,
    /// Forgiven for each response that was sent.
    each_response: u16,
    reason: &'static str,
}

const BOUNDS: [Bound; 8] = [
    bound(200, 20, 1, "too many requests were cancelled (rapid reset)"),
    bound(100, 10, 0, "too many streams had to be reset (made you reset)"),
    bound(50, 5, 0, "too many SETTINGS frames"),
    bound(100, 10, 1, "too many PING frames"),
    bound(400, 40, 2, "too many priority frames"),
    bound(200, 20, 2, "too many empty frames"),
    bound(2000, 400, 4, "too many WINDOW_UPDATE frames"),
    bound(20, 2, 0, "too many heads beyond the limit (HPACK bomb)"),
];

const fn bound(most: u16, each_second: u16, each_response: u16, reason: &'static str) -> Bound {
    Bound { most, each_second, each_response, reason }
}

/// What one connection has spent.
#[derive(Debug, Default)]
pub(super) struct Budget {
    spent: [u16; BOUNDS.len()],
    /// Some of `spent` is not 0.
    any: bool,
    /// Seconds of the driver's clock.
    second: u64,
}

impl Budget {
    /// Counts one.
    pub(super) fn spend(&mut self, cost: Cost) -> Result<(), Failure> {
        let (spent, bound) = (&mut self.spent[cost as usize], &BOUNDS[cost as usize]);
        if *spent >= bound.most {
            return Err(Failure::new(ErrorCode::EnhanceYourCalm, bound.reason));
        }
        *spent += 1;
        self.any = true;
        Ok(())
    }

    /// A response was sent to its end.
    #[inline]
    pub(super) fn earn(&mut self) {
        if self.any {
            self.forgive(|bound| bound.each_response);
        }
    }

    /// A frame of a body was sent, which a client answers with WINDOW_UPDATE frames.
    #[inline]
    pub(super) fn earn_window_update(&mut self) {
        let spent = &mut self.spent[Cost::WindowUpdate as usize];
        *spent = spent.saturating_sub(2);
    }

    /// The time is now `second`.
    #[inline]
    pub(super) fn pass(&mut self, second: u64) {
        let passed = second.saturating_sub(std::mem::replace(&mut self.second, second));
        if passed > 0 && self.any {
            let passed = u16::try_from(passed).unwrap_or(u16::MAX);
            self.forgive(|bound| bound.each_second.saturating_mul(passed));
        }
    }

    fn forgive(&mut self, share: impl Fn(&Bound) -> u16) {
        self.any = false;
        for (spent, bound) in self.spent.iter_mut().zip(&BOUNDS) {
            *spent = spent.saturating_sub(share(bound));
            self.any |= *spent > 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_ends_it_and_time_and_work_do_not() {
        let mut budget = Budget::default();
        budget.pass(1_000);
        for _ in 0..100 {
            budget.spend(Cost::Ping).unwrap();
        }
        let failure = budget.spend(Cost::Ping).unwrap_err();
        assert_eq!((failure.code, failure.is_abuse()), (ErrorCode::EnhanceYourCalm, true));
        budget.pass(1_001);
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
    }
}
