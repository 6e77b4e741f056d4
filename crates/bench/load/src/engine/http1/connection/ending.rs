//! The end of a connection: by the server, by an error, by a timeout, or because it has served its requests.

use std::io;

use dunlin_client::describe_tls_error;
use dunlin_http::http1::client::ResponseReader;

use super::{Connection, Phase};
use crate::engine::http1::shared::Shared;
use crate::engine::recorder::RETRY;
use crate::engine::response::{PartialResponse, excerpt, url_of};
use crate::outcome::ErrorKind;

/// Beginnings of a response to no request, which closes an idle connection.
const TIMED_OUT: [&[u8]; 2] = [b"HTTP/1.1 408", b"HTTP/1.0 408"];

impl Connection {
    /// Records an error of connecting, of kind `otherwise` if it has none of its own, and tries again after a delay.
    pub(super) fn fail_to_connect(
        &mut self,
        shared: &mut Shared<'_>,
        otherwise: ErrorKind,
        error: &io::Error,
    ) {
        shared.recorder.tick();
        shared.recorder.fail_to_connect(shared.job, otherwise, error);
        self.retry(shared);
    }

    /// Processes bytes that arrive while no request is in flight. A server may announce with 408 that it closes an idle
    /// connection (RFC 9110 §15.5.9).
    pub(super) fn unasked(&mut self, shared: &mut Shared<'_>, data: &[u8]) {
        let is_start = |of: &[u8]| {
            let length = data.len().min(of.len());
            data[..length] == of[..length]
        };
        if TIMED_OUT.iter().any(|head| is_start(head)) {
            if data.len() < TIMED_OUT[0].len() {
                self.unread = data.to_vec();
                return;
            }
            shared.recorder.record(|tally| tally.closed_by_server += 1);
            return self.close(shared);
        }
        let sent = excerpt(data);
        let address = shared.job.address;
        shared.recorder.fail_unasked(|| format!("{address}: {sent} (without a request)"));
        self.retry(shared);
    }

    /// Processes the end of the connection by the server.
    pub(super) fn closed_by_server(&mut self, shared: &mut Shared<'_>) {
        shared.recorder.tick();
        if self.reader.ends_at_close() {
            self.reader = ResponseReader::default();
            self.complete(shared, false);
            return;
        }
        shared.recorder.record(|tally| tally.closed_by_server += 1);
        if self.flight.is_empty() {
            return self.close(shared);
        }
        if self.is_repeatable() {
            return self.lose_requests(shared, ErrorKind::Closed);
        }
        let (job, url) = (shared.job, self.first_url());
        let within = match self.reader.is_within() {
            true => format!("after {} bytes of the body", self.response.body),
            false => "before a response".to_owned(),
        };
        let reason = || format!("{}: the server closed the connection {within}", url_of(job, url));
        self.fail_requests(shared, ErrorKind::Closed, reason);
    }

    /// Index of the URL of the first request in flight.
    pub(super) fn first_url(&self) -> u32 {
        self.flight.front().map_or(0, |request| request.url)
    }

    /// Returns `true` if the requests in flight can be sent again when the connection ends: it has served others, no byte of
    /// a response has arrived, and they are safe (RFC 9112 §9.3.1). The server may have closed it before they arrived.
    pub(super) fn is_repeatable(&self) -> bool {
        self.received > 0
            && !self.reader.is_within()
            && self.unread.is_empty()
            && !self.flight.is_empty()
            && self.flight.iter().all(|request| request.repeats > 0)
    }

    /// Sends the requests in flight again on another connection.
    pub(super) fn lose_requests(&mut self, shared: &mut Shared<'_>, kind: ErrorKind) {
        let (job, url) = (shared.job, self.first_url());
        let reason = || format!("{}: its connection ended before a response", url_of(job, url));
        shared.recorder.lose(kind, self.flight.drain(..), reason);
        self.close(shared);
    }

    /// Ends the connection after a timeout.
    pub(in crate::engine::http1) fn time_out(&mut self, shared: &mut Shared<'_>) {
        let (job, seconds) = (shared.job, shared.job.plan.timeout_seconds);
        let phase = match self.phase {
            Phase::Connecting => format!("connecting to {} for {seconds} s", job.address),
            Phase::Handshake => format!(
                "no TLS handshake with {} within {seconds} s; does the port use TLS?",
                job.address
            ),
            Phase::Open | Phase::Closed => {
                let url = self.first_url();
                let reason = || format!("{} after {seconds} s", url_of(job, url));
                shared.recorder.record(|tally| tally.closed_by_generator += 1);
                return self.fail_requests(shared, ErrorKind::Timeout, reason);
            }
        };
        shared.recorder.fail_connection(ErrorKind::Timeout, || phase);
        self.retry(shared);
    }

    /// Processes an error of the socket or of TLS on an open connection.
    pub(super) fn fail(&mut self, shared: &mut Shared<'_>, error: &io::Error) {
        shared.recorder.tick();
        let kind = ErrorKind::of(error, ErrorKind::Other);
        if kind == ErrorKind::Reset {
            shared.recorder.record(|tally| tally.closed_by_server += 1);
            if self.flight.is_empty() {
                return self.close(shared);
            }
            if self.is_repeatable() {
                return self.lose_requests(shared, kind);
            }
        }
        let address = shared.job.address;
        if self.flight.is_empty() {
            let reason = || format!("{} ({address})", describe_tls_error(error));
            shared.recorder.fail_connection(kind, reason);
            return self.retry(shared);
        }
        let (job, url) = (shared.job, self.first_url());
        let reason = || format!("{}: {} ({address})", url_of(job, url), describe_tls_error(error));
        self.fail_requests(shared, kind, reason);
    }

    /// Records that the requests in flight have failed, and connects again after a delay.
    pub(super) fn fail_requests(
        &mut self,
        shared: &mut Shared<'_>,
        kind: ErrorKind,
        reason: impl FnOnce() -> String,
    ) {
        shared.recorder.fail(kind, self.flight.drain(..), reason);
        self.think(shared);
        self.retry(shared);
    }

    /// Connects again after a delay, and after the think time.
    pub(super) fn retry(&mut self, shared: &mut Shared<'_>) {
        self.shut(shared);
        let at = (shared.recorder.now + RETRY.as_nanos() as u64).max(self.thinks_until);
        shared.timers.add(at, self.index, self.generation);
    }

    /// Closes the connection and returns its slot to the worker, after the think time.
    pub(super) fn close(&mut self, shared: &mut Shared<'_>) {
        shared.recorder.close(&self.record);
        self.shut(shared);
        if self.thinks_until > shared.recorder.now {
            shared.timers.add(self.thinks_until, self.index, self.generation);
        } else {
            shared.reopen(self.index);
        }
    }

    fn shut(&mut self, shared: &mut Shared<'_>) {
        self.end_silence(shared);
        if matches!(self.phase, Phase::Connecting | Phase::Handshake) {
            shared.connecting -= 1;
        }
        // Closing the socket removes it from epoll.
        self.transport = None;
        self.phase = Phase::Closed;
        self.generation = self.generation.wrapping_add(1);
        self.thinking = false;
        self.response = PartialResponse::default();
        self.unread = Vec::new();
    }
}
