//! A connection for one request, whatever its version of HTTP.

use dunlin_client::{Connection, Error, Exchange, OpenStream, Request};

use crate::upload::Upload;

/// A connection for one request.
pub(crate) enum Link {
    Http1(Connection),
    /// A stream that was opened with the head of the request.
    Http2(OpenStream),
}

impl Link {
    /// Begins the exchange.
    ///
    /// # Errors
    /// If the request cannot be sent as it is.
    pub(crate) fn send(self, request: &Request, upload: Upload) -> Result<Exchange<Upload>, Error> {
        match self {
            Self::Http1(connection) => connection.send(request, upload),
            Self::Http2(stream) => stream.send(request, upload),
        }
    }
}
