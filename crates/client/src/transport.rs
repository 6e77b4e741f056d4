//! The connection of an exchange, whatever its version of HTTP.

use std::task::{Context, Poll};

use crate::body::Body;
use crate::event::{Event, Failure, Sending};
use crate::http1::Http1;
use crate::http2::Http2Stream;
use crate::stream::Stream;

/// A connection of HTTP/1.1, or a stream of HTTP/2.
#[derive(Debug)]
pub(crate) enum Transport {
    Http1(Box<Http1<Stream>>),
    Http2(Http2Stream),
}

impl Transport {
    /// Sends what can be sent of the request. Ready when it is complete or no more of it can be sent.
    pub(crate) fn poll_send<B: Body>(
        &mut self,
        context: &mut Context<'_>,
        sending: &mut Sending<B>,
    ) -> Poll<Result<(), Failure>> {
        match self {
            Self::Http1(http1) => http1.poll_send(context, sending),
            Self::Http2(stream) => stream.poll_send(context, sending),
        }
    }

    /// Returns the next part of the response.
    pub(crate) fn poll_event(&mut self, context: &mut Context<'_>) -> Poll<Result<Event, Failure>> {
        match self {
            Self::Http1(http1) => http1.poll_event(context),
            Self::Http2(stream) => stream.poll_event(context),
        }
    }

    /// Returns a number that changes whenever bytes move.
    pub(crate) fn progress(&self) -> u64 {
        match self {
            Self::Http1(http1) => http1.progress(),
            Self::Http2(stream) => stream.progress(),
        }
    }

    /// Returns `true` if the server holds up the request.
    pub(crate) fn is_sending(&self) -> bool {
        match self {
            Self::Http1(http1) => http1.is_sending(),
            Self::Http2(stream) => stream.is_sending(),
        }
    }

    /// Returns `true` if the connection has taken all that it was given of the request.
    pub(crate) fn is_sent(&self) -> bool {
        match self {
            Self::Http1(http1) => http1.is_sent(),
            Self::Http2(stream) => !stream.is_sending(),
        }
    }

    /// Returns `true` if the final head has arrived.
    pub(crate) fn has_head(&self) -> bool {
        match self {
            Self::Http1(http1) => http1.has_head(),
            Self::Http2(stream) => stream.has_head(),
        }
    }

    /// Returns `true` if another protocol uses the connection now.
    pub(crate) fn is_tunnel(&self) -> bool {
        matches!(self, Self::Http1(http1) if http1.is_tunnel())
    }
}
