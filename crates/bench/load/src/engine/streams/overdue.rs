//! The time that responses may take, of all users of a worker.
//!
//! Nearly every response arrives in time. A user therefore only notes when its response is overdue, and one task looks at all of
//! them every [`TICK`](crate::engine::recorder::TICK), in place of a timer for each request.

use std::cell::RefCell;
use std::task::{Context, Waker};

/// The responses that users wait for.
pub(super) struct Overdue(RefCell<Vec<Option<Waiting>>>);

struct Waiting {
    /// Time in nanoseconds since the start of the run.
    due: u64,
    waker: Waker,
}

impl Overdue {
    pub(super) fn new(users: usize) -> Self {
        Self(RefCell::new(std::iter::repeat_with(|| None).take(users).collect()))
    }

    /// Has the task of a user be woken soon after `due`.
    pub(super) fn watch(&self, user: usize, due: u64, cx: &Context<'_>) {
        match &mut self.0.borrow_mut()[user] {
            Some(waiting) => {
                waiting.due = due;
                waiting.waker.clone_from(cx.waker());
            }
            empty => *empty = Some(Waiting { due, waker: cx.waker().clone() }),
        }
    }

    /// Wakes the users whose responses are overdue.
    pub(super) fn wake(&self, now: u64) {
        for waiting in self.0.borrow_mut().iter_mut() {
            if let Some(waiting) = waiting.take_if(|waiting| waiting.due <= now) {
                waiting.waker.wake();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn only_users_whose_time_has_passed_are_woken_and_once() {
        let counts = [0; 3].map(|_| Arc::new(Count::default()));
        let overdue = Overdue::new(3);
        for (user, count) in counts.iter().enumerate() {
            let waker = Waker::from(Arc::clone(count));
            overdue.watch(user, 10, &Context::from_waker(&waker));
            // The next response of the same user.
            overdue.watch(user, 100 * (user as u64 + 1), &Context::from_waker(&waker));
        }
        let woken = || counts.each_ref().map(|count| count.0.load(Ordering::Relaxed));
        overdue.wake(99);
        assert_eq!(woken(), [0, 0, 0]);
        overdue.wake(200);
        overdue.wake(250);
        assert_eq!(woken(), [1, 1, 0]);
    }
}
