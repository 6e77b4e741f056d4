//! A worker for HTTP/2. Each connection has a number of users, each with one stream at a time. The measurements are those of
//! HTTP/1.

mod live;
mod state;
mod timers;
mod wire;

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use dunlin_client::describe_tls_error;
use h2::client::{Builder, SendRequest};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::task::LocalSet;

use super::clock::{Clock, nanos};
use super::job::Job;
use super::recorder::{Recorder, Times};
use super::response::compare;
use super::shared::Pending;
use super::tally::Tally;
use crate::arrivals::Schedule;
use crate::choose::Chooser;
use crate::outcome::ErrorKind;
use crate::plan::{End, Model, Verify};
use crate::progress::Slot;
use crate::segment::Segment;
use crate::verify::{Digest, Expected};
use live::{EndedBy, Failed, Live, Progressed};
use state::State;
use timers::Timers;
use wire::{Seen, Wire};

/// Size of the receive windows, so large that flow control never blocks the server.
const WINDOW: u32 = (1 << 31) - 1;
/// Interval in which progress is published.
const TICK: Duration = Duration::from_millis(50);
/// Delay before a failed connection is opened again.
const RETRY: Duration = Duration::from_millis(10);
/// How often the only stream of a connection is refused before its request has failed. The delay doubles each time.
const MAX_REJECTIONS: u32 = 6;

/// State that the tasks of a worker share.
struct Shared<'a> {
    job: &'a Job,
    clock: Clock,
    state: Rc<RefCell<State>>,
    timers: Timers,
    /// End of the run.
    ends: u64,
    think: u64,
    /// Notified when an arrival is due.
    arrived: Notify,
}

/// Runs a worker to its end. Returns its tally, and the end in nanoseconds since the start.
pub(super) fn run(
    job: &Job,
    clock: Clock,
    index: u32,
    slot: &Slot,
) -> (io::Result<()>, Tally, u64) {
    let plan = &job.plan;
    let part = plan.part_of_thread(index);
    let recorder = Recorder::new(plan);
    let ends = recorder.ends;
    let state = Rc::new(RefCell::new(State {
        recorder,
        left: match plan.end {
            End::Seconds(_) => u64::MAX,
            End::Requests(count) => part.share(count),
        },
        in_flight: BTreeMap::new(),
        serial: 0,
        waiting: VecDeque::new(),
        again: VecDeque::new(),
        all_due: matches!(plan.model, Model::Closed { .. }),
        alive: 0,
        learned: vec![None; if plan.verify == Verify::FirstResponse { plan.urls.len() } else { 0 }],
        each: vec![0; part.share(u64::from(plan.connections)) as usize],
    }));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let result = runtime.and_then(|runtime| {
        let _entered = runtime.enter();
        let shared = Shared {
            job,
            clock,
            state: Rc::clone(&state),
            timers: Timers::new(clock)?,
            ends,
            think: match plan.model {
                Model::Closed { think_seconds } => nanos(think_seconds),
                _ => 0,
            },
            arrived: Notify::new(),
        };
        runtime.block_on(shared.run(part, slot))
    });
    let end = clock.now().min(ends);
    let mut state = state.borrow_mut();
    let state = &mut *state;
    let at = state.recorder.at(end);
    let late = state.recorder.take_late();
    let tally = &mut state.recorder.tally;
    if !state.in_flight.is_empty() || !late.is_empty() {
        tally.series.end(at);
    }
    tally.each.append(&mut state.each);
    if state.left == 0 {
        state.waiting.clear();
    }
    let again = state.again.iter().map(|request| request.due);
    let waiting = state.waiting.iter().copied().chain(again);
    tally.finish(end, state.in_flight.values().copied().chain(late), waiting);
    (result, std::mem::replace(tally, Tally::new(0)), end)
}

impl Shared<'_> {
    async fn run(&self, part: Segment, slot: &Slot) -> io::Result<()> {
        let plan = &self.job.plan;
        let tasks = async {
            let connections = part.share(u64::from(plan.connections));
            let connections = (0..connections).map(|nth| self.connection(nth, part.number(nth)));
            let all = futures_util::future::join_all(connections);
            match &plan.model {
                Model::OpenRequests(arrivals) => {
                    let seconds = match plan.end {
                        End::Seconds(seconds) => plan.warmup_seconds + seconds,
                        End::Requests(_) => f64::INFINITY,
                    };
                    let schedule = Schedule::new(arrivals, plan.seed, seconds).segment(part);
                    tokio::join!(self.arrivals(schedule), all);
                }
                _ => {
                    all.await;
                }
            }
            // A run of some duration lasts until its end.
            if let End::Seconds(_) = plan.end {
                std::future::pending::<()>().await;
            }
        };
        let watch = async {
            loop {
                let (now, tick) = (self.clock.now(), TICK.as_nanos() as u64);
                self.timers.sleep_until((now + tick).min(self.ends)).await;
                let now = self.clock.now();
                let state = self.state.borrow();
                let recorder = &state.recorder;
                slot.publish(recorder.tally.snapshot(recorder.at(now), recorder.in_flight));
                if slot.is_stopped() || now >= self.ends {
                    return;
                }
            }
        };
        LocalSet::new()
            .run_until(async {
                tokio::select! {
                    () = tasks => Ok(()),
                    () = watch => Ok(()),
                    error = self.timers.run() => error,
                }
            })
            .await
    }

    /// Queues each arrival when it is due.
    async fn arrivals(&self, mut schedule: Schedule) {
        // A worker without a request has no arrival either.
        let mut next = if self.state.borrow().left > 0 { schedule.next() } else { None };
        while let Some(due) = next {
            if due > self.clock.now() {
                self.timers.sleep_until(due).await;
            }
            let mut state = self.state.borrow_mut();
            if state.is_last_due(due) {
                break;
            }
            state.recorder.arrive(self.clock.now(), due);
            state.waiting.push_back(due);
            let (own, following) = schedule.next_and_following();
            next = if state.is_last_due(due) { following } else { own };
            drop(state);
            self.arrived.notify_one();
        }
        let mut state = self.state.borrow_mut();
        let state = &mut *state;
        state.all_due = true;
        state.recorder.all_due(self.clock.now(), state.waiting.iter().copied());
        self.arrived.notify_waiters();
    }

    /// A connection slot: a connection, and those that replace it.
    async fn connection(&self, slot: u64, number: u64) {
        let timeout = Duration::from_secs_f64(self.job.plan.timeout_seconds);
        while !self.is_done() {
            match tokio::time::timeout(timeout, self.open()).await {
                Ok(Ok(live)) => {
                    let streams = (0..u64::from(self.job.plan.streams)).map(|stream| {
                        let number = number * u64::from(self.job.plan.streams) + stream;
                        self.stream(&live, slot as usize, number)
                    });
                    futures_util::future::join_all(streams).await;
                    if self.replace(&live) {
                        continue;
                    }
                }
                Ok(Err(error)) => {
                    let address = self.job.address;
                    let reason =
                        || format!("{} (connecting to {address})", describe_tls_error(&error));
                    self.fail_connection(ErrorKind::of(&error, ErrorKind::Tls), reason);
                }
                Err(_) => {
                    let (address, seconds) = (self.job.address, timeout.as_secs_f64());
                    let reason = || format!("connecting to {address} for {seconds} s");
                    self.fail_connection(ErrorKind::Timeout, reason);
                }
            }
            tokio::time::sleep(RETRY).await;
        }
    }

    /// Records the end of a connection. Returns whether the next one can be opened at once.
    fn replace(&self, live: &Live) -> bool {
        let Some(end) = live.end() else { return true };
        let now = self.clock.now();
        self.state.borrow_mut().recorder.record(now, |tally| match live.is_ended_by_server() {
            true => tally.closed_by_server += 1,
            false => tally.closed_by_generator += 1,
        });
        if end == EndedBy::GoAway && live.responses.get() == 0 {
            // Count a failure, so that a server that always sends GOAWAY cannot keep the run from ending.
            let reason = || "GOAWAY before any response".to_owned();
            self.fail_connection(ErrorKind::Closed, reason);
            return false;
        }
        end == EndedBy::GoAway || live.responses.get() > 0 && live.seen.is_ended()
    }

    /// Returns `true` if all requests have been sent.
    fn is_done(&self) -> bool {
        let now = self.clock.now();
        let state = self.state.borrow();
        if now >= self.ends {
            return true;
        }
        let timeout = nanos(self.job.plan.timeout_seconds);
        let sent = state.left == 0
            || state.all_due && !self.is_closed() && state.waiting.is_empty()
            || state.left != u64::MAX
                && state.all_due
                && !self.is_closed()
                && now.saturating_sub(state.alive) > timeout;
        sent && state.again.is_empty()
    }

    fn is_closed(&self) -> bool {
        matches!(self.job.plan.model, Model::Closed { .. })
    }

    /// Records an attempt to connect that failed. In the closed model it takes the place of a request.
    fn fail_connection(&self, kind: ErrorKind, reason: impl FnOnce() -> String) {
        let now = self.clock.now();
        let mut state = self.state.borrow_mut();
        state.recorder.fail_connection(now, kind, reason);
        if self.is_closed() && !state.may_send(now) {
            state.again.pop_front();
        }
    }

    async fn open(&self) -> io::Result<Live> {
        let began = self.clock.now();
        let socket = TcpStream::connect(self.job.address).await?;
        socket.set_nodelay(self.job.plan.request.no_delay)?;
        let connected = self.clock.now();
        let mut counted = false;
        {
            let mut state = self.state.borrow_mut();
            state.alive = connected;
            state.recorder.use_connection(connected, &mut counted);
            state.recorder.record(connected, |tally| {
                tally.connect.saturating_record(connected - began);
            });
        }
        let seen = Rc::new(Seen::default());
        let client = match &self.job.tls {
            None => self.handshake(socket, &seen).await?,
            Some(tls) => {
                let connector = tokio_rustls::TlsConnector::from(Arc::clone(&tls.config));
                let stream = connector.connect(tls.name.clone(), socket).await?;
                let (_, session) = stream.get_ref();
                if session.alpn_protocol() != Some(b"h2") {
                    return Err(io::Error::other("the server does not negotiate h2"));
                }
                let resumed = session.handshake_kind() == Some(rustls::HandshakeKind::Resumed);
                let now = self.clock.now();
                self.state.borrow_mut().recorder.record(now, |tally| {
                    tally.tls_resumed += u64::from(resumed);
                    tally.tls.saturating_record(now - connected);
                });
                self.handshake(stream, &seen).await?
            }
        };
        let live = Live::new(client, seen);
        live.counted.set(counted);
        Ok(live)
    }

    async fn handshake<T>(&self, stream: T, seen: &Rc<Seen>) -> io::Result<SendRequest<Bytes>>
    where
        T: AsyncRead + AsyncWrite + Unpin + 'static,
    {
        let wire = Wire::new(stream, self.clock, Rc::clone(&self.state), Rc::clone(seen));
        let mut builder = Builder::new();
        builder
            .initial_window_size(WINDOW)
            .initial_connection_window_size(WINDOW)
            .enable_push(false);
        let (client, connection) = builder.handshake(wire).await.map_err(io::Error::other)?;
        tokio::task::spawn_local(async move {
            // Its streams report errors of the connection.
            let _ = connection.await;
        });
        Ok(client)
    }

    /// Returns the next request of a user of the connection; `None` if there are no more, or the connection takes none.
    async fn next_request(&self, live: &Live) -> Option<Pending> {
        loop {
            if live.seen.is_ended() && live.open.get() == 0 {
                live.end_by(EndedBy::Failure);
            }
            if live.end().is_some() || self.clock.now() >= self.ends {
                return None;
            }
            if !live.has_room() {
                // The server may raise its limit at any time, without notice here.
                tokio::select! {
                    () = live.freed.notified() => {}
                    () = tokio::time::sleep(RETRY) => {}
                }
                continue;
            }
            if let Some(next) = self.state.borrow_mut().next(self.clock.now(), self.is_closed()) {
                return Some(next);
            }
            if self.is_done() {
                return None;
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
    async fn stream(&self, live: &Live, slot: usize, number: u64) {
        let plan = &self.job.plan;
        let mut chooser = Chooser::new(
            &plan.choice,
            &self.job.table,
            plan.urls.len(),
            plan.seed,
            number,
            plan.connections * plan.streams,
        );
        let mut rejections = 0;
        while let Some(next) = self.next_request(live).await {
            let url = next.url.map_or_else(|| chooser.draw(), |url| url as usize);
            let flight = self.issue(live, &next);
            let result = self.exchange(live, slot, url, flight).await;
            live.open.set(live.open.get() - 1);
            live.freed.notify_one();
            let Err(failed) = result else {
                rejections = 0;
                self.pause().await;
                continue;
            };
            let may_repeat = next.repeats > 0 && live.responses.get() > 0 && self.is_safe(url);
            let (kind, reason) = match failed {
                Failed::NotProcessed => {
                    self.send_again(flight, Pending { url: Some(url as u32), ..next });
                    continue;
                }
                Failed::Refused if rejections < MAX_REJECTIONS => {
                    let now = self.clock.now();
                    self.send_again(flight, Pending { url: Some(url as u32), ..next });
                    let count = |tally: &mut Tally| tally.refused_streams += 1;
                    self.state.borrow_mut().recorder.record(now, count);
                    if live.reject_stream() {
                        tokio::time::sleep(RETRY * 2_u32.pow(rejections)).await;
                        rejections += 1;
                    }
                    continue;
                }
                Failed::Refused => {
                    rejections = 0;
                    let reason =
                        format!("the server rejected the stream {} times", MAX_REJECTIONS + 1);
                    (ErrorKind::StreamReset, reason)
                }
                Failed::Lost(kind, reason) if may_repeat => {
                    let reason = format!("{}: {reason}", plan.urls[url]);
                    self.lose(
                        flight,
                        Pending { url: Some(url as u32), repeats: next.repeats - 1, ..next },
                        kind,
                        reason,
                    );
                    continue;
                }
                Failed::Lost(kind, reason) | Failed::For(kind, reason) => (kind, reason),
            };
            self.fail(flight, kind, || format!("{}: {reason}", plan.urls[url]));
            self.pause().await;
        }
    }

    fn is_safe(&self, url: usize) -> bool {
        self.job.http2.get(url).is_some_and(|request| request.is_safe)
    }

    /// The think time.
    async fn pause(&self) {
        if self.think > 0 {
            self.timers.sleep_until(self.clock.now() + self.think).await;
        }
    }

    /// Records that a request is sent. Returns its number among those in flight.
    fn issue(&self, live: &Live, next: &Pending) -> u64 {
        live.open.set(live.open.get() + 1);
        let now = self.clock.now();
        let mut state = self.state.borrow_mut();
        let state = &mut *state;
        state.recorder.issue(now);
        state.recorder.depth(now, live.open.get() as u32);
        state.serial += 1;
        state.in_flight.insert(state.serial, Times { due: next.due, sent: now });
        state.serial
    }

    /// Queues a request that the server did not process, to be sent again before others.
    fn send_again(&self, flight: u64, pending: Pending) {
        let mut state = self.state.borrow_mut();
        state.in_flight.remove(&flight);
        state.recorder.withdraw(1);
        state.again.push_front(pending);
        self.arrived.notify_one();
    }

    /// Queues a request that was lost with its connection.
    fn lose(&self, flight: u64, pending: Pending, kind: ErrorKind, reason: String) {
        let now = self.clock.now();
        let mut state = self.state.borrow_mut();
        state.in_flight.remove(&flight);
        state.recorder.lose(now, kind, 1, || reason);
        state.again.push_front(pending);
        self.arrived.notify_one();
    }

    fn fail(&self, flight: u64, kind: ErrorKind, reason: impl FnOnce() -> String) {
        let now = self.clock.now();
        let mut state = self.state.borrow_mut();
        let times = state.in_flight.remove(&flight);
        state.recorder.fail(now, kind, times.into_iter(), reason);
    }

    /// Sends a request and reads its response, within the time that a response may take.
    async fn exchange(
        &self,
        live: &Live,
        slot: usize,
        url: usize,
        flight: u64,
    ) -> Result<(), Failed> {
        let seconds = self.job.plan.timeout_seconds;
        let sent = self.clock.now();
        let response = self.respond(live, slot, url, flight);
        match tokio::time::timeout(Duration::from_secs_f64(seconds), response).await {
            Ok(result) => result,
            Err(_) => {
                // The stream is reset (CANCEL). A connection on which nothing has arrived meanwhile is given up.
                if live.seen.last.get() < sent {
                    live.end_by(EndedBy::Silence);
                }
                Err(Failed::For(ErrorKind::Timeout, format!("after {seconds} s")))
            }
        }
    }

    async fn respond(
        &self,
        live: &Live,
        slot: usize,
        url: usize,
        flight: u64,
    ) -> Result<(), Failed> {
        let mut progressed = Progressed::default();
        match self.read(live, url, &mut progressed).await {
            Ok(read) => {
                live.responses.set(live.responses.get() + 1);
                self.complete(live, slot, url, flight, &read);
                Ok(())
            }
            Err(Some(error)) => Err(Failed::of(&error, live, progressed)),
            Err(None) => Err(Failed::For(ErrorKind::Other, "there is no such request".to_owned())),
        }
    }

    async fn read(
        &self,
        live: &Live,
        url: usize,
        progressed: &mut Progressed,
    ) -> Result<Response, Option<h2::Error>> {
        let request = self.job.http2.get(url).cloned().ok_or(None)?;
        let head_only = request.head.method() == http::Method::HEAD;
        let mut client = live.client.clone();
        std::future::poll_fn(|context| client.poll_ready(context)).await?;
        let (response, mut sender) = client.send_request(request.head, request.body.is_empty())?;
        if !request.body.is_empty() {
            sender.send_data(request.body, true)?;
        }
        let response = response.await?;
        let first_byte = self.clock.now();
        let status = response.status().as_u16();
        let announced = response.headers().get(http::header::CONTENT_LENGTH);
        progressed.has_head = true;
        progressed.announced =
            announced.filter(|_| !head_only).and_then(|length| length.to_str().ok()?.parse().ok());
        let mut stream = response.into_body();
        let mut digest = Digest::default();
        while let Some(piece) = stream.data().await {
            let piece = piece?;
            stream.flow_control().release_capacity(piece.len())?;
            progressed.length += piece.len() as u64;
            if self.job.plan.verify != Verify::Status {
                digest.update(&piece);
            }
        }
        let found = Expected { length: progressed.length, hash: digest.finish() };
        Ok(Response { status, head_only, first_byte, found })
    }

    fn complete(&self, live: &Live, slot: usize, url: usize, flight: u64, response: &Response) {
        let Response { status, head_only, first_byte, found } = *response;
        let now = self.clock.now();
        let mut state = self.state.borrow_mut();
        let state = &mut *state;
        state.alive = now;
        let mut counted = live.counted.get();
        state.recorder.use_connection(now, &mut counted);
        live.counted.set(counted);
        let Some(times) = state.in_flight.remove(&flight) else { return };
        let expected = match state.learned.get_mut(url) {
            None => self.job.reference.expected(url),
            Some(first) => Some(*first.get_or_insert(found)),
        };
        let wrong = compare(self.job, status, head_only, found, expected);
        let reason =
            || format!("{}: status {status}, {} bytes", self.job.plan.urls[url], found.length);
        let checked = wrong.map(|kind| (kind, &reason as &dyn Fn() -> String));
        if state.recorder.complete(now, times, first_byte, status, checked)
            && let Some(count) = state.each.get_mut(slot)
        {
            *count += 1;
        }
    }
}

/// A complete response.
struct Response {
    status: u16,
    head_only: bool,
    /// Time of the first byte.
    first_byte: u64,
    found: Expected,
}
