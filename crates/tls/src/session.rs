//! A TLS session over a socket.
//!
//! rustls keeps keys and protocol state. Data is in buffers of the worker's thread; a session has buffers of its own only
//! while a record is incomplete, or while the socket does not take all ciphertext.

use std::cell::RefCell;
use std::io::{self, ErrorKind};
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use dunlin_net::stream::Stream;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, EncodeError, EncodeTlsData, UnbufferedStatus};
use tokio::io::ReadBuf;

use super::acme::challenges::ALPN;
use super::info::{ClientCertificate, TlsInfo};
use super::policy::Policy;

/// A TLS session. Its handshake may still be in progress.
pub struct Session {
    stream: Stream,
    pub(crate) tls: UnbufferedServerConnection,
    /// An incomplete record.
    pub(crate) incomplete: Vec<u8>,
    /// Plaintext for which the reader had no room, from `waiting_at` on.
    waiting: Vec<u8>,
    waiting_at: usize,
    /// Ciphertext that the socket has not taken yet.
    pub(crate) unsent: Vec<u8>,
    /// The socket's buffer is full.
    is_blocked: bool,
    /// Bytes of ciphertext that the socket has taken.
    written: u64,
    /// Time of the last encryption, in milliseconds of the coarse monotonic clock.
    pub(crate) active: u64,
    /// Number of small records still to send.
    pub(crate) small: u8,
    /// The client has sent `close_notify`.
    has_ended: bool,
    /// The client has violated the protocol; the connection is unusable.
    pub(crate) is_broken: bool,
    /// The verified client certificate.
    pub(crate) client: Option<Rc<ClientCertificate>>,
    /// The number of its listener.
    pub(crate) listener: u64,
    /// The server name of the handshake; empty without SNI.
    pub(crate) name: Box<str>,
    /// The policy that the handshake meets.
    pub(crate) policy: Policy,
}

/// Maximum number of bytes of one read.
const READ: usize = 32 * 1024;
/// Maximum length of an incomplete message in bytes; a handshake message may span several records (RFC 8446 §4 allows
/// 16 MB).
const INCOMPLETE: usize = 64 * 1024;

thread_local! {
    /// Buffer for received data, which is decrypted in place; shared by all connections of the thread.
    static ARRIVING: RefCell<Box<[u8]>> = RefCell::new(vec![0; INCOMPLETE + READ].into());
}

impl Session {
    /// Returns a session whose handshake has not begun. Its listener, the server name of the handshake, and the policy that
    /// `tls` enforces are given together. `arrived` is data that was read before: it begins with the ClientHello.
    pub(crate) fn new(
        stream: Stream,
        tls: UnbufferedServerConnection,
        (listener, name, policy): (u64, Box<str>, Policy),
        mut arrived: Vec<u8>,
    ) -> io::Result<Self> {
        let mut session = Self {
            stream,
            tls,
            incomplete: Vec::new(),
            waiting: Vec::new(),
            waiting_at: 0,
            unsent: Vec::new(),
            is_blocked: false,
            written: 0,
            active: 0,
            small: 0,
            has_ended: false,
            is_broken: false,
            client: None,
            listener,
            name,
            policy,
        };
        session.ingest(&mut arrived, &mut ReadBuf::new(&mut []))?;
        Ok(session)
    }

    /// Returns the stream that carries the ciphertext.
    #[inline]
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Reads plaintext; no bytes at the end of the stream.
    pub fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            if self.has_waiting() {
                let waiting = &self.waiting[self.waiting_at..];
                let count = waiting.len().min(buffer.remaining());
                buffer.put_slice(&waiting[..count]);
                self.waiting_at += count;
                if !self.has_waiting() {
                    (self.waiting, self.waiting_at) = (Vec::new(), 0);
                }
                return Poll::Ready(Ok(()));
            }
            if self.has_ended {
                return Poll::Ready(Ok(()));
            }
            let before = buffer.filled().len();
            ready!(self.poll_arrive(cx, buffer))?;
            if buffer.filled().len() > before {
                return Poll::Ready(Ok(()));
            }
        }
    }

    /// Receives and decrypts data. If there is none, flushes pending protocol messages.
    pub(crate) fn poll_arrive(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.is_broken {
            return Poll::Ready(Err(ErrorKind::InvalidData.into()));
        }
        ARRIVING.with_borrow_mut(|arriving| {
            let kept = self.incomplete.len();
            let mut read = ReadBuf::new(&mut arriving[kept..kept + READ]);
            if self.stream.poll_read(cx, &mut read)?.is_pending() {
                // A full send buffer must not prevent reading.
                return match self.poll_flush(cx) {
                    Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
                    _ => Poll::Pending,
                };
            }
            let count = read.filled().len();
            if count == 0 {
                // Without `close_notify`, an attacker may have truncated the stream.
                return Poll::Ready(Err(ErrorKind::UnexpectedEof.into()));
            }
            arriving[..kept].copy_from_slice(&std::mem::take(&mut self.incomplete));
            Poll::Ready(self.ingest(&mut arriving[..kept + count], buffer))
        })
    }

    /// Decrypts received data. Plaintext goes into `buffer`; the rest is kept for the next read.
    fn ingest(&mut self, arrived: &mut [u8], buffer: &mut ReadBuf<'_>) -> io::Result<()> {
        let result = match self.process(arrived, buffer) {
            Ok(used) if arrived.len() - used > INCOMPLETE => {
                Err("a handshake message is too long".into())
            }
            Ok(used) => {
                self.incomplete.extend_from_slice(&arrived[used..]);
                return Ok(());
            }
            Err(error) => Err(error),
        };
        self.is_broken = true;
        self.send_alert();
        result.map_err(|error: ProtocolError| io::Error::new(ErrorKind::InvalidData, error))
    }

    /// Processes all complete records of `arrived`. Returns their length.
    fn process(
        &mut self,
        arrived: &mut [u8],
        buffer: &mut ReadBuf<'_>,
    ) -> Result<usize, ProtocolError> {
        let mut used = 0;
        loop {
            let status = self.tls.process_tls_records(&mut arrived[used..]);
            let UnbufferedStatus { mut discard, state } = status;
            let mut is_done = false;
            match state? {
                ConnectionState::ReadTraffic(mut traffic) => {
                    while let Some(record) = traffic.next_record() {
                        let record = record?;
                        discard += record.discard;
                        deliver(record.payload, buffer, &mut self.waiting);
                    }
                }
                ConnectionState::ReadEarlyData(mut traffic) => {
                    while let Some(record) = traffic.next_record() {
                        let record = record?;
                        discard += record.discard;
                        deliver(record.payload, buffer, &mut self.waiting);
                    }
                }
                ConnectionState::EncodeTlsData(data) => encode(data, &mut self.unsent)?,
                ConnectionState::TransmitTlsData(data) => data.done(),
                ConnectionState::PeerClosed => {
                    self.has_ended = true;
                    // Data after `close_notify` is ignored (RFC 8446 §6.1).
                    return Ok(arrived.len());
                }
                _ => is_done = true,
            }
            used += discard;
            if is_done {
                return Ok(used);
            }
        }
    }

    /// Sends the alert that describes the error if the socket has room for it.
    fn send_alert(&mut self) {
        while self.tls.wants_write() {
            match self.tls.process_tls_records(&mut []).state {
                Ok(ConnectionState::EncodeTlsData(data)) => {
                    if encode(data, &mut self.unsent).is_err() {
                        break;
                    }
                }
                _ => break,
            }
        }
        let _ = self.flush();
    }

    /// Sends buffered ciphertext. Returns true when all was sent.
    pub fn flush(&mut self) -> io::Result<bool> {
        if self.unsent.is_empty() {
            return Ok(true);
        }
        let unsent = std::mem::take(&mut self.unsent);
        self.push(&unsent)
    }

    /// Returns whether more can be encrypted and sent. Buffered ciphertext may remain.
    #[inline]
    pub fn make_room(&mut self) -> io::Result<bool> {
        Ok(!self.is_blocked || self.flush()?)
    }

    /// Sends `ciphertext` and buffers what the socket does not take. Returns true when all was sent.
    pub(crate) fn push(&mut self, ciphertext: &[u8]) -> io::Result<bool> {
        let sent = match self.stream.try_write(ciphertext) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
            sent => sent?,
        };
        self.written += sent as u64;
        self.is_blocked = sent < ciphertext.len();
        if self.is_blocked {
            self.unsent.extend_from_slice(&ciphertext[sent..]);
            // Clears readiness, so that the next attempt waits for the socket.
            self.stream.clear_writable();
        }
        Ok(!self.is_blocked)
    }

    /// Waits until all ciphertext was sent.
    pub fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.flush()? {
            ready!(self.stream.poll_write_ready(cx))?;
        }
        Poll::Ready(Ok(()))
    }

    /// Returns `true` if plaintext is buffered.
    pub(crate) fn has_waiting(&self) -> bool {
        self.waiting_at < self.waiting.len()
    }

    /// Stores the client certificate. Called at the end of the handshake.
    pub(crate) fn store_client_certificate(&mut self) {
        self.client = self.tls.peer_certificates().and_then(ClientCertificate::read).map(Rc::new);
    }

    /// Returns `true` if received data is early data, which an attacker may replay (RFC 8446 §8).
    #[inline]
    pub fn is_early(&self) -> bool {
        self.tls.is_handshaking()
    }

    /// Returns the policy that the handshake meets.
    #[inline]
    pub fn policy(&self) -> Policy {
        self.policy
    }

    /// Protocol version, cipher suite and client certificate.
    #[inline]
    pub fn info(&self) -> TlsInfo {
        TlsInfo::new(&self.tls, self.client.as_ref(), &self.name)
    }

    /// Returns `true` if HTTP/2 was negotiated (RFC 7301).
    #[inline]
    pub fn has_http2(&self) -> bool {
        self.tls.alpn_protocol() == Some(b"h2")
    }

    /// Returns `true` if the session was resumed.
    pub fn is_resumed(&self) -> bool {
        self.tls.handshake_kind() == Some(rustls::HandshakeKind::Resumed)
    }

    /// Returns `true` if the handshake was a TLS-ALPN-01 challenge (RFC 8737), after which no request follows.
    pub fn is_acme_challenge(&self) -> bool {
        self.tls.alpn_protocol() == Some(ALPN)
    }

    /// Length of the buffered ciphertext in bytes.
    #[inline]
    pub fn unsent(&self) -> usize {
        self.unsent.len()
    }

    /// Returns the bytes of the buffers that the session has of its own.
    #[inline]
    pub fn held(&self) -> usize {
        self.incomplete.capacity() + self.waiting.capacity() + self.unsent.capacity()
    }

    /// Returns `true` if no ciphertext is buffered.
    #[inline]
    pub fn is_flushed(&self) -> bool {
        self.unsent.is_empty()
    }

    /// Returns the bytes that the socket has taken so far.
    #[inline]
    pub fn written(&self) -> u64 {
        self.written
    }
}

/// A protocol violation of the client.
type ProtocolError = Box<dyn std::error::Error + Send + Sync>;

fn deliver(plain: &[u8], buffer: &mut ReadBuf<'_>, waiting: &mut Vec<u8>) {
    // Buffered plaintext comes first.
    let room = if waiting.is_empty() { buffer.remaining() } else { 0 };
    let (now, later) = plain.split_at(plain.len().min(room));
    buffer.put_slice(now);
    waiting.extend_from_slice(later);
}

/// Appends an encoded protocol message.
fn encode<Data>(
    mut message: EncodeTlsData<'_, Data>,
    out: &mut Vec<u8>,
) -> Result<(), EncodeError> {
    let start = out.len();
    loop {
        match message.encode(&mut out[start..]) {
            Ok(_) => return Ok(()),
            Err(EncodeError::InsufficientSize(lack)) => out.resize(start + lack.required_size, 0),
            Err(error) => return Err(error),
        }
    }
}

/// Appends received data to `arrived`. Returns the number of bytes.
pub(crate) fn poll_read_some(
    stream: &mut Stream,
    cx: &mut Context<'_>,
    arrived: &mut Vec<u8>,
) -> Poll<io::Result<usize>> {
    ARRIVING.with_borrow_mut(|arriving| {
        let mut read = ReadBuf::new(&mut arriving[..READ]);
        ready!(stream.poll_read(cx, &mut read))?;
        arrived.extend_from_slice(read.filled());
        Poll::Ready(Ok(read.filled().len()))
    })
}
