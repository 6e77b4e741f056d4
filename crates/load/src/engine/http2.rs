//! A worker for HTTP/2. Each connection has a fixed number of concurrent requests. The measurements are those of HTTP/1.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, VecDeque};
use std::io;
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
use super::response::compare;
use super::tally::Tally;
use crate::arrivals::Schedule;
use crate::choose::Chooser;
use crate::outcome::ErrorKind;
use crate::plan::{End, Model, Verify};
use crate::progress::Slot;
use crate::segment::Segment;
use crate::verify::{Digest, Expected};

/// Size of the receive windows, so large that flow control never blocks the server.
const WINDOW: u32 = (1 << 31) - 1;
/// Interval in which progress is published and the end is checked.
const TICK: Duration = Duration::from_millis(50);
/// Delay before a failed connection is opened again.
const RETRY: Duration = Duration::from_millis(10);

/// State that the tasks of a worker share.
struct Shared<'a> {
    job: &'a Job,
    clock: Clock,
    state: RefCell<State>,
    counts_from: u64,
    ends: u64,
    /// Notified when an arrival is due.
    arrived: Notify,
}

struct State {
    tally: Tally,
    left: u64,
    /// The time when each request in flight was due, with a serial number.
    in_flight: BTreeSet<(u64, u64)>,
    serial: u64,
    due: VecDeque<u64>,
    /// Whether all arrivals have been due.
    all_due: bool,
    learned: Vec<Option<Expected>>,
}

/// Result of a connection, as its streams have seen it.
#[derive(Default)]
struct ConnectionResult {
    responses: Cell<u64>,
    /// Reason why no more streams can be opened.
    ended: Cell<Option<Ended>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Ended {
    /// The server sent GOAWAY.
    GoneAway,
    Failed,
}

impl ConnectionResult {
    /// Records the reason. A failure takes precedence.
    fn end(&self, reason: Ended) {
        if self.ended.get() != Some(Ended::Failed) {
            self.ended.set(Some(reason));
        }
    }
}

/// Reason why a request has no response.
enum Failed {
    /// The server ended the connection gracefully and did not process this request, which can be sent again
    /// (RFC 9113 §6.8).
    NotServed,
    For(ErrorKind, String),
}

impl From<h2::Error> for Failed {
    fn from(error: h2::Error) -> Self {
        let is_graceful = error.reason() == Some(h2::Reason::NO_ERROR);
        let kind = match error.get_io() {
            Some(error) => ErrorKind::of(error, ErrorKind::Closed),
            // The h2 crate returns this error for streams above the last one that is served and for those that were
            // not opened. Lower streams end with a response or another error.
            None if error.is_go_away() && error.is_remote() && is_graceful => {
                return Self::NotServed;
            }
            None if error.is_go_away() => ErrorKind::Closed,
            None if error.is_reset() => ErrorKind::Reset,
            None => ErrorKind::Protocol,
        };
        Self::For(kind, error.to_string())
    }
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
    let counts_from = nanos(plan.warmup_seconds);
    let (left, ends) = match plan.end {
        End::Seconds(seconds) => (u64::MAX, counts_from + nanos(seconds)),
        End::Requests(count) => (part.share(count), u64::MAX),
    };
    let shared = Shared {
        job,
        clock,
        state: RefCell::new(State {
            tally: Tally::new(plan.connections as usize),
            left,
            in_flight: BTreeSet::new(),
            serial: 0,
            due: VecDeque::new(),
            all_due: matches!(plan.model, Model::Closed { .. }),
            learned: vec![
                None;
                if plan.verify == Verify::FirstResponse { plan.urls.len() } else { 0 }
            ],
        }),
        counts_from,
        ends,
        arrived: Notify::new(),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let result = runtime.map(|runtime| {
        runtime.block_on(shared.run(part, slot));
    });
    let end = clock.now().min(ends);
    let State { mut tally, in_flight, due, .. } = shared.state.into_inner();
    if !in_flight.is_empty() {
        tally.series.end(end.saturating_sub(counts_from));
    }
    // A stream takes a request when it can be sent, so that it is sent when it is due.
    tally.finish(end, in_flight.iter().map(|(due, _)| (*due, *due)), due.into_iter());
    (result, tally, end)
}

impl Shared<'_> {
    async fn run(&self, part: Segment, slot: &Slot) {
        let plan = &self.job.plan;
        let tasks = async {
            let connections = part.share(u64::from(plan.connections));
            let numbers = (0..connections).map(|nth| part.number(nth));
            let all = futures_util::future::join_all(numbers.map(|number| self.connection(number)));
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
        };
        let watch = async {
            loop {
                tokio::time::sleep(TICK).await;
                {
                    let state = self.state.borrow();
                    slot.publish(state.tally.snapshot(state.in_flight.len() as u64));
                }
                if slot.is_stopped() || self.clock.now() >= self.ends {
                    return;
                }
            }
        };
        LocalSet::new()
            .run_until(async {
                tokio::select! {
                    () = tasks => {}
                    () = watch => {}
                }
            })
            .await;
    }

    /// Queues each arrival when it is due.
    async fn arrivals(&self, schedule: Schedule) {
        for due in schedule {
            let now = self.clock.now();
            if due > now {
                tokio::time::sleep(Duration::from_nanos(due - now)).await;
            }
            let mut state = self.state.borrow_mut();
            if state.left == 0 {
                break;
            }
            let now = self.clock.now();
            if self.is_counting(now) {
                state.tally.lag.saturating_record(now.saturating_sub(due));
            }
            state.due.push_back(due);
            drop(state);
            self.arrived.notify_one();
        }
        self.state.borrow_mut().all_due = true;
        self.arrived.notify_waiters();
    }

    fn is_counting(&self, now: u64) -> bool {
        now >= self.counts_from && now < self.ends
    }

    fn fault(&self, kind: ErrorKind, reason: impl FnOnce() -> String) {
        let at = self.clock.now().saturating_sub(self.counts_from);
        let mut state = self.state.borrow_mut();
        state.tally.fault(kind, 1, reason);
        state.tally.series.error(at);
    }

    /// A connection slot: a connection, and those that replace it.
    async fn connection(&self, number: u64) {
        let timeout = Duration::from_secs_f64(self.job.plan.timeout_seconds);
        while self.state.borrow().left > 0 && self.clock.now() < self.ends {
            match tokio::time::timeout(timeout, self.open()).await {
                Ok(Ok(client)) => {
                    let connection = ConnectionResult::default();
                    let streams = (0..u64::from(self.job.plan.streams)).map(|stream| {
                        let number = number * u64::from(self.job.plan.streams) + stream;
                        self.stream(client.clone(), number, &connection)
                    });
                    futures_util::future::join_all(streams).await;
                    let ended = connection.ended.get();
                    if ended.is_none() && self.is_done() {
                        return;
                    }
                    self.state.borrow_mut().tally.closed_by_server += 1;
                    if ended == Some(Ended::GoneAway) {
                        if connection.responses.get() > 0 {
                            continue;
                        }
                        // Count a failure, so that a server that always sends GOAWAY cannot keep the run from ending.
                        self.fault(ErrorKind::Closed, || "GOAWAY before any response".to_owned());
                        self.count_failed_connection();
                    }
                }
                Ok(Err(error)) => {
                    let reason = || {
                        format!(
                            "{} (connecting to {})",
                            describe_tls_error(&error),
                            self.job.address
                        )
                    };
                    self.fault(ErrorKind::of(&error, ErrorKind::Tls), reason);
                    self.count_failed_connection();
                }
                Err(_) => {
                    let reason = || format!("connecting to {}", self.job.address);
                    self.fault(ErrorKind::Timeout, reason);
                    self.count_failed_connection();
                }
            }
            tokio::time::sleep(RETRY).await;
        }
    }

    fn is_done(&self) -> bool {
        let state = self.state.borrow();
        state.left == 0
            || self.clock.now() >= self.ends
            || state.all_due && !matches!(self.job.plan.model, Model::Closed { .. })
    }

    fn count_failed_connection(&self) {
        let mut state = self.state.borrow_mut();
        if state.left != u64::MAX {
            state.left = state.left.saturating_sub(1);
        }
    }

    async fn open(&self) -> io::Result<SendRequest<Bytes>> {
        let began = self.clock.now();
        let socket = TcpStream::connect(self.job.address).await?;
        socket.set_nodelay(self.job.plan.request.no_delay)?;
        let connected = self.clock.now();
        {
            let mut state = self.state.borrow_mut();
            state.tally.opened += 1;
            if self.is_counting(connected) {
                state.tally.connect.saturating_record(connected - began);
            }
        }
        match &self.job.tls {
            None => handshake(socket).await,
            Some(tls) => {
                let connector = tokio_rustls::TlsConnector::from(Arc::clone(&tls.config));
                let stream = connector.connect(tls.name.clone(), socket).await?;
                let (_, session) = stream.get_ref();
                if session.alpn_protocol() != Some(b"h2") {
                    return Err(io::Error::other("the server does not negotiate h2"));
                }
                let resumed = session.handshake_kind() == Some(rustls::HandshakeKind::Resumed);
                {
                    let mut state = self.state.borrow_mut();
                    state.tally.tls_resumed += u64::from(resumed);
                    state.tally.tls.saturating_record(self.clock.now() - connected);
                }
                handshake(stream).await
            }
        }
    }

    /// The time when the next request is due; `None` if there are no more.
    async fn next_due(&self) -> Option<u64> {
        loop {
            {
                let now = self.clock.now();
                let mut state = self.state.borrow_mut();
                if state.left == 0 || now >= self.ends {
                    return None;
                }
                let due = match &self.job.plan.model {
                    Model::Closed { .. } => Some(now),
                    _ => state.due.pop_front(),
                };
                if due.is_some() {
                    if state.left != u64::MAX {
                        state.left -= 1;
                    }
                    return due;
                }
                if state.all_due {
                    return None;
                }
            }
            self.arrived.notified().await;
        }
    }

    /// Returns a request that the server did not process, to be sent again.
    fn send_again(&self, due: u64) {
        let mut state = self.state.borrow_mut();
        // Saturates for runs without a number of requests.
        state.left = state.left.saturating_add(1);
        if !matches!(self.job.plan.model, Model::Closed { .. }) {
            state.due.push_front(due);
            self.arrived.notify_one();
        }
    }

    /// Sends one request after the other, until there are no more or the connection ends.
    async fn stream(
        &self,
        mut client: SendRequest<Bytes>,
        number: u64,
        connection: &ConnectionResult,
    ) {
        let plan = &self.job.plan;
        let mut chooser = Chooser::new(
            &plan.choice,
            &self.job.table,
            plan.urls.len(),
            plan.seed,
            number,
            plan.connections * plan.streams,
        );
        let timeout = Duration::from_secs_f64(plan.timeout_seconds);
        while let Some(due) = self.next_due().await {
            let flight = {
                let mut state = self.state.borrow_mut();
                if state.in_flight.is_empty() {
                    let at = self.clock.now().saturating_sub(self.counts_from);
                    state.tally.series.resume(at);
                }
                state.serial += 1;
                let flight = (due, state.serial);
                state.in_flight.insert(flight);
                let in_flight = state.in_flight.len() as u64;
                state.tally.depth.0 += 1;
                state.tally.depth.1 +=
                    in_flight / plan.own_connections().max(1).min(in_flight).max(1);
                state.tally.depth_max =
                    state.tally.depth_max.max(plan.streams.min(in_flight as u32));
                flight
            };
            let url = chooser.draw();
            let result = tokio::time::timeout(timeout, self.exchange(&mut client, url, due)).await;
            self.state.borrow_mut().in_flight.remove(&flight);
            let failed = match result {
                Ok(Ok(())) => None,
                Ok(Err(Failed::NotServed)) => {
                    connection.end(Ended::GoneAway);
                    return self.send_again(due);
                }
                Ok(Err(Failed::For(kind, reason))) => Some((kind, reason)),
                Err(_) => Some((ErrorKind::Timeout, format!("after {} s", plan.timeout_seconds))),
            };
            if let Some((kind, reason)) = failed {
                connection.end(Ended::Failed);
                return self.fault(kind, || format!("{}: {reason}", plan.urls[url]));
            }
            connection.responses.set(connection.responses.get() + 1);
            if let Model::Closed { think_seconds } = plan.model
                && think_seconds > 0.0
            {
                tokio::time::sleep(Duration::from_secs_f64(think_seconds)).await;
            }
        }
    }

    async fn exchange(
        &self,
        client: &mut SendRequest<Bytes>,
        url: usize,
        due: u64,
    ) -> Result<(), Failed> {
        std::future::poll_fn(|cx| client.poll_ready(cx)).await?;
        let (request, body) = self
            .job
            .http2_request(url)
            .ok_or_else(|| Failed::For(ErrorKind::Other, "the request is invalid".to_owned()))?;
        let head_only = request.method() == http::Method::HEAD;
        let sent = self.clock.now();
        let (response, mut sender) = client.send_request(request, body.is_empty())?;
        if !body.is_empty() {
            sender.send_data(body, true)?;
        }
        let response = response.await?;
        let first_byte = self.clock.now();
        let status = response.status().as_u16();
        let mut stream = response.into_body();
        let (mut length, mut digest) = (0, Digest::default());
        while let Some(piece) = stream.data().await {
            let piece = piece?;
            stream.flow_control().release_capacity(piece.len())?;
            length += piece.len() as u64;
            if self.job.plan.verify != Verify::Status {
                digest.update(&piece);
            }
        }
        self.complete(url, head_only, status, length, digest.finish(), [due, sent, first_byte]);
        Ok(())
    }

    fn complete(
        &self,
        url: usize,
        head_only: bool,
        status: u16,
        length: u64,
        hash: u64,
        times: [u64; 3],
    ) {
        let [due, sent, first_byte] = times;
        let now = self.clock.now();
        let mut state = self.state.borrow_mut();
        let state = &mut *state;
        state.tally.count_status(status);
        let found = Expected { length, hash };
        let expected = match state.learned.get_mut(url) {
            None => self.job.reference.expected(url),
            Some(first) => Some(*first.get_or_insert(found)),
        };
        if let Some(kind) = compare(self.job, status, head_only, found, expected) {
            let reason = || format!("{}: status {status}, {length} bytes", self.job.plan.urls[url]);
            state.tally.fault(kind, 1, reason);
            return;
        }
        if !self.is_counting(now) {
            return;
        }
        let at = now - self.counts_from;
        let tally = &mut state.tally;
        tally.requests += 1;
        tally.bytes += length;
        tally.latency.saturating_record(now.saturating_sub(due));
        tally.service.saturating_record(now - sent);
        tally.first_byte.saturating_record(first_byte - sent);
        tally.series.bytes(at, length);
        tally.series.response(at, now.saturating_sub(due));
    }
}

async fn handshake<T>(stream: T) -> io::Result<SendRequest<Bytes>>
where
    T: AsyncRead + AsyncWrite + Unpin + 'static,
{
    let mut builder = Builder::new();
    builder.initial_window_size(WINDOW).initial_connection_window_size(WINDOW).enable_push(false);
    let (client, connection) = builder.handshake(stream).await.map_err(io::Error::other)?;
    tokio::task::spawn_local(async move {
        // Its streams report errors of the connection.
        let _ = connection.await;
    });
    Ok(client)
}
