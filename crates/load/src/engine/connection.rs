//! One connection: what is in flight on it, and what its bytes mean.

use std::collections::VecDeque;
use std::io;

use dunlin_http::http1::client::{ResponseEvent, ResponseReader};
use rustix::event::epoll;
use rustix::io::Errno;

use super::job::Job;
use super::pace::Pace;
use super::transport::Transport;
use super::worker::Shared;
use crate::choose::Chooser;
use crate::outcome::ErrorKind;
use crate::plan::{Model, Reuse};
use crate::verify::{Digest, Expected};

/// One connection, or the place of one.
pub(super) struct Connection {
    /// Its place among those of its loop.
    index: u32,
    /// Its number among all of the run.
    number: u64,
    /// Raised with every connection that is made here, so that timers and events of earlier ones are
    /// known as such.
    pub(super) generation: u32,
    pub(super) transport: Option<Transport>,
    phase: Phase,
    /// When it began to connect.
    opened: u64,
    /// When the step began that it is in: connecting, or the handshake.
    began: u64,
    /// In the open model over connections: when it was due.
    due: Option<u64>,
    reader: ResponseReader,
    pub(super) flight: VecDeque<InFlight>,
    /// The answer that is being read.
    answer: Answer,
    /// Bytes that have arrived and mean nothing yet.
    unread: Vec<u8>,
    output: Vec<u8>,
    written: usize,
    /// With a body that is to leave apart: where it begins in `output`.
    split: Option<usize>,
    sent: u32,
    answered: u32,
    /// Answers on this place, over all its connections.
    pub(super) answers: u64,
    chooser: Chooser,
    pub(super) pace: Option<Pace>,
    /// The server said that it will close.
    ends: bool,
    /// The end of what the server sends has arrived and will not be told of again.
    peer_ended: bool,
    /// It stands in the queue of those that can take a request.
    pub(super) queued: bool,
    thinking: bool,
    /// It has been begun, and nothing has come by it; only counted at a pace.
    silent: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Closed,
    Connecting,
    Handshake,
    Open,
}

/// A request that waits for its answer.
pub(super) struct InFlight {
    /// When it was due.
    pub(super) due: u64,
    /// When it was sent.
    pub(super) sent: u64,
    url: u32,
    head_only: bool,
}

#[derive(Default)]
struct Answer {
    status: u16,
    body: u64,
    first_byte: u64,
    digest: Option<Box<Digest>>,
    /// The hash of a body that came in one piece.
    hash: Option<u64>,
    /// Where the status is not expected: the beginning of the body.
    text: Option<Vec<u8>>,
}

/// What says that nothing more will come.
const ENDED: epoll::EventFlags =
    epoll::EventFlags::RDHUP.union(epoll::EventFlags::HUP).union(epoll::EventFlags::ERR);
/// A place whose connection failed is used again after this time, in nanoseconds.
const RETRY: u64 = 10_000_000;
/// From this much on, what is only counted is thrown away without being copied.
const DISCARD_FROM: u64 = 64 * 1024;
/// Bytes of a body that are kept to report a failure.
const TEXT: usize = 400;

impl Connection {
    pub(super) fn new(shared: &Shared<'_>, index: u32, number: u64) -> Self {
        let plan = &shared.job.plan;
        Self {
            index,
            number,
            generation: 0,
            transport: None,
            phase: Phase::Closed,
            opened: 0,
            began: 0,
            due: None,
            reader: ResponseReader::default(),
            flight: VecDeque::with_capacity(plan.pipeline as usize),
            answer: Answer::default(),
            unread: Vec::new(),
            output: Vec::new(),
            written: 0,
            split: None,
            sent: 0,
            answered: 0,
            answers: 0,
            chooser: Chooser::new(
                &plan.choice,
                &shared.job.table,
                plan.urls.len(),
                plan.seed,
                number,
                plan.connections,
            ),
            pace: plan.modem_bits_per_second.map(Pace::new),
            ends: false,
            peer_ended: false,
            queued: false,
            thinking: false,
            silent: false,
        }
    }

    /// Begins to connect; `due`: when that should have happened.
    pub(super) fn open(&mut self, shared: &mut Shared<'_>, due: Option<u64>) {
        self.generation = self.generation.wrapping_add(1);
        self.opened = shared.now;
        self.began = shared.now;
        self.due = due;
        self.sent = 0;
        self.answered = 0;
        self.ends = false;
        self.peer_ended = false;
        self.reader = ResponseReader::default();
        self.unread.clear();
        self.output.clear();
        self.written = 0;
        self.split = None;
        let opened = shared.job.connect(self.number).and_then(|transport| {
            let data =
                epoll::EventData::new_u64(u64::from(self.generation) << 32 | u64::from(self.index));
            // Told of each change once: no call is needed to change what is waited for.
            let flags = epoll::EventFlags::IN
                | epoll::EventFlags::OUT
                | epoll::EventFlags::RDHUP
                | epoll::EventFlags::ET;
            epoll::add(&shared.epoll, &transport, data, flags)?;
            Ok(transport)
        });
        match opened {
            Ok(transport) => {
                self.transport = Some(transport);
                self.phase = Phase::Connecting;
                self.silent = self.pace.is_some();
                shared.silent += u32::from(self.silent);
            }
            Err(error) => self.fail(shared, &error),
        }
    }

    /// Something has come by it, or it is gone.
    fn end_silence(&mut self, shared: &mut Shared<'_>) {
        shared.silent -= u32::from(std::mem::take(&mut self.silent));
    }

    /// Something has happened to its socket.
    pub(super) fn event(&mut self, shared: &mut Shared<'_>, flags: epoll::EventFlags) {
        let ended = flags.intersects(ENDED);
        let readable = ended || flags.contains(epoll::EventFlags::IN);
        let writable = ended || flags.contains(epoll::EventFlags::OUT);
        self.peer_ended |= ended;
        if self.phase == Phase::Connecting && (writable || readable) {
            self.connected(shared);
        }
        if self.phase == Phase::Handshake {
            self.go_on_with_handshake(shared);
        }
        if self.phase != Phase::Open {
            return;
        }
        if writable && self.written < self.output.len() {
            self.flush(shared);
        }
        if readable && self.phase == Phase::Open {
            self.read(shared);
        }
    }

    fn connected(&mut self, shared: &mut Shared<'_>) {
        let Some(transport) = &self.transport else { return };
        if let Some(error) = transport.connect_error() {
            return self.fail(shared, &error);
        }
        shared.tally.opened += 1;
        if self.pace.is_some() {
            transport.look_at_window(&mut shared.tally.windows);
        }
        shared.record(|tally, now| tally.connect.saturating_record(now - self.began));
        if transport.is_tls() {
            self.phase = Phase::Handshake;
            self.began = shared.now;
        } else {
            self.phase = Phase::Open;
            self.ready(shared);
        }
    }

    fn go_on_with_handshake(&mut self, shared: &mut Shared<'_>) {
        let Some(transport) = &mut self.transport else { return };
        if let Err(error) = transport.handshake() {
            let job = shared.job;
            let reason = || format!("{error} (connecting to {})", job.address);
            shared.fault(ErrorKind::of(&error, ErrorKind::Tls), 1, reason);
            return self.retry(shared);
        }
        if transport.is_ready() {
            shared.tally.tls_resumed += u64::from(transport.is_resumed());
            shared.record(|tally, now| tally.tls.saturating_record(now - self.began));
            self.phase = Phase::Open;
            self.ready(shared);
        }
    }

    /// The connection can take requests.
    fn ready(&mut self, shared: &mut Shared<'_>) {
        match shared.job.plan.model {
            Model::OpenRequests(_) => shared.offer(self.index, &mut self.queued),
            _ => self.top_up(shared),
        }
    }

    /// Whether another request may be sent now.
    pub(super) fn has_room(&self, shared: &Shared<'_>) -> bool {
        self.phase == Phase::Open
            && !self.ends
            && !self.thinking
            && self.flight.len() < shared.depth
            && self.sent < shared.most_requests
    }

    /// Sends as many requests as there is room for; closed model.
    pub(super) fn top_up(&mut self, shared: &mut Shared<'_>) {
        while self.has_room(shared) && shared.may_send() {
            let due = self.due.take().unwrap_or(shared.now);
            self.add_request(shared, due);
        }
        self.flush(shared);
    }

    /// Adds the request that was due at `due`; [`Connection::flush`] sends it.
    pub(super) fn add_request(&mut self, shared: &mut Shared<'_>, due: u64) {
        let url = match shared.replayed.pop_front() {
            Some(url) => url,
            None => self.chooser.draw() as u32,
        };
        let Some(request) = shared.job.requests.get(url as usize) else { return };
        self.sent += 1;
        let bytes = if self.sent >= shared.most_requests { &request.last } else { &request.bytes };
        if shared.job.plan.request.split_body {
            self.split = Some(self.output.len() + bytes.len() - request.body);
        }
        self.output.extend_from_slice(bytes);
        self.flight.push_back(InFlight {
            due,
            sent: shared.now,
            url,
            head_only: request.head_only,
        });
        if shared.in_flight == 0 {
            shared.tally.series.resume(shared.now.saturating_sub(shared.counts_from()));
        }
        shared.in_flight += 1;
        if let Some(pace) = &mut self.pace {
            pace.ask(shared.now);
        }
    }

    /// Writes what the socket takes.
    pub(super) fn flush(&mut self, shared: &mut Shared<'_>) {
        let Some(transport) = &mut self.transport else { return };
        if self.written == 0 && !self.output.is_empty() {
            shared.sends(self.flight.len() as u32);
        }
        while self.written < self.output.len() {
            let end = self.split.filter(|split| *split > self.written).unwrap_or(self.output.len());
            match transport.write(&self.output[self.written..end]) {
                Ok(count) => self.written += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) => return self.fail(shared, &error),
            }
        }
        if let Err(error) = transport.flush() {
            return self.fail(shared, &error);
        }
        self.output.clear();
        self.written = 0;
        self.split = None;
    }

    /// Reads what has arrived.
    pub(super) fn read(&mut self, shared: &mut Shared<'_>) {
        let generation = self.generation;
        let mut buffer = std::mem::take(&mut shared.buffer);
        while self.phase == Phase::Open && self.generation == generation {
            let most = match self.pace.as_mut().map(|pace| (pace.allowance(shared.now), pace)) {
                None => buffer.len(),
                Some((Ok(most), _)) => most.min(buffer.len()),
                Some((Err(due), pace)) => {
                    if pace.begins_to_wait(due) {
                        shared.timers.add(due, self.index, generation);
                    }
                    break;
                }
            };
            if !self.read_once(shared, &mut buffer[..most]) {
                break;
            }
        }
        shared.buffer = buffer;
        if self.phase == Phase::Open && self.generation == generation {
            match shared.job.plan.model {
                Model::OpenRequests(_) if self.has_room(shared) => {
                    shared.offer(self.index, &mut self.queued);
                }
                Model::OpenRequests(_) => {}
                _ => self.top_up(shared),
            }
        }
    }

    /// Reads once; whether there may be more to read.
    fn read_once(&mut self, shared: &mut Shared<'_>, buffer: &mut [u8]) -> bool {
        let Some(transport) = &mut self.transport else { return false };
        let rest = self.reader.remaining();
        let only_counted = rest >= DISCARD_FROM && !shared.verifies && !transport.is_tls();
        let result = if only_counted && self.unread.is_empty() {
            let most = buffer.len().min(rest as usize);
            let result = transport.discard(&mut buffer[..most]);
            result.map(|count| (count, true, count == most))
        } else {
            transport.read(buffer).map(|count| (count, false, count == buffer.len()))
        };
        let (count, discarded, full) = match result {
            Ok(result) => result,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
            Err(error) => {
                self.fail(shared, &error);
                return false;
            }
        };
        let more = full || self.peer_ended || transport.is_tls();
        if count == 0 {
            self.ended_by_server(shared);
            return false;
        }
        shared.tick();
        shared.received(count as u64);
        if let Some(pace) = &mut self.pace {
            pace.took(shared.now, count as u64);
            self.end_silence(shared);
        }
        if discarded {
            self.reader.skip(count as u64);
            self.answer.body += count as u64;
            self.take(shared, &[]);
        } else if self.unread.is_empty() {
            self.take(shared, &buffer[..count]);
        } else {
            let mut unread = std::mem::take(&mut self.unread);
            unread.extend_from_slice(&buffer[..count]);
            self.take(shared, &unread);
        }
        more
    }

    /// Uses `data` as far as possible and keeps the rest.
    fn take(&mut self, shared: &mut Shared<'_>, data: &[u8]) {
        let mut at = 0;
        loop {
            let Some(request) = self.flight.front() else {
                if at < data.len() {
                    let reason = || "bytes that belong to no request".to_owned();
                    shared.fault(ErrorKind::Protocol, 1, reason);
                    self.retry(shared);
                }
                return;
            };
            let next = self.reader.next(&data[at..], request.head_only, &mut shared.head_cache);
            let Ok((used, event)) = next else {
                let (job, url) = (shared.job, request.url);
                let reason = || format!("{}: {}", url_of(job, url), excerpt(&data[at..]));
                shared.fault(ErrorKind::Protocol, self.flight.len() as u64, reason);
                return self.retry(shared);
            };
            at += used;
            match event {
                ResponseEvent::More => {
                    self.unread.extend_from_slice(&data[at..]);
                    return;
                }
                ResponseEvent::Head { status, .. } => {
                    self.answer = Answer { status, first_byte: shared.now, ..Answer::default() };
                    if !shared.job.is_right(status)
                        && !shared.tally.first_errors.contains_key(&ErrorKind::Status)
                    {
                        self.answer.text = Some(Vec::new());
                    }
                }
                ResponseEvent::Data(body) => {
                    self.answer.take(body, self.reader.is_body_complete(), shared.verifies);
                }
                ResponseEvent::End { keep } => {
                    if !self.complete(shared, keep) {
                        return;
                    }
                }
            }
        }
    }

    /// An answer is complete; whether the connection goes on.
    fn complete(&mut self, shared: &mut Shared<'_>, keep: bool) -> bool {
        let Some(request) = self.flight.pop_front() else { return false };
        let answer = std::mem::take(&mut self.answer);
        self.answered += 1;
        shared.in_flight -= 1;
        shared.tally.answered_with(answer.status);
        match wrong(shared, &request, answer.status, answer.body, answer.hash()) {
            Some(kind) => {
                let job = shared.job;
                let reason = || wrong_reason(job, request.url as usize, kind, &answer);
                shared.fault(kind, 1, reason);
            }
            None => {
                self.answers += u64::from(shared.is_counting());
                shared.record(|tally, now| {
                    let latency = now.saturating_sub(request.due);
                    tally.requests += 1;
                    tally.latency.saturating_record(latency);
                    tally.service.saturating_record(now - request.sent);
                    tally.first_byte.saturating_record(answer.first_byte - request.sent);
                });
                shared.record_in_series(shared.now.saturating_sub(request.due));
            }
        }
        if let Some(pace) = &mut self.pace {
            pace.answered();
        }
        if self.answered >= shared.most_requests {
            // The client closes, whatever the server has said.
            self.close(shared);
            return false;
        }
        if !keep {
            self.ends = true;
            shared.tally.closed_by_server += 1;
            shared.again(&mut self.flight);
            self.close(shared);
            return false;
        }
        if shared.think > 0 {
            self.thinking = true;
            shared.timers.add(shared.now + shared.think, self.index, self.generation);
        }
        true
    }

    /// The server has closed the connection.
    fn ended_by_server(&mut self, shared: &mut Shared<'_>) {
        shared.tick();
        if self.reader.ends_at_close() {
            self.reader = ResponseReader::default();
            self.complete(shared, false);
            return;
        }
        shared.tally.closed_by_server += 1;
        if !self.flight.is_empty() {
            let (job, url) = (shared.job, self.flight.front().map_or(0, |request| request.url));
            let reason = || url_of(job, url).to_owned();
            shared.fault(ErrorKind::Closed, self.flight.len() as u64, reason);
            return self.retry(shared);
        }
        self.close(shared);
    }

    /// The time that it waited for has come.
    pub(super) fn timer(&mut self, shared: &mut Shared<'_>) {
        match self.phase {
            Phase::Closed => shared.reopen(self.index),
            Phase::Open if self.thinking => {
                self.thinking = false;
                self.top_up(shared);
            }
            Phase::Open => self.read(shared),
            _ => {}
        }
    }

    /// Whether what it waits for has taken longer than `timeout`.
    pub(super) fn is_overdue(&self, now: u64, timeout: u64) -> bool {
        let since = match self.phase {
            Phase::Closed => return false,
            Phase::Connecting | Phase::Handshake => self.began,
            // At a modem's pace an answer takes as long as it takes.
            Phase::Open if self.pace.is_some() && self.reader.is_within() => return false,
            Phase::Open => match self.flight.front() {
                Some(request) => request.sent,
                None => return false,
            },
        };
        now.saturating_sub(since) > timeout
    }

    /// It has taken too long.
    pub(super) fn time_out(&mut self, shared: &mut Shared<'_>) {
        let (job, url) = (shared.job, self.flight.front().map(|request| request.url));
        let reason = || match url {
            Some(url) => format!("{} after {} s", url_of(job, url), job.plan.timeout_seconds),
            None => format!("connecting to {}", job.address),
        };
        shared.fault(ErrorKind::Timeout, self.flight.len().max(1) as u64, reason);
        self.retry(shared);
    }

    fn fail(&mut self, shared: &mut Shared<'_>, error: &io::Error) {
        shared.tick();
        let kind = ErrorKind::of(error, ErrorKind::Other);
        let job = shared.job;
        let reason = || format!("{error} ({})", job.address);
        shared.fault(kind, self.flight.len().max(1) as u64, reason);
        self.retry(shared);
    }

    /// Gives up what was in flight and begins anew after a while.
    fn retry(&mut self, shared: &mut Shared<'_>) {
        let failed = self.flight.len() as u64;
        shared.in_flight -= failed;
        if failed == 0 {
            shared.spend();
        }
        self.flight.clear();
        self.shut(shared);
        shared.timers.add(shared.now + RETRY, self.index, self.generation);
    }

    /// Closes; what follows is the model's choice.
    fn close(&mut self, shared: &mut Shared<'_>) {
        shared.record(|tally, now| tally.lifetime.saturating_record(now - self.opened));
        self.shut(shared);
        shared.reopen(self.index);
    }

    fn shut(&mut self, shared: &mut Shared<'_>) {
        self.end_silence(shared);
        // Closing the socket takes it off the epoll list.
        self.transport = None;
        self.phase = Phase::Closed;
        self.generation = self.generation.wrapping_add(1);
        self.thinking = false;
        self.answer = Answer::default();
        self.unread = Vec::new();
    }
}

impl Answer {
    /// A piece of the body; `last`: a body of known length ends with it.
    #[inline]
    fn take(&mut self, data: &[u8], last: bool, verify: bool) {
        let first = self.body == 0;
        self.body += data.len() as u64;
        if let Some(text) = &mut self.text {
            text.extend_from_slice(&data[..data.len().min(TEXT.saturating_sub(text.len()))]);
        }
        if !verify {
            return;
        }
        if first && last {
            self.hash = Some(Digest::of(data));
        } else {
            self.digest.get_or_insert_default().update(data);
        }
    }

    fn hash(&self) -> u64 {
        match (&self.hash, &self.digest) {
            (Some(hash), _) => *hash,
            (None, Some(digest)) => digest.finish(),
            (None, None) => Digest::of(b""),
        }
    }
}

fn url_of(job: &Job, url: u32) -> &str {
    job.plan.urls.get(url as usize).map_or("", String::as_str)
}

/// What is wrong with the first response of that kind: its URL, and what the server says.
fn wrong_reason(job: &Job, url: usize, kind: ErrorKind, answer: &Answer) -> String {
    let url = url_of(job, url as u32);
    match (kind, &answer.text) {
        (ErrorKind::Status, Some(text)) if !text.is_empty() => {
            format!("{url}: status {}, {}", answer.status, excerpt(text))
        }
        (ErrorKind::Status, _) => format!("{url}: status {}", answer.status),
        (ErrorKind::Length, _) => format!("{url}: {} bytes", answer.body),
        _ => url.to_owned(),
    }
}

/// The beginning of what a server sent, on one line.
pub(super) fn excerpt(bytes: &[u8]) -> String {
    const MOST: usize = 80;
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(TEXT)]);
    let words: Vec<&str> = text.split_ascii_whitespace().collect();
    let text: String = words.join(" ").chars().filter(|c| !c.is_control()).take(MOST).collect();
    format!("the server sent \"{text}\"")
}

/// What is wrong with an answer, if anything.
#[inline]
fn wrong(
    shared: &mut Shared<'_>,
    request: &InFlight,
    status: u16,
    length: u64,
    hash: u64,
) -> Option<ErrorKind> {
    let found = Expected { length, hash };
    let checks = shared.verifies && !request.head_only && shared.job.is_right(status);
    let expected = if checks { shared.expected(request.url, found) } else { None };
    wrong_answer(shared.job, status, request.head_only, found, expected)
}

/// What is wrong with an answer that is `found` where `expected` ought to be, if anything.
#[inline]
pub(super) fn wrong_answer(
    job: &Job,
    status: u16,
    head_only: bool,
    found: Expected,
    expected: Option<Expected>,
) -> Option<ErrorKind> {
    if !job.is_right(status) {
        return Some(ErrorKind::Status);
    }
    let expected = expected.filter(|_| !head_only)?;
    if expected.length != found.length {
        return Some(ErrorKind::Length);
    }
    (expected.hash != found.hash).then_some(ErrorKind::Hash)
}

impl ErrorKind {
    /// The kind that a system error is of; `otherwise` when it is none of those that have a name.
    pub(super) fn of(error: &io::Error, otherwise: Self) -> Self {
        match error.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::CONNREFUSED) => Self::Refused,
            Some(Errno::CONNRESET | Errno::PIPE) => Self::Reset,
            Some(Errno::TIMEDOUT | Errno::HOSTUNREACH | Errno::NETUNREACH) => Self::Timeout,
            Some(Errno::ADDRNOTAVAIL | Errno::ADDRINUSE) => Self::NoAddress,
            Some(Errno::MFILE | Errno::NFILE) => Self::NoDescriptor,
            _ => otherwise,
        }
    }
}

/// Requests on each connection before the client closes it.
pub(super) fn most_requests(reuse: Reuse) -> u32 {
    match reuse {
        Reuse::Never => 1,
        Reuse::Requests(count) => count,
        Reuse::Kept => u32::MAX,
    }
}
