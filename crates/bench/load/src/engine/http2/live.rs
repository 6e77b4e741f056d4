//! An established HTTP/2 connection, as its streams see it, and how their errors are classified.

use std::cell::Cell;
use std::rc::Rc;

use bytes::Bytes;
use h2::client::SendRequest;
use tokio::sync::Notify;

use super::wire::Seen;
use crate::outcome::ErrorKind;

/// An established connection.
pub(super) struct Live {
    pub(super) client: SendRequest<Bytes>,
    pub(super) seen: Rc<Seen>,
    /// Streams in flight.
    pub(super) open: Cell<usize>,
    /// The number of streams that the server has not refused.
    permitted: Cell<usize>,
    /// Responses so far.
    pub(super) responses: Cell<u64>,
    /// The connection has been counted among those of the measurement.
    pub(super) counted: Cell<bool>,
    end: Cell<Option<EndedBy>>,
    /// Notified when a stream ends.
    pub(super) freed: Notify,
    /// Notified when the connection takes no more streams.
    pub(super) ended: Notify,
}

/// Why a connection takes no more streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EndedBy {
    /// The server sent GOAWAY.
    GoAway,
    /// It is broken.
    Failure,
    /// The generator gave it up, since nothing arrived for the time of a response.
    Silence,
}

impl Live {
    pub(super) fn new(client: SendRequest<Bytes>, seen: Rc<Seen>) -> Self {
        Self {
            client,
            seen,
            open: Cell::new(0),
            permitted: Cell::new(usize::MAX),
            responses: Cell::new(0),
            counted: Cell::new(false),
            end: Cell::new(None),
            freed: Notify::new(),
            ended: Notify::new(),
        }
    }

    /// Returns why it takes no more streams; `None` while it does.
    pub(super) fn end(&self) -> Option<EndedBy> {
        self.end.get()
    }

    /// Ends the use of the connection. The first reason counts, but a failure precedes GOAWAY.
    pub(super) fn end_by(&self, reason: EndedBy) {
        if self.end.get().is_none() || reason == EndedBy::Failure {
            self.end.set(Some(reason));
        }
        self.ended.notify_waiters();
        self.freed.notify_waiters();
    }

    /// Returns `true` if the server permits another stream.
    pub(super) fn has_room(&self) -> bool {
        self.open.get() < self.client.current_max_send_streams().min(self.permitted.get())
    }

    /// Records that the server has refused a stream while those that are open now were in flight. Returns whether there was none.
    pub(super) fn reject_stream(&self) -> bool {
        let others = self.open.get();
        self.permitted.set(self.permitted.get().min(others.max(1)));
        others == 0
    }

    /// Returns `true` if the server, and not the generator, has ended the connection.
    pub(super) fn is_ended_by_server(&self) -> bool {
        self.end() == Some(EndedBy::GoAway) || self.seen.is_ended()
    }
}

/// Why a request has no response.
pub(super) enum Failed {
    /// The server has not processed it, since it ends the connection (RFC 9113 §6.8): it can be sent again.
    NotProcessed,
    /// The server has refused the stream before any processing (RFC 9113 §8.7): it can be sent again.
    Refused,
    /// The connection ended before the first byte of its response.
    Lost(ErrorKind, String),
    /// Any other error.
    For(ErrorKind, String),
}

/// What is known of a response when its stream fails.
#[derive(Clone, Copy, Default)]
pub(super) struct Progressed {
    /// Its head has arrived.
    pub(super) has_head: bool,
    /// The length that the head states.
    pub(super) announced: Option<u64>,
    /// Bytes of the body.
    pub(super) length: u64,
}

impl Failed {
    /// Classifies the error of a stream.
    pub(super) fn of(error: &h2::Error, live: &Live, response: Progressed) -> Self {
        let text = error.to_string();
        if error.is_reset() {
            return Self::of_reset(error, response);
        }
        if error.is_go_away() && error.is_remote() {
            live.end_by(EndedBy::GoAway);
            // The h2 crate returns this error for streams above the last one that is processed and for those that were not
            // opened. Lower streams end with a response or another error.
            if error.reason() == Some(h2::Reason::NO_ERROR) {
                return Self::NotProcessed;
            }
            return Self::For(ErrorKind::Closed, text);
        }
        if error.is_go_away() {
            live.end_by(EndedBy::Failure);
            return Self::For(ErrorKind::Protocol, text);
        }
        if !error.is_io() && !live.seen.is_ended() {
            return Self::For(ErrorKind::Other, text);
        }
        live.end_by(EndedBy::Failure);
        // The h2 crate keeps the text of an error of TLS only.
        if text.contains("fatal alert") {
            return Self::For(ErrorKind::Tls, text);
        }
        let kind = if live.seen.reset.get() { ErrorKind::Reset } else { ErrorKind::Closed };
        match response.has_head {
            false => Self::Lost(kind, "the connection ended before a response".to_owned()),
            true => {
                Self::For(kind, format!("the connection ended after {} bytes", response.length))
            }
        }
    }

    /// Classifies the reset of a stream, by the server or by the h2 crate.
    fn of_reset(error: &h2::Error, response: Progressed) -> Self {
        if error.is_remote() {
            return match error.reason() {
                Some(h2::Reason::REFUSED_STREAM) => Self::Refused,
                reason => {
                    let reason = reason.unwrap_or(h2::Reason::NO_ERROR);
                    let reason = reason.description();
                    let after = match response.has_head {
                        true => format!(" after {} bytes of the body", response.length),
                        false => String::new(),
                    };
                    Self::For(
                        ErrorKind::StreamReset,
                        format!("the server reset the stream{after}: {reason}"),
                    )
                }
            };
        }
        match response.announced {
            Some(announced) if announced != response.length => Self::For(
                ErrorKind::Length,
                format!("another length than the {announced} bytes that Content-Length states"),
            ),
            _ => Self::For(ErrorKind::Protocol, error.to_string()),
        }
    }
}
