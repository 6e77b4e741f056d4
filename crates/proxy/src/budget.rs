//! The budget of retries: a share of the requests, so that retries cannot multiply the load of upstreams that fail.

use std::sync::atomic::{AtomicI64, Ordering};

/// The retries that a group may make.
#[derive(Debug)]
pub(crate) struct Budget {
    /// Hundredths of a retry.
    left: AtomicI64,
}

/// Retries that can be saved up, and that are there at the start.
const MAX: i64 = 20 * 100;

impl Default for Budget {
    fn default() -> Self {
        Self { left: AtomicI64::new(MAX) }
    }
}

impl Budget {
    /// Notes a request, which adds `percent` hundredths of a retry.
    pub(crate) fn earn(&self, percent: u32) {
        if self.left.load(Ordering::Relaxed) < MAX {
            self.left.fetch_add(i64::from(percent), Ordering::Relaxed);
        }
    }

    /// Takes a retry. Returns `false` if there is none.
    pub(crate) fn spend(&self) -> bool {
        let take = |left: i64| (left >= 100).then_some(left - 100);
        self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retries_are_a_share_of_the_requests() {
        let budget = Budget::default();
        assert_eq!((0..100).filter(|_| budget.spend()).count(), 20);
        (0..4).for_each(|_| budget.earn(20));
        assert!(!budget.spend());
        budget.earn(20);
        assert!(budget.spend() && !budget.spend());
    }
}
