//! An encrypted connection: plain bytes at one side, a socket at the other.

use std::cell::RefCell;
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use rustix::time::{ClockId, clock_gettime};
use rustls::ServerConnection;
use smallvec::SmallVec;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::TcpStream;

use super::facts::{ClientCertificate, Facts};

/// An encrypted connection whose handshake may still be going on.
pub(crate) struct Session {
    pub(crate) tcp: TcpStream,
    pub(super) tls: ServerConnection,
    /// Ciphertext that arrived while there was no room for what it says.
    arrived: Vec<u8>,
    /// Bytes of ciphertext that the socket has taken.
    written: u64,
    /// When something was last encrypted, in milliseconds of a coarse clock.
    active: u64,
    /// So many records are to be small.
    small: u8,
    /// The client's certificate, which was verified.
    client: Option<Rc<ClientCertificate>>,
}

/// Plain bytes of a small record: with what TLS adds, it fits into one segment of TCP over Ethernet, and can be
/// decrypted as soon as that has arrived. A full one takes twelve.
const SMALL: usize = 1350;
/// As many small records as a connection's first flight has segments, nearly (RFC 6928).
const SMALL_RECORDS: u8 = 8;
/// After this time, in milliseconds, the kernel's congestion window may be that of the beginning again.
const IDLE: u64 = 1000;

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
        Self {
            tcp,
            tls,
            arrived: Vec::new(),
            written: 0,
            active: 0,
            small: SMALL_RECORDS,
            client: None,
        }
    }

    /// Reads plain bytes; none at the client's end of the connection.
    pub(crate) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            if let Some(mut early) = self.tls.early_data() {
                let count = early.read(buffer.initialize_unfilled())?;
                if count > 0 {
                    buffer.advance(count);
                    return Poll::Ready(Ok(()));
                }
            }
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
        loop {
            if !rest.is_empty() {
                self.tls.read_tls(&mut rest)?;
            }
            match self.tls.process_new_packets() {
                Ok(state) if state.plaintext_bytes_to_read() >= WAITING => {
                    self.arrived.extend_from_slice(rest);
                    return Ok(());
                }
                Ok(_) if rest.is_empty() => return Ok(()),
                Ok(_) => {}
                Err(error) => {
                    // The alert that says why, if there is room for it.
                    let _ = self.flush();
                    return Err(io::Error::new(ErrorKind::InvalidData, error));
                }
            }
        }
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
        let time = clock_gettime(ClockId::MonotonicCoarse);
        let now = time.tv_sec as u64 * 1000 + time.tv_nsec as u64 / 1_000_000;
        if now >= self.active + IDLE {
            self.small = SMALL_RECORDS;
        }
        self.active = now;
        if self.small == 0 {
            return self.tls.writer().write_vectored(plain);
        }
        let mut rest: SmallVec<[&[u8]; 2]> = plain.iter().map(|slice| &**slice).collect();
        let mut taken = 0;
        while self.small > 0 && rest.iter().any(|slice| !slice.is_empty()) {
            let mut record: SmallVec<[IoSlice<'_>; 2]> = SmallVec::new();
            let mut room = SMALL;
            for slice in &mut rest {
                let (now, later) = slice.split_at(slice.len().min(room));
                record.push(IoSlice::new(now));
                room -= now.len();
                *slice = later;
            }
            taken += self.tls.writer().write_vectored(&record)?;
            self.small -= 1;
        }
        let rest: SmallVec<[IoSlice<'_>; 2]> = rest.into_iter().map(IoSlice::new).collect();
        Ok(taken + self.tls.writer().write_vectored(&rest)?)
    }

    /// To be called at the end of the handshake.
    pub(super) fn see_client(&mut self) {
        let certificate = self.tls.peer_certificates().and_then(|chain| chain.first());
        self.client = certificate.and_then(ClientCertificate::read).map(Rc::new);
    }

    /// Whether what was read may be sent again by others (RFC 8446 §8): the handshake has not ended.
    pub(crate) fn is_early(&self) -> bool {
        self.tls.is_handshaking()
    }

    /// What is known of the connection.
    pub(crate) fn facts(&self) -> Facts {
        Facts::new(&self.tls, self.client.as_ref())
    }

    /// Whether HTTP/2 was agreed upon (RFC 7301).
    pub(crate) fn has_http2(&self) -> bool {
        self.tls.alpn_protocol() == Some(b"h2")
    }

    /// Whether the handshake went on from an earlier one.
    pub(crate) fn is_resumed(&self) -> bool {
        self.tls.handshake_kind() == Some(rustls::HandshakeKind::Resumed)
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
