//! An HTTP/1 connection of the generator.

mod ending;

use std::collections::VecDeque;
use std::io;

use dunlin_http::http1::client::{MalformedResponse, ResponseEvent, ResponseReader};
use rustix::event::epoll;

use super::pace::Pace;
use super::shared::Shared;
use super::transport::Transport;
use crate::choose::Chooser;
use crate::engine::recorder::{ConnectionRecord, InFlight, Pending};
use crate::engine::response::{PartialResponse, excerpt, url_of};
use crate::outcome::ErrorKind;
use crate::plan::Model;

/// A connection slot: a connection, or the one that replaces a closed one.
pub(super) struct Connection {
    /// Index among the slots of its worker.
    index: u32,
    /// Number among all slots of the run.
    number: u64,
    /// Incremented with every connection in this slot, so that timers and events of earlier ones are recognized.
    pub(super) generation: u32,
    pub(super) transport: Option<Transport>,
    phase: Phase,
    record: ConnectionRecord,
    /// Time when the connection was due, in the open model over connections.
    due: Option<u64>,
    reader: ResponseReader,
    pub(super) flight: VecDeque<InFlight>,
    /// The response that is being read.
    response: PartialResponse,
    /// Received bytes that the parser has not used yet.
    unread: Vec<u8>,
    output: Vec<u8>,
    written: usize,
    /// Offset in `output` where a body begins that is written separately.
    split: Option<usize>,
    /// Requests sent on this connection.
    sent: u32,
    /// Responses received on this connection.
    received: u32,
    chooser: Chooser,
    pub(super) pace: Option<Pace>,
    /// The server has announced that it closes the connection.
    is_closing: bool,
    /// epoll has reported the end of the server's data, which it does once.
    peer_ended: bool,
    /// The slot is in the queue of connections that can take a request.
    pub(super) queued: bool,
    /// Waiting for the think time before the next request.
    thinking: bool,
    /// End of the think time, which a user keeps when the connection is closed.
    thinks_until: u64,
    /// Connecting has begun and no byte has arrived. Tracked only with a modem pace.
    silent: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Closed,
    Connecting,
    Handshake,
    Open,
}

/// Events after which the server sends nothing more.
const ENDED: epoll::EventFlags =
    epoll::EventFlags::RDHUP.union(epoll::EventFlags::HUP).union(epoll::EventFlags::ERR);
/// Remaining bytes of a body from which on it is discarded in the kernel, if it is only counted.
const DISCARD_FROM: u64 = 64 * 1024;

impl Connection {
    pub(super) fn new(shared: &Shared<'_>, index: u32, number: u64) -> Self {
        let plan = &shared.job.plan;
        Self {
            index,
            number,
            generation: 0,
            transport: None,
            phase: Phase::Closed,
            record: shared.recorder.open(index),
            due: None,
            reader: ResponseReader::default(),
            flight: VecDeque::with_capacity(plan.pipeline as usize),
            response: PartialResponse::default(),
            unread: Vec::new(),
            output: Vec::new(),
            written: 0,
            split: None,
            sent: 0,
            received: 0,
            chooser: shared.job.chooser(number),
            pace: plan.modem_bits_per_second.map(Pace::new),
            is_closing: false,
            peer_ended: false,
            queued: false,
            thinking: false,
            thinks_until: 0,
            silent: false,
        }
    }

    /// Begins to connect. `due` is the time when the connection was due.
    pub(super) fn open(&mut self, shared: &mut Shared<'_>, due: Option<u64>) {
        // Many connections may open at a time: each has its own start.
        shared.recorder.tick();
        self.generation = self.generation.wrapping_add(1);
        self.record = shared.recorder.open(self.index);
        self.due = due;
        self.sent = 0;
        self.received = 0;
        self.is_closing = false;
        self.peer_ended = false;
        self.reader = ResponseReader::default();
        self.unread.clear();
        self.output.clear();
        self.written = 0;
        self.split = None;
        let opened = Transport::open(shared.job, self.number).and_then(|transport| {
            let data =
                epoll::EventData::new_u64(u64::from(self.generation) << 32 | u64::from(self.index));
            // Edge-triggered, so that no call is needed to change the interest.
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
                shared.connecting += 1;
                self.silent = self.pace.is_some();
                shared.silent += u32::from(self.silent);
            }
            Err(error) => self.fail_to_connect(shared, ErrorKind::Other, &error),
        }
    }

    /// Records that a byte has arrived, or that the connection is gone.
    fn end_silence(&mut self, shared: &mut Shared<'_>) {
        shared.silent -= u32::from(std::mem::take(&mut self.silent));
    }

    /// Processes an event of the socket.
    pub(super) fn event(&mut self, shared: &mut Shared<'_>, flags: epoll::EventFlags) {
        let ended = flags.intersects(ENDED);
        let readable = ended || flags.contains(epoll::EventFlags::IN);
        let writable = ended || flags.contains(epoll::EventFlags::OUT);
        self.peer_ended |= ended;
        if self.phase == Phase::Connecting && (writable || readable) {
            self.connected(shared);
        }
        if self.phase == Phase::Handshake {
            self.continue_handshake(shared);
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
        shared.recorder.tick();
        let Some(transport) = &self.transport else { return };
        if let Some(error) = transport.connect_error() {
            return self.fail_to_connect(shared, ErrorKind::Other, &error);
        }
        if self.pace.is_some() {
            transport.sample_window(&mut shared.recorder.tally.windows);
        }
        shared.recorder.connect(&mut self.record);
        if transport.is_tls() {
            self.phase = Phase::Handshake;
        } else {
            self.open_for_requests(shared);
        }
    }

    fn continue_handshake(&mut self, shared: &mut Shared<'_>) {
        let Some(transport) = &mut self.transport else { return };
        if let Err(error) = transport.handshake() {
            return self.fail_to_connect(shared, ErrorKind::Tls, &error);
        }
        if transport.is_ready() {
            shared.recorder.handshake(&self.record, transport.is_resumed());
            self.open_for_requests(shared);
        }
    }

    fn open_for_requests(&mut self, shared: &mut Shared<'_>) {
        self.phase = Phase::Open;
        shared.connecting -= 1;
        self.ready(shared);
    }

    /// Sends the first requests, or offers the connection for them.
    fn ready(&mut self, shared: &mut Shared<'_>) {
        match shared.job.plan.model {
            Model::OpenRequests(_) => shared.offer(self.index, &mut self.queued),
            _ => self.top_up(shared),
        }
    }

    /// Returns `true` if another request can be sent now.
    pub(super) fn has_room(&self, shared: &Shared<'_>) -> bool {
        self.phase == Phase::Open
            && !self.is_closing
            && !self.thinking
            && self.flight.len() < shared.depth
            && self.sent < shared.max_requests
    }

    /// Sends as many requests as the pipeline permits; closed model.
    pub(super) fn top_up(&mut self, shared: &mut Shared<'_>) {
        while self.has_room(shared)
            && let Some(request) = shared.recorder.next_request(&mut self.due)
        {
            self.add_request(shared, request);
        }
        self.flush(shared);
    }

    /// Adds a request to the output. [`Connection::flush`] sends it.
    pub(super) fn add_request(&mut self, shared: &mut Shared<'_>, next: Pending) {
        let url = shared.recorder.url(&next, &mut self.chooser);
        let Some(request) = shared.job.requests.get(url as usize) else { return };
        self.sent += 1;
        let bytes = if self.sent >= shared.max_requests { &request.last } else { &request.bytes };
        if shared.job.plan.request.split_body {
            self.split = Some(self.output.len() + bytes.len() - request.body);
        }
        self.output.extend_from_slice(bytes);
        self.flight.push_back(shared.recorder.issue(next, url, request));
        if let Some(pace) = &mut self.pace {
            pace.request(shared.recorder.now);
        }
    }

    /// Writes as much output as the socket takes.
    pub(super) fn flush(&mut self, shared: &mut Shared<'_>) {
        let Some(transport) = &mut self.transport else { return };
        if self.written == 0 && !self.output.is_empty() {
            shared.recorder.depth(self.flight.len() as u32);
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

    /// Reads until the socket is empty or the pace requires a pause.
    pub(super) fn read(&mut self, shared: &mut Shared<'_>) {
        let generation = self.generation;
        let mut buffer = std::mem::take(&mut shared.buffer);
        while self.phase == Phase::Open && self.generation == generation {
            let max =
                match self.pace.as_mut().map(|pace| (pace.allowance(shared.recorder.now), pace)) {
                    None => buffer.len(),
                    Some((Ok(max), _)) => max.min(buffer.len()),
                    Some((Err(due), pace)) => {
                        if pace.begins_to_wait(due) {
                            shared.timers.add(due, self.index, generation);
                        }
                        break;
                    }
                };
            if !self.read_once(shared, &mut buffer[..max]) {
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

    /// Reads once. Returns whether there may be more to read.
    fn read_once(&mut self, shared: &mut Shared<'_>, buffer: &mut [u8]) -> bool {
        let Some(transport) = &mut self.transport else { return false };
        let rest = self.reader.remaining();
        let only_counted = rest >= DISCARD_FROM && !shared.recorder.verifies && !transport.is_tls();
        let result = if only_counted && self.unread.is_empty() {
            let max = buffer.len().min(rest as usize);
            let result = transport.discard(&mut buffer[..max]);
            result.map(|count| (count, true, count == max))
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
            self.closed_by_server(shared);
            return false;
        }
        shared.recorder.tick();
        shared.recorder.receive(count as u64);
        if let Some(pace) = &mut self.pace {
            pace.read(shared.recorder.now, count as u64);
            self.end_silence(shared);
        }
        if discarded {
            self.reader.skip(count as u64);
            self.response.body += count as u64;
            self.parse(shared, &[]);
        } else if self.unread.is_empty() {
            self.parse(shared, &buffer[..count]);
        } else {
            let mut unread = std::mem::take(&mut self.unread);
            unread.extend_from_slice(&buffer[..count]);
            self.parse(shared, &unread);
        }
        more
    }

    /// Parses `data` and keeps what the parser has not used.
    fn parse(&mut self, shared: &mut Shared<'_>, data: &[u8]) {
        let mut at = 0;
        loop {
            let Some(request) = self.flight.front() else {
                if at < data.len() {
                    self.unasked(shared, &data[at..]);
                }
                return;
            };
            let next = self.reader.next(&data[at..], request.head_only, &mut shared.head_cache);
            let (used, event) = match next {
                Ok(next) => next,
                Err(MalformedResponse(why)) => {
                    let (job, url) = (shared.job, request.url);
                    let sent = excerpt(&data[at..]);
                    let reason = || format!("{}: {sent} ({why})", url_of(job, url));
                    return self.fail_requests(shared, ErrorKind::Protocol, reason);
                }
            };
            at += used;
            match event {
                ResponseEvent::More => {
                    self.unread.extend_from_slice(&data[at..]);
                    return;
                }
                ResponseEvent::Head { status, .. } => {
                    self.response =
                        shared.recorder.first_byte(status, shared.job.expected.has(status));
                }
                ResponseEvent::Data(body) => {
                    let verifies = shared.recorder.verifies;
                    self.response.add(body, self.reader.is_body_complete(), verifies);
                }
                ResponseEvent::End { keep } => {
                    if !self.complete(shared, keep) {
                        return;
                    }
                }
            }
        }
    }

    /// Processes a complete response. Returns whether the connection can be used further.
    fn complete(&mut self, shared: &mut Shared<'_>, keep: bool) -> bool {
        let response = std::mem::take(&mut self.response);
        // The server closes a connection that it took for idle, and the request has crossed that.
        if response.status == 408 && !keep && self.is_repeatable() && !shared.job.expected.has(408)
        {
            self.lose_requests(shared, ErrorKind::Closed);
            return false;
        }
        let Some(request) = self.flight.pop_front() else { return false };
        self.received += 1;
        shared.recorder.complete(shared.job, &mut self.record, &request, &response);
        self.think(shared);
        if let Some(pace) = &mut self.pace {
            pace.complete();
        }
        if self.received >= shared.max_requests {
            // The client closes, whatever the server has announced.
            shared.recorder.record(|tally| tally.closed_by_generator += 1);
            self.close(shared);
            return false;
        }
        if !keep {
            self.is_closing = true;
            shared.recorder.record(|tally| tally.closed_by_server += 1);
            shared.recorder.send_again(self.flight.drain(..));
            self.close(shared);
            return false;
        }
        if self.thinks_until > shared.recorder.now {
            self.thinking = true;
            shared.timers.add(self.thinks_until, self.index, self.generation);
        }
        true
    }

    /// Begins the think time.
    fn think(&mut self, shared: &Shared<'_>) {
        if shared.recorder.think > 0 {
            self.thinks_until = shared.recorder.now + shared.recorder.think;
        }
    }

    /// Processes an expired timer.
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

    /// Returns `true` if connecting, or the oldest request, has taken longer than `timeout`.
    pub(super) fn is_overdue(&self, now: u64, timeout: u64) -> bool {
        let since = match self.phase {
            Phase::Closed => return false,
            Phase::Connecting | Phase::Handshake => self.record.began,
            // At a modem's pace a response may take any time.
            Phase::Open if self.pace.is_some() && self.reader.is_within() => return false,
            Phase::Open => match self.flight.front() {
                Some(request) => request.times.sent,
                None => return false,
            },
        };
        now.saturating_sub(since) > timeout
    }
}
