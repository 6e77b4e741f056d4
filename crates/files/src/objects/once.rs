//! A value that many tasks of all threads wait for.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// A value that is set once, or replaced, and for which any number of tasks waits.
#[derive(Debug)]
pub(super) struct Once<T> {
    value: Mutex<Option<T>>,
    changed: Notify,
}

impl<T> Default for Once<T> {
    fn default() -> Self {
        Self { value: Mutex::new(None), changed: Notify::new() }
    }
}

impl<T: Clone> Once<T> {
    /// Sets the value, and wakes all that wait for it.
    pub(super) fn set(&self, value: T) {
        *self.lock() = Some(value);
        self.changed.notify_waiters();
    }

    /// The value, if it is there.
    pub(super) fn get(&self) -> Option<T> {
        self.lock().clone()
    }

    /// Waits for the value.
    pub(super) async fn wait(&self) -> T {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            if let Some(value) = self.get() {
                return value;
            }
            changed.await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<T>> {
        // No code panics under the lock.
        self.value.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
