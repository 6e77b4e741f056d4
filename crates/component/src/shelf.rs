//! Values that are kept between two uses, and dropped when none comes in time.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// Kept values, the oldest first.
#[derive(Debug)]
pub(crate) struct Shelf<T> {
    kept: RefCell<Vec<(Instant, T)>>,
    /// A task drops what is kept for too long. There is at most one, however often values are taken and kept again.
    is_watched: Cell<bool>,
}

impl<T> Default for Shelf<T> {
    fn default() -> Self {
        Self { kept: RefCell::default(), is_watched: Cell::new(false) }
    }
}

impl<T: 'static> Shelf<T> {
    /// Keeps a value for at most `idle`.
    pub(crate) fn keep(self: &Rc<Self>, value: T, idle: Duration) {
        self.kept.borrow_mut().push((Instant::now(), value));
        if !self.is_watched.replace(true) {
            tokio::task::spawn_local(drop_idle(Rc::downgrade(self), idle));
        }
    }

    /// Takes the newest value that `is_wanted`.
    pub(crate) fn take(&self, is_wanted: impl Fn(&T) -> bool) -> Option<T> {
        let mut kept = self.kept.borrow_mut();
        let at = kept.iter().rposition(|(_, value)| is_wanted(value))?;
        Some(kept.remove(at).1)
    }

    /// Takes the oldest value.
    pub(crate) fn take_oldest(&self) -> Option<T> {
        let mut kept = self.kept.borrow_mut();
        (!kept.is_empty()).then(|| kept.remove(0).1)
    }
}

/// Drops the values that are kept for longer than `idle`, until there are none.
async fn drop_idle<T>(shelf: Weak<Shelf<T>>, idle: Duration) {
    loop {
        let oldest = {
            let Some(shelf) = shelf.upgrade() else { return };
            let oldest = shelf.kept.borrow().first().map(|(since, _)| *since);
            let Some(oldest) = oldest else {
                shelf.is_watched.set(false);
                return;
            };
            oldest
        };
        sleep_until(oldest + idle).await;
        let Some(shelf) = shelf.upgrade() else { return };
        // Dropped after the borrow, since a value may return something to what has the shelf.
        let expired: Vec<_> =
            shelf.kept.borrow_mut().extract_if(.., |(since, _)| since.elapsed() >= idle).collect();
        drop(expired);
    }
}

#[cfg(test)]
mod tests {
    use tokio::task::{LocalSet, yield_now};

    use super::*;

    const IDLE: Duration = Duration::from_secs(600);

    /// Returns the tasks that watch a shelf. Each has a weak reference to it.
    fn tasks(shelf: &Rc<Shelf<Rc<()>>>) -> usize {
        Rc::weak_count(shelf)
    }

    #[tokio::test(start_paused = true)]
    async fn one_task_watches_a_value_that_is_taken_and_kept_again() {
        LocalSet::new()
            .run_until(async {
                let (shelf, value) = (Rc::new(Shelf::default()), Rc::new(()));
                shelf.keep(Rc::clone(&value), IDLE);
                for _ in 0..50_000 {
                    let taken = shelf.take(|_| true).unwrap();
                    yield_now().await;
                    shelf.keep(taken, IDLE);
                }
                assert_eq!(tasks(&shelf), 1);
                tokio::time::sleep(IDLE + Duration::from_secs(1)).await;
                assert_eq!((Rc::strong_count(&value), tasks(&shelf)), (1, 0), "nothing is kept");
                shelf.keep(Rc::clone(&value), IDLE);
                assert_eq!(tasks(&shelf), 1);
                tokio::time::sleep(IDLE + Duration::from_secs(1)).await;
                assert_eq!((Rc::strong_count(&value), tasks(&shelf)), (1, 0), "nothing is kept");
            })
            .await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_value_is_kept_for_its_time_since_the_last_use() {
        LocalSet::new()
            .run_until(async {
                let shelf = Rc::new(Shelf::default());
                shelf.keep(1, IDLE);
                tokio::time::sleep(IDLE / 2).await;
                shelf.keep(2, IDLE);
                tokio::time::sleep(IDLE / 2 + Duration::from_secs(1)).await;
                assert_eq!((shelf.take(|_| true), shelf.take_oldest()), (Some(2), None));
                drop(shelf);
            })
            .await;
    }
}
