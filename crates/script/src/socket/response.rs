//! A worker's response on its connection, and the rest of its request.

use std::cell::{Cell, RefCell};
use std::io::{self, ErrorKind};
use std::rc::Rc;
use std::sync::Arc;

use bytes::{Buf, Bytes};
use dunlin_memory::Reservation;
use dunlin_telemetry::ScriptContext;

use super::HeldWorker;
use super::connection::WorkerSocket;
use super::fastcgi::{self, EndRequest, Event, ProtocolStatus};
use crate::backend::InFlight;
use crate::context::Context;
use crate::source::{Source, SourceEnd};
use crate::stderr::Lines;

/// The framing of a request and its response on the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Framing {
    /// FastCGI's records.
    Records,
    /// Bytes, up to the connection's end.
    Plain,
}

/// A request that a worker has, and its response.
pub(in super::super) struct SocketResponse {
    ctx: Rc<Context>,
    worker: HeldWorker,
    socket: WorkerSocket,
    framing: Framing,
    /// The encoded part of the request that was not written at once, and the number of its bytes that are written.
    unwritten: Bytes,
    written: Cell<usize>,
    /// A body follows, whose end is not written yet.
    has_body: Cell<bool>,
    /// Room for the records of a part of the body, used again for the next part.
    records: Cell<Vec<u8>>,
    reader: RefCell<fastcgi::Reader>,
    /// Bytes that were read and not decoded yet.
    unread: RefCell<Bytes>,
    /// Limits what is read at once to the share in the budget of the client's connection.
    memory: Reservation,
    stderr: RefCell<Lines<Arc<str>, Rc<ScriptContext>>>,
    ended: Cell<Option<EndRequest>>,
    broken: RefCell<Option<String>>,
    /// Something has come.
    begun: Cell<bool>,
}

impl SocketResponse {
    pub(super) fn new(
        ctx: Rc<Context>,
        worker: HeldWorker,
        socket: WorkerSocket,
        framing: Framing,
        stderr: Lines<Arc<str>, Rc<ScriptContext>>,
        unwritten: Bytes,
        has_body: bool,
    ) -> Self {
        Self {
            ctx,
            worker,
            socket,
            framing,
            unwritten,
            written: Cell::default(),
            has_body: Cell::new(has_body),
            records: Cell::default(),
            reader: RefCell::default(),
            unread: RefCell::default(),
            memory: Reservation::of_connection(),
            stderr: RefCell::new(stderr),
            ended: Cell::default(),
            broken: RefCell::default(),
            begun: Cell::default(),
        }
    }

    /// Returns `true` if another request can follow on the connection: the worker has read all of this one, and nothing
    /// follows its response.
    fn is_reusable(&self) -> bool {
        self.is_written()
            && !self.has_body.get()
            && self.ended.get().is_some_and(|ended| ended.protocol == ProtocolStatus::Complete)
            && self.reader.borrow().is_between_records()
            && self.unread.borrow().is_empty()
    }

    /// Returns `true` if the worker has reported the end of the request.
    fn has_ended(&self) -> bool {
        self.ended.get().is_some()
    }

    async fn write(&self, mut bytes: &[u8], progress: &impl Fn()) -> io::Result<()> {
        while !bytes.is_empty() {
            let count = self.socket.write(bytes).await?;
            bytes = &bytes[count..];
            progress();
        }
        Ok(())
    }

    fn break_off(&self, why: impl Into<String>) -> Option<Bytes> {
        self.broken.borrow_mut().get_or_insert_with(|| why.into());
        None
    }

    /// Returns the next part of the response that is in `unread`.
    fn next_part(&self) -> Result<Option<Bytes>, &'static str> {
        let mut unread = self.unread.borrow_mut();
        if self.framing == Framing::Plain {
            let all = std::mem::take(&mut *unread);
            return Ok((!all.is_empty()).then_some(all));
        }
        while !unread.is_empty() {
            let (used, event) = self.reader.borrow_mut().take(&unread)?;
            let part = match event {
                Event::Stdout(part) => Some(unread.slice_ref(part)),
                Event::Stderr(part) => {
                    self.stderr.borrow_mut().take(part);
                    None
                }
                Event::End(ended) => {
                    self.ended.set(Some(ended));
                    None
                }
                Event::More => None,
            };
            unread.advance(used);
            if part.is_some() || self.ended.get().is_some() {
                return Ok(part);
            }
        }
        Ok(None)
    }

    fn try_read(&self) -> io::Result<usize> {
        self.ctx.with_buffer(self.memory.share(), |buffer| {
            let count = self.socket.try_read(buffer)?;
            *self.unread.borrow_mut() = Bytes::copy_from_slice(&buffer[..count]);
            Ok(count)
        })
    }
}

impl InFlight for SocketResponse {
    fn is_written(&self) -> bool {
        self.written.get() == self.unwritten.len()
    }

    async fn write_rest(&self, progress: &impl Fn()) -> io::Result<()> {
        while !self.is_written() {
            let written = self.written.get();
            let count = self.socket.write(&self.unwritten[written..]).await?;
            self.written.set(written + count);
            progress();
        }
        Ok(())
    }

    async fn write_body(&self, bytes: Bytes, progress: &impl Fn()) -> io::Result<()> {
        match self.framing {
            Framing::Plain => self.write(&bytes, progress).await,
            Framing::Records => {
                let mut records = self.records.take();
                records.clear();
                fastcgi::stdin(&bytes, &mut records);
                let result = self.write(&records, progress).await;
                self.records.set(records);
                result
            }
        }
    }

    async fn end_body(&self) -> io::Result<()> {
        if self.framing == Framing::Records {
            let mut end = Vec::new();
            fastcgi::end_stdin(&mut end);
            self.write(&end, &|| {}).await?;
        }
        self.has_body.set(false);
        Ok(())
    }

    fn complete(self) {
        if self.is_reusable() {
            self.worker.release(Some(self.socket));
        } else if self.has_ended() {
            self.worker.release(None);
        }
    }

    fn fail(self, is_late: bool) {
        self.abandon();
        if is_late {
            self.worker.end();
        } else if self.has_ended() {
            self.worker.release(None);
        }
    }

    fn abandon(&self) {
        if !self.has_ended() && self.framing == Framing::Records {
            // If it is not read, the end of the connection has the same meaning.
            let _ = self.socket.try_write(&fastcgi::abort());
        }
    }
}

impl Source for SocketResponse {
    async fn read(&self) -> Option<Bytes> {
        loop {
            if self.ended.get().is_some() {
                return None;
            }
            match self.next_part() {
                Ok(Some(part)) => return Some(part),
                Ok(None) if self.ended.get().is_some() => return None,
                Ok(None) => {}
                Err(why) => return self.break_off(why),
            }
            match self.try_read() {
                Ok(0) if self.framing == Framing::Plain => return None,
                Ok(0) => return self.break_off("its worker closed the connection"),
                Ok(_) => {
                    self.begun.set(true);
                    continue;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => {
                    return self.break_off(format!("the connection to its worker broke: {error}"));
                }
            }
            if let Err(error) = self.socket.readable().await {
                return self.break_off(error.to_string());
            }
        }
    }

    async fn end(&self) -> SourceEnd {
        match self.ended.get() {
            Some(EndRequest { protocol: ProtocolStatus::Complete, status: 0 }) => {
                SourceEnd::Complete
            }
            Some(EndRequest { protocol: ProtocolStatus::Complete, status }) => {
                SourceEnd::Status(status)
            }
            Some(EndRequest {
                protocol: ProtocolStatus::Overloaded | ProtocolStatus::CannotMultiplex,
                ..
            }) => SourceEnd::Rejected("its worker is overloaded".into()),
            Some(EndRequest { protocol: ProtocolStatus::UnknownRole, .. }) => {
                SourceEnd::Truncated("its worker is not a responder".into())
            }
            Some(EndRequest { protocol: ProtocolStatus::Unknown, .. }) => {
                SourceEnd::Truncated("its worker ended with an unknown protocol status".into())
            }
            None => match &*self.broken.borrow() {
                Some(why) if self.begun.get() => SourceEnd::Truncated(why.clone()),
                Some(why) => SourceEnd::ConnectionLost(why.clone()),
                None if self.begun.get() => SourceEnd::Complete,
                None => SourceEnd::ConnectionLost("its worker closed the connection".into()),
            },
        }
    }
}
