//! The validity of cached data: it ends when the file that the data was read from changes.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The validity of data that was read from a file. A reader that has checked it does not have to check it again as long
/// as [`Validity::epoch`] stays the same.
#[derive(Debug, Default)]
pub struct Validity {
    invalidated: AtomicBool,
    /// The shared cache does not keep the data any more, although it is valid.
    retired: AtomicBool,
    /// Until when the data may be used without a check of the file, in milliseconds of the workers' clock.
    fresh_until: AtomicU64,
}

/// See [`Validity::epoch`].
static EPOCH: AtomicU64 = AtomicU64::new(0);

impl Validity {
    /// Returns a global counter. It advances whenever any validity is invalidated or expires earlier.
    #[inline]
    pub fn epoch() -> u64 {
        EPOCH.load(Ordering::Acquire)
    }

    /// Returns `true` if the data was invalidated.
    #[inline]
    pub fn is_invalidated(&self) -> bool {
        self.invalidated.load(Ordering::Acquire)
    }

    /// Returns `true` if the data may be used without a check of the file. `now` is in milliseconds of the workers' clock.
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

    /// Records that the shared cache has evicted the data. Readers may use it until they free its memory.
    pub fn retire(&self) {
        self.retired.store(true, Ordering::Relaxed);
    }

    /// Returns `true` if the memory of the data is to be freed.
    pub fn is_retired(&self) -> bool {
        self.retired.load(Ordering::Relaxed) || self.is_invalidated()
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
    fn retired_data_stays_valid_and_invalidated_data_does_not() {
        let (validity, epoch) = (Validity::default(), Validity::epoch());
        validity.set_fresh_until(5);
        assert!(validity.is_fresh(4) && !validity.is_fresh(5) && !validity.is_retired());
        validity.retire();
        assert!(validity.is_fresh(4) && validity.is_retired());
        validity.invalidate();
        assert!(Validity::epoch() > epoch && !validity.is_fresh(4));
    }
}
