//! One request and its response.

use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use dunlin_http::{FieldLines, ResponseHead};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use crate::body::Body;
use crate::event::{Event, Failure, SendState, Sending};
use crate::pool::Pool;
use crate::timer::Timer;
use crate::transport::Transport;
use crate::{Connection, Error, ErrorKind, Origin, Phase, Request, Upgraded};

/// A request on its way and its response as it arrives.
///
/// Polling for a head or for data also sends the rest of the request's body. Dropping the exchange before the end of the
/// response aborts it.
pub struct Exchange<B> {
    origin: Origin,
    /// `None` after the end.
    connection: Option<Active>,
    /// The connection after the end, if another request may use it and it belongs to no pool.
    finished: Option<Connection>,
    sending: Sending<B>,
    timer: Timer,
    /// A head that arrived before the caller waited for it.
    head: Option<ResponseHead>,
    has_final_head: bool,
    trailers: FieldLines,
}

struct Active {
    transport: Transport,
    permit: Option<PoolPermit>,
}

/// The place in a pool of a connection in use.
pub(crate) struct PoolPermit {
    pub(crate) pool: Arc<Pool>,
    pub(crate) permit: OwnedSemaphorePermit,
}

impl<B: Body> Exchange<B> {
    /// Begins the exchange on a connection, or on a stream that was opened with the head of the request.
    pub(crate) fn begin(
        permit: Option<PoolPermit>,
        mut transport: Transport,
        request: &Request,
        body: B,
        end: Option<Instant>,
    ) -> Result<Self, Error> {
        let origin = request.origin.clone();
        let sending = match &mut transport {
            Transport::Http1(http1) => http1.begin(&request.head, body),
            Transport::Http2(stream) => Ok(stream.begin(body)),
        };
        let sending = sending.map_err(|failure| error(&origin, failure))?;
        Ok(Self {
            origin,
            connection: Some(Active { transport, permit }),
            finished: None,
            sending,
            timer: Timer::new(request.timeouts, end),
            head: None,
            has_final_head: false,
            trailers: FieldLines::default(),
        })
    }

    /// Waits for the first head and keeps it for [`Exchange::poll_head`].
    pub(crate) async fn wait_for_response(&mut self) -> Result<(), Error> {
        let head = poll_fn(|context| self.poll_head(context)).await?;
        self.head = Some(head);
        Ok(())
    }

    /// Returns the permit and the body, of an exchange that has failed.
    pub(crate) fn into_parts(mut self) -> (Option<OwnedSemaphorePermit>, B) {
        let permit = self.connection.take().and_then(|active| active.permit);
        (permit.map(|held| held.permit), self.sending.body)
    }

    /// Returns the body of a request whose exchange is over, to be sent again.
    pub fn into_body(self) -> B {
        self.sending.body
    }

    /// Returns the connection of a complete exchange, if another request may use it and [`Connection::send`] began the
    /// exchange.
    pub fn take_connection(&mut self) -> Option<Connection> {
        self.finished.take()
    }

    /// Returns `true` if all of the request has been sent.
    #[must_use]
    pub fn is_sent(&self) -> bool {
        self.connection.as_ref().is_none_or(|active| active.transport.is_sent())
            && self.sending.state == SendState::Ended
    }

    /// Returns `true` if bytes of the request wait for the server to take them.
    #[must_use]
    pub fn is_blocked(&self) -> bool {
        self.connection.as_ref().is_some_and(|active| active.transport.is_sending())
    }

    /// Returns a number that changes whenever bytes of the exchange move.
    #[must_use]
    pub fn progress(&self) -> u64 {
        self.connection.as_ref().map_or(u64::MAX, |active| active.transport.progress())
    }

    /// Returns the next head: of an interim response, or the final one.
    ///
    /// # Errors
    /// If the exchange fails, or the final head has already been received.
    pub async fn head(&mut self) -> Result<ResponseHead, Error> {
        poll_fn(|context| self.poll_head(context)).await
    }

    /// Returns the final head; interim responses are dropped.
    ///
    /// # Errors
    /// As [`Exchange::head`].
    pub async fn final_head(&mut self) -> Result<ResponseHead, Error> {
        loop {
            let head = self.head().await?;
            if !head.is_interim() {
                return Ok(head);
            }
        }
    }

    /// Polls for the next head; see [`Exchange::head`].
    ///
    /// # Errors
    /// As [`Exchange::head`].
    pub fn poll_head(&mut self, context: &mut Context<'_>) -> Poll<Result<ResponseHead, Error>> {
        if let Some(head) = self.head.take() {
            return Poll::Ready(Ok(head));
        }
        if self.has_final_head {
            let reason = "the head of the final response has already been received";
            return Poll::Ready(Err(Error::new(ErrorKind::InvalidRequest, &self.origin, reason)));
        }
        loop {
            match ready!(self.poll_event(context))? {
                Event::Interim(head) | Event::Head(head) => return Poll::Ready(Ok(head)),
                // No body comes before the final head.
                Event::Data(_) | Event::End(_) => {}
            }
        }
    }

    /// Returns the next piece of the response's body; `None` at its end. Heads that the caller did not request are dropped.
    pub async fn data(&mut self) -> Option<Result<Bytes, Error>> {
        poll_fn(|context| self.poll_data(context)).await
    }

    /// Polls for the next piece of the response's body; see [`Exchange::data`].
    pub fn poll_data(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, Error>>> {
        while self.connection.as_ref().is_some_and(|active| !active.transport.is_tunnel()) {
            match ready!(self.poll_event(context)) {
                Ok(Event::Data(data)) if data.is_empty() => {}
                Ok(Event::Data(data)) => return Poll::Ready(Some(Ok(data))),
                Ok(Event::End(_)) => break,
                Ok(Event::Interim(_) | Event::Head(_)) => {}
                Err(error) => return Poll::Ready(Some(Err(error))),
            }
        }
        Poll::Ready(None)
    }

    /// Returns the rest of the response's body as one piece.
    ///
    /// # Errors
    /// If the exchange fails, or the body has more than `limit` bytes.
    pub async fn collect(&mut self, limit: usize) -> Result<Bytes, Error> {
        let mut first = Bytes::new();
        let mut all = BytesMut::new();
        while let Some(data) = self.data().await {
            let data = data?;
            if first.len() + all.len() + data.len() > limit {
                let reason = format!("the body of the response is larger than {limit} bytes");
                return Err(Error::new(ErrorKind::TooLarge, &self.origin, reason));
            }
            // A body of one piece is not copied.
            if first.is_empty() && all.is_empty() {
                first = data;
            } else {
                all.extend_from_slice(&std::mem::take(&mut first));
                all.extend_from_slice(&data);
            }
        }
        Ok(if all.is_empty() { first } else { all.freeze() })
    }

    /// Returns the trailer fields of the response, after the end of its body.
    pub fn trailers(&self) -> &FieldLines {
        &self.trailers
    }

    /// Sends the rest of the request after a final head with status 101: the other protocol begins behind it.
    ///
    /// # Errors
    /// If the exchange fails, or the server did not wait for the body.
    pub fn poll_sent(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        let Some(active) = &mut self.connection else { return Poll::Ready(Ok(())) };
        let sent = ready!(active.transport.poll_send(context, &mut self.sending));
        sent.map_err(|failure| error(&self.origin, failure))?;
        Poll::Ready(if self.is_sent() {
            Ok(())
        } else {
            let reason = "the server switches to another protocol before the end of the request";
            Err(Error::new(ErrorKind::Protocol, &self.origin, reason))
        })
    }

    /// Returns the byte stream of the connection of HTTP/1.1, after a final head with status 101, or 2xx to CONNECT.
    ///
    /// # Errors
    /// If the response did not switch protocols.
    pub fn upgrade(mut self) -> Result<Upgraded, Error> {
        match self.connection.take() {
            Some(Active { transport: Transport::Http1(http1), permit })
                if http1.is_tunnel() && !http1.is_sending() =>
            {
                let (stream, early) = http1.into_parts();
                Ok(Upgraded::new(stream, early, permit.map(|held| held.permit)))
            }
            _ => {
                let reason = "the response does not switch to another protocol";
                Err(Error::new(ErrorKind::Protocol, &self.origin, reason))
            }
        }
    }

    fn poll_event(&mut self, context: &mut Context<'_>) -> Poll<Result<Event, Error>> {
        let Some(active) = &mut self.connection else {
            let reason = "the exchange is over";
            return Poll::Ready(Err(Error::new(ErrorKind::InvalidRequest, &self.origin, reason)));
        };
        let transport = &mut active.transport;
        let result = loop {
            if let Poll::Ready(Err(failure)) = transport.poll_send(context, &mut self.sending) {
                break Err(error(&self.origin, failure));
            }
            if let Poll::Ready(result) = transport.poll_event(context) {
                break result.map_err(|failure| error(&self.origin, failure));
            }
            let phase = waits_for(transport, self.sending.state);
            match ready!(self.timer.poll(context, phase, transport.progress())) {
                Phase::Continue => self.sending.state = SendState::Streaming,
                phase => break Err(Error::timeout(phase, &self.origin)),
            }
        };
        match &result {
            Ok(Event::Interim(head)) if head.status == 100 => self.start_body(),
            Ok(Event::Head(_)) => {
                self.has_final_head = true;
                self.sending.body.settle();
                // A body that waits for 100 is not wanted any more.
                if self.sending.state == SendState::Held {
                    self.sending.state = SendState::Ended;
                }
            }
            Ok(Event::End(trailers)) => {
                self.trailers = trailers.clone();
                self.release();
            }
            Err(error) if !error.is_without_response && !error.is_unprocessed => {
                self.connection = None;
            }
            _ => {}
        }
        Poll::Ready(result)
    }

    fn start_body(&mut self) {
        if self.sending.state == SendState::Held {
            self.sending.state = SendState::Streaming;
        }
    }

    /// Gives the connection back to the pool or keeps it for the caller, if another request may use it.
    fn release(&mut self) {
        let Some(Active { transport, permit }) = self.connection.take() else { return };
        if let Transport::Http1(mut http1) = transport
            && http1.is_reusable()
        {
            http1.return_buffer();
            match &permit {
                Some(permit) => permit.pool.put(&self.origin, http1),
                None => self.finished = Some(Connection::new(http1)),
            }
        }
    }
}

/// Returns what the exchange waits for, if that has a limit of time.
fn waits_for(transport: &Transport, state: SendState) -> Option<Phase> {
    match state {
        _ if transport.is_sending() || transport.has_head() => Some(Phase::BetweenBytes),
        SendState::Ended => Some(Phase::FirstByte),
        SendState::Held => Some(Phase::Continue),
        // The caller has no chunk yet.
        SendState::Streaming => None,
    }
}

fn error(origin: &Origin, failure: Failure) -> Error {
    let Failure { kind, reason, is_without_response, is_unprocessed } = failure;
    Error { is_without_response, is_unprocessed, ..Error::new(kind, origin, reason) }
}

impl<B> fmt::Debug for Exchange<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exchange").field("origin", &self.origin).finish_non_exhaustive()
    }
}
