//! Limits of time.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

use crate::Phase;

/// The time that each phase of an exchange may take; `None` for no limit.
///
/// Time that the caller takes, to provide a request's body or to poll for the response, does not count, except for
/// `total`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// Waiting for a connection while all that the origin may have are busy.
    pub wait: Option<Duration>,
    /// Resolving the name and connecting, all addresses together.
    pub connect: Option<Duration>,
    /// The TLS handshake.
    pub tls: Option<Duration>,
    /// From the end of the request to the head of the final response, whatever the server sends before it.
    pub first_byte: Option<Duration>,
    /// Between two bytes of a body, in both directions.
    pub between_bytes: Option<Duration>,
    /// The time for which the body of a request with `Expect: 100-continue` waits for the interim response; it is sent then.
    pub expect_continue: Option<Duration>,
    /// The whole exchange, from the call of [`crate::Client::send`] to the end of the response.
    pub total: Option<Duration>,
}

impl Default for Timeouts {
    fn default() -> Self {
        let seconds = |count| Some(Duration::from_secs(count));
        Self {
            wait: seconds(10),
            connect: seconds(10),
            tls: seconds(10),
            first_byte: seconds(60),
            between_bytes: seconds(60),
            expect_continue: seconds(1),
            total: None,
        }
    }
}

impl Timeouts {
    /// No limits, apart from that of `Expect: 100-continue`.
    #[must_use]
    pub fn none() -> Self {
        Self {
            wait: None,
            connect: None,
            tls: None,
            first_byte: None,
            between_bytes: None,
            total: None,
            ..Self::default()
        }
    }

    /// Returns the same limit for each phase.
    #[must_use]
    pub fn each(limit: Duration) -> Self {
        let limit = Some(limit);
        Self {
            wait: limit,
            connect: limit,
            tls: limit,
            first_byte: limit,
            between_bytes: limit,
            ..Self::default()
        }
    }

    /// No limit but that of the whole exchange.
    #[must_use]
    pub fn total(limit: Duration) -> Self {
        Self { total: Some(limit), ..Self::none() }
    }

    fn of(&self, phase: Phase) -> Option<Duration> {
        match phase {
            Phase::Wait => self.wait,
            Phase::Connect => self.connect,
            Phase::Tls => self.tls,
            Phase::FirstByte => self.first_byte,
            Phase::BetweenBytes => self.between_bytes,
            Phase::Continue => self.expect_continue,
            Phase::Total => self.total,
        }
    }
}

/// Measures the phases of an exchange. Progress costs no call of the runtime's timer: the timer is set when it fires too
/// early.
#[derive(Debug)]
pub(crate) struct Timer {
    timeouts: Timeouts,
    /// When the exchange has to be complete.
    end: Option<Instant>,
    /// The phase that the exchange waits in, the progress at its start, and when it is too long.
    waiting: Option<(Phase, u64, Instant)>,
    sleep: Option<Pin<Box<Sleep>>>,
}

impl Timer {
    pub(crate) fn new(timeouts: Timeouts, end: Option<Instant>) -> Self {
        Self { timeouts, end, waiting: None, sleep: None }
    }

    /// Polls while the exchange waits in `phase`, if in any that has a limit. `progress` differs whenever something has
    /// happened since the last call. Ready: the phase that took too long.
    pub(crate) fn poll(
        &mut self,
        context: &mut Context<'_>,
        phase: Option<Phase>,
        progress: u64,
    ) -> Poll<Phase> {
        if self.end.is_none() && phase.is_none_or(|phase| self.timeouts.of(phase).is_none()) {
            self.waiting = None;
            return Poll::Pending;
        }
        let now = Instant::now();
        // Neither interim responses nor parts of a head are a response.
        let progress = if phase == Some(Phase::FirstByte) { 0 } else { progress };
        let is_same = |(old, at, _): &(Phase, u64, Instant)| (Some(*old), *at) == (phase, progress);
        if !self.waiting.as_ref().is_some_and(is_same) {
            let limit = phase.and_then(|phase| Some((phase, self.timeouts.of(phase)?)));
            self.waiting = limit.map(|(phase, limit)| (phase, progress, now + limit));
        }
        let phase_end = self.waiting.map(|(phase, _, end)| (end, phase));
        let total_end = self.end.map(|end| (end, Phase::Total));
        let Some((end, phase)) = phase_end.into_iter().chain(total_end).min_by_key(|(end, _)| *end)
        else {
            return Poll::Pending;
        };
        if now >= end {
            return Poll::Ready(phase);
        }
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(sleep_until(end)));
        if sleep.deadline() > end {
            sleep.as_mut().reset(end);
        }
        while sleep.as_mut().poll(context).is_ready() {
            if Instant::now() >= end {
                return Poll::Ready(phase);
            }
            sleep.as_mut().reset(end);
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    #[test]
    fn progress_does_not_extend_the_time_for_a_head() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut timer = Timer::new(Timeouts::each(Duration::from_millis(100)), None);
            let mut is_late = |progress| {
                let mut context = Context::from_waker(Waker::noop());
                timer.poll(&mut context, Some(Phase::FirstByte), progress).is_ready()
            };
            for progress in 0..1000 {
                if is_late(progress) {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            panic!("it waits for ever");
        });
    }
}
