//! Single connections, for callers that keep their own pools.

use std::net::SocketAddr;
use std::task::{Context, Waker};

use crate::body::Body;
use crate::connect::{connect, connect_at};
use crate::exchange::Exchange;
use crate::http1::Http1;
use crate::stream::Stream;
use crate::transport::Transport;
use crate::{Error, Origin, Request, Timeouts};

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
    pub async fn open(origin: &Origin, timeouts: &Timeouts) -> Result<Self, Error> {
        let stream = connect(origin, timeouts).await?;
        Ok(Self { http1: Box::new(Http1::new(stream)) })
    }

    /// The same at one of these addresses of the origin: the first that can be reached.
    ///
    /// # Errors
    /// As [`Connection::open`].
    pub async fn open_at(
        origin: &Origin,
        addresses: &[SocketAddr],
        timeouts: &Timeouts,
    ) -> Result<Self, Error> {
        let stream = connect_at(origin, addresses, timeouts).await?;
        Ok(Self { http1: Box::new(Http1::new(stream)) })
    }

    /// Whether the connection can be used: the server has neither closed it nor sent anything, as far as the runtime
    /// knows. Makes no system call unless an event has arrived.
    #[must_use]
    pub fn is_healthy(&mut self) -> bool {
        self.http1.is_healthy(&mut Context::from_waker(Waker::noop()))
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
