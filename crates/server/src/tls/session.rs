//! An encrypted connection: plain bytes at one side, a socket at the other.

use std::cell::RefCell;
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rustls::ServerConnection;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::TcpStream;

/// An encrypted connection whose handshake may still be going on.
pub(crate) struct Session {
    pub(crate) tcp: TcpStream,
    pub(super) tls: ServerConnection,
    /// Ciphertext that arrived while there was no room for what it says.
    arrived: Vec<u8>,
    /// Bytes of ciphertext that the socket has taken.
    written: u64,
}

/// What one read brings at most.
const READ: usize = 32 * 1024;
/// Plain bytes that wait to be read at most; a record holds as many.
const WAITING: usize = 16 * 1024;

thread_local! {
    /// What arrives, before it is decrypted: connections keep no buffer for it.
    static ARRIVING: RefCell<Box<[u8]>> = RefCell::new(vec![0; READ].into());
}

impl Session {
    pub(super) fn new(tcp: TcpStream, tls: ServerConnection) -> Self {
        Self { tcp, tls, arrived: Vec::new(), written: 0 }
    }

    /// Reads plain bytes; none at the client's end of the connection.
    pub(crate) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            match self.tls.reader().read(buffer.initialize_unfilled()) {
                Ok(count) => {
                    buffer.advance(count);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
            ready!(self.poll_arrive(cx))?;
        }
    }

    /// Takes in what has arrived, and sends what the protocol itself has to say.
    pub(super) fn poll_arrive(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.arrived.is_empty() {
            let arrived = std::mem::take(&mut self.arrived);
            return Poll::Ready(self.take_in(&arrived));
        }
        // That there is no room to send keeps nobody from reading.
        if let Poll::Ready(Err(error)) = self.poll_flush(cx) {
            return Poll::Ready(Err(error));
        }
        ARRIVING.with_borrow_mut(|arriving| {
            let mut read = ReadBuf::new(arriving);
            ready!(Pin::new(&mut self.tcp).poll_read(cx, &mut read))?;
            let result = match read.filled() {
                // An end that was not announced may be an attacker's.
                [] => Err(ErrorKind::UnexpectedEof.into()),
                arrived => self.take_in(arrived),
            };
            Poll::Ready(result)
        })
    }

    pub(super) fn take_in(&mut self, arrived: &[u8]) -> io::Result<()> {
        let mut rest = arrived;
        while !rest.is_empty() {
            self.tls.read_tls(&mut rest)?;
            match self.tls.process_new_packets() {
                Ok(state) if state.plaintext_bytes_to_read() >= WAITING => {
                    self.arrived.extend_from_slice(rest);
                    return Ok(());
                }
                Ok(_) => {}
                Err(error) => {
                    // The alert that says why, if there is room for it.
                    let _ = self.flush();
                    return Err(io::Error::new(ErrorKind::InvalidData, error));
                }
            }
        }
        Ok(())
    }

    /// Sends ciphertext that is ready, as far as the socket takes it: true when all is gone.
    pub(crate) fn flush(&mut self) -> io::Result<bool> {
        while self.tls.wants_write() {
            match self.tls.write_tls(&mut Socket(&self.tcp)) {
                Ok(count) => self.written += count as u64,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Waits until the socket has all that was encrypted.
    pub(crate) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.flush()? {
            ready!(self.tcp.poll_write_ready(cx))?;
        }
        Poll::Ready(Ok(()))
    }

    /// Encrypts all of `plain`. The caller has flushed what was encrypted before, which bounds what
    /// waits.
    pub(crate) fn encrypt(&mut self, plain: &[IoSlice<'_>]) -> io::Result<usize> {
        self.tls.writer().write_vectored(plain)
    }

    /// Whether HTTP/2 was agreed upon (RFC 7301).
    pub(crate) fn has_http2(&self) -> bool {
        self.tls.alpn_protocol() == Some(b"h2")
    }

    /// Whether the handshake was all that the client wanted: the proof of RFC 8737.
    pub(crate) fn was_proof(&self) -> bool {
        self.tls.alpn_protocol() == Some(super::acme::ALPN)
    }

    /// Whether nothing waits for room in the socket.
    pub(crate) fn is_flushed(&self) -> bool {
        !self.tls.wants_write()
    }

    /// Bytes that the socket has taken so far.
    pub(crate) fn written(&self) -> u64 {
        self.written
    }

    /// Says that nothing more comes (RFC 8446 §6.1), as far as there is room for it.
    pub(crate) fn close(&mut self) {
        self.tls.send_close_notify();
        // A client that is gone, or takes nothing, is not told.
        let _ = self.flush();
    }
}

/// The socket as rustls writes to it.
struct Socket<'a>(&'a TcpStream);

impl Write for Socket<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.try_write_vectored(slices)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
