//! Whether cached data still describes the file that it was read from.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The validity of data that was read from a file. A reader that has checked it does not have to check it again as long
/// as [`Validity::epoch`] stays the same.
#[derive(Debug, Default)]
pub struct Validity {
    invalidated: AtomicBool,
    /// Set on use, cleared by the CLOCK hand of the shared cache.
    used: AtomicBool,
    /// Until when the data may be used without a check of the file, in milliseconds of the workers' clock.
    fresh_until: AtomicU64,
}

/// See [`Validity::epoch`].
static EPOCH: AtomicU64 = AtomicU64::new(0);

impl Validity {
    /// A global counter. It advances whenever any validity is invalidated, expires earlier, or has its use mark cleared.
    #[inline]
    pub fn epoch() -> u64 {
        EPOCH.load(Ordering::Acquire)
    }

    /// Whether the data was invalidated.
    #[inline]
    pub fn is_invalidated(&self) -> bool {
        self.invalidated.load(Ordering::Acquire)
    }

    /// Whether the data may be used without a check of the file. `now` is in milliseconds of the workers' clock.
    #[inline]
    pub fn is_fresh(&self, now: u64) -> bool {
        !self.is_invalidated() && now < self.fresh_until()
    }

    /// Until when the data may be used without a check of the file, in milliseconds. An extension is visible at the next
    /// read; a reduction also advances the epoch.
    pub fn fresh_until(&self) -> u64 {
        self.fresh_until.load(Ordering::Relaxed)
    }

    /// Sets until when the data may be used without a check of the file.
    pub fn set_fresh_until(&self, time: u64) {
        self.fresh_until.store(time, Ordering::Relaxed);
    }

    /// Reduces `fresh_until` to at most `time`, and advances the epoch if it was later.
    pub fn limit_fresh_until(&self, time: u64) {
        if self.fresh_until.fetch_min(time, Ordering::Relaxed) > time {
            EPOCH.fetch_add(1, Ordering::Release);
        }
    }

    /// Sets the use mark.
    #[inline]
    pub fn mark_used(&self) {
        if !self.used.load(Ordering::Relaxed) {
            self.used.store(true, Ordering::Relaxed);
        }
    }

    /// Clears the use mark and returns whether it was set.
    pub fn take_used(&self) -> bool {
        let was_used = self.used.swap(false, Ordering::Relaxed);
        if was_used {
            EPOCH.fetch_add(1, Ordering::Release);
        }
        was_used
    }

    /// Makes the data invalid for all readers.
    pub fn invalidate(&self) {
        self.invalidated.store(true, Ordering::Release);
        EPOCH.fetch_add(1, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_epoch_advances_when_the_use_mark_is_cleared_and_on_invalidation() {
        let (validity, epoch) = (Validity::default(), Validity::epoch());
        validity.set_fresh_until(5);
        assert!(validity.is_fresh(4) && !validity.is_fresh(5));
        validity.mark_used();
        assert!(validity.take_used());
        let cleared = Validity::epoch();
        assert!(cleared > epoch);
        validity.invalidate();
        assert!(Validity::epoch() > cleared && !validity.is_fresh(4));
    }
}
