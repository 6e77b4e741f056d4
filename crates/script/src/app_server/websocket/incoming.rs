//! From the frames of a client to records for the application server.

use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use dunlin_exchange::stream::{self, Broken, Source};
use dunlin_http::websocket::frame::code;
use dunlin_http::websocket::{Receiver, WebSocketEvent};

use super::super::websocket_state::WebSocketState;
use super::record;

/// The messages of a client.
#[derive(Debug)]
pub(super) struct Messages {
    client: stream::Receiver,
    receiver: Receiver,
    shared: Rc<WebSocketState>,
    /// The client sends nothing more, or nothing that counts.
    is_over: bool,
}

impl Messages {
    /// Creates the messages of a client, of at most `max_message` bytes each.
    pub(super) fn new(
        client: stream::Receiver,
        max_message: u64,
        shared: Rc<WebSocketState>,
    ) -> Self {
        Self { client, receiver: Receiver::new(max_message), shared, is_over: false }
    }

    /// Returns the records of what has arrived.
    fn receive(&mut self, bytes: Bytes) -> Vec<u8> {
        // Bytes that nothing else holds are not copied.
        let mut input = bytes.try_into_mut().unwrap_or_else(|bytes| (&bytes[..]).into());
        let (mut at, mut out) = (0, Vec::new());
        loop {
            match self.receiver.next(&mut input, &mut at) {
                Ok(WebSocketEvent::More) => return out,
                Ok(WebSocketEvent::Data { data, is_text, is_end }) => {
                    let kind = match (is_text, is_end) {
                        (true, false) => record::TEXT_PART,
                        (true, true) => record::TEXT,
                        (false, false) => record::BYTES_PART,
                        (false, true) => record::BYTES,
                    };
                    record::write(kind, &input[data], &mut out);
                }
                Ok(WebSocketEvent::Ping(payload)) => self.shared.send_pong(payload),
                Ok(WebSocketEvent::Pong) => {}
                Ok(WebSocketEvent::Close { code, reason }) => {
                    self.is_over = true;
                    record::write_close(code, reason, &mut out);
                    self.shared.close(code, "");
                    return out;
                }
                Err(violation) => {
                    self.is_over = true;
                    record::write_close(code::ABNORMAL, violation.reason, &mut out);
                    self.shared.close(violation.code, violation.reason);
                    return out;
                }
            }
        }
    }
}

impl Source for Messages {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, Broken>> {
        while !self.is_over {
            match ready!(self.client.poll_next(cx))? {
                Some(bytes) => {
                    self.shared.touch();
                    let records = self.receive(bytes);
                    if !records.is_empty() {
                        return Poll::Ready(Ok(Some(records.into())));
                    }
                }
                None => {
                    self.is_over = true;
                    self.shared.end();
                    let mut out = Vec::new();
                    record::write_close(code::ABNORMAL, "", &mut out);
                    return Poll::Ready(Ok(Some(out.into())));
                }
            }
        }
        Poll::Ready(Ok(None))
    }
}
