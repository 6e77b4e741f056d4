//! An application's response to one request, and the body of that request.

use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;

use super::frame;
use super::link::{Entry, Link, STEP, State};
use crate::handler::script::backend::InFlight;
use crate::handler::script::output::{End, Source};
use crate::handler::script::workers::Worker;

/// Bytes of a body in one frame.
const FRAME: usize = 64 * 1024;

/// A request that an application server has, and its response. Dropped before the end of the response, it cancels the request.
pub(in super::super) struct Response {
    worker: Arc<Worker>,
    link: Rc<Link>,
    entry: Rc<Entry>,
}

impl Response {
    pub(super) fn new(worker: Arc<Worker>, link: Rc<Link>, entry: Rc<Entry>) -> Self {
        Self { worker, link, entry }
    }
}

impl InFlight for Response {
    fn is_written(&self) -> bool {
        // The link writes it.
        true
    }

    async fn write_rest(&self, _progress: &impl Fn()) -> io::Result<()> {
        Ok(())
    }

    async fn write_body(&self, mut bytes: Bytes, progress: &impl Fn()) -> io::Result<()> {
        while !bytes.is_empty() {
            let count = self.entry.room().await.min(bytes.len()).min(FRAME);
            self.link.send(self.entry.id(), frame::BODY, &bytes.split_to(count));
            self.entry.use_room(count);
            progress();
        }
        Ok(())
    }

    async fn end_body(&self) -> io::Result<()> {
        self.link.send(self.entry.id(), frame::BODY_END, b"");
        Ok(())
    }

    fn complete(self) {
        // The link has given the worker back with the last frame.
    }

    fn fail(self, is_late: bool) {
        if is_late {
            self.entry.end_host();
        }
    }

    fn abandon(&self) {
        // Done when this is dropped.
    }
}

impl Drop for Response {
    fn drop(&mut self) {
        let entry = &self.entry;
        entry.given_up.set(true);
        entry.parts.borrow_mut().clear();
        if !entry.is_over() {
            self.link.send(entry.id(), frame::CANCEL, b"");
        }
    }
}

impl Source for Response {
    async fn read(&self) -> Option<Bytes> {
        let entry = &self.entry;
        let part = poll_fn(|cx| {
            if let Some(part) = entry.parts.borrow_mut().pop_front() {
                return Poll::Ready(Some(part));
            }
            if entry.is_over() {
                return Poll::Ready(None);
            }
            *entry.waker.borrow_mut() = Some(cx.waker().clone());
            Poll::Pending
        })
        .await?;
        let taken = entry.taken.get() + part.len();
        entry.taken.set(taken);
        if taken >= STEP && !entry.is_over() {
            entry.taken.set(0);
            let taken = u32::try_from(taken).unwrap_or(u32::MAX);
            self.link.send(entry.id(), frame::ROOM, &taken.to_le_bytes());
        }
        Some(part)
    }

    async fn end(&self) -> End {
        match &*self.entry.state.borrow() {
            State::UnderWay | State::Ended => End::Well,
            State::Cut(why) => End::Cut(why.clone()),
            State::Lost(why) if self.entry.begun.get() => End::Cut(why.clone()),
            // The error log says why its application could not be loaded.
            State::Lost(why) if !self.worker.is_ready() => End::Unreachable(why.clone()),
            State::Lost(why) => End::Lost(why.clone()),
        }
    }
}
