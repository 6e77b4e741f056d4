//! Encryption and sending of application data.

use std::cell::RefCell;
use std::io::{self, ErrorKind, IoSlice};

use rustix::time::{ClockId, clock_gettime};
use rustls::server::ServerConnectionData;
use rustls::unbuffered::{ConnectionState, EncryptError, WriteTraffic};

use super::session::Session;

/// Maximum plaintext length of a record (RFC 8446 §5.1).
const FULL: usize = 16 * 1024;
/// Plaintext length of a small record: with TLS overhead it fits into one TCP segment over Ethernet, so that the client
/// can decrypt it as soon as the segment arrives. A full record takes twelve segments.
const SMALL: usize = 1350;
/// Number of small records: about the initial congestion window in segments (RFC 6928).
const SMALL_RECORDS: u8 = 8;
/// Idle time in milliseconds after which the kernel may have reset the congestion window.
const IDLE: u64 = 1000;
/// Upper bound on the overhead of a record in bytes.
const OVERHEAD: usize = 64;

thread_local! {
    static BUFFERS: RefCell<Buffers> = const { RefCell::new(Buffers::new()) };
}

/// Buffers for the duration of one call.
struct Buffers {
    /// Encrypted records.
    sealed: Vec<u8>,
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
            let end = self.seal(plain, length, buffers)?;
            self.push(&buffers.sealed[..end])?;
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

    /// Writes buffered ciphertext and then records of `plain` into `buffers.sealed`. Returns the end of them.
    fn seal(
        &mut self,
        plain: &[IoSlice<'_>],
        length: usize,
        buffers: &mut Buffers,
    ) -> io::Result<usize> {
        let Buffers { sealed, gathered } = buffers;
        let mut end = 0;
        if !self.unsent.is_empty() {
            let unsent = std::mem::take(&mut self.unsent);
            ensure_length(sealed, unsent.len());
            sealed[..unsent.len()].copy_from_slice(&unsent);
            end = unsent.len();
        }
        if self.is_broken {
            return Err(ErrorKind::InvalidData.into());
        }
        let status = self.tls.process_tls_records(&mut self.incomplete);
        let Ok(ConnectionState::WriteTraffic(mut traffic)) = status.state else {
            self.is_broken = true;
            return Err(ErrorKind::InvalidData.into());
        };
        let mut left = length;
        let mut slices = plain.iter().map(|slice| &**slice);
        let mut rest: &[u8] = &[];
        while left > 0 {
            let record = if self.small > 0 { SMALL } else { FULL };
            self.small = self.small.saturating_sub(1);
            while rest.is_empty() {
                rest = slices.next().unwrap_or_default();
            }
            let content = if rest.len() >= record.min(left) {
                let count = match record {
                    FULL if rest.len() < left => rest.len() / FULL * FULL,
                    FULL => rest.len(),
                    _ => record.min(rest.len()),
                };
                let (now, later) = rest.split_at(count);
                rest = later;
                now
            } else {
                gathered.clear();
                while gathered.len() < record.min(left) {
                    let (now, later) = rest.split_at(rest.len().min(record - gathered.len()));
                    gathered.extend_from_slice(now);
                    rest = if later.is_empty() { slices.next().unwrap_or_default() } else { later };
                }
                &gathered[..]
            };
            left -= content.len();
            end = append(&mut traffic, content, sealed, end)?;
        }
        Ok(end)
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

/// Appends records of `content` at `end`. Returns the new end.
fn append(
    traffic: &mut WriteTraffic<'_, ServerConnectionData>,
    content: &[u8],
    sealed: &mut Vec<u8>,
    end: usize,
) -> io::Result<usize> {
    ensure_length(sealed, end + content.len() + (content.len() / FULL + 1) * OVERHEAD);
    loop {
        match traffic.encrypt(content, &mut sealed[end..]) {
            Ok(count) => return Ok(end + count),
            // A KeyUpdate message precedes the record.
            Err(EncryptError::InsufficientSize(lack)) => {
                ensure_length(sealed, end + lack.required_size);
            }
            Err(error) => return Err(io::Error::other(error)),
        }
    }
}

/// Grows `buffer` to at least `length` bytes.
fn ensure_length(buffer: &mut Vec<u8>, length: usize) {
    if buffer.len() < length {
        buffer.resize(length, 0);
    }
}

impl Buffers {
    const fn new() -> Self {
        Self { sealed: Vec::new(), gathered: Vec::new() }
    }
}
