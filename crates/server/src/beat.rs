//! A beat at an even pace, told by a descriptor of the kernel's.
//!
//! A timer of the runtime's would have every wait for sockets arm and disarm a timeout, and read the clock
//! for it.

use std::fs::File;
use std::io;
use std::time::Duration;

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use tokio::net::unix::pipe::Receiver;

/// Comes round once in each period while it runs.
pub(crate) struct Beat {
    period: Duration,
    /// Absent when there was no descriptor to be had.
    timer: Option<Receiver>,
}

impl Beat {
    /// One that does not run yet. To be called within a runtime.
    pub(crate) fn new(period: Duration) -> Self {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags).map_err(io::Error::from);
        // The runtime has no type for such descriptors of its own; a pipe's receiving end is polled
        // in the same way.
        let timer = timer.and_then(|timer| Receiver::from_file_unchecked(File::from(timer)));
        Self { period, timer: timer.ok() }
    }

    /// Begins a period now.
    pub(crate) fn start(&self) {
        self.set(self.period);
    }

    /// Costs nothing until it is started again.
    pub(crate) fn stop(&self) {
        self.set(Duration::ZERO);
    }

    fn set(&self, period: Duration) {
        let Some(timer) = &self.timer else { return };
        let period =
            Timespec { tv_sec: period.as_secs() as i64, tv_nsec: period.subsec_nanos().into() };
        let times = Itimerspec { it_interval: period, it_value: period };
        let set = timerfd_settime(timer, TimerfdTimerFlags::empty(), &times);
        debug_assert!(set.is_ok(), "a period is a legal time");
    }

    /// Waits for the end of the period. Those that went by unseen count as one.
    pub(crate) async fn next(&self) {
        let Some(timer) = &self.timer else { return tokio::time::sleep(self.period).await };
        loop {
            if timer.readable().await.is_err() {
                // The runtime ends, and whoever waits here with it.
                return std::future::pending().await;
            }
            if timer.try_read(&mut [0; 8]).is_ok() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[tokio::test]
    async fn it_comes_round_once_a_period_while_it_runs() {
        let beat = Beat::new(Duration::from_millis(10));
        let stopped = tokio::time::timeout(Duration::from_millis(50), beat.next());
        assert!(stopped.await.is_err());
        let began = Instant::now();
        beat.start();
        for _ in 0..5 {
            beat.next().await;
        }
        assert!(began.elapsed() >= Duration::from_millis(50));
        beat.stop();
        let stopped = tokio::time::timeout(Duration::from_millis(50), beat.next());
        assert!(stopped.await.is_err());
    }
}
