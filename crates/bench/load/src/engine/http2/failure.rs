//! The classification of errors of HTTP/2 streams.

use crate::engine::streams::{EndedBy, Failed, LiveConnection};
use crate::outcome::ErrorKind;

/// The progress of a response.
#[derive(Default)]
pub(super) struct Progressed {
    /// The head has arrived.
    pub(super) has_head: bool,
    /// The length that the head states.
    pub(super) announced: Option<u64>,
    /// Bytes of the body.
    pub(super) length: u64,
}

/// Classifies the error of a stream.
pub(super) fn classify<P>(
    error: &h2::Error,
    live: &LiveConnection<P>,
    response: &Progressed,
) -> Failed {
    let text = error.to_string();
    if error.is_reset() {
        return classify_reset(error, response);
    }
    if error.is_go_away() && error.is_remote() {
        live.end_by(EndedBy::GoAway);
        // The h2 crate returns this error for streams above the last one that is processed and for those that were not
        // opened. Lower streams end with a response or another error.
        if error.reason() == Some(h2::Reason::NO_ERROR) {
            return Failed::NotProcessed;
        }
        return Failed::For(ErrorKind::Closed, text);
    }
    if error.is_go_away() {
        live.end_by(EndedBy::Failure);
        return Failed::For(ErrorKind::Protocol, text);
    }
    if !error.is_io() && !live.seen.is_ended() {
        return Failed::For(ErrorKind::Other, text);
    }
    live.end_by(EndedBy::Failure);
    // The h2 crate keeps the text of an error of TLS only.
    if text.contains("fatal alert") {
        return Failed::For(ErrorKind::Tls, text);
    }
    let kind = if live.seen.reset.get() { ErrorKind::Reset } else { ErrorKind::Closed };
    match response.has_head {
        false => Failed::Lost(kind, "the connection ended before a response".to_owned()),
        true => Failed::For(kind, format!("the connection ended after {} bytes", response.length)),
    }
}

/// Classifies the reset of a stream, by the server or by the h2 crate.
fn classify_reset(error: &h2::Error, response: &Progressed) -> Failed {
    if error.is_remote() {
        return match error.reason() {
            Some(h2::Reason::REFUSED_STREAM) => Failed::Refused,
            reason => {
                let reason = reason.unwrap_or(h2::Reason::NO_ERROR);
                let reason = reason.description();
                let after = match response.has_head {
                    true => format!(" after {} bytes of the body", response.length),
                    false => String::new(),
                };
                Failed::For(
                    ErrorKind::StreamReset,
                    format!("the server reset the stream{after}: {reason}"),
                )
            }
        };
    }
    match response.announced {
        Some(announced) if announced != response.length => Failed::For(
            ErrorKind::Length,
            format!("another length than the {announced} bytes that Content-Length states"),
        ),
        _ => Failed::For(ErrorKind::Protocol, error.to_string()),
    }
}
