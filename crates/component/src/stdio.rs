//! Standard input, output and error of instances.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use dunlin_exchange::stream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use wasmtime_wasi::cli::{IsTerminal, StdinStream, StdoutStream};
use wasmtime_wasi::p2::{InputStream, OutputStream, Pollable, StreamError, StreamResult};

use crate::request_body::RequestBodySource;

/// Bytes that an instance reads or writes by one call.
const PART: usize = 64 * 1024;
/// Bytes of standard error between two polls. More is dropped.
const ERRORS: usize = 64 * 1024;

/// The future that a stream is ready.
type Ready<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// Standard output of a CGI program.
#[derive(Clone)]
pub(crate) struct Stdout {
    pub(crate) sender: Arc<stream::Sender>,
}

impl IsTerminal for Stdout {
    fn is_terminal(&self) -> bool {
        false
    }
}

impl StdoutStream for Stdout {
    fn async_stream(&self) -> Box<dyn AsyncWrite + Send + Sync> {
        Box::new(self.clone())
    }

    fn p2_stream(&self) -> Box<dyn OutputStream> {
        Box::new(self.clone())
    }
}

impl OutputStream for Stdout {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        self.sender.push(bytes);
        Ok(())
    }

    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        if self.sender.is_abandoned() {
            return Err(StreamError::Closed);
        }
        Ok(if self.sender.is_full() { 0 } else { PART })
    }
}

impl Pollable for Stdout {
    fn ready<'a, 'b>(&'a mut self) -> Ready<'b>
    where
        'a: 'b,
        Self: 'b,
    {
        Box::pin(std::future::poll_fn(|cx| self.sender.poll_room(cx)))
    }
}

impl AsyncWrite for Stdout {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.sender.poll_room(cx));
        if self.sender.is_abandoned() {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let part = &bytes[..bytes.len().min(PART)];
        self.sender.push(Bytes::copy_from_slice(part));
        Poll::Ready(Ok(part.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// Standard input of a CGI program: the body of the request.
#[derive(Clone)]
pub(crate) struct Stdin {
    feed: RequestBodySource,
    /// Bytes that were received and not read.
    rest: Arc<Mutex<Bytes>>,
}

impl Stdin {
    pub(crate) fn new(feed: RequestBodySource) -> Self {
        Self { feed, rest: Arc::default() }
    }

    fn poll_read(&self, max: usize, cx: &mut Context<'_>) -> Poll<StreamResult<Bytes>> {
        let mut rest = self.rest.lock().unwrap_or_else(PoisonError::into_inner);
        if rest.is_empty() {
            match ready!(self.feed.poll_read(PART, cx)) {
                Ok(Some(bytes)) => *rest = bytes,
                Ok(None) => return Poll::Ready(Err(StreamError::Closed)),
                Err(stream::Broken) => {
                    let error = io::Error::from(io::ErrorKind::ConnectionReset);
                    return Poll::Ready(Err(StreamError::LastOperationFailed(error.into())));
                }
            }
        }
        let length = rest.len().min(max);
        Poll::Ready(Ok(rest.split_to(length)))
    }
}

impl IsTerminal for Stdin {
    fn is_terminal(&self) -> bool {
        false
    }
}

impl StdinStream for Stdin {
    fn async_stream(&self) -> Box<dyn AsyncRead + Send + Sync> {
        Box::new(self.clone())
    }

    fn p2_stream(&self) -> Box<dyn InputStream> {
        Box::new(self.clone())
    }
}

impl InputStream for Stdin {
    fn read(&mut self, size: usize) -> StreamResult<Bytes> {
        let cx = &mut Context::from_waker(std::task::Waker::noop());
        match self.poll_read(size, cx) {
            Poll::Ready(read) => read,
            Poll::Pending => Ok(Bytes::new()),
        }
    }
}

impl Pollable for Stdin {
    fn ready<'a, 'b>(&'a mut self) -> Ready<'b>
    where
        'a: 'b,
        Self: 'b,
    {
        // What is ready stays for the read that follows; the end and errors come again.
        Box::pin(std::future::poll_fn(|cx| self.poll_read(0, cx).map(drop)))
    }
}

impl AsyncRead for Stdin {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match ready!(Self::poll_read(&self, buffer.remaining(), cx)) {
            Ok(bytes) => buffer.put_slice(&bytes),
            Err(StreamError::Closed) => {}
            Err(_) => return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
        }
        Poll::Ready(Ok(()))
    }
}

/// Output for the log: standard error, and standard output of non-CGI components. The worker logs it after each poll.
#[derive(Clone, Default)]
pub(crate) struct LogOutput {
    bytes: Arc<Mutex<Vec<u8>>>,
}

impl LogOutput {
    /// Takes what was written since the last call.
    pub(crate) fn take(&self) -> Vec<u8> {
        std::mem::take(&mut *self.bytes.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn add(&self, more: &[u8]) {
        let mut bytes = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        let room = ERRORS.saturating_sub(bytes.len());
        bytes.extend_from_slice(&more[..more.len().min(room)]);
    }
}

impl IsTerminal for LogOutput {
    fn is_terminal(&self) -> bool {
        false
    }
}

impl StdoutStream for LogOutput {
    fn async_stream(&self) -> Box<dyn AsyncWrite + Send + Sync> {
        Box::new(self.clone())
    }

    fn p2_stream(&self) -> Box<dyn OutputStream> {
        Box::new(self.clone())
    }
}

impl OutputStream for LogOutput {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        self.add(&bytes);
        Ok(())
    }

    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        Ok(PART)
    }
}

impl Pollable for LogOutput {
    fn ready<'a, 'b>(&'a mut self) -> Ready<'b>
    where
        'a: 'b,
        Self: 'b,
    {
        Box::pin(std::future::ready(()))
    }
}

impl AsyncWrite for LogOutput {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.add(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
