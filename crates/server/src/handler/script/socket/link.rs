//! A connection to a worker, and what the protocols make of it.

use std::cell::{Cell, RefCell};
use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::rc::Rc;
use std::sync::Arc;

use bytes::{Buf, Bytes};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use tokio::net::{TcpStream, UnixStream};

use super::record::{self, Ended, Event, Protocol};
use crate::handler::script::output::{End, Source};
use crate::handler::script::stderr::Lines;
use crate::telemetry::ScriptContext;
use crate::worker::WorkerContext;

/// A connection to a worker.
#[derive(Debug)]
pub(in super::super) enum Link {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Link {
    /// The connection, registered with this thread's loop instead of another's.
    pub(in super::super) fn reregister(self) -> io::Result<Self> {
        Ok(match self {
            Self::Unix(stream) => Self::Unix(UnixStream::from_std(stream.into_std()?)?),
            Self::Tcp(stream) => Self::Tcp(TcpStream::from_std(stream.into_std()?)?),
        })
    }

    /// Whether an idle connection can carry another request: nothing has arrived on it, and the worker has not closed
    /// it. Bytes that arrived would otherwise be read as the response to the next request. The system is asked, because
    /// the loop may not have polled the socket since.
    pub(in super::super) fn is_reusable(&self) -> bool {
        let fd = match self {
            Self::Unix(stream) => stream.as_fd(),
            Self::Tcp(stream) => stream.as_fd(),
        };
        match recv(fd, &mut [0_u8; 1], RecvFlags::PEEK | RecvFlags::DONTWAIT) {
            Err(Errno::AGAIN) => true,
            Ok((count, _)) if count > 0 => {
                tracing::warn!(
                    "a FastCGI worker sent data after the end of its response; its connection is closed"
                );
                false
            }
            _ => false,
        }
    }

    fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.try_read(buffer),
            Self::Tcp(stream) => stream.try_read(buffer),
        }
    }

    async fn readable(&self) -> io::Result<()> {
        match self {
            Self::Unix(stream) => stream.readable().await,
            Self::Tcp(stream) => stream.readable().await,
        }
    }

    pub(super) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.try_write(bytes),
            Self::Tcp(stream) => stream.try_write(bytes),
        }
    }

    /// Writes as much as there is room for, once there is room.
    pub(super) async fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match self.try_write(bytes) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                result => return result,
            }
            match self {
                Self::Unix(stream) => stream.writable().await?,
                Self::Tcp(stream) => stream.writable().await?,
            }
        }
    }
}

/// How a request and its answer lie on the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Framing {
    /// FastCGI's records.
    Records,
    /// Bytes, up to the connection's end.
    Plain,
}

/// What a worker answers.
pub(super) struct Answers {
    ctx: Rc<WorkerContext>,
    pub(super) link: Link,
    pub(super) framing: Framing,
    reader: RefCell<record::Reader>,
    /// What was read and not yet looked at.
    unread: RefCell<Bytes>,
    stderr: RefCell<Lines<Arc<str>, Rc<ScriptContext>>>,
    ended: Cell<Option<Ended>>,
    broken: RefCell<Option<String>>,
    /// Something has come.
    begun: Cell<bool>,
}

impl Answers {
    pub(super) fn new(
        ctx: Rc<WorkerContext>,
        link: Link,
        framing: Framing,
        stderr: Lines<Arc<str>, Rc<ScriptContext>>,
    ) -> Self {
        Self {
            ctx,
            link,
            framing,
            reader: RefCell::default(),
            unread: RefCell::default(),
            stderr: RefCell::new(stderr),
            ended: Cell::default(),
            broken: RefCell::default(),
            begun: Cell::default(),
        }
    }

    /// Whether the next request can follow on the connection.
    pub(super) fn is_clean(&self) -> bool {
        self.ended.get().is_some_and(|ended| ended.protocol == Protocol::Complete)
            && self.reader.borrow().is_between_records()
            && self.unread.borrow().is_empty()
    }

    /// Tells the worker that nobody waits any more. Whether it is heard or not, the connection's end says the same.
    pub(super) fn abort(&self) {
        if !self.has_ended() && self.framing == Framing::Records {
            let _ = self.link.try_write(&record::abort());
        }
    }

    /// Whether the worker has said that it is done with the request.
    pub(super) fn has_ended(&self) -> bool {
        self.ended.get().is_some()
    }

    fn break_off(&self, why: impl Into<String>) -> Option<Bytes> {
        self.broken.borrow_mut().get_or_insert_with(|| why.into());
        None
    }

    /// The next part of the answer that is in `unread`.
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
        let mut buffers = self.ctx.take_buffers();
        let result = self.link.try_read(&mut buffers.input);
        if let Ok(count) = result {
            *self.unread.borrow_mut() = Bytes::copy_from_slice(&buffers.input[..count]);
        }
        self.ctx.give_buffers(buffers);
        result
    }
}

impl Source for Answers {
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
            if let Err(error) = self.link.readable().await {
                return self.break_off(error.to_string());
            }
        }
    }

    async fn end(&self) -> End {
        match self.ended.get() {
            Some(Ended { protocol: Protocol::Complete, status: 0 }) => End::Well,
            Some(Ended { protocol: Protocol::Complete, status }) => End::Status(status),
            Some(Ended { protocol: Protocol::Overloaded | Protocol::CannotMultiplex, .. }) => {
                End::Refused("its worker is overloaded".into())
            }
            Some(Ended { protocol: Protocol::UnknownRole, .. }) => {
                End::Cut("its worker is no responder".into())
            }
            Some(Ended { protocol: Protocol::Unknown, .. }) => {
                End::Cut("its worker ended with an unknown protocol status".into())
            }
            None => match &*self.broken.borrow() {
                Some(why) if self.begun.get() => End::Cut(why.clone()),
                Some(why) => End::Lost(why.clone()),
                None if self.begun.get() => End::Well,
                None => End::Lost("its worker closed the connection".into()),
            },
        }
    }
}
