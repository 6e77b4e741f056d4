//! A worker's own timer.

use std::io;
use std::time::Duration;

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use tokio::net::unix::pipe::Receiver;

/// A timer that the worker polls like a socket. A timer of the runtime would instead bound each wait of the worker, and
/// the runtime would have the kernel set and remove it whenever the worker becomes idle.
#[derive(Debug)]
pub struct Timer(Receiver);

impl Timer {
    /// Returns a timer that is not set.
    ///
    /// # Errors
    /// When the system has no descriptor for it.
    pub fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        // The runtime has no safe type for such descriptors; the receiving end of a pipe is polled in the same way.
        Receiver::from_owned_fd_unchecked(timer).map(Self)
    }

    /// Resolves after `time`.
    pub async fn sleep(&self, time: Duration) {
        if self.wait(time).await.is_err() {
            tokio::time::sleep(time).await;
        }
    }

    async fn wait(&self, time: Duration) -> io::Result<()> {
        self.set(time)?;
        self.fired().await
    }

    /// Sets the timer, which was set before or not, to fire once after `time`.
    ///
    /// # Errors
    /// When the kernel rejects the time.
    pub fn set(&self, time: Duration) -> io::Result<()> {
        // Zero would disarm the timer.
        let time = time.max(Duration::from_nanos(1));
        let value = Timespec::try_from(time).map_err(io::Error::other)?;
        // This call discards earlier expirations, so that they need not be read.
        let once = Itimerspec { it_interval: Timespec::default(), it_value: value };
        timerfd_settime(&self.0, TimerfdTimerFlags::empty(), &once)?;
        Ok(())
    }

    /// Resolves when the timer has fired since it was set.
    ///
    /// # Errors
    /// When the runtime has ended.
    pub async fn fired(&self) -> io::Result<()> {
        self.0.readable().await?;
        let expired = self.0.try_io(|| Err::<(), _>(io::ErrorKind::WouldBlock.into()));
        debug_assert!(expired.is_err());
        Ok(())
    }
}
