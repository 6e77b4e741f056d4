//! A worker's own timer.

use std::io;
use std::time::Duration;

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use tokio::net::unix::pipe::Receiver;

/// A timer that the worker waits for as for a socket. The runtime's timers end each wait of the worker instead, and have the
/// kernel set and drop one whenever nothing is left to do.
pub(crate) struct Timer(Receiver);

impl Timer {
    /// # Errors
    /// When the system has no descriptor for it.
    pub(crate) fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        // The runtime has no type for such descriptors that is safe to use. A pipe's receiving end is polled in the same way.
        Receiver::from_owned_fd_unchecked(timer).map(Self)
    }

    /// Resolves after `time`.
    pub(crate) async fn sleep(&self, time: Duration) {
        if self.wait(time).await.is_err() {
            tokio::time::sleep(time).await;
        }
    }

    async fn wait(&self, time: Duration) -> io::Result<()> {
        // No time at all would switch it off.
        let time = time.max(Duration::from_nanos(1));
        let value = Timespec::try_from(time).map_err(io::Error::other)?;
        // What has expired before is forgotten with this call, so that it need not be read.
        let once = Itimerspec { it_interval: Timespec::default(), it_value: value };
        timerfd_settime(&self.0, TimerfdTimerFlags::empty(), &once)?;
        self.0.readable().await?;
        let expired = self.0.try_io(|| Err::<(), _>(io::ErrorKind::WouldBlock.into()));
        debug_assert!(expired.is_err());
        Ok(())
    }
}
