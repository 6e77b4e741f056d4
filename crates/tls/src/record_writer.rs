//! Encryption and sending of application data.

use std::cell::RefCell;
use std::io::{self, ErrorKind, IoSlice};

use rustix::time::{ClockId, clock_gettime};
use rustls::ProtocolVersion;
use rustls::server::ServerConnectionData;
use rustls::unbuffered::{ConnectionState, EncryptError, WriteTraffic};

use super::record_cipher::{FULL, Sealed, encrypt_into};
use super::session::Session;

/// Plaintext length of a small record: with TLS overhead it fits into one TCP segment over Ethernet, so that the client
/// can decrypt it as soon as the segment arrives. A full record takes twelve segments.
const SMALL: usize = 1350;
/// Number of small records: about the initial congestion window in segments (RFC 6928).
const SMALL_RECORDS: u8 = 8;
/// Length of a slice that becomes records of its own instead of being copied behind a few bytes: a copy of so much costs
/// more than another record.
const ALONE: usize = 8 * 1024;
/// Idle time in milliseconds after which the kernel may have reset the congestion window.
const IDLE: u64 = 1000;
/// Upper bound on the overhead of a record in bytes.
const OVERHEAD: usize = 64;

thread_local! {
    static BUFFERS: RefCell<Buffers> = RefCell::default();
}

/// Buffers for the duration of one call.
#[derive(Default)]
struct Buffers {
    /// Encrypted records.
    sealed: Sealed,
    /// The plaintext of a record that spans several slices.
    gathered: Vec<u8>,
}

impl Session {
    /// Encrypts all of `plain` and sends as much as the socket takes. Returns the length of `plain`. Callers make sure that
    /// there is room ([`Session::make_room`]), which bounds the buffered ciphertext.
    ///
    /// # Errors
    /// When the connection has failed.
    pub fn write(&mut self, plain: &[IoSlice<'_>]) -> io::Result<usize> {
        let length = plain.iter().map(|slice| slice.len()).sum();
        if length == 0 {
            return Ok(0);
        }
        self.choose_sizes();
        BUFFERS.with_borrow_mut(|buffers| {
            self.seal(plain, length, buffers)?;
            self.push(buffers.sealed.as_bytes())?;
            Ok(length)
        })
    }

    /// Starts with small records on a new or idle connection, so that the client can use the first bytes early.
    fn choose_sizes(&mut self) {
        let time = clock_gettime(ClockId::MonotonicCoarse);
        let now = time.tv_sec as u64 * 1000 + time.tv_nsec as u64 / 1_000_000;
        if now >= self.active + IDLE {
            self.small = SMALL_RECORDS;
        }
        self.active = now;
    }

    /// Writes buffered ciphertext and then records of `plain` into `buffers.sealed`.
    fn seal(
        &mut self,
        plain: &[IoSlice<'_>],
        length: usize,
        buffers: &mut Buffers,
    ) -> io::Result<()> {
        let Buffers { sealed, gathered } = buffers;
        sealed.clear();
        sealed.append(&std::mem::take(&mut self.unsent));
        if self.is_broken {
            return Err(ErrorKind::InvalidData.into());
        }
        let version = self.tls.protocol_version();
        let status = self.tls.process_tls_records(&mut self.incomplete);
        let Ok(ConnectionState::WriteTraffic(mut traffic)) = status.state else {
            self.is_broken = true;
            return Err(ErrorKind::InvalidData.into());
        };
        let mut plain = Plaintext { slices: plain, rest: &[], left: length };
        while plain.left > 0 {
            let record = if self.small > 0 { SMALL } else { FULL };
            self.small = self.small.saturating_sub(1);
            let content = plain.take(record, gathered);
            match version {
                Some(ProtocolVersion::TLSv1_3) => {
                    encrypt_into(&mut traffic, content, sealed).map_err(io::Error::other)?;
                }
                _ => append(&mut traffic, content, sealed)?,
            }
        }
        Ok(())
    }

    /// Sends `close_notify` (RFC 8446 §6.1) if the socket has room for it.
    pub fn close(&mut self) {
        if self.is_broken {
            return;
        }
        let status = self.tls.process_tls_records(&mut self.incomplete);
        if let Ok(ConnectionState::WriteTraffic(mut traffic)) = status.state {
            let mut alert = [0; OVERHEAD];
            if let Ok(count) = traffic.queue_close_notify(&mut alert) {
                self.unsent.extend_from_slice(&alert[..count]);
            }
        }
        // The client may have disconnected.
        let _ = self.flush();
    }
}

/// What remains of the slices of a write.
struct Plaintext<'a> {
    slices: &'a [IoSlice<'a>],
    /// The rest of the slice before `slices`.
    rest: &'a [u8],
    /// The number of bytes in all of them.
    left: usize,
}

impl<'a> Plaintext<'a> {
    /// Takes the content of the next record, which has at most `record` bytes, or of several full ones. Content that spans
    /// slices is copied to `gathered`.
    fn take<'b>(&mut self, record: usize, gathered: &'b mut Vec<u8>) -> &'b [u8]
    where
        'a: 'b,
    {
        self.advance();
        let wanted = record.min(self.left);
        if self.rest.len() >= wanted.min(ALONE) {
            let count = match record {
                FULL if self.rest.len() < FULL || self.rest.len() == self.left => self.rest.len(),
                FULL => self.rest.len() / FULL * FULL,
                _ => wanted,
            };
            self.left -= count;
            return self.split(count);
        }
        gathered.clear();
        while gathered.len() < wanted {
            self.advance();
            if self.rest.len() >= ALONE && !gathered.is_empty() {
                break;
            }
            let count = self.rest.len().min(wanted - gathered.len());
            gathered.extend_from_slice(self.split(count));
        }
        self.left -= gathered.len();
        gathered
    }

    /// Skips slices without bytes.
    fn advance(&mut self) {
        while self.rest.is_empty()
            && let Some((first, slices)) = self.slices.split_first()
        {
            (self.rest, self.slices) = (first, slices);
        }
    }

    fn split(&mut self, count: usize) -> &'a [u8] {
        let (now, later) = self.rest.split_at(count);
        self.rest = later;
        now
    }
}

/// Appends records of `content`. The connection uses TLS 1.2.
fn append(
    traffic: &mut WriteTraffic<'_, ServerConnectionData>,
    content: &[u8],
    sealed: &mut Sealed,
) -> io::Result<()> {
    let mut room = content.len() + (content.len() / FULL + 1) * OVERHEAD;
    loop {
        match traffic.encrypt(content, sealed.room(room)) {
            Ok(count) => {
                sealed.extend(count);
                return Ok(());
            }
            // An alert precedes the record.
            Err(EncryptError::InsufficientSize(lack)) => room = lack.required_size,
            Err(error) => return Err(io::Error::other(error)),
        }
    }
}
