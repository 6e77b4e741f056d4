//! An encrypted connection: plain bytes at one side, a socket at the other.
//!
//! rustls keeps the keys and the state of the protocol; bytes are in buffers that belong to the worker's thread. A
//! connection has some of its own only while a record is incomplete, or while the socket does not take all.

use std::cell::RefCell;
use std::io::{self, ErrorKind};
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, EncodeError, EncodeTlsData, UnbufferedStatus};
use tokio::io::{Interest, ReadBuf};
use tokio::net::TcpStream;

use super::Policy;
use super::info::{ClientCertificate, TlsInfo};
use crate::transport::poll_read_tcp;

/// An encrypted connection whose handshake may still be going on.
pub(crate) struct Session {
    pub(crate) tcp: TcpStream,
    pub(super) tls: UnbufferedServerConnection,
    /// Ciphertext of which more has to arrive before it says anything.
    pub(super) incomplete: Vec<u8>,
    /// Plain bytes for which the reader had no room yet, from `waiting_at` on.
    waiting: Vec<u8>,
    waiting_at: usize,
    /// Ciphertext that the socket has not taken.
    pub(super) unsent: Vec<u8>,
    /// The socket has said that it takes no more.
    is_blocked: bool,
    /// Bytes of ciphertext that the socket has taken.
    written: u64,
    /// When something was last encrypted, in milliseconds of a coarse clock.
    pub(super) active: u64,
    /// So many records are to be small.
    pub(super) small: u8,
    /// The client has said that nothing more comes.
    has_ended: bool,
    /// What the client sent is against the protocol: nothing can be made of the connection any more.
    pub(super) is_broken: bool,
    /// The client's certificate, which was verified.
    pub(super) client: Option<Rc<ClientCertificate>>,
    /// The host that the handshake named; empty when it named none.
    pub(super) name: Box<str>,
    /// The policy that the handshake meets.
    pub(super) policy: Policy,
}

/// What one read brings at most.
const READ: usize = 32 * 1024;
/// Ciphertext that is kept for the rest of it to arrive: as much as a message of a handshake may have, several records
/// long (RFC 8446 §4 would allow 16 MB).
const INCOMPLETE: usize = 64 * 1024;

thread_local! {
    /// What arrives, where it is decrypted: connections keep no buffer for it.
    static ARRIVING: RefCell<Box<[u8]>> = RefCell::new(vec![0; INCOMPLETE + READ].into());
}

impl Session {
    /// `named`: the host that the client names, and the policy that `tls` enforces. `arrived`: what was read of the client's first message, and whatever came
    /// with it.
    pub(super) fn new(
        tcp: TcpStream,
        tls: UnbufferedServerConnection,
        (name, policy): (Box<str>, Policy),
        mut arrived: Vec<u8>,
    ) -> io::Result<Self> {
        let mut session = Self {
            tcp,
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
            name,
            policy,
        };
        session.take_in(&mut arrived, &mut ReadBuf::new(&mut []))?;
        Ok(session)
    }

    /// Reads plain bytes; none at the client's end of the connection.
    pub(crate) fn poll_read(
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

    /// Takes in what has arrived; when there is nothing, sends what the protocol itself has to say.
    pub(super) fn poll_arrive(
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
            if poll_read_tcp(&self.tcp, cx, &mut read)?.is_pending() {
                // That there is no room to send keeps nobody from reading.
                return match self.poll_flush(cx) {
                    Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
                    _ => Poll::Pending,
                };
            }
            let count = read.filled().len();
            if count == 0 {
                // An end that was not announced may be an attacker's.
                return Poll::Ready(Err(ErrorKind::UnexpectedEof.into()));
            }
            arriving[..kept].copy_from_slice(&std::mem::take(&mut self.incomplete));
            Poll::Ready(self.take_in(&mut arriving[..kept + count], buffer))
        })
    }

    /// Uses what has arrived: what it says to the driver goes into `buffer`, or waits for room in the next.
    fn take_in(&mut self, arrived: &mut [u8], buffer: &mut ReadBuf<'_>) -> io::Result<()> {
        let result = match self.process(arrived, buffer) {
            Ok(used) if arrived.len() - used > INCOMPLETE => Err("its message is too long".into()),
            Ok(used) => {
                self.incomplete.extend_from_slice(&arrived[used..]);
                return Ok(());
            }
            Err(error) => Err(error),
        };
        self.is_broken = true;
        self.complain();
        result.map_err(|error: Wrong| io::Error::new(ErrorKind::InvalidData, error))
    }

    /// Has rustls go through all of `arrived` that is complete; says how much that was.
    fn process(&mut self, arrived: &mut [u8], buffer: &mut ReadBuf<'_>) -> Result<usize, Wrong> {
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
                    // Whatever comes after that is nothing (RFC 8446 §6.1).
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

    /// Tells the client why its connection ends, as far as there is room for it.
    fn complain(&mut self) {
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

    /// Sends ciphertext that is ready, as far as the socket takes it: true when all is gone.
    pub(crate) fn flush(&mut self) -> io::Result<bool> {
        if self.unsent.is_empty() {
            return Ok(true);
        }
        let unsent = std::mem::take(&mut self.unsent);
        self.push(&unsent)
    }

    /// Whether something can be sent, which may be so before all is gone that was ready.
    pub(crate) fn make_room(&mut self) -> io::Result<bool> {
        Ok(!self.is_blocked || self.flush()?)
    }

    /// Sends `ciphertext` and keeps what the socket does not take: true when it took all.
    pub(super) fn push(&mut self, ciphertext: &[u8]) -> io::Result<bool> {
        let sent = match self.tcp.try_write(ciphertext) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
            sent => sent?,
        };
        self.written += sent as u64;
        self.is_blocked = sent < ciphertext.len();
        if self.is_blocked {
            self.unsent.extend_from_slice(&ciphertext[sent..]);
            // The next attempt would only be told so by the kernel.
            let full = || -> io::Result<()> { Err(ErrorKind::WouldBlock.into()) };
            let _ = self.tcp.try_io(Interest::WRITABLE, full);
        }
        Ok(!self.is_blocked)
    }

    /// Waits until the socket has all that was encrypted.
    pub(crate) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.flush()? {
            ready!(self.tcp.poll_write_ready(cx))?;
        }
        Poll::Ready(Ok(()))
    }

    /// Whether something was read already that was not asked for yet.
    pub(super) fn has_waiting(&self) -> bool {
        self.waiting_at < self.waiting.len()
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

    /// The policy that the handshake meets.
    #[inline]
    pub(crate) fn policy(&self) -> Policy {
        self.policy
    }

    /// What is known of the connection.
    pub(crate) fn info(&self) -> TlsInfo {
        TlsInfo::new(&self.tls, self.client.as_ref())
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

    /// Bytes of ciphertext that wait for room in the socket.
    pub(crate) fn unsent(&self) -> usize {
        self.unsent.len()
    }

    /// Whether nothing waits for room in the socket.
    pub(crate) fn is_flushed(&self) -> bool {
        self.unsent.is_empty()
    }

    /// Bytes that the socket has taken so far.
    pub(crate) fn written(&self) -> u64 {
        self.written
    }
}

/// What is wrong with what a client sent.
type Wrong = Box<dyn std::error::Error + Send + Sync>;

fn deliver(plain: &[u8], buffer: &mut ReadBuf<'_>, waiting: &mut Vec<u8>) {
    // What waits was there before.
    let room = if waiting.is_empty() { buffer.remaining() } else { 0 };
    let (now, later) = plain.split_at(plain.len().min(room));
    buffer.put_slice(now);
    waiting.extend_from_slice(later);
}

/// Appends a message of the protocol's own.
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

/// Reads what has come into `arrived`, by the thread's buffer; says how much it was.
pub(super) fn read_some(tcp: &TcpStream, arrived: &mut Vec<u8>) -> io::Result<usize> {
    ARRIVING.with_borrow_mut(|arriving| {
        let count = tcp.try_read(&mut arriving[..READ])?;
        arrived.extend_from_slice(&arriving[..count]);
        Ok(count)
    })
}
