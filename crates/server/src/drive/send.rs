//! Sending: a head and a body that is pulled from its source as fast as the client takes it.

use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use dunlin_net::stream::{More, Stream};
use rustix::io::Errno;

use crate::blocking::Pool;
use crate::exchange::{Body, Piece};
use crate::tls::Session;
use crate::transport::Transport;
use dunlin_fs::content::ContentFile;

/// What is left to send of one answer, or of several when only heads and small bodies are left.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    /// Bytes before the body, as far as they could not be sent at once.
    pub(super) head: Vec<u8>,
    pub(super) body: Body,
    /// Bytes of the body that the socket has taken.
    pub(super) sent: u64,
}

/// How far an attempt to send came.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Sent {
    /// Everything is with the kernel.
    All,
    /// The socket takes no more for now.
    Blocked,
    /// The file's next bytes are not in memory: they have to be read where that may take time.
    Cold { offset: u64, length: u64 },
    /// The file is not any more what it was when its head was sent.
    Changed,
}

/// One call sends at most this much of a file that can change, so that changes are seen early and
/// one client does not keep a worker to itself.
const LIVE_STRETCH: u64 = 1 << 20;
/// What is copied at a time of a file that can change.
const COPIED_STRETCH: usize = 96 << 10;
/// What is encrypted at a time: full records (RFC 8446 §5.1).
const ENCRYPTED_STRETCH: usize = 96 << 10;
/// The kernel reads ahead at least this much; each such step is probed.
const PROBE_STEP: u64 = 256 << 10;
/// A copy of our own was written at once and is used often: its pages leave memory together.
const COPY_PROBE_STEP: u64 = 2 << 20;

/// Sends what the socket takes of `head` from `at` on and then of `body`. Head and the beginning
/// of the body leave in one segment.
pub(super) fn send(
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

/// Gives those bytes to a socket that takes them as they are, which it mostly does: whether it has taken all.
/// Otherwise `at` is moved on, and what is in the way is for [`send`] to find out.
#[inline]
pub(super) fn send_at_once(stream: &Transport, bytes: &[u8], at: &mut usize) -> bool {
    if !bytes.is_empty() {
        *at = match stream {
            Transport::Plain(stream) => stream.send(bytes, More::No),
            Transport::Tls(_) => return false,
        }
        .unwrap_or(0);
    }
    *at == bytes.len()
}

/// By TLS: all that is sent is encrypted first, so that it is copied once.
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
        match body.first_mut() {
            None if rest.is_empty() => return Ok(Sent::All),
            None => {
                let rest = &rest[..rest.len().min(ENCRYPTED_STRETCH)];
                *at += session.write(&[IoSlice::new(rest)])?;
            }
            Some(Piece::Memory(bytes)) => {
                let bytes = &bytes[..bytes.len().min(ENCRYPTED_STRETCH)];
                let taken = session.write(&[IoSlice::new(rest), IoSlice::new(bytes)])?;
                advance(taken, head.len(), at, body, sent);
            }
            Some(Piece::File(file, range)) => {
                let taken = COPY.with_borrow_mut(|buffer| {
                    // Head and content together fill whole records.
                    let room = ENCRYPTED_STRETCH - rest.len().min(ENCRYPTED_STRETCH / 2);
                    let copy = match read_ahead(file, range, room, buffer)? {
                        Ahead::Bytes(copy) => copy,
                        Ahead::Not(state) => return Ok(Err(state)),
                    };
                    // Everything is taken: nothing waits from before.
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
                            let unchanged = file.is_unchanged();
                            body.drop_first();
                            if !unchanged {
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
            // The next attempt would only be told so by the kernel; the readiness event that
            // follows a short write is certain.
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
    /// The socket took so many of those bytes; what is left of the body's is not the file's any more.
    Taken {
        taken: usize,
        of: usize,
        left: Bytes,
    },
}

thread_local! {
    /// What is copied of files on its way to the socket, which mostly takes all of it at once.
    static COPY: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

fn is_copied(file: &ContentFile) -> bool {
    file.is_live() && !file.may_be_sent_directly()
}

/// Sends `head` and the next stretch of a file that can change.
fn send_copied(
    stream: &Stream,
    head: &[u8],
    file: &ContentFile,
    range: &mut Range<u64>,
) -> io::Result<Copied> {
    COPY.with_borrow_mut(|buffer| {
        let copy = match read_ahead(file, range, COPIED_STRETCH, buffer)? {
            Ahead::Bytes(copy) => copy,
            Ahead::Not(state) => return Ok(Copied::Not(state)),
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

enum Ahead<'b> {
    Bytes(&'b [u8]),
    Not(Sent),
}

/// Takes the next stretch of a file that can change. It is copied before the file is looked at
/// once more, so that nothing is sent that is not of the version whose head was sent. A socket
/// that is given the file's own pages would go on to show what is written to them.
fn read_ahead<'b>(
    file: &ContentFile,
    range: &mut Range<u64>,
    most: usize,
    buffer: &'b mut Vec<u8>,
) -> io::Result<Ahead<'b>> {
    buffer.resize(COPIED_STRETCH, 0);
    let wanted = (range.end - range.start).min(most as u64);
    let buffer = &mut buffer[..wanted as usize];
    let count = match file.read_now(buffer, range.start) {
        Ok(count) => count,
        Err(Errno::AGAIN) => {
            return Ok(Ahead::Not(Sent::Cold { offset: range.start, length: wanted }));
        }
        Err(error) => return Err(error.into()),
    };
    if count == 0 || !file.is_unchanged() {
        return Ok(Ahead::Not(Sent::Changed));
    }
    range.start += count as u64;
    Ok(Ahead::Bytes(&buffer[..count]))
}

enum FileSent {
    Bytes(u64),
    /// The socket took part of what was offered.
    Partly(u64),
    Not(Sent),
}

fn send_file(stream: &Stream, file: &ContentFile, start: u64, length: u64) -> io::Result<FileSent> {
    let mut wanted = length;
    if file.is_live() {
        wanted = length.min(LIVE_STRETCH);
        if !file.is_unchanged() {
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
        // The file ends before the length that its head has stated.
        Ok(0) => Ok(FileSent::Not(Sent::Changed)),
        Ok(count) if (count as u64) < wanted && !file.is_live() => {
            stream.clear_writable();
            Ok(FileSent::Partly(count as u64))
        }
        Ok(count) => Ok(FileSent::Bytes(count as u64)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(FileSent::Not(Sent::Blocked)),
        Err(error) => Err(error),
    }
}

/// Whether that stretch of the file can be sent without waiting for the disk, judged by one byte
/// in each `step`.
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
pub(super) type Warming = Pin<Box<dyn Future<Output = ()>>>;

/// Reads a range of a file into the page cache on a thread of `pool`, where waiting for the disk blocks no worker.
pub(super) fn warm(pool: &Pool, file: &Arc<ContentFile>, offset: u64, length: u64) -> Warming {
    let (pool, file) = (pool.clone(), Arc::clone(file));
    Box::pin(async move {
        // A failed read fails again when the bytes are sent.
        let _ = pool.run(move || read_range(&file, offset, length)).await;
    })
}

fn read_range(file: &ContentFile, offset: u64, length: u64) {
    let mut buffer = vec![0; 128 << 10];
    let (mut at, end) = (offset, offset + length);
    while at < end {
        match rustix::io::pread(file, &mut buffer, at) {
            Ok(count) if count > 0 => at += count as u64,
            _ => return,
        }
    }
}
