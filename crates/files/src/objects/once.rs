//! A value that many tasks of all threads wait for.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// A value that is set once, or replaced, and for which any number of tasks waits.
#[derive(Debug)]
pub(super) struct SharedOnce<T> {
    value: Mutex<Option<T>>,
    changed: Notify,
}

/// The duty to set a [`SharedOnce`]. Should the task that has it end without doing so, those that wait get another value.
#[derive(Debug)]
pub(super) struct Promise<T: Clone> {
    once: Arc<SharedOnce<T>>,
    otherwise: Option<T>,
}

impl<T: Clone> Promise<T> {
    pub(super) fn new(once: &Arc<SharedOnce<T>>, otherwise: T) -> Self {
        Self { once: Arc::clone(once), otherwise: Some(otherwise) }
    }

    /// Sets the value.
    pub(super) fn keep(mut self, value: T) {
        self.otherwise = None;
        self.once.set(value);
    }
}

impl<T: Clone> Drop for Promise<T> {
    fn drop(&mut self) {
        if let Some(otherwise) = self.otherwise.take() {
            self.once.set(otherwise);
        }
    }
}

impl<T> Default for SharedOnce<T> {
    fn default() -> Self {
        Self { value: Mutex::new(None), changed: Notify::new() }
    }
}

impl<T: Clone> SharedOnce<T> {
    /// Sets the value, and wakes all that wait for it.
    pub(super) fn set(&self, value: T) {
        *self.lock() = Some(value);
        self.changed.notify_waiters();
    }

    /// Returns the value, if it is there.
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
