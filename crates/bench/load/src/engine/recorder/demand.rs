//! The requests that a worker still has to send: arrivals by a schedule, new ones, and those that are sent again.

use std::collections::VecDeque;

use super::{InFlight, Recorder};
use crate::arrivals::Schedule;
use crate::choose::Chooser;
use crate::engine::job::Job;
use crate::engine::tally::Backlog;
use crate::plan::{End, Model};
use crate::segment::Segment;

/// The requests that a worker still has to send.
pub(super) struct Demand {
    /// Requests that have not been sent; `u64::MAX` if the run does not end after a number of them.
    left: u64,
    /// The model is that of open requests: each arrival waits for any connection.
    waits_for_any: bool,
    /// The arrivals that are still to come; open models only.
    schedule: Option<Schedule>,
    next_due: Option<u64>,
    /// Index of the next arrival in the schedule of all workers.
    arrival: usize,
    /// Distance from one arrival of this worker to the next in that schedule.
    arrival_step: usize,
    /// All arrivals of a number of requests have been due.
    all_due: bool,
    /// Arrivals that wait for a connection, or a stream.
    waiting: VecDeque<u64>,
    /// Requests of a replay that are due, by index of the URL.
    replayed: VecDeque<u32>,
    /// Requests that are to be sent again.
    again: VecDeque<Pending>,
}

/// A request that is to be sent.
#[derive(Clone, Copy)]
pub(in crate::engine) struct Pending {
    /// Time when it was due.
    pub(super) due: u64,
    /// Index of the URL, if it has been chosen: the request is sent again.
    url: Option<u32>,
    /// The number of times that it may still be lost and sent again.
    pub(super) repeats: u8,
}

/// Limit of the losses of a request with kept connections. A server that reloads closes all of them at about the same time.
const MAX_REPEATS: u8 = 10;

impl Demand {
    /// Returns the requests of a part of the run.
    pub(super) fn new(job: &Job, part: Segment) -> Self {
        let plan = &job.plan;
        let (left, seconds) = match plan.end {
            End::Seconds(seconds) => (u64::MAX, plan.warmup_seconds + seconds),
            End::Requests(count) => (part.share(count), f64::INFINITY),
        };
        let whole = match (&job.replay, &plan.model) {
            (Some(replay), _) => {
                Some(Schedule::of_list(replay.iter().map(|(due, _)| *due).collect()))
            }
            (None, Model::Closed { .. }) => None,
            (None, Model::OpenRequests(arrivals) | Model::OpenConnections(arrivals)) => {
                Some(Schedule::new(arrivals, plan.seed, seconds))
            }
        };
        let mut schedule = whole.map(|schedule| schedule.segment(part));
        // A worker without a request has no arrival either.
        let next_due = schedule.as_mut().filter(|_| left > 0).and_then(Iterator::next);
        Self {
            left,
            waits_for_any: matches!(plan.model, Model::OpenRequests(_)),
            schedule,
            next_due,
            arrival: part.index as usize,
            arrival_step: part.of as usize,
            all_due: false,
            waiting: VecDeque::new(),
            replayed: VecDeque::new(),
            again: VecDeque::new(),
        }
    }

    /// Returns `true` if the run ends after a number of requests.
    #[inline]
    pub(super) fn by_count(&self) -> bool {
        self.left != u64::MAX
    }

    /// Returns `true` if no arrival and no request that was sent before waits, or none of those may be sent.
    fn nothing_waits(&self) -> bool {
        (self.waiting.is_empty() || self.left == 0) && self.again.is_empty()
    }
}

impl Recorder {
    /// Returns the next request: one that is sent again, the arrival that has waited longest, or in other models than that of
    /// open requests a new one, due at `due`, or else now. `None` if there is none.
    #[inline]
    pub(in crate::engine) fn next_request(&mut self, due: &mut Option<u64>) -> Option<Pending> {
        if self.has_ended() {
            return None;
        }
        if let Some(again) = self.demand.again.pop_front() {
            return Some(again);
        }
        let waits_for_any = self.demand.waits_for_any;
        if waits_for_any && self.demand.waiting.is_empty() || !self.may_send() {
            return None;
        }
        let due = match waits_for_any {
            true => self.demand.waiting.pop_front()?,
            false => due.take().unwrap_or(self.now),
        };
        Some(Pending { due, url: None, repeats: MAX_REPEATS })
    }

    /// Takes a request from those that are left. Returns false if there is none.
    #[inline]
    fn may_send(&mut self) -> bool {
        if self.demand.left == 0 || self.has_ended() {
            return false;
        }
        // Those of the warm-up are not of the number that was requested.
        if self.demand.by_count() && self.is_warm(self.now) {
            self.demand.left -= 1;
        }
        true
    }

    /// Returns the index of the URL of a request.
    #[inline]
    pub(in crate::engine) fn url(&mut self, next: &Pending, chooser: &mut Chooser) -> u32 {
        next.url
            .or_else(|| self.demand.replayed.pop_front())
            .unwrap_or_else(|| chooser.draw() as u32)
    }

    /// Queues the arrivals that are due. Returns their number.
    pub(in crate::engine) fn arrive(&mut self, job: &Job) -> usize {
        let before = self.demand.waiting.len();
        while let Some(due) = self.demand.next_due.filter(|due| *due <= self.now) {
            if self.is_last_due(due) {
                self.demand.next_due = None;
                break;
            }
            self.record_arrival(due);
            let demand = &mut self.demand;
            let (next, following) =
                demand.schedule.as_mut().map_or((None, None), Schedule::next_and_following);
            let replayed = job.replay.as_ref().and_then(|replay| replay.get(demand.arrival));
            demand.replayed.extend(replayed.map(|(_, url)| *url));
            demand.arrival += demand.arrival_step;
            demand.waiting.push_back(due);
            self.demand.next_due = match self.is_last_due(due) {
                // The rate of a replay is that of its log.
                true => following.filter(|_| job.replay.is_none()),
                false => next,
            };
        }
        self.demand.waiting.len() - before
    }

    /// Returns the time of the next arrival, if there is one.
    #[inline]
    pub(in crate::engine) fn next_due(&self) -> Option<u64> {
        self.demand.next_due
    }

    /// Returns `true` if the arrivals until `due` are all of a number of requests.
    fn is_last_due(&self, due: u64) -> bool {
        self.is_warm(due) && self.demand.left <= self.demand.waiting.len() as u64
    }

    /// Records an arrival that was due at `due`.
    pub(super) fn record_arrival(&mut self, due: u64) {
        self.tally.due += u64::from(self.is_counting(due));
        let lag = self.now.saturating_sub(due);
        self.record(|tally| tally.lag.saturating_record(lag));
    }

    /// Records the arrivals that wait once all of a number of requests have been due.
    #[inline]
    pub(in crate::engine) fn record_backlog(&mut self) {
        let demand = &mut self.demand;
        if demand.all_due || demand.schedule.is_none() || demand.next_due.is_some() {
            return;
        }
        demand.all_due = true;
        if !demand.by_count() {
            return;
        }
        let mut backlog = Backlog { at: self.at(), ..Backlog::default() };
        for due in &self.demand.waiting {
            backlog.waiting += 1;
            backlog.longest_wait = backlog.longest_wait.max(self.now.saturating_sub(*due));
        }
        self.tally.backlog = Some(backlog);
    }

    /// Returns `true` if an arrival waits for a connection.
    #[inline]
    pub(in crate::engine) fn has_waiting(&self) -> bool {
        !self.demand.waiting.is_empty()
            || self.demand.waits_for_any && !self.demand.again.is_empty()
    }

    /// Returns the time when the next connection was due; model of open connections.
    pub(in crate::engine) fn next_connection(&mut self) -> Option<u64> {
        self.demand.waiting.pop_front()
    }

    /// Returns `true` if more requests are left than connections that are being established.
    #[inline]
    pub(in crate::engine) fn needs_connection(&self, connecting: u64) -> bool {
        self.demand.left.saturating_add(self.demand.again.len() as u64) > connecting
    }

    /// Returns `true` if no request is left to be sent, or if those that wait have been without a server for the time of a
    /// response, in a run of a number of requests.
    pub(in crate::engine) fn is_exhausted(&self) -> bool {
        let demand = &self.demand;
        let all_due = demand.schedule.is_some() && demand.next_due.is_none();
        (demand.left == 0 || all_due)
            && (demand.nothing_waits()
                || demand.by_count() && self.now.saturating_sub(self.alive) > self.timeout)
    }

    /// Returns `true` if a run of a number of requests has a result of each. One of arrivals lasts until another one would be
    /// due, and an open run of some duration until its end.
    #[inline]
    pub(in crate::engine) fn is_spent(&self) -> bool {
        self.in_flight == 0
            && self.demand.by_count()
            && self.demand.next_due.is_none()
            && self.is_exhausted()
    }

    /// Lets an attempt to connect that failed take the place of a request, unless requests wait for any connection.
    pub(super) fn give_up_one(&mut self) {
        if !self.demand.waits_for_any && !self.may_send() {
            self.demand.again.pop_front();
        }
    }

    /// Queues requests in flight to be sent again before others. Those that were lost may be lost less often from now on.
    /// Returns their number.
    pub(super) fn requeue(
        &mut self,
        flight: impl DoubleEndedIterator<Item = InFlight>,
        is_loss: bool,
    ) -> u64 {
        let before = self.in_flight;
        for InFlight { times, url, repeats, .. } in flight.rev() {
            self.in_flight -= 1;
            let repeats = repeats.saturating_sub(u8::from(is_loss));
            self.demand.again.push_front(Pending { due: times.due, url: Some(url), repeats });
        }
        before - self.in_flight
    }

    /// Ends the arrivals. Returns the times of those that wait.
    pub(super) fn end_arrivals(&mut self, end: u64) -> Vec<u64> {
        // Arrivals that were due before the end and have not been looked at.
        let (next, schedule) = (self.demand.next_due.take(), self.demand.schedule.take());
        let most = match self.demand.all_due {
            true => 0,
            false => self.demand.left.saturating_sub(self.demand.waiting.len() as u64),
        };
        let rest = next.into_iter().chain(schedule.into_iter().flatten());
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        for due in rest.take_while(|due| *due < end).take(most) {
            self.record_arrival(due);
            self.demand.waiting.push_back(due);
        }
        if self.demand.left == 0 {
            self.demand.waiting.clear();
        }
        let again = self.demand.again.drain(..).map(|request| request.due);
        self.demand.waiting.drain(..).chain(again).collect()
    }
}
