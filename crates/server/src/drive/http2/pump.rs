//! Sends bodies as the client's windows allow, in the order of its priorities.

use dunlin_exchange::Body;
use dunlin_fs::content::Piece;
use dunlin_http::http2::ErrorCode;
use dunlin_net::blocking::Pool;
use rustix::io::Errno;

use super::super::send;
use super::stream::{Sending, Stream};
use super::{BATCH, Connection, Link};
use crate::worker::Completion;
use dunlin_fs::content::{Broken, Check, ContentFile};

/// The result of filling a frame.
enum Filled {
    /// More of the body follows.
    More,
    /// The body is complete.
    End,
    /// The next bytes are not in memory; mostly they have to be read from disk.
    Cold,
    /// The file is not of the version that the head announced.
    Changed,
}

impl Connection {
    /// Adds frames to `out` up to the size of one write. Returns `true` if there were any.
    pub(super) fn pump(&mut self, link: &Link<'_>, out: &mut Vec<u8>) -> bool {
        let (now, start) = (link.ctx.clock.now(), out.len());
        while out.len() < BATCH {
            let Some(id) = self.engine.next_to_send() else { break };
            let allowance = self.engine.allowance(id);
            let Some(stream) = self.streams.get_mut(id) else {
                self.engine.set_ready(id, false);
                continue;
            };
            let mark = self.engine.begin_data(out);
            let before = out.len();
            let allowed = stream.pacer.as_ref().map_or(usize::MAX, |pacer| {
                usize::try_from(pacer.allowance()).unwrap_or(usize::MAX)
            });
            let filled = stream.fill(&link.ctx.shared.blocking.files, allowance.min(allowed), out);
            stream.note_sent(out.len() - before, self.flushes);
            if let Some(pacer) = &mut stream.pacer {
                pacer.spend((out.len() - before) as u64);
            }
            stream.moved = now;
            self.served = now;
            let is_ready = stream.has_bytes();
            match filled {
                Filled::More | Filled::Cold => {
                    self.engine.end_data(id, mark, false, out);
                    if !is_ready {
                        self.engine.set_ready(id, false);
                        self.streams.poll_again(id);
                    }
                }
                Filled::End => {
                    self.engine.end_data(id, mark, true, out);
                    self.finish(id, out);
                }
                Filled::Changed => {
                    out.truncate(mark);
                    self.engine.cancel(id, ErrorCode::InternalError, out);
                    self.forget(link, id, Completion::Aborted, out);
                }
            }
        }
        out.len() > start
    }
}

impl Stream {
    /// Appends up to `room` bytes of the body.
    fn fill(&mut self, pool: &Pool, room: usize, out: &mut Vec<u8>) -> Filled {
        match &mut self.sending {
            Sending::Pieces { body, warming } => {
                let (filled, cold) = fill_from(body, room, out);
                if let Some((file, offset, length)) = cold {
                    *warming = Some(send::warm(pool, &file, offset, length));
                }
                filled
            }
            Sending::Stream { chunk, is_at_end, trailers, .. } => {
                let bytes = chunk.split_to(chunk.len().min(room));
                out.extend_from_slice(&bytes);
                match chunk.is_empty() && *is_at_end && trailers.is_empty() {
                    true => Filled::End,
                    false => Filled::More,
                }
            }
            // Nothing can be sent.
            _ => Filled::Cold,
        }
    }
}

type ColdRange = (std::sync::Arc<ContentFile>, u64, u64);

/// Bytes of a cold file that are read at a time.
const WARM_CHUNK: u64 = 256 << 10;

fn fill_from(body: &mut Body, room: usize, out: &mut Vec<u8>) -> (Filled, Option<ColdRange>) {
    let end = out.len() + room;
    while out.len() < end {
        let room = end - out.len();
        match body.first_mut() {
            None => return (Filled::End, None),
            Some(Piece::Memory(bytes)) => {
                let taken = bytes.split_to(bytes.len().min(room));
                out.extend_from_slice(&taken);
                if bytes.is_empty() {
                    body.drop_first();
                }
            }
            Some(Piece::File(file, range)) => {
                let wanted = (range.end - range.start).min(room as u64);
                let (start, before) = (range.start, out.len());
                match read(file, range.start, wanted as usize, out) {
                    Err(Errno::AGAIN) => {
                        let length = (range.end - range.start).min(WARM_CHUNK);
                        let stretch = (std::sync::Arc::clone(file), range.start, length);
                        return (Filled::Cold, Some(stretch));
                    }
                    Ok(count) if count > 0 => range.start += count as u64,
                    Ok(_) => {
                        send::report_change(file, Broken::Shortened);
                        return (Filled::Changed, None);
                    }
                    Err(_) => {
                        send::report_change(file, Broken::Unreadable);
                        return (Filled::Changed, None);
                    }
                }
                // Copied bytes are sent only if they are of the version that the head announced.
                match file.check() {
                    Check::Intact => {}
                    Check::Unsettled => {
                        out.truncate(before);
                        range.start = start;
                        let stretch = (std::sync::Arc::clone(file), start, WARM_CHUNK.min(wanted));
                        return (Filled::Cold, Some(stretch));
                    }
                    Check::Broken(broken) => {
                        send::report_change(file, broken);
                        return (Filled::Changed, None);
                    }
                }
                if range.start == range.end {
                    body.drop_first();
                }
            }
        }
    }
    let filled = if body.is_empty() { Filled::End } else { Filled::More };
    (filled, None)
}

/// Appends bytes of a file that are in the page cache.
fn read(file: &ContentFile, offset: u64, wanted: usize, out: &mut Vec<u8>) -> Result<usize, Errno> {
    let start = out.len();
    out.resize(start + wanted, 0);
    let result = file.read_now(&mut out[start..], offset);
    out.truncate(start + result.unwrap_or(0));
    result
}
