//! The turns of instances that run for long: they share a worker with its other requests.
//!
//! A tick interrupts an instance after about a millisecond. It runs again when the worker is idle, or when the other
//! tasks of the worker have had twice the time that the instance had. Several instances that run for long have this
//! share together, one after the other.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::task::yield_now;

/// An instance that has run for less time than this is not interrupted by a tick.
const SHORT: Duration = Duration::from_micros(500);
/// The time of the others is this multiple of that of the instance.
const OTHERS: u32 = 2;
/// Maximum of the time that counts, in case the system has interrupted the worker.
const LONG: Duration = Duration::from_millis(3);
/// A round of the worker's tasks that takes more time has done work besides polling its sockets.
const BUSY: Duration = Duration::from_micros(8);
/// A worker that was busy is idle after this time without work: clients need some to send their next request.
const IDLE: Duration = Duration::from_micros(100);

thread_local! {
    static TIME_SLICES: RefCell<TimeSlices> = RefCell::default();
}

/// The state that the instances of a worker share.
#[derive(Default)]
struct TimeSlices {
    /// When the instance that runs was resumed.
    resumed: Option<Instant>,
    /// Until when the other tasks of the worker have their time.
    others_until: Option<Instant>,
    /// The tickets of interrupted instances in the order of their interruption, each with the number of its last poll.
    waiting: BTreeMap<u64, u64>,
    tickets: u64,
    polls: u64,
}

/// Records that an instance is resumed now.
pub(crate) fn note_resumed(now: Instant) {
    TIME_SLICES.with_borrow_mut(|slices| slices.resumed = Some(now));
}

/// Returns what an instance waits for that a tick has interrupted; `None` if it has not run for long.
pub(crate) fn interrupt(now: Instant) -> Option<TimeSlice> {
    TIME_SLICES.with_borrow_mut(|slices| slices.interrupt(now))
}

impl TimeSlices {
    fn interrupt(&mut self, now: Instant) -> Option<TimeSlice> {
        let ran = now.saturating_duration_since(self.resumed?);
        if ran < SHORT {
            return None;
        }
        self.others_until = Some(now + ran.min(LONG) * OTHERS);
        self.tickets += 1;
        Some(TimeSlice {
            ticket: self.tickets,
            last: now,
            was_busy: false,
            quiet: None,
            round: None,
        })
    }

    /// Returns `true` if an instance that was interrupted before this one waits, too. One whose client does not read is not
    /// polled.
    fn has_earlier(&self, ticket: u64, last_poll: u64) -> bool {
        self.waiting.range(..ticket).any(|(_, &poll)| poll > last_poll)
    }
}

/// The wait of an interrupted instance.
pub(crate) struct TimeSlice {
    ticket: u64,
    /// The last poll.
    last: Instant,
    /// The worker has had other work since the interruption.
    was_busy: bool,
    /// Since when it has had none.
    quiet: Option<Instant>,
    /// Ready when the worker has polled its sockets and tasks once.
    round: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl TimeSlice {
    /// Returns `true` if the worker has no other work, given that it has gone through its tasks once.
    fn is_idle(&mut self, now: Instant) -> bool {
        let round = now.saturating_duration_since(self.last);
        if round > BUSY {
            self.was_busy = true;
            self.quiet = None;
        }
        let quiet = *self.quiet.get_or_insert(now);
        self.last = now;
        !self.was_busy || now.saturating_duration_since(quiet) >= IDLE
    }

    /// Returns `true` if the instance runs again.
    fn is_over(&mut self, slices: &mut TimeSlices, now: Instant) -> bool {
        let is_idle = self.is_idle(now);
        slices.polls += 1;
        let last_poll = slices.waiting.insert(self.ticket, slices.polls).unwrap_or(0);
        let had_others_time = slices.others_until.is_none_or(|until| until <= now);
        (is_idle || had_others_time) && !slices.has_earlier(self.ticket, last_poll)
    }
}

impl Future for TimeSlice {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        loop {
            if let Some(round) = &mut this.round {
                if round.as_mut().poll(cx).is_pending() {
                    return Poll::Pending;
                }
                this.round = None;
                let now = Instant::now();
                if TIME_SLICES.with_borrow_mut(|slices| this.is_over(slices, now)) {
                    note_resumed(now);
                    return Poll::Ready(());
                }
            }
            this.round = Some(Box::pin(yield_now()));
        }
    }
}

impl Drop for TimeSlice {
    fn drop(&mut self) {
        TIME_SLICES.with_borrow_mut(|slices| slices.waiting.remove(&self.ticket));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Returns an instance that was interrupted after a millisecond.
    fn interrupted(slices: &mut TimeSlices, now: Instant) -> TimeSlice {
        slices.resumed = Some(now - MS);
        slices.interrupt(now).unwrap()
    }

    #[test]
    fn a_short_run_is_not_interrupted() {
        let now = Instant::now();
        let mut slices = TimeSlices { resumed: Some(now), ..TimeSlices::default() };
        assert!(slices.interrupt(now + SHORT / 2).is_none());
        assert!(slices.interrupt(now + SHORT).is_some());
    }

    #[test]
    fn an_instance_continues_at_once_on_an_idle_worker() {
        let (mut slices, now) = (TimeSlices::default(), Instant::now());
        let mut slice = interrupted(&mut slices, now);
        assert!(slice.is_over(&mut slices, now + BUSY / 2));
    }

    #[test]
    fn other_tasks_have_twice_the_time_of_an_instance() {
        let (mut slices, now) = (TimeSlices::default(), Instant::now());
        let mut slice = interrupted(&mut slices, now);
        let rounds =
            (1..).find(|&round| slice.is_over(&mut slices, now + round * 10 * BUSY)).unwrap();
        let time = rounds * 10 * BUSY;
        assert!((2 * MS..2 * MS + 10 * BUSY).contains(&time), "{time:?}");
    }

    #[test]
    fn a_busy_worker_becomes_idle() {
        let (mut slices, mut now) = (TimeSlices::default(), Instant::now());
        let mut slice = interrupted(&mut slices, now);
        let start = now;
        now += 10 * BUSY;
        while !slice.is_over(&mut slices, now) {
            now += BUSY / 2;
        }
        assert!((IDLE..IDLE + 11 * BUSY).contains(&(now - start)), "{:?}", now - start);
    }

    #[test]
    fn instances_take_turns() {
        let (mut slices, mut now) = (TimeSlices::default(), Instant::now());
        let mut all: Vec<TimeSlice> = (0..3).map(|_| interrupted(&mut slices, now)).collect();
        let mut order = Vec::new();
        while order.len() < 9 {
            for (number, slice) in all.iter_mut().enumerate() {
                now += 2 * BUSY;
                if slice.is_over(&mut slices, now) {
                    order.push(number);
                    now += MS;
                    slices.waiting.remove(&slice.ticket);
                    *slice = interrupted(&mut slices, now);
                }
            }
        }
        assert_eq!(order, [0, 1, 2, 0, 1, 2, 0, 1, 2]);
    }

    #[test]
    fn an_instance_that_is_not_polled_holds_up_no_other() {
        let (mut slices, now) = (TimeSlices::default(), Instant::now());
        let (mut first, mut second) =
            (interrupted(&mut slices, now), interrupted(&mut slices, now));
        assert!(!first.is_over(&mut slices, now + MS));
        assert!(!second.is_over(&mut slices, now + MS));
        assert!(!second.is_over(&mut slices, now + 2 * MS - BUSY));
        assert!(second.is_over(&mut slices, now + 3 * MS));
    }
}
