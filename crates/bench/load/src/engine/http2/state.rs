//! The state of a connection, and what becomes of its requests.

use std::task::{Context, Waker};

use bytes::Bytes;
use dunlin_http::http2::Http2ErrorCode;
use dunlin_http::http2::client::{Http2ClientConnection, Http2ClientEvent, Http2ClientSettings};
use dunlin_http::message::is_wrong_length;
use dunlin_http::{BodySize, InvalidRequest, RequestHead, ResponseHead};
use hashbrown::HashMap;

use crate::engine::job::{ExpectedStatuses, Job};
use crate::engine::recorder::SharedRecorder;
use crate::engine::response::PartialResponse;
use crate::engine::streams::Failed;
use crate::outcome::ErrorKind;

/// Flow control never blocks the server, and the server alone limits the requests at a time.
const SETTINGS: Http2ClientSettings = Http2ClientSettings {
    stream_window: (1 << 31) - 1,
    connection_window: (1 << 31) - 1,
    streams: u32::MAX,
};

/// Bytes that wait for the server, from which on no more of request bodies is added.
const MAX_OUT: usize = 64 * 1024;

/// The state of a connection, which its task and its users share.
pub(super) struct Http2State {
    engine: Http2ClientConnection,
    /// Bytes to send.
    pub(super) out: Vec<u8>,
    requests: HashMap<u32, Waiting>,
    /// Streams with parts of request bodies that were not sent.
    unsent: Vec<u32>,
    /// Users that wait until the server permits another stream.
    blocked: Vec<Waker>,
    pub(super) task: Waker,
    expected: ExpectedStatuses,
    /// The code of the server's GOAWAY.
    goaway: Option<u32>,
    /// Why the connection has ended.
    pub(super) end: Option<(ErrorKind, String)>,
}

/// A request whose user waits.
struct Waiting {
    user: Waker,
    response: Option<PartialResponse>,
    /// The length that the head states.
    announced: Option<u64>,
    /// The part of the request's body that was not sent.
    body: Bytes,
    end: Option<StreamEnd>,
}

/// The result of a request.
pub(super) enum StreamEnd {
    Complete(PartialResponse),
    /// The server has not processed it, since it ends the connection.
    Unprocessed,
    /// The server has refused the stream before any processing.
    Refused,
    Failed(ErrorKind, String),
    /// The connection has ended.
    Lost(Failed),
}

impl Http2State {
    pub(super) fn new(job: &Job) -> Self {
        let mut out = Vec::new();
        Self {
            engine: Http2ClientConnection::with_settings(SETTINGS, &mut out),
            out,
            requests: HashMap::new(),
            unsent: Vec::new(),
            blocked: Vec::new(),
            task: Waker::noop().clone(),
            expected: job.expected.clone(),
            goaway: None,
            end: None,
        }
    }

    /// Returns the number of streams that the server permits at a time.
    pub(super) fn max_streams(&self) -> usize {
        // Until its settings have arrived, the engine has further requests wait.
        self.engine.max_streams().unwrap_or(usize::MAX)
    }

    /// Returns `true` if the server serves no further requests.
    pub(super) fn is_draining(&self) -> bool {
        self.goaway.is_some()
    }

    /// Returns how a request fails that the server has not processed after its GOAWAY.
    pub(super) fn unprocessed(&self) -> Failed {
        match self.goaway {
            None | Some(0) => Failed::NotProcessed,
            Some(code) => {
                let reason = format!("the server ended the connection: {}", name(code));
                Failed::For(ErrorKind::Closed, reason)
            }
        }
    }

    /// Opens a stream; `None` if the server permits none now, and the user is woken when it does.
    ///
    /// # Errors
    /// The request is invalid.
    pub(super) fn open(
        &mut self,
        head: &RequestHead,
        scheme: &str,
        body: &Bytes,
        cx: &Context<'_>,
    ) -> Result<Option<u32>, InvalidRequest> {
        if !self.engine.can_open() {
            self.blocked.push(cx.waker().clone());
            return Ok(None);
        }
        let size = match body.len() {
            0 => BodySize::Empty,
            length => BodySize::Known(length as u64),
        };
        let stream = self.engine.open(head, scheme, size, &mut self.out)?;
        let waiting = Waiting {
            user: cx.waker().clone(),
            response: None,
            announced: None,
            body: body.clone(),
            end: None,
        };
        self.requests.insert(stream, waiting);
        if !body.is_empty() {
            self.unsent.push(stream);
        }
        self.task.wake_by_ref();
        Ok(Some(stream))
    }

    /// Adds to the bytes to send what the server permits of request bodies, and no more than wait for it at a time.
    pub(super) fn send_bodies(&mut self) {
        let Self { engine, out, requests, unsent, .. } = self;
        unsent.retain(|id| {
            let Some(request) = requests.get_mut(id) else { return false };
            loop {
                let count = engine.capacity(*id).min(request.body.len());
                if count == 0 || out.len() >= MAX_OUT {
                    return engine.is_sending(*id);
                }
                let part = request.body.split_to(count);
                engine.begin_data(*id, count, request.body.is_empty(), out);
                out.extend_from_slice(&part);
            }
        });
    }

    /// Returns the result of a request, if there is one. The user is woken otherwise when there is.
    pub(super) fn poll_end(&mut self, stream: u32, cx: &Context<'_>) -> Option<StreamEnd> {
        let request = self.requests.get_mut(&stream)?;
        if request.end.is_none() {
            let Some((kind, reason)) = &self.end else {
                request.user.clone_from(cx.waker());
                return None;
            };
            request.end = Some(StreamEnd::Lost(lost(*kind, reason, request.response.as_ref())));
        }
        self.requests.remove(&stream)?.end
    }

    /// Gives up a request that has no result.
    pub(super) fn give_up(&mut self, stream: u32) {
        if self.requests.remove(&stream).is_some()
            && self.engine.reset(stream, Http2ErrorCode::Cancel, &mut self.out)
        {
            self.wake_blocked();
            self.task.wake_by_ref();
        }
    }

    /// Ends the connection: its users are not needed any more.
    pub(super) fn abandon(&mut self) {
        self.engine.close(&mut self.out);
        self.finish(ErrorKind::Closed, "the connection was closed".to_owned());
        self.task.wake_by_ref();
    }

    /// Ends the connection: the requests without a result have failed.
    pub(super) fn finish(&mut self, kind: ErrorKind, reason: String) {
        self.end.get_or_insert((kind, reason));
        self.requests.values().for_each(|request| request.user.wake_by_ref());
        self.wake_blocked();
    }

    fn wake_blocked(&mut self) {
        self.blocked.drain(..).for_each(Waker::wake);
    }

    fn end_stream(&mut self, stream: u32, end: StreamEnd) {
        if let Some(request) = self.requests.get_mut(&stream) {
            request.end = Some(end);
            request.user.wake_by_ref();
        }
        self.wake_blocked();
    }

    fn complete(&mut self, stream: u32) {
        let request = self.requests.get_mut(&stream);
        let response = request.and_then(|request| request.response.take()).unwrap_or_default();
        self.end_stream(stream, StreamEnd::Complete(response));
    }

    /// Processes what has arrived. Returns the number of bytes that were used.
    pub(super) fn receive(&mut self, input: &[u8], recorder: &SharedRecorder) -> usize {
        self.engine.set_time(recorder.last().now / 1_000_000_000);
        let mut at = 0;
        loop {
            match self.engine.receive(input, &mut at, &mut self.out) {
                Ok(Http2ClientEvent::NeedInput) => return at,
                Ok(event) => self.handle(event, input, recorder),
                Err(error) => {
                    let reason = format!("{}: {}", error.code, error.reason);
                    self.finish(ErrorKind::Protocol, reason);
                    return at;
                }
            }
        }
    }

    fn handle(&mut self, event: Http2ClientEvent, input: &[u8], recorder: &SharedRecorder) {
        match event {
            Http2ClientEvent::Head { stream, head, is_end } => {
                self.begin_response(stream, &head, recorder);
                if is_end {
                    self.complete(stream);
                }
            }
            Http2ClientEvent::Data { stream, data, is_end } => {
                let part = &input[data];
                let request = self.requests.get_mut(&stream);
                if let Some(response) = request.and_then(|request| request.response.as_mut()) {
                    response.add(part, is_end, recorder.last().verifies);
                }
                self.engine.consumed(stream, part.len(), &mut self.out);
                if is_end {
                    self.complete(stream);
                }
            }
            Http2ClientEvent::Trailers { stream, .. } => self.complete(stream),
            Http2ClientEvent::Reset { stream, reason, code, .. } => {
                let end = self.reset(stream, reason, code);
                self.end_stream(stream, end);
            }
            Http2ClientEvent::GoAway { code } => {
                self.goaway = Some(code);
                while let Some(stream) = self.engine.unprocessed() {
                    self.end_stream(stream, StreamEnd::Unprocessed);
                }
                self.wake_blocked();
            }
            // The task sends on what the server now permits of bodies.
            Http2ClientEvent::Window => self.wake_blocked(),
            Http2ClientEvent::Interim { .. } | Http2ClientEvent::NeedInput => {}
        }
    }

    fn begin_response(&mut self, stream: u32, head: &ResponseHead, recorder: &SharedRecorder) {
        let Some(request) = self.requests.get_mut(&stream) else { return };
        let length = head.fields.get("content-length");
        request.announced = length.and_then(|text| std::str::from_utf8(text).ok()?.parse().ok());
        let is_expected = self.expected.has(head.status);
        request.response = Some(recorder.last().first_byte(head.status, is_expected));
    }

    /// Returns the result of a request whose stream was reset, by the server if there is a code.
    fn reset(&self, stream: u32, reason: &str, code: Option<u32>) -> StreamEnd {
        let request = self.requests.get(&stream);
        let response = request.and_then(|request| request.response.as_ref());
        let announced = request.and_then(|request| request.announced);
        match (code, announced, response) {
            (Some(code), ..) if code == Http2ErrorCode::RefusedStream as u32 => StreamEnd::Refused,
            (Some(code), _, response) => {
                let after = response.map_or_else(String::new, |response| {
                    format!(" after {} bytes of the body", response.body)
                });
                let reason = format!("the server reset the stream{after}: {}", name(code));
                StreamEnd::Failed(ErrorKind::StreamReset, reason)
            }
            (None, Some(announced), _) if is_wrong_length(reason) => {
                let reason =
                    format!("another length than the {announced} bytes that Content-Length states");
                StreamEnd::Failed(ErrorKind::Length, reason)
            }
            _ => StreamEnd::Failed(ErrorKind::Protocol, reason.to_owned()),
        }
    }
}

/// Returns the name of an error code.
fn name(code: u32) -> String {
    match Http2ErrorCode::from_code(code) {
        Some(known) => known.to_string(),
        None => format!("code {code:#x}"),
    }
}

/// Returns how a request fails whose connection has ended.
fn lost(kind: ErrorKind, reason: &str, response: Option<&PartialResponse>) -> Failed {
    match (kind, response) {
        (ErrorKind::Protocol | ErrorKind::Tls, _) => Failed::For(kind, reason.to_owned()),
        (_, None) => Failed::Lost(kind, format!("{reason} before a response")),
        (_, Some(response)) => Failed::For(kind, format!("{reason} after {} bytes", response.body)),
    }
}

#[cfg(test)]
mod tests {
    use dunlin_http::http2::frame::{self, setting};

    use super::*;
    use crate::engine::Extras;
    use crate::engine::recorder::Recorder;
    use crate::segment::Segment;
    use crate::testing::plan;
    use crate::verify::Reference;

    #[test]
    fn bodies_do_not_gather_for_a_server_that_permits_all_of_them() {
        const LARGEST: u32 = (1 << 31) - 1;
        let job = Job::new(plan(1.0), Extras::default(), Reference::default()).unwrap();
        let recorder = SharedRecorder::new(Recorder::new(&job, Segment::WHOLE));
        let mut state = Http2State::new(&job);
        let mut server = Vec::new();
        frame::write_settings(&[(setting::INITIAL_WINDOW_SIZE, LARGEST)], &mut server);
        frame::write_window_update(0, LARGEST - 65_535, &mut server);
        assert_eq!(state.receive(&server, &recorder), server.len());
        let (body, head) = (Bytes::from(vec![b'x'; 1 << 20]), RequestHead::new("POST", "a", "/"));
        let cx = Context::from_waker(Waker::noop());
        for _ in 0..50 {
            assert!(state.open(&head, "http", &body, &cx).unwrap().is_some());
        }
        let heads = state.out.len();
        let mut sent = 0;
        while !state.unsent.is_empty() {
            state.send_bodies();
            assert!(!state.out.is_empty() && state.out.capacity() < heads + 4 * MAX_OUT);
            sent += state.out.len();
            state.out.clear();
        }
        assert!(heads < MAX_OUT && sent > 50 << 20, "{heads} {sent}");
    }
}
