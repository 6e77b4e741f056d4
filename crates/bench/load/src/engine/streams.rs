//! The engine of protocols with streams. Each connection has a number of users, each with one stream at a time. An adapter
//! ([`StreamProtocol`]) opens the connections and carries the requests.

mod live;
mod overdue;
mod timers;

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::iter;
use std::pin::pin;
use std::task::Poll;
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;
use tokio::sync::Notify;
use tokio::task::LocalSet;

use super::Engine;
use super::clock::{Clock, nanos};
use super::job::Job;
use super::recorder::{InFlight, Pending, RETRY, Recorder, SharedRecorder, TICK};
use super::response::{PartialResponse, url_of};
use super::tally::Tally;
use crate::choose::Chooser;
use crate::outcome::ErrorKind;
use crate::plan::{End, Reuse};
use crate::progress::Slot;
use crate::segment::Segment;
pub(super) use live::{EndedBy, Failed, LiveConnection, Seen, StreamProtocol};
use overdue::Overdue;
use timers::StreamTimers;

/// Number of times that the only stream of a connection is refused before its request has failed. The delay doubles each time.
const MAX_REJECTIONS: u32 = 6;

/// A worker of a protocol with streams.
pub(super) struct Streams<'a, P> {
    runtime: Runtime,
    tasks: Tasks<'a>,
    protocol: std::marker::PhantomData<P>,
}

/// State that the tasks of a worker share.
struct Tasks<'a> {
    job: &'a Job,
    part: Segment,
    slot: &'a Slot,
    recorder: SharedRecorder,
    /// The request of each user that is in flight.
    flight: RefCell<Vec<Option<InFlight>>>,
    timers: StreamTimers,
    overdue: Overdue,
    think: u64,
    /// Requests of a connection at most.
    requests_each: u64,
    /// Notified when a request waits.
    arrived: Notify,
}

impl<'a, P: StreamProtocol> Engine<'a> for Streams<'a, P> {
    fn new(job: &'a Job, part: Segment, slot: &'a Slot) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let entered = runtime.enter();
        let users = part.share(u64::from(job.plan.connections)) * u64::from(job.plan.streams);
        let recorder = Recorder::new(job, part);
        let tasks = Tasks {
            job,
            part,
            slot,
            think: recorder.think,
            requests_each: match job.plan.reuse {
                Reuse::Never => 1,
                Reuse::Requests(count) => count.into(),
                Reuse::Kept => u64::MAX,
            },
            recorder: SharedRecorder::new(recorder),
            flight: RefCell::new(iter::repeat_with(|| None).take(users as usize).collect()),
            timers: StreamTimers::new(Clock::new(Instant::now()))?,
            overdue: Overdue::new(users as usize),
            arrived: Notify::new(),
        };
        drop(entered);
        Ok(Self { runtime, tasks, protocol: std::marker::PhantomData })
    }

    fn run(&mut self, clock: Clock) -> io::Result<()> {
        self.tasks.recorder.now().start(clock);
        self.tasks.timers.start(clock);
        self.runtime.block_on(self.tasks.run::<P>())
    }

    fn finish(&mut self) -> (Tally, u64) {
        let flight = self.tasks.flight.take();
        self.tasks.recorder.now().finish(flight.iter().flatten().map(|request| request.times))
    }
}

impl Tasks<'_> {
    async fn run<P: StreamProtocol>(&self) -> io::Result<()> {
        let plan = &self.job.plan;
        let tasks = async {
            let slots = self.part.share(u64::from(plan.connections)) as u32;
            let connections = (0..slots).map(|slot| self.connection::<P>(slot));
            tokio::join!(self.arrivals(), futures_util::future::join_all(connections));
            // A run of some duration lasts until its end.
            if let End::Seconds(_) = plan.end {
                std::future::pending::<()>().await;
            }
        };
        LocalSet::new()
            .run_until(async {
                tokio::select! {
                    () = tasks => Ok(()),
                    () = self.watch() => Ok(()),
                    error = self.timers.run() => error,
                }
            })
            .await
    }

    /// Publishes the progress, until the run is over.
    async fn watch(&self) {
        loop {
            let (now, ends) = {
                let recorder = self.recorder.now();
                recorder.publish(self.slot);
                (recorder.now, recorder.ends)
            };
            if self.slot.is_stopped() || now >= ends {
                return;
            }
            self.overdue.wake(now);
            self.timers.sleep_until((now + TICK.as_nanos() as u64).min(ends)).await;
        }
    }

    /// Queues each arrival when it is due.
    async fn arrivals(&self) {
        loop {
            let (count, next) = {
                let mut recorder = self.recorder.now();
                (recorder.arrive(self.job), recorder.next_due())
            };
            (0..count).for_each(|_| self.arrived.notify_one());
            let Some(due) = next else { break };
            self.timers.sleep_until(due).await;
        }
        self.recorder.now().record_backlog();
        self.arrived.notify_waiters();
    }

    /// A connection slot: a connection, and those that replace it.
    async fn connection<P: StreamProtocol>(&self, slot: u32) {
        let plan = &self.job.plan;
        let timeout = Duration::from_secs_f64(plan.timeout_seconds);
        while !self.is_done() {
            match tokio::time::timeout(timeout, self.open::<P>(slot)).await {
                Ok(Ok(live)) => {
                    let users = (0..plan.streams).map(|stream| self.user(&live, slot, stream));
                    futures_util::future::join_all(users).await;
                    if self.replace(&live) {
                        continue;
                    }
                }
                Ok(Err(error)) => {
                    self.recorder.now().fail_to_connect(self.job, ErrorKind::Tls, &error);
                }
                Err(_) => {
                    let (address, seconds) = (self.job.address, plan.timeout_seconds);
                    let reason = || format!("connecting to {address} for {seconds} s");
                    self.recorder.now().fail_connection(ErrorKind::Timeout, reason);
                }
            }
            tokio::time::sleep(RETRY).await;
        }
    }

    async fn open<P: StreamProtocol>(&self, slot: u32) -> io::Result<LiveConnection<P>> {
        let mut record = self.recorder.now().open(slot);
        let seen = std::rc::Rc::new(Seen::default());
        let client = P::open(self.job, &self.recorder, &mut record, &seen).await?;
        Ok(LiveConnection::new(client, seen, record))
    }

    /// Records the end of a connection. Returns whether the next one can be opened at once.
    fn replace<P>(&self, live: &LiveConnection<P>) -> bool {
        let Some(end) = live.end() else { return true };
        let mut recorder = self.recorder.now();
        if end == EndedBy::Limit && !live.seen.is_ended() {
            recorder.close(&live.record.borrow());
            recorder.record(|tally| tally.closed_by_generator += 1);
            return true;
        }
        recorder.record(|tally| match live.is_ended_by_server() {
            true => tally.closed_by_server += 1,
            false => tally.closed_by_generator += 1,
        });
        // Count a failure, so that a server that always does so cannot keep the run from ending.
        let useless = match end {
            EndedBy::GoAway if live.responses.get() == 0 => "GOAWAY before any response",
            EndedBy::Rejected => "the server rejected the early data",
            _ => "",
        };
        if !useless.is_empty() {
            recorder.fail_connection(ErrorKind::Closed, || useless.to_owned());
            return false;
        }
        end == EndedBy::GoAway || live.responses.get() > 0 && live.seen.is_ended()
    }

    /// Returns `true` if all requests have been sent.
    fn is_done(&self) -> bool {
        let recorder = self.recorder.now();
        recorder.has_ended() || recorder.is_exhausted()
    }

    /// Returns the next request of a user of the connection; `None` if there are no more, or the connection takes none.
    async fn next_request<P: StreamProtocol>(&self, live: &LiveConnection<P>) -> Option<Pending> {
        loop {
            if live.seen.is_ended() && live.open.get() == 0 {
                live.end_by(EndedBy::Failure);
            }
            if live.issued.get() >= self.requests_each {
                live.end_by(EndedBy::Limit);
            }
            if live.end().is_some() {
                return None;
            }
            if !live.has_room() {
                if self.recorder.now().has_ended() {
                    return None;
                }
                // The server may raise its limit at any time, without notice here.
                tokio::select! {
                    () = live.freed.notified() => {}
                    () = tokio::time::sleep(RETRY) => {}
                }
                continue;
            }
            let next = self.recorder.now().next_request(&mut None);
            if next.is_some() || self.is_done() {
                return next;
            }
            tokio::select! {
                () = self.arrived.notified() => {
                    if live.end().is_some() || !live.has_room() {
                        // Another connection takes the arrival.
                        self.arrived.notify_one();
                    }
                }
                () = live.ended.notified() => {}
            }
        }
    }

    /// A user: sends one request after the other, until there are no more or the connection ends.
    async fn user<P: StreamProtocol>(&self, live: &LiveConnection<P>, slot: u32, stream: u32) {
        let streams = self.job.plan.streams;
        let number = self.part.number(u64::from(slot)) * u64::from(streams) + u64::from(stream);
        let user = slot as usize * streams as usize + stream as usize;
        let mut chooser = self.job.chooser(number);
        let mut rejections = 0;
        while let Some(next) = self.next_request(live).await {
            let Some((url, sent)) = self.issue(live, user, next, &mut chooser) else { return };
            let result = self.exchange(live, user, url, sent).await;
            live.open.set(live.open.get() - 1);
            live.freed.notify_one();
            let Some(request) = self.flight.borrow_mut()[user].take() else { return };
            let has_result = match result {
                Ok(response) => {
                    let record = &mut live.record.borrow_mut();
                    self.recorder.now().complete(self.job, record, &request, &response);
                    rejections = 0;
                    true
                }
                Err(failed) => self.fail(live, request, failed, &mut rejections).await,
            };
            if has_result {
                self.pause().await;
            }
        }
    }

    /// Records that a request is sent. Returns the index of its URL, and the time; `None` if there is no such URL.
    fn issue<P>(
        &self,
        live: &LiveConnection<P>,
        user: usize,
        next: Pending,
        chooser: &mut Chooser,
    ) -> Option<(u32, u64)> {
        let mut recorder = self.recorder.now();
        let url = recorder.url(&next, chooser);
        let request = recorder.issue(next, url, self.job.requests.get(url as usize)?);
        live.open.set(live.open.get() + 1);
        live.issued.set(live.issued.get() + 1);
        recorder.depth(live.open.get() as u32);
        self.flight.borrow_mut()[user] = Some(request);
        Some((url, recorder.now))
    }

    /// Sends a request and reads its response, within the time that a response may take.
    async fn exchange<P: StreamProtocol>(
        &self,
        live: &LiveConnection<P>,
        user: usize,
        url: u32,
        sent: u64,
    ) -> Result<PartialResponse, Failed> {
        let seconds = self.job.plan.timeout_seconds;
        let due = sent.saturating_add(nanos(seconds));
        let mut response = pin!(P::exchange(live, self.job, &self.recorder, url));
        let result = poll_fn(|cx| {
            if let Poll::Ready(result) = response.as_mut().poll(cx) {
                return Poll::Ready(Some(result));
            }
            // The task that wakes overdue users has just read the clock.
            if self.recorder.last().now >= due {
                return Poll::Ready(None);
            }
            self.overdue.watch(user, due, cx);
            Poll::Pending
        });
        match result.await {
            Some(Ok(response)) => {
                live.responses.set(live.responses.get() + 1);
                Ok(response)
            }
            Some(Err(failed)) => Err(failed),
            None => {
                // The stream is reset (CANCEL). A connection on which nothing has arrived meanwhile is given up.
                if live.seen.last.get() < sent {
                    live.end_by(EndedBy::Silence);
                }
                Err(Failed::For(ErrorKind::Timeout, format!("after {seconds} s")))
            }
        }
    }

    /// Records that a request has no response, or sends it again. Returns whether it has failed.
    async fn fail<P>(
        &self,
        live: &LiveConnection<P>,
        request: InFlight,
        failed: Failed,
        rejections: &mut u32,
    ) -> bool {
        let url = url_of(self.job, request.url);
        let (kind, reason) = match failed {
            Failed::NotProcessed => {
                self.recorder.now().send_again(iter::once(request));
                self.arrived.notify_one();
                return false;
            }
            Failed::Refused if *rejections < MAX_REJECTIONS => {
                {
                    let mut recorder = self.recorder.now();
                    recorder.send_again(iter::once(request));
                    recorder.record(|tally| tally.refused_streams += 1);
                }
                self.arrived.notify_one();
                if live.reject_stream() {
                    tokio::time::sleep(RETRY * 2_u32.pow(*rejections)).await;
                    *rejections += 1;
                }
                return false;
            }
            Failed::Refused => {
                *rejections = 0;
                let times = MAX_REJECTIONS + 1;
                (ErrorKind::StreamReset, format!("the server rejected the stream {times} times"))
            }
            Failed::Lost(kind, reason) if request.repeats > 0 && live.responses.get() > 0 => {
                let reason = || format!("{url}: {reason}");
                self.recorder.now().lose(kind, iter::once(request), reason);
                self.arrived.notify_one();
                return false;
            }
            Failed::Lost(kind, reason) | Failed::For(kind, reason) => (kind, reason),
        };
        self.recorder.now().fail(kind, iter::once(request), || format!("{url}: {reason}"));
        true
    }

    /// The think time.
    async fn pause(&self) {
        if self.think > 0 {
            let now = self.recorder.now().now;
            self.timers.sleep_until(now.saturating_add(self.think)).await;
        }
    }
}
