//! Wake-ups of streams: an event of one stream does not poll the others.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Wake, Waker};

use super::StreamId;

/// Streams that were woken, and the task of their connection.
#[derive(Default)]
pub(super) struct WakeUps {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    woken: Vec<StreamId>,
    task: Option<Waker>,
}

/// The waker of one stream.
struct StreamWaker {
    id: StreamId,
    /// The stream is in the list of woken ones.
    is_woken: AtomicBool,
    wakeups: Arc<WakeUps>,
}

/// A stream's handle of its waker.
pub(super) struct WakerHandle {
    shared: Arc<StreamWaker>,
    waker: Waker,
}

impl WakeUps {
    /// Sets the task to wake, and appends the streams that were woken.
    pub(super) fn take(&self, cx: &Context<'_>, ids: &mut Vec<StreamId>) {
        let mut state = self.lock();
        match &mut state.task {
            Some(task) => task.clone_from(cx.waker()),
            task => *task = Some(cx.waker().clone()),
        }
        ids.append(&mut state.woken);
    }

    /// No operation under this lock can panic.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Wake for StreamWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.is_woken.swap(true, Ordering::AcqRel) {
            return;
        }
        let task = {
            let mut state = self.wakeups.lock();
            state.woken.push(self.id);
            state.task.take()
        };
        if let Some(task) = task {
            task.wake();
        }
    }
}

impl WakerHandle {
    pub(super) fn new(id: StreamId, wakeups: &Arc<WakeUps>) -> Self {
        let is_woken = AtomicBool::new(false);
        let shared = Arc::new(StreamWaker { id, is_woken, wakeups: Arc::clone(wakeups) });
        Self { waker: Arc::clone(&shared).into(), shared }
    }

    /// Returns the waker for the next poll of the stream, which is woken by later events only.
    pub(super) fn begin_poll(&self) -> &Waker {
        self.shared.is_woken.store(false, Ordering::Release);
        &self.waker
    }
}
