//! Sending plain bytes by an encrypted connection.

use std::cell::RefCell;
use std::io::{self, ErrorKind, IoSlice};

use rustix::time::{ClockId, clock_gettime};
use rustls::server::ServerConnectionData;
use rustls::unbuffered::{ConnectionState, EncryptError, WriteTraffic};

use super::Session;

/// Plain bytes of a full record (RFC 8446 §5.1).
const FULL: usize = 16 * 1024;
/// Plain bytes of a small record: with what TLS adds, it fits into one segment of TCP over Ethernet, and can be
/// decrypted as soon as that has arrived. A full one takes twelve.
const SMALL: usize = 1350;
/// As many small records as a connection's first flight has segments, nearly (RFC 6928).
const SMALL_RECORDS: u8 = 8;
/// After this time, in milliseconds, the kernel's congestion window may be that of the beginning again.
const IDLE: u64 = 1000;
/// More than any suite adds to a record.
const OVERHEAD: usize = 64;

thread_local! {
    static BUFFERS: RefCell<Buffers> = const { RefCell::new(Buffers::new()) };
}

/// What encrypting needs for the time of one call.
struct Buffers {
    /// Records, as they are sent.
    sealed: Vec<u8>,
    /// The content of a record that comes from several places.
    gathered: Vec<u8>,
}

impl Session {
    /// Encrypts all of `plain` and sends what the socket takes of it; says how much it was. There was room
    /// before ([`Session::make_room`]), which bounds what waits.
    ///
    /// # Errors
    /// When the connection is of no use any more.
    pub(crate) fn write(&mut self, plain: &[IoSlice<'_>]) -> io::Result<usize> {
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

    /// Records are small when the client's first bytes are to be of use as soon as they arrive.
    fn choose_sizes(&mut self) {
        let time = clock_gettime(ClockId::MonotonicCoarse);
        let now = time.tv_sec as u64 * 1000 + time.tv_nsec as u64 / 1_000_000;
        if now >= self.active + IDLE {
            self.small = SMALL_RECORDS;
        }
        self.active = now;
    }

    /// Puts what waits to be sent and then records of `plain` into `buffers.sealed`, up to where it says.
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
            provide(sealed, unsent.len());
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

    /// Says that nothing more comes (RFC 8446 §6.1), as far as there is room for it.
    pub(crate) fn close(&mut self) {
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
        // A client that is gone, or takes nothing, is not told.
        let _ = self.flush();
    }
}

/// Appends records of `content` at `end`; says where they end.
fn append(
    traffic: &mut WriteTraffic<'_, ServerConnectionData>,
    content: &[u8],
    sealed: &mut Vec<u8>,
    end: usize,
) -> io::Result<usize> {
    provide(sealed, end + content.len() + (content.len() / FULL + 1) * OVERHEAD);
    loop {
        match traffic.encrypt(content, &mut sealed[end..]) {
            Ok(count) => return Ok(end + count),
            // A message about new keys goes first.
            Err(EncryptError::InsufficientSize(lack)) => provide(sealed, end + lack.required_size),
            Err(error) => return Err(io::Error::other(error)),
        }
    }
}

/// Has `buffer` hold at least `length` bytes.
fn provide(buffer: &mut Vec<u8>, length: usize) {
    if buffer.len() < length {
        buffer.resize(length, 0);
    }
}

impl Buffers {
    const fn new() -> Self {
        Self { sealed: Vec::new(), gathered: Vec::new() }
    }
}
