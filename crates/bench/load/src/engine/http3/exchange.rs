//! A request and its response on a stream.

use std::cell::RefCell;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use dunlin_http::http3::client::Http3ClientEvent;
use dunlin_http::http3::{DataHeader, Http3ErrorCode};
use dunlin_http::message::is_wrong_length;
use dunlin_http::{BodySize, ResponseHead};
use dunlin_quic::{ReadEnd, StreamId, VarInt};

use super::Http3;
use super::driver::State;
use crate::engine::job::Job;
use crate::engine::recorder::SharedRecorder;
use crate::engine::response::PartialResponse;
use crate::engine::streams::{EndedBy, Failed, LiveConnection};
use crate::outcome::ErrorKind;

/// Sends the request of the URL with that index, and reads the response.
pub(super) async fn run(
    live: &LiveConnection<Http3>,
    state: &Rc<RefCell<State>>,
    job: &Job,
    recorder: &SharedRecorder,
    url: u32,
) -> Result<PartialResponse, Failed> {
    let stream = poll_fn(|cx| open(live, &mut state.borrow_mut(), cx)).await?;
    let mut exchange = Exchange {
        state: Rc::clone(state),
        stream,
        unsent: begin(&mut state.borrow_mut(), job, url, stream)?,
        at: 0,
        blocked: None,
        response: None,
        announced: None,
        is_done: false,
    };
    poll_fn(|cx| exchange.poll(live, job, recorder, cx)).await
}

/// Opens a stream.
fn open(
    live: &LiveConnection<Http3>,
    state: &mut State,
    cx: &Context<'_>,
) -> Poll<Result<StreamId, Failed>> {
    if state.has_rejected {
        live.end_by(EndedBy::Rejected);
        return Poll::Ready(Err(Failed::NotProcessed));
    }
    if state.is_draining {
        live.end_by(EndedBy::GoAway);
        return Poll::Ready(Err(Failed::NotProcessed));
    }
    if let Some((kind, reason)) = &state.end {
        live.end_by(EndedBy::Failure);
        return Poll::Ready(Err(Failed::Lost(*kind, reason.clone())));
    }
    match state.open(cx) {
        Some(id) => Poll::Ready(Ok(id)),
        None => Poll::Pending,
    }
}

/// Makes the bytes of a request.
fn begin(state: &mut State, job: &Job, url: u32, stream: StreamId) -> Result<Vec<u8>, Failed> {
    let wrong = |reason: String| Failed::For(ErrorKind::Other, reason);
    let Some((head, body)) = job.of_streams.get(url as usize) else {
        return Err(wrong("there is no such request".to_owned()));
    };
    let size = match body.is_empty() {
        true => BodySize::Empty,
        false => BodySize::Known(body.len() as u64),
    };
    let mut out = std::mem::take(&mut state.out);
    state
        .engine
        .open(stream.into(), head, "https", size, &mut out)
        .map_err(|error| wrong(error.to_string()))?;
    if !body.is_empty() {
        state.engine.send_data(stream.into(), body.len(), true);
        out.extend_from_slice(DataHeader::new(body.len()).as_bytes());
        out.extend_from_slice(body);
    }
    Ok(out)
}

/// A request that was sent.
struct Exchange {
    state: Rc<RefCell<State>>,
    stream: StreamId,
    /// Bytes of the request that QUIC has not taken, from `at` on.
    unsent: Vec<u8>,
    at: usize,
    /// What has arrived behind a section that waits for entries of the QPACK table, and whether the stream ends with it.
    blocked: Option<(Vec<Bytes>, bool)>,
    response: Option<PartialResponse>,
    /// The length that the head states.
    announced: Option<u64>,
    is_done: bool,
}

/// The result of what has arrived.
enum Step {
    More,
    Blocked(usize),
    Complete,
    Failed(Failed),
}

impl Exchange {
    fn poll(
        &mut self,
        live: &LiveConnection<Http3>,
        job: &Job,
        recorder: &SharedRecorder,
        cx: &mut Context<'_>,
    ) -> Poll<Result<PartialResponse, Failed>> {
        let state = Rc::clone(&self.state);
        let state = &mut *state.borrow_mut();
        state.watch(self.stream.into(), cx);
        if let Some(failed) = self.unprocessed(live, state) {
            return Poll::Ready(Err(self.end(state, failed)));
        }
        if !self.unsent.is_empty() {
            self.send(state);
        }
        match self.receive(state, job, recorder) {
            Step::More | Step::Blocked(_) => {}
            Step::Complete => {
                self.finish(state);
                return Poll::Ready(Ok(self.response.take().unwrap_or_default()));
            }
            Step::Failed(failed) => return Poll::Ready(Err(self.end(state, failed))),
        }
        if let Some((kind, reason)) = &state.end {
            live.end_by(EndedBy::Failure);
            let failed = match &self.response {
                None => Failed::Lost(*kind, reason.clone()),
                Some(response) => {
                    Failed::For(*kind, format!("{reason}, after {} bytes", response.body))
                }
            };
            return Poll::Ready(Err(self.end(state, failed)));
        }
        Poll::Pending
    }

    /// Passes the rest of the request to QUIC.
    fn send(&mut self, state: &mut State) {
        self.at += state.connection.write(self.stream, &self.unsent[self.at..]);
        if self.at == self.unsent.len() {
            // The server may have stopped it; its response may follow.
            let _ = state.connection.state().send_stream(self.stream).finish();
            let mut buffer = std::mem::take(&mut self.unsent);
            buffer.clear();
            state.out = buffer;
        }
        state.wake_task();
    }

    /// Returns why the server has not processed the request; `None` if it may have.
    fn unprocessed(&self, live: &LiveConnection<Http3>, state: &mut State) -> Option<Failed> {
        if state.has_rejected {
            live.end_by(EndedBy::Rejected);
            return Some(Failed::NotProcessed);
        }
        let id: u64 = self.stream.into();
        let position = state.unprocessed.iter().position(|other| *other == id)?;
        state.unprocessed.swap_remove(position);
        live.end_by(EndedBy::GoAway);
        Some(Failed::NotProcessed)
    }

    /// Reads what has arrived.
    fn receive(&mut self, state: &mut State, job: &Job, recorder: &SharedRecorder) -> Step {
        let (parts, is_end) = match self.blocked.take() {
            Some(blocked) => blocked,
            None => match self.read(state) {
                Ok(read) => read,
                Err(failed) => return Step::Failed(failed),
            },
        };
        let last = parts.len().saturating_sub(1);
        for (number, part) in parts.iter().enumerate() {
            let ends = is_end && number == last;
            match self.process(state, part, ends, job, recorder) {
                Step::More => {}
                Step::Blocked(at) => {
                    let mut rest = parts[number..].to_vec();
                    rest[0] = part.slice(at..);
                    self.blocked = Some((rest, is_end));
                    return Step::More;
                }
                step => return step,
            }
        }
        Step::More
    }

    fn read(&self, state: &mut State) -> Result<(Vec<Bytes>, bool), Failed> {
        match state.connection.read_all(self.stream) {
            (_, ReadEnd::Reset(code)) => Err(self.reset(state, code)),
            (parts, end) => Ok((parts, end == ReadEnd::Ended)),
        }
    }

    /// The server has reset the stream.
    fn reset(&self, state: &mut State, code: u64) -> Failed {
        match state.engine.reset_received(self.stream.into(), code) {
            Ok(Some(true)) => return Failed::Refused,
            Ok(_) => {}
            Err(error) => state.fail(error),
        }
        let after = self.response.as_ref().map_or_else(String::new, |response| {
            format!(" after {} bytes of the body", response.body)
        });
        let reason = format!("the server reset the stream{after}: code {code:#x}");
        Failed::For(ErrorKind::StreamReset, reason)
    }

    /// Passes a part to the engine.
    fn process(
        &mut self,
        state: &mut State,
        part: &Bytes,
        is_end: bool,
        job: &Job,
        recorder: &SharedRecorder,
    ) -> Step {
        let mut at = 0;
        loop {
            let event = state.engine.receive(self.stream.into(), part, &mut at, is_end);
            let ends = match event {
                Ok(Http3ClientEvent::NeedInput) => return Step::More,
                Ok(Http3ClientEvent::Blocked) => return Step::Blocked(at),
                Ok(Http3ClientEvent::Head { head, is_end, .. }) => {
                    self.begin_response(&head, job, recorder);
                    is_end
                }
                Ok(Http3ClientEvent::Data { data, is_end, .. }) => {
                    let verifies = recorder.last().verifies;
                    if let Some(response) = &mut self.response {
                        response.add(&part[data], is_end, verifies);
                    }
                    is_end
                }
                Ok(Http3ClientEvent::Trailers { .. }) => true,
                Ok(Http3ClientEvent::Reset { code, reason, .. }) => {
                    let what = match self.announced {
                        Some(announced) if is_wrong_length(reason) => {
                            let what = format!(
                                "another length than the {announced} bytes that Content-Length states"
                            );
                            Failed::For(ErrorKind::Length, what)
                        }
                        _ => Failed::For(ErrorKind::Protocol, format!("{code}: {reason}")),
                    };
                    return Step::Failed(what);
                }
                Ok(_) => false,
                Err(error) => {
                    state.fail(error);
                    let what = format!("{}: {}", error.code, error.reason);
                    return Step::Failed(Failed::For(ErrorKind::Protocol, what));
                }
            };
            if ends {
                return Step::Complete;
            }
        }
    }

    fn begin_response(&mut self, head: &ResponseHead, job: &Job, recorder: &SharedRecorder) {
        let length = head.fields.get("content-length");
        self.announced = length
            .and_then(|length| std::str::from_utf8(length).ok())
            .and_then(|length| length.parse().ok());
        self.response = Some(recorder.now().first_byte(head.status, job.expected.has(head.status)));
    }

    /// The response is complete.
    fn finish(&mut self, state: &mut State) {
        self.is_done = true;
        state.forget(self.stream.into());
    }

    /// The request has no response: the stream is given up.
    fn end(&mut self, state: &mut State, failed: Failed) -> Failed {
        self.give_up(state);
        failed
    }

    fn give_up(&mut self, state: &mut State) {
        if std::mem::replace(&mut self.is_done, true) {
            return;
        }
        state.forget(self.stream.into());
        state.engine.reset(self.stream.into());
        let code = VarInt::from_u64(Http3ErrorCode::RequestCancelled.value()).unwrap_or_default();
        if state.has_rejected {
            return;
        }
        let mut quic = state.connection.state();
        // A direction that has ended is not reset.
        let _ = quic.send_stream(self.stream).reset(code);
        let _ = quic.recv_stream(self.stream).stop(code);
        drop(quic);
        state.wake_task();
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        // The time of a response has passed.
        let state = Rc::clone(&self.state);
        self.give_up(&mut state.borrow_mut());
    }
}
