//! The adapter of HTTP/2 to the engine of streams, by the client side of the engine of the server.

mod driver;
mod state;

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::net::TcpStream;

use self::driver::ConnectionTask;
use self::state::{Http2State, StreamEnd};
use super::job::Job;
use super::recorder::{ConnectionRecord, SharedRecorder};
use super::response::PartialResponse;
use super::streams::{EndedBy, Failed, LiveConnection, Seen, StreamProtocol};
use crate::outcome::ErrorKind;

/// The handle of a connection of HTTP/2.
pub(super) struct Http2(Rc<RefCell<Http2State>>);

impl StreamProtocol for Http2 {
    async fn open(
        job: &Job,
        recorder: &SharedRecorder,
        record: &mut ConnectionRecord,
        seen: &Rc<Seen>,
    ) -> io::Result<Self> {
        let socket = TcpStream::connect(job.address).await?;
        socket.set_nodelay(job.plan.request.no_delay)?;
        recorder.now().connect(record);
        let state = Rc::new(RefCell::new(Http2State::new(job)));
        let connection = ConnectionTask::new(&state, recorder, seen);
        let Some(tls) = &job.tls else {
            tokio::task::spawn_local(connection.drive(socket));
            return Ok(Self(state));
        };
        let connector = tokio_rustls::TlsConnector::from(Arc::clone(&tls.config));
        let stream = connector.connect(tls.name.clone(), socket).await?;
        let (_, session) = stream.get_ref();
        if session.alpn_protocol() != Some(job.plan.protocol.alpn()) {
            return Err(io::Error::other("the server does not negotiate h2"));
        }
        let resumed = session.handshake_kind() == Some(rustls::HandshakeKind::Resumed);
        recorder.now().handshake(record, resumed);
        tokio::task::spawn_local(connection.drive(stream));
        Ok(Self(state))
    }

    fn max_streams(&self) -> usize {
        self.0.borrow().max_streams()
    }

    async fn exchange(
        live: &LiveConnection<Self>,
        job: &Job,
        _recorder: &SharedRecorder,
        url: u32,
    ) -> Result<PartialResponse, Failed> {
        let state = &live.client.0;
        let stream = poll_fn(|cx| open(live, &mut state.borrow_mut(), job, url, cx)).await?;
        let mut exchange = Exchange { state: Rc::clone(state), stream };
        poll_fn(|cx| exchange.poll(live, cx)).await
    }
}

impl Drop for Http2 {
    fn drop(&mut self) {
        self.0.borrow_mut().abandon();
    }
}

/// Opens a stream with the request of a URL, once the server permits one.
fn open(
    live: &LiveConnection<Http2>,
    state: &mut Http2State,
    job: &Job,
    url: u32,
    cx: &Context<'_>,
) -> Poll<Result<u32, Failed>> {
    if state.is_draining() {
        live.end_by(EndedBy::GoAway);
        return Poll::Ready(Err(state.unprocessed()));
    }
    if let Some((kind, reason)) = &state.end {
        live.end_by(EndedBy::Failure);
        return Poll::Ready(Err(Failed::Lost(*kind, reason.clone())));
    }
    let wrong = |reason: String| Failed::For(ErrorKind::Other, reason);
    let Some((head, body)) = job.of_streams.get(url as usize) else {
        return Poll::Ready(Err(wrong("there is no such request".to_owned())));
    };
    let scheme = if job.tls.is_some() { "https" } else { "http" };
    match state.open(head, scheme, body, cx) {
        Ok(Some(stream)) => Poll::Ready(Ok(stream)),
        Ok(None) => Poll::Pending,
        Err(error) => Poll::Ready(Err(wrong(error.to_string()))),
    }
}

/// A request that was sent.
struct Exchange {
    state: Rc<RefCell<Http2State>>,
    stream: u32,
}

impl Exchange {
    fn poll(
        &mut self,
        live: &LiveConnection<Http2>,
        cx: &Context<'_>,
    ) -> Poll<Result<PartialResponse, Failed>> {
        let mut state = self.state.borrow_mut();
        let Some(end) = state.poll_end(self.stream, cx) else { return Poll::Pending };
        Poll::Ready(match end {
            StreamEnd::Complete(response) => Ok(response),
            StreamEnd::Unprocessed => {
                live.end_by(EndedBy::GoAway);
                Err(state.unprocessed())
            }
            StreamEnd::Refused => Err(Failed::Refused),
            StreamEnd::Failed(kind, reason) => Err(Failed::For(kind, reason)),
            StreamEnd::Lost(failed) => {
                live.end_by(EndedBy::Failure);
                Err(failed)
            }
        })
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        // The time of a response has passed, unless it is complete.
        self.state.borrow_mut().give_up(self.stream);
    }
}
