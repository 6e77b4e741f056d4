//! Single connections, for callers that keep their own pools.

use std::io;
use std::task::{Context, Waker};
use std::time::Duration;

use dunlin_http::BodySize;

use crate::body::Body;
use crate::connect::{Dial, connect};
use crate::exchange::Exchange;
use crate::http1::Http1;
use crate::http2::{Http2, Http2Stream};
use crate::stream::Stream;
use crate::transport::Transport;
use crate::{Error, ErrorKind, Origin, Request};

/// An idle connection of HTTP/1.1. Its owner decides which requests use it, how long it is kept, and how many there are.
#[derive(Debug)]
pub struct Connection {
    http1: Box<Http1<Stream>>,
}

impl Connection {
    /// Opens a connection to `origin`, with its TLS handshake. The `alpn_protocols` of the origin must not contain `h2`.
    ///
    /// # Errors
    /// If the connection cannot be opened within the limits of time.
    pub async fn open(origin: &Origin, dial: &Dial<'_>) -> Result<Self, Error> {
        let stream = connect(origin, dial).await?;
        Ok(Self { http1: Box::new(Http1::new(stream)) })
    }

    /// Returns `true` if the connection can be used: the server has neither closed it nor sent anything, as far as the
    /// runtime knows. Makes no system call unless an event has arrived.
    #[must_use]
    pub fn is_healthy(&mut self) -> bool {
        self.http1.is_healthy(&mut Context::from_waker(Waker::noop()))
    }

    /// Moves the connection from another thread's runtime to the runtime of this thread.
    ///
    /// # Errors
    /// If a descriptor is missing, or the runtime cannot register it.
    pub fn adopt(&mut self) -> io::Result<()> {
        self.http1.stream_mut().adopt()
    }

    /// Begins an exchange. The limits of the request for waiting and connecting do not apply, nor does its limit of the
    /// whole exchange. After the response, [`Exchange::take_connection`] returns the connection.
    ///
    /// # Errors
    /// If the request cannot be sent as it is.
    pub fn send<B: Body>(self, request: &Request, body: B) -> Result<Exchange<B>, Error> {
        Exchange::begin(None, Transport::Http1(self.http1), request, body, None)
    }

    pub(crate) fn new(http1: Box<Http1<Stream>>) -> Self {
        Self { http1 }
    }
}

/// A connection of HTTP/2, which many exchanges use at the same time. Clones are the same connection.
#[derive(Debug, Clone)]
pub struct SharedConnection {
    http2: Http2,
}

/// A stream of a [`SharedConnection`], whose request has its head.
#[derive(Debug)]
pub struct OpenStream {
    stream: Http2Stream,
}

impl SharedConnection {
    /// Opens a connection to `origin`. It closes itself when it was without a stream for `idle_time`.
    ///
    /// # Errors
    /// If the connection cannot be opened within the limits of time, or the server does not select HTTP/2.
    pub async fn open(
        origin: &Origin,
        dial: &Dial<'_>,
        idle_time: Duration,
    ) -> Result<Self, Error> {
        let stream = connect(origin, dial).await?;
        if !origin.has_prior_knowledge() && !stream.has_selected_http2() {
            let reason = "the server has not selected HTTP/2";
            return Err(Error::new(ErrorKind::Protocol, origin, reason));
        }
        Ok(Self { http2: Http2::start(stream, origin.is_secure(), idle_time) })
    }

    /// Returns `true` if the connection takes further requests.
    #[must_use]
    pub fn is_usable(&self) -> bool {
        self.http2.is_usable()
    }

    /// Returns `true` if the server permits another stream now.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.http2.has_room()
    }

    /// Returns `true` if the connection has a request and is not known to permit another one: the server's settings have not
    /// arrived.
    #[must_use]
    pub fn is_new(&self) -> bool {
        self.http2.is_new()
    }

    /// Waits until [`Self::is_new`] is false.
    pub async fn settled(&self) {
        self.http2.settled().await;
    }

    /// Requests that are not complete.
    #[must_use]
    pub fn open_streams(&self) -> usize {
        self.http2.open_streams()
    }

    /// Opens a stream with the head of a request, when the server permits one; `None` if the connection takes no further
    /// request.
    ///
    /// # Errors
    /// If the request cannot be sent as it is.
    pub async fn open_stream(
        &self,
        request: &Request,
        size: BodySize,
    ) -> Result<Option<OpenStream>, Error> {
        let invalid = |error| Error::new(ErrorKind::InvalidRequest, &request.origin, error);
        let stream = self.http2.open(&request.head, size).await.map_err(invalid)?;
        Ok(stream.map(|stream| OpenStream { stream }))
    }
}

impl OpenStream {
    /// Begins the exchange of the request that the stream was opened with. The limits of the request for waiting and
    /// connecting do not apply.
    ///
    /// # Errors
    /// If the request cannot be sent as it is.
    pub fn send<B: Body>(self, request: &Request, body: B) -> Result<Exchange<B>, Error> {
        Exchange::begin(None, Transport::Http2(self.stream), request, body, None)
    }
}
