//! The progress of a response that a client receives, in HTTP/2 and HTTP/3.

use super::ResponseSection;
use crate::FieldLines;
use crate::message::{InterimResponses, LONGER, ResponseHead, SHORTER};
use crate::request::Version;
use crate::semantics::status;

/// A response that is not complete.
#[derive(Debug)]
pub(crate) struct IncomingResponse {
    /// The final head has arrived.
    has_head: bool,
    /// Interim responses that have arrived.
    interim_responses: InterimResponses,
    is_head_request: bool,
    is_connect: bool,
    /// Remaining bytes of the body, if the head states its length.
    left: Option<u64>,
}

/// The meaning of a section.
pub(crate) enum ResponsePart {
    Interim(ResponseHead),
    Head(ResponseHead),
    Trailers(FieldLines),
}

impl IncomingResponse {
    /// Creates the response to a request with that method.
    pub(crate) fn new(method: &str) -> Self {
        Self {
            has_head: false,
            interim_responses: InterimResponses::default(),
            is_head_request: method == "HEAD",
            is_connect: method == "CONNECT",
            left: None,
        }
    }

    /// Returns `true` if the final head has arrived.
    pub(crate) fn has_head(&self) -> bool {
        self.has_head
    }

    /// Takes a section.
    ///
    /// # Errors
    /// The response is malformed.
    pub(crate) fn section(
        &mut self,
        section: ResponseSection,
        version: Version,
    ) -> Result<ResponsePart, &'static str> {
        if self.has_head {
            if self.left.is_some_and(|left| left > 0) {
                return Err(SHORTER);
            }
            return section.into_trailers().map(ResponsePart::Trailers);
        }
        let size = section.size();
        let (head, length) = section.into_head(version)?;
        if head.is_interim() {
            self.interim_responses.add(size)?;
            return Ok(ResponsePart::Interim(head));
        }
        self.has_head = true;
        let is_tunnel = self.is_connect && (200..300).contains(&head.status);
        self.left = match length {
            _ if self.is_head_request || !status::has_body(head.status) => Some(0),
            _ if is_tunnel => None,
            length => length,
        };
        Ok(ResponsePart::Head(head))
    }

    /// Takes `length` bytes of the body.
    ///
    /// # Errors
    /// The response is malformed.
    pub(crate) fn data(&mut self, length: usize) -> Result<(), &'static str> {
        if !self.has_head {
            return Err("data comes before the head");
        }
        if let Some(left) = &mut self.left {
            let rest = left.checked_sub(length as u64);
            *left = rest.ok_or(LONGER)?;
        }
        Ok(())
    }

    /// Takes the end of the response.
    ///
    /// # Errors
    /// The response is not complete.
    pub(crate) fn end(&self) -> Result<(), &'static str> {
        match self.left {
            _ if !self.has_head => Err("the stream ends before the final response"),
            Some(1..) => Err(SHORTER),
            _ => Ok(()),
        }
    }
}
