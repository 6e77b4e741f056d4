//! A clock that a test stops and advances, for the thread of the test. Other threads have the time of the system.

use std::cell::RefCell;
use std::pin::Pin;
use std::sync::LazyLock;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use super::system;

thread_local! {
    static MANUAL: RefCell<Option<Manual>> = const { RefCell::new(None) };
}

/// All manual clocks start at the same moment, so that the times of all tests can be compared.
static ORIGIN: LazyLock<Instant> = LazyLock::new(|| Instant::now() + Duration::from_secs(3600));
/// The time since 1970 at [`ORIGIN`].
const ORIGIN_SINCE_1970: Duration = Duration::from_secs(2_000_000_000);
/// The time at [`ORIGIN`] of the clock that counts milliseconds.
const ORIGIN_MILLIS: u64 = 1_000_000;

#[derive(Debug, Default)]
struct Manual {
    elapsed: Duration,
    sleepers: Vec<(Instant, Waker)>,
}

/// The time of this thread is stopped until this is dropped.
#[derive(Debug)]
pub struct Stopped(());

/// Stops the time of this thread.
///
/// # Panics
/// When it is stopped already.
pub fn stop() -> Stopped {
    let before = MANUAL.replace(Some(Manual::default()));
    assert!(before.is_none(), "the time is stopped already");
    Stopped(())
}

impl Drop for Stopped {
    fn drop(&mut self) {
        MANUAL.set(None);
    }
}

/// Advances the time and wakes the tasks whose deadline has passed.
///
/// # Panics
/// When the time is not stopped.
pub fn advance(time: Duration) {
    let woken: Vec<Waker> = MANUAL.with_borrow_mut(|manual| {
        let manual = manual.as_mut().expect("the time is stopped");
        manual.elapsed += time;
        let now = *ORIGIN + manual.elapsed;
        let due = manual.sleepers.extract_if(.., |(deadline, _)| *deadline <= now);
        due.map(|(_, waker)| waker).collect()
    });
    woken.into_iter().for_each(Waker::wake);
}

fn elapsed() -> Option<Duration> {
    MANUAL.with_borrow(|manual| Some(manual.as_ref()?.elapsed))
}

/// See [`system::now`].
pub fn now() -> Instant {
    elapsed().map_or_else(system::now, |elapsed| *ORIGIN + elapsed)
}

/// See [`system::since_1970`].
pub fn since_1970() -> Duration {
    elapsed().map_or_else(system::since_1970, |elapsed| ORIGIN_SINCE_1970 + elapsed)
}

/// See [`system::monotonic_millis`].
pub fn monotonic_millis() -> u64 {
    let manual = elapsed().map(|elapsed| ORIGIN_MILLIS + elapsed.as_millis() as u64);
    manual.unwrap_or_else(system::monotonic_millis)
}

/// See [`system::Sleep`].
#[derive(Debug)]
pub enum ManualSleep {
    /// The time is that of the system.
    System(system::Sleep),
    /// The time is stopped.
    Manual(Instant),
}

impl ManualSleep {
    /// See [`system::Sleep::until`].
    pub fn until(deadline: Instant) -> Self {
        match elapsed() {
            Some(_) => Self::Manual(deadline),
            None => Self::System(system::Sleep::until(deadline)),
        }
    }

    /// See [`system::Sleep::reset`].
    pub fn reset(&mut self, deadline: Instant) {
        match self {
            Self::System(sleep) => sleep.reset(deadline),
            Self::Manual(until) => *until = deadline,
        }
    }
}

impl Future for ManualSleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let deadline = match &mut *self {
            Self::System(sleep) => return Pin::new(sleep).poll(cx),
            Self::Manual(deadline) => *deadline,
        };
        MANUAL.with_borrow_mut(|manual| match manual {
            Some(manual) if *ORIGIN + manual.elapsed < deadline => {
                manual.sleepers.push((deadline, cx.waker().clone()));
                Poll::Pending
            }
            _ => Poll::Ready(()),
        })
    }
}
