//! An application's response to one request, and the body of that request.

use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;

use super::connection::{ACKNOWLEDGE, AppConnection, PendingRequest, RequestState};
use super::frame;
use crate::backend::InFlight;
use crate::source::{Source, SourceEnd};
use crate::workers::Worker;

/// Bytes of a body in one frame.
const MAX_FRAME: usize = 64 * 1024;

/// A request that an application server has, and its response. Dropped before the end of the response, it cancels the request.
pub(in super::super) struct AppServerResponse {
    worker: Arc<Worker>,
    connection: Rc<AppConnection>,
    pending: Rc<PendingRequest>,
}

impl AppServerResponse {
    pub(super) fn new(
        worker: Arc<Worker>,
        connection: Rc<AppConnection>,
        pending: Rc<PendingRequest>,
    ) -> Self {
        Self { worker, connection, pending }
    }
}

impl InFlight for AppServerResponse {
    fn is_written(&self) -> bool {
        // The connection writes it.
        true
    }

    async fn write_rest(&self, _progress: &impl Fn()) -> io::Result<()> {
        Ok(())
    }

    async fn write_body(&self, mut bytes: Bytes, progress: &impl Fn()) -> io::Result<()> {
        while !bytes.is_empty() {
            self.connection.drained().await;
            let count = self.pending.room().await.min(bytes.len()).min(MAX_FRAME);
            self.connection.send(self.pending.id(), frame::BODY, &bytes.split_to(count));
            self.pending.use_room(count);
            progress();
        }
        Ok(())
    }

    async fn end_body(&self) -> io::Result<()> {
        self.connection.send(self.pending.id(), frame::BODY_END, b"");
        Ok(())
    }

    fn complete(self) {
        // The connection has released the worker with the last frame.
    }

    fn fail(self, is_late: bool) {
        if is_late {
            self.pending.end_server();
        }
    }

    fn abandon(&self) {
        // Dropping this cancels the request.
    }
}

impl Drop for AppServerResponse {
    fn drop(&mut self) {
        let pending = &self.pending;
        pending.is_abandoned.set(true);
        pending.clear();
        if !pending.is_over() {
            self.connection.send(pending.id(), frame::CANCEL, b"");
        }
    }
}

impl Source for AppServerResponse {
    async fn read(&self) -> Option<Bytes> {
        let pending = &self.pending;
        let part = poll_fn(|cx| {
            if let Some(part) = pending.next_part() {
                return Poll::Ready(Some(part));
            }
            if pending.is_over() {
                return Poll::Ready(None);
            }
            *pending.waker.borrow_mut() = Some(cx.waker().clone());
            Poll::Pending
        })
        .await?;
        let taken = pending.taken.get() + part.len();
        pending.taken.set(taken);
        if taken >= ACKNOWLEDGE && !pending.is_over() {
            pending.taken.set(0);
            let taken = u32::try_from(taken).unwrap_or(u32::MAX);
            self.connection.send(pending.id(), frame::ROOM, &taken.to_le_bytes());
        }
        Some(part)
    }

    async fn end(&self) -> SourceEnd {
        match &*self.pending.state.borrow() {
            RequestState::UnderWay | RequestState::Ended => SourceEnd::Complete,
            RequestState::Cut(why) => SourceEnd::Truncated(why.clone()),
            RequestState::Lost(why) if self.pending.has_begun.get() => {
                SourceEnd::Truncated(why.clone())
            }
            // The error log has the reason why its application could not be loaded.
            RequestState::Lost(why) if !self.worker.is_ready() => {
                SourceEnd::Unreachable(why.clone())
            }
            RequestState::Lost(why) => SourceEnd::ConnectionLost(why.clone()),
        }
    }
}
