//! The ticks that interrupt instances, so that a worker has its turn: one thread, which ticks only while instances run.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, Thread};
use std::time::Duration;

use wasmtime::Engine;

/// Interval of the ticks.
const TICK: Duration = Duration::from_millis(1);
/// Ticks without a running instance after which the thread sleeps.
const QUIET: u32 = 20;

/// The ticks of an engine.
pub(crate) struct Ticker {
    state: Arc<State>,
    thread: Thread,
}

#[derive(Default)]
struct State {
    /// An instance has run since the last tick.
    is_active: AtomicBool,
    is_asleep: AtomicBool,
}

impl Ticker {
    /// Starts the thread.
    ///
    /// # Errors
    /// When the system cannot create a thread.
    pub(crate) fn start(engine: &Engine) -> io::Result<Self> {
        let state = Arc::new(State::default());
        let weak = engine.weak();
        let shared = Arc::clone(&state);
        let tick = move || {
            let mut quiet = 0;
            while let Some(engine) = weak.upgrade() {
                engine.increment_epoch();
                drop(engine);
                thread::sleep(TICK);
                quiet = if shared.is_active.swap(false, Ordering::Relaxed) { 0 } else { quiet + 1 };
                if quiet >= QUIET {
                    shared.sleep();
                    quiet = 0;
                }
            }
        };
        let thread = thread::Builder::new().name("component-ticks".into()).spawn(tick)?;
        Ok(Self { thread: thread.thread().clone(), state })
    }

    /// Records that an instance runs now.
    #[inline]
    pub(crate) fn note(&self) {
        let State { is_active, is_asleep } = &*self.state;
        // Most calls only read, so that the workers share the line.
        if !is_active.load(Ordering::Relaxed) {
            is_active.store(true, Ordering::SeqCst);
            if is_asleep.load(Ordering::SeqCst) {
                self.thread.unpark();
            }
        }
    }
}

impl State {
    /// Sleeps until an instance runs.
    fn sleep(&self) {
        self.is_asleep.store(true, Ordering::SeqCst);
        while !self.is_active.load(Ordering::SeqCst) {
            thread::park();
        }
        self.is_asleep.store(false, Ordering::SeqCst);
    }
}
