//! A worker's response, and the rest of its request.

use std::cell::{Cell, RefCell};
use std::io::{self, ErrorKind};
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use tokio::net::unix::pipe;

use super::request::{reply_to, requests_struct_mode};
use super::scan::{Part, Scanner};
use super::streams::Streams;
use crate::backend::InFlight;
use crate::context::Context;
use crate::file_version;
use crate::source::{Source, SourceEnd};
use crate::workers::{Checkout, PooledConnection};

/// A request that a worker has, and its response.
pub(in super::super) struct CgiplusResponse {
    ctx: Rc<Context>,
    checkout: RefCell<Option<Checkout>>,
    streams: Streams,
    /// The encoded variables.
    head: Vec<u8>,
    /// Bytes of the variables and of the body that are written, and their total.
    written: Cell<u64>,
    length: u64,
    has_body: bool,
    scanner: RefCell<Scanner>,
    broken: RefCell<Option<String>>,
    /// The worker has closed its standard output.
    closed: Cell<bool>,
}

impl CgiplusResponse {
    /// `head` holds the encoded variables, of which `written` bytes are written; `body` is the length of the body, if
    /// there is one.
    pub(super) fn new(
        ctx: &Rc<Context>,
        checkout: Checkout,
        streams: Streams,
        head: Vec<u8>,
        written: usize,
        body: Option<u64>,
    ) -> Self {
        let scanner = Scanner::new(Arc::clone(&streams.marks)).into();
        Self {
            ctx: Rc::clone(ctx),
            checkout: RefCell::new(Some(checkout)),
            length: head.len() as u64 + body.unwrap_or(0),
            has_body: body.is_some(),
            streams,
            head,
            written: Cell::new(written as u64),
            scanner,
            broken: RefCell::default(),
            closed: Cell::default(),
        }
    }

    /// Returns `true` if another request can follow: all of this one is written and read, and its response has its end.
    fn is_reusable(&self) -> bool {
        self.written.get() == self.length
            && self.scanner.borrow().is_clean()
            && (!self.has_body || self.streams.is_read())
    }

    fn take_checkout(&self) -> Option<Checkout> {
        self.checkout.borrow_mut().take()
    }

    async fn write(
        &self,
        pipe: &pipe::Sender,
        mut bytes: &[u8],
        progress: &impl Fn(),
    ) -> io::Result<()> {
        while !bytes.is_empty() {
            match pipe.try_write(bytes) {
                Ok(count) => {
                    self.written.set(self.written.get() + count as u64);
                    bytes = &bytes[count..];
                    progress();
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => pipe.writable().await?,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn break_off(&self, why: impl Into<String>) -> Option<Bytes> {
        self.broken.borrow_mut().get_or_insert_with(|| why.into());
        None
    }

    /// Carries out a callout.
    fn handle_callout(&self, callout: &[u8]) -> io::Result<()> {
        let callout = callout.trim_ascii();
        if let Some(files) = callout.strip_prefix(b"!LOADED: ")
            && let Some(checkout) = &*self.checkout.borrow()
        {
            checkout.worker.note_loaded(file_version::paths(files));
        }
        if requests_struct_mode(callout) {
            self.streams.struct_mode.set(true);
        }
        let Some(reply) = reply_to(callout) else { return Ok(()) };
        // A write of this size to a pipe is atomic.
        self.streams.variables.try_write(reply).map(|_| ())
    }

    /// Returns the next text, if any was read.
    fn next_text(&self) -> Result<Option<Bytes>, String> {
        loop {
            match self.scanner.borrow_mut().next()? {
                Part::Text(text) => return Ok(Some(text)),
                Part::Callout(text) => self.handle_callout(&text).map_err(|error| {
                    format!("the reply to its callout cannot be written: {error}")
                })?,
                Part::End | Part::More => return Ok(None),
            }
        }
    }

    fn try_read(&self) -> io::Result<usize> {
        self.ctx.with_buffer(usize::MAX, |buffer| {
            let count = self.streams.stdout.try_read(buffer)?;
            self.scanner.borrow_mut().push(&buffer[..count]);
            Ok(count)
        })
    }
}

impl InFlight for CgiplusResponse {
    fn is_written(&self) -> bool {
        self.written.get() >= self.head.len() as u64
    }

    async fn write_rest(&self, progress: &impl Fn()) -> io::Result<()> {
        let written = usize::try_from(self.written.get()).unwrap_or(usize::MAX);
        let rest = self.head.get(written..).unwrap_or_default();
        self.write(&self.streams.variables, rest, progress).await
    }

    async fn write_body(&self, bytes: Bytes, progress: &impl Fn()) -> io::Result<()> {
        self.write(&self.streams.stdin, &bytes, progress).await
    }

    async fn end_body(&self) -> io::Result<()> {
        // The worker knows the length.
        Ok(())
    }

    fn complete(self) {
        let Some(checkout) = self.take_checkout() else { return };
        match self.is_reusable() {
            true => checkout.release(Some(PooledConnection::streams(self.streams))),
            false => checkout.end(),
        }
    }

    fn fail(self, is_late: bool) {
        let Some(checkout) = self.take_checkout() else { return };
        // The worker has come to the end of a response that cannot be used: it can take another request.
        if self.is_reusable() && !is_late {
            checkout.release(Some(PooledConnection::streams(self.streams)));
        } else if self.closed.get() {
            checkout.lose();
        } else {
            checkout.end();
        }
    }

    fn abandon(&self) {
        // The position in the response of the worker is unknown.
        if let Some(checkout) = self.take_checkout() {
            checkout.end();
        }
    }
}

impl Source for CgiplusResponse {
    async fn read(&self) -> Option<Bytes> {
        loop {
            match self.next_text() {
                Ok(Some(text)) => return Some(text),
                Ok(None) if self.scanner.borrow().has_ended() => return None,
                Ok(None) => {}
                Err(why) => return self.break_off(why),
            }
            match self.try_read() {
                Ok(0) => {
                    self.closed.set(true);
                    return self
                        .break_off("its worker ended without the mark of the response's end");
                }
                Ok(_) => continue,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return self.break_off(error.to_string()),
            }
            if let Err(error) = self.streams.stdout.readable().await {
                return self.break_off(error.to_string());
            }
        }
    }

    async fn end(&self) -> SourceEnd {
        match &*self.broken.borrow() {
            Some(why) if self.scanner.borrow().has_begun() => SourceEnd::Truncated(why.clone()),
            Some(why) => SourceEnd::ConnectionLost(why.clone()),
            None => SourceEnd::Complete,
        }
    }
}
