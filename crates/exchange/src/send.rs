//! Sends heads and bodies, as fast as the client takes them.

use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use dunlin_fs::content::Piece;
use dunlin_net::blocking::Pool;
use dunlin_net::stream::{More, Stream};
use dunlin_tls::{Session, Transport};
use rustix::io::Errno;

use crate::Body;
use dunlin_fs::content::{Broken, Check, ContentFile};

/// The result of an attempt to send.
#[derive(Debug, PartialEq, Eq)]
pub enum Sent {
    /// The kernel has accepted everything.
    All,
    /// The socket accepts no more for now.
    Blocked,
    /// The file's next bytes are not in the page cache, or a write to it may be under way.
    Cold {
        /// The offset of these bytes.
        offset: u64,
        /// Their number.
        length: u64,
    },
    /// The file is not of the version that the head announced.
    Changed,
}

/// Bytes of a changeable file in one call, so that changes are noticed early and one client does not occupy a worker.
const LIVE_CHUNK: u64 = 1 << 20;
/// Bytes of a changeable file that are copied at a time.
const COPIED_CHUNK: usize = 96 << 10;
/// Bytes that are encrypted at a time: full records (RFC 8446 §5.1).
const ENCRYPTED_CHUNK: usize = 96 << 10;
/// The kernel reads ahead at least this much; each such step is probed.
const PROBE_STEP: u64 = 256 << 10;
/// The step for private copies, which were written at once and are used often: their pages leave memory together.
const COPY_PROBE_STEP: u64 = 2 << 20;

/// Sends `head` from `at` on and then `body`, as far as the socket accepts them. Head and start of the body leave in one
/// segment.
///
/// # Errors
/// If the connection is broken, or a file cannot be read.
pub fn send(
    stream: &mut Transport,
    head: &[u8],
    at: &mut usize,
    body: &mut Body,
    sent: &mut u64,
) -> io::Result<Sent> {
    match stream {
        Transport::Plain(stream) => send_plain(stream, head, at, body, sent),
        Transport::Tls(session) => send_encrypted(session, head, at, body, sent),
    }
}

/// Writes bytes to a socket without TLS, which mostly accepts all. Returns `true` if it has. Otherwise advances `at`; [`send`] finds
/// out the reason.
#[inline]
pub fn send_at_once(stream: &Transport, bytes: &[u8], at: &mut usize) -> bool {
    if !bytes.is_empty() {
        *at = match stream {
            Transport::Plain(stream) => stream.send(bytes, More::No),
            Transport::Tls(_) => return false,
        }
        .unwrap_or(0);
    }
    *at == bytes.len()
}

/// Sends over TLS. Everything is encrypted before it is sent, so that it is copied once.
fn send_encrypted(
    session: &mut Session,
    head: &[u8],
    at: &mut usize,
    body: &mut Body,
    sent: &mut u64,
) -> io::Result<Sent> {
    loop {
        if !session.make_room()? {
            return Ok(Sent::Blocked);
        }
        let rest = &head[*at..];
        body.prefer_memory();
        match body.first_mut() {
            None if rest.is_empty() => return Ok(Sent::All),
            None => {
                let rest = &rest[..rest.len().min(ENCRYPTED_CHUNK)];
                *at += session.write(&[IoSlice::new(rest)])?;
            }
            Some(Piece::Memory(bytes)) => {
                let bytes = &bytes[..bytes.len().min(ENCRYPTED_CHUNK)];
                let taken = session.write(&[IoSlice::new(rest), IoSlice::new(bytes)])?;
                advance(taken, head.len(), at, body, sent);
            }
            Some(Piece::File(file, range)) => {
                let taken = COPY.with_borrow_mut(|buffer| {
                    // Head and content fill whole records together.
                    let room = ENCRYPTED_CHUNK - rest.len().min(ENCRYPTED_CHUNK / 2);
                    let buffer = part(buffer, range, room);
                    let copy = match read_ahead(file, range, buffer)? {
                        Ok(count) => &buffer[..count],
                        Err(state) => return Ok(Err(state)),
                    };
                    // The session accepts everything, as it has room.
                    io::Result::Ok(Ok(session.write(&[IoSlice::new(rest), IoSlice::new(copy)])?))
                })?;
                match taken {
                    Ok(taken) => {
                        *sent += (taken - rest.len()) as u64;
                        *at = head.len();
                        if range.start == range.end {
                            body.drop_first();
                        }
                    }
                    Err(state) => return Ok(state),
                }
            }
        }
    }
}

fn send_plain(
    stream: &Stream,
    head: &[u8],
    at: &mut usize,
    body: &mut Body,
    sent: &mut u64,
) -> io::Result<Sent> {
    loop {
        let rest = &head[*at..];
        let (taken, wanted) = match body.first_mut() {
            None if rest.is_empty() => return Ok(Sent::All),
            None => (stream.send(rest, More::No), rest.len()),
            Some(Piece::Memory(bytes)) => {
                let slices = [IoSlice::new(rest), IoSlice::new(bytes)];
                let slices = if rest.is_empty() { &slices[1..] } else { &slices[..] };
                (stream.send_vectored(slices), rest.len() + bytes.len())
            }
            Some(Piece::File(file, range)) if is_copied(file) => {
                match send_copied(stream, rest, file, range)? {
                    Copied::Not(state) => return Ok(state),
                    Copied::Taken { taken, of, left } => {
                        let of_head = taken.min(rest.len());
                        *at += of_head;
                        *sent += (taken - of_head) as u64;
                        if range.start == range.end {
                            body.drop_first();
                        }
                        if !left.is_empty() {
                            body.push_first(Piece::Memory(left));
                        }
                        if taken < of {
                            stream.clear_writable();
                            return Ok(Sent::Blocked);
                        }
                        continue;
                    }
                }
            }
            Some(Piece::File(..)) if !rest.is_empty() => {
                (stream.send(rest, More::Follows), rest.len())
            }
            Some(Piece::File(file, range)) => {
                let result = send_file(stream, file, range.start, range.end - range.start)?;
                match result {
                    FileSent::Bytes(count) => {
                        range.start += count;
                        *sent += count;
                        if range.start == range.end {
                            let checked = file.check();
                            if let Check::Broken(broken) = checked {
                                report_change(file, broken);
                            }
                            body.drop_first();
                            // Only files that are sent by way of memory are unsettled.
                            if checked != Check::Intact {
                                return Ok(Sent::Changed);
                            }
                        }
                        continue;
                    }
                    FileSent::Partly(count) => {
                        range.start += count;
                        *sent += count;
                        return Ok(Sent::Blocked);
                    }
                    FileSent::Not(state) => return Ok(state),
                }
            }
        };
        let taken = match taken {
            Ok(taken) => taken,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Sent::Blocked),
            Err(error) => return Err(error),
        };
        advance(taken, head.len(), at, body, sent);
        if taken < wanted {
            // The next attempt would only fail; the readiness event after a short write is certain.
            stream.clear_writable();
            return Ok(Sent::Blocked);
        }
    }
}

fn advance(taken: usize, head: usize, at: &mut usize, body: &mut Body, sent: &mut u64) {
    let of_head = taken.min(head - *at);
    *at += of_head;
    let of_body = taken - of_head;
    if of_body == 0 {
        return;
    }
    *sent += of_body as u64;
    if let Some(Piece::Memory(bytes)) = body.first_mut() {
        let rest = bytes.split_off(of_body.min(bytes.len()));
        *bytes = rest;
        if bytes.is_empty() {
            body.drop_first();
        }
    }
}

enum Copied {
    Not(Sent),
    /// The socket accepted `taken` of `of` bytes; `left` are the rest of the body's, which were copied.
    Taken {
        taken: usize,
        of: usize,
        left: Bytes,
    },
}

thread_local! {
    /// Buffer for bytes of files on their way to the socket, which mostly accepts all of them at once.
    static COPY: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

fn is_copied(file: &ContentFile) -> bool {
    file.is_live() && !file.may_be_sent_directly()
}

/// Sends `head` and the next part of a changeable file.
fn send_copied(
    stream: &Stream,
    head: &[u8],
    file: &ContentFile,
    range: &mut Range<u64>,
) -> io::Result<Copied> {
    COPY.with_borrow_mut(|buffer| {
        let buffer = part(buffer, range, COPIED_CHUNK);
        let copy = match read_ahead(file, range, buffer)? {
            Ok(count) => &buffer[..count],
            Err(state) => return Ok(Copied::Not(state)),
        };
        let slices = [IoSlice::new(head), IoSlice::new(copy)];
        let slices = if head.is_empty() { &slices[1..] } else { &slices[..] };
        let taken = match stream.send_vectored(slices) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
            taken => taken?,
        };
        let left = &copy[taken.saturating_sub(head.len()).min(copy.len())..];
        let of = head.len() + copy.len();
        Ok(Copied::Taken { taken, of, left: Bytes::copy_from_slice(left) })
    })
}

/// Reads the next bytes of a file into `buffer`. Returns their number, or why there are none. They are copied before the file is
/// checked again, so that only bytes of the version that the head announced are sent. A socket that gets the file's own pages
/// would send later writes to them.
pub(crate) fn read_ahead(
    file: &ContentFile,
    range: &mut Range<u64>,
    buffer: &mut [u8],
) -> io::Result<Result<usize, Sent>> {
    let cold = Sent::Cold { offset: range.start, length: buffer.len() as u64 };
    let count = match file.read_now(buffer, range.start) {
        Ok(count) => count,
        Err(Errno::AGAIN) => return Ok(Err(cold)),
        Err(error) => return Err(error.into()),
    };
    match if count == 0 { Check::Broken(Broken::Shortened) } else { file.check() } {
        Check::Intact => {}
        Check::Unsettled => return Ok(Err(cold)),
        Check::Broken(broken) => {
            report_change(file, broken);
            return Ok(Err(Sent::Changed));
        }
    }
    range.start += count as u64;
    Ok(Ok(count))
}

/// Returns a part of the buffer for at most `max` bytes of a file.
fn part<'b>(buffer: &'b mut Vec<u8>, range: &Range<u64>, max: usize) -> &'b mut [u8] {
    buffer.resize(COPIED_CHUNK, 0);
    &mut buffer[..(range.end - range.start).min(max as u64) as usize]
}

enum FileSent {
    Bytes(u64),
    /// The socket accepted a part.
    Partly(u64),
    Not(Sent),
}

fn send_file(stream: &Stream, file: &ContentFile, start: u64, length: u64) -> io::Result<FileSent> {
    let mut wanted = length;
    if file.is_live() {
        wanted = length.min(LIVE_CHUNK);
        if let Check::Broken(broken) = file.check() {
            report_change(file, broken);
            return Ok(FileSent::Not(Sent::Changed));
        }
    }
    if file.may_be_cold() {
        wanted = wanted.min(COPY_PROBE_STEP);
        let step = if file.is_live() { PROBE_STEP } else { COPY_PROBE_STEP };
        if !is_resident(file, start..start + wanted, step) {
            return Ok(FileSent::Not(Sent::Cold { offset: start, length: wanted }));
        }
    }
    let mut offset = start;
    match stream.send_file(file, &mut offset, wanted as usize) {
        // The file is shorter than its head has stated.
        Ok(0) => {
            report_change(file, Broken::Shortened);
            Ok(FileSent::Not(Sent::Changed))
        }
        Ok(count) if (count as u64) < wanted && !file.is_live() => {
            stream.clear_writable();
            Ok(FileSent::Partly(count as u64))
        }
        Ok(count) => Ok(FileSent::Bytes(count as u64)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(FileSent::Not(Sent::Blocked)),
        Err(error) => Err(error),
    }
}

/// Reports that a response ends early because its file has changed.
pub(crate) fn report_change(file: &ContentFile, broken: Broken) {
    let path = file.path();
    tracing::info!(file = %path.display(), "a download is broken off: {broken} while it was sent");
}

/// Returns `true` if the range is in the page cache, judged by one byte in each `step`.
fn is_resident(file: &ContentFile, stretch: Range<u64>, step: u64) -> bool {
    let mut at = stretch.start;
    while at < stretch.end {
        if file.read_now(&mut [0], at).is_err() {
            return false;
        }
        at += step;
    }
    true
}

/// Reads a range of a file into the page cache.
pub type Warming = Pin<Box<dyn Future<Output = ()>>>;

/// Reads a range of a file into the page cache on a thread of `pool`, where waiting for the disk blocks no worker.
pub fn warm(pool: &Pool, file: &Arc<ContentFile>, offset: u64, length: u64) -> Warming {
    let (pool, file) = (pool.clone(), Arc::clone(file));
    Box::pin(async move {
        // A failed read fails again when the bytes are sent.
        let _ = pool.run(move || read_range(&file, offset, length)).await;
    })
}

fn read_range(file: &ContentFile, offset: u64, length: u64) {
    file.settle();
    let mut buffer = vec![0; 128 << 10];
    let (mut at, end) = (offset, offset + length);
    while at < end {
        match rustix::io::pread(file, &mut buffer, at) {
            Ok(count) if count > 0 => at += count as u64,
            _ => return,
        }
    }
}
