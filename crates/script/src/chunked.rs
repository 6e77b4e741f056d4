//! Bodies that a script sends in the chunked transfer coding (RFC 9112 §7.1). RFC 3875 leaves transfer codings to the
//! server, but frameworks such as Mojolicious encode what they stream.

use bytes::{Buf, Bytes};
use dunlin_http::http1::{ChunkedDecoder, ChunkedPart};

/// A decoder of a body.
#[derive(Debug, Default)]
pub(super) struct ChunkedBody {
    decoder: ChunkedDecoder,
    input: Bytes,
    is_complete: bool,
}

impl ChunkedBody {
    /// Adds encoded bytes. To be called when [`ChunkedBody::next`] returns `None`.
    pub(super) fn add(&mut self, bytes: Bytes) {
        // What follows the end of the body is dropped.
        if !self.is_complete {
            self.input = bytes;
        }
    }

    /// Returns the next decoded bytes; `None` if more encoded ones are needed.
    ///
    /// # Errors
    /// Returns a description of the fault if the encoded bytes are not valid.
    pub(super) fn next(&mut self) -> Result<Option<Bytes>, String> {
        while !self.input.is_empty() {
            let malformed = |what: &dyn std::fmt::Display| format!("its chunked body: {what}");
            let (used, decoded) =
                self.decoder.decode(&self.input).map_err(|error| malformed(&error.reason))?;
            let data = match decoded {
                ChunkedPart::Data(data) => Some(self.input.slice_ref(data)),
                ChunkedPart::More => None,
                ChunkedPart::End => {
                    self.is_complete = true;
                    self.input.clear();
                    return Ok(None);
                }
            };
            self.input.advance(used);
            if data.is_some() {
                return Ok(data);
            }
        }
        Ok(None)
    }

    /// Returns `true` if the last chunk was decoded.
    pub(super) fn is_complete(&self) -> bool {
        self.is_complete
    }
}
