//! Zstandard (RFC 8878), part by part.

use std::cell::{Cell, RefCell};
use std::io;
use std::sync::Arc;

use bytes::Bytes;

use zstd::stream::raw::{self, CParameter, InBuffer, Operation, OutBuffer};

use super::Effort;

/// A dictionary, and what content that is coded with it begins with (RFC 9842 §5).
#[derive(Debug)]
pub struct SharedDictionary {
    /// The header.
    pub header: [u8; 40],
    /// The dictionary.
    pub content: Bytes,
}

/// Writes a frame, and another one after each rest. Its content is compressed until [`Zstd::store`].
pub(super) struct Zstd {
    /// The dictionary of the first frame. Decoders may forget it at its end.
    dictionary: Option<Arc<SharedDictionary>>,
    effort: Effort,
    window_log: u32,
    /// `None` between frames.
    encoder: Option<raw::Encoder<'static>>,
    is_stored: bool,
    has_begun: bool,
    has_frame: bool,
    /// The encoder has the dictionary.
    has_dictionary: bool,
}

/// The window for a stream of unknown length, as a power of two.
const WINDOW_LOG: u32 = 16;
/// The tables of a stream, as a power of two. Larger ones save 0.3 % and take 128 KB more.
const TABLE_LOG: u32 = 14;
/// The window for a longer stream of known length.
const LONG_WINDOW_LOG: u32 = 17;
/// The magic number of a frame.
const MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// The magic number of a frame that decoders skip.
const SKIPPED: [u8; 4] = [0x50, 0x2a, 0x4d, 0x18];
/// Bytes of output that one call has room for at least.
const ROOM: usize = 4 << 10;

impl Zstd {
    pub(super) fn new(effort: Effort, length: Option<u64>) -> Self {
        Self {
            dictionary: None,
            effort,
            window_log: window(length),
            encoder: None,
            is_stored: false,
            has_begun: false,
            has_frame: false,
            has_dictionary: false,
        }
    }

    /// Creates an encoder whose output begins with the header of a dictionary.
    pub(super) fn with_dictionary(dictionary: &Arc<SharedDictionary>, effort: Effort) -> Self {
        Self {
            dictionary: Some(Arc::clone(dictionary)),
            window_log: LONG_WINDOW_LOG,
            ..Self::new(effort, None)
        }
    }

    /// Appends what precedes the frame: the header of a dictionary, or padding in a frame of its own.
    pub(super) fn begin(&mut self, padding: Option<usize>, output: &mut Vec<u8>) {
        if std::mem::replace(&mut self.has_begun, true) {
            return;
        }
        if let Some(dictionary) = &self.dictionary {
            output.extend_from_slice(&dictionary.header);
        }
        if let Some(padding) = padding {
            output.extend_from_slice(&SKIPPED);
            output.extend_from_slice(&(padding as u32).to_le_bytes());
            output.resize(output.len() + padding, 0);
        }
    }

    pub(super) fn push(&mut self, input: &[u8], output: &mut Vec<u8>) -> io::Result<()> {
        if self.is_stored {
            // No block may be longer than the window.
            for block in input.chunks(1 << WINDOW_LOG) {
                stored_block(block, false, output);
            }
            return Ok(());
        }
        if input.is_empty() {
            return Ok(());
        }
        if self.encoder.is_none() {
            let is_first = !std::mem::replace(&mut self.has_frame, true);
            self.encoder = Some(match self.dictionary.as_ref().filter(|_| is_first) {
                Some(dictionary) => take_with(dictionary, self.effort)?,
                None => take(self.effort, self.window_log)?,
            });
            self.has_dictionary = is_first && self.dictionary.is_some();
        }
        let Some(encoder) = &mut self.encoder else { return Ok(()) };
        let mut input = InBuffer::around(input);
        while input.pos() < input.src.len() {
            in_room(output, |output| encoder.run(&mut input, output))?;
        }
        Ok(())
    }

    pub(super) fn flush(&mut self, output: &mut Vec<u8>) -> io::Result<()> {
        let Some(encoder) = &mut self.encoder else { return Ok(()) };
        while in_room(output, |output| encoder.flush(output))? > 0 {}
        Ok(())
    }

    /// Ends the frame and releases its memory. More input is another frame.
    pub(super) fn rest(&mut self, output: &mut Vec<u8>) -> io::Result<()> {
        let Some(mut encoder) = self.encoder.take() else { return Ok(()) };
        while in_room(output, |output| encoder.finish(output, true))? > 0 {}
        match self.dictionary.as_ref().filter(|_| std::mem::take(&mut self.has_dictionary)) {
            Some(dictionary) => keep_with(dictionary, self.effort, encoder),
            None if self.effort != Effort::Shared => {
                IDLE.set(Some((self.effort, self.window_log, encoder)));
            }
            None => {}
        }
        Ok(())
    }

    /// Stores what follows in a frame without the length of its content, a checksum and a dictionary.
    pub(super) fn store(&mut self, output: &mut Vec<u8>) -> io::Result<()> {
        self.rest(output)?;
        output.extend_from_slice(&MAGIC);
        output.extend_from_slice(&[0, (self.window_log as u8 - 10) << 3]);
        self.is_stored = true;
        Ok(())
    }

    pub(super) fn finish(mut self, output: &mut Vec<u8>) -> io::Result<()> {
        if !self.has_frame && !self.is_stored {
            self.store(output)?;
        }
        if self.is_stored {
            stored_block(&[], true, output);
        }
        self.rest(output)
    }
}

thread_local! {
    /// An encoder that is used again: a new one takes 9 µs more, a third of the time for 10 KB.
    static IDLE: Cell<Option<(Effort, u32, raw::Encoder<'static>)>> = const { Cell::new(None) };
}

thread_local! {
    /// Encoders that are used again, by the header of their dictionary: a new one takes 0.3 ms to digest 64 KB.
    static WITH_DICTIONARIES: RefCell<Vec<([u8; 40], raw::Encoder<'static>)>> =
        const { RefCell::new(Vec::new()) };
}

/// Encoders with a dictionary that a thread keeps.
const MAX_KEPT: usize = 2;

/// Returns the encoder of a frame with a dictionary. The levels are those of frames without.
fn take_with(
    dictionary: &Arc<SharedDictionary>,
    effort: Effort,
) -> io::Result<raw::Encoder<'static>> {
    if effort != Effort::Shared {
        let kept = WITH_DICTIONARIES.with_borrow_mut(|all| {
            let at = all.iter().position(|(header, _)| *header == dictionary.header)?;
            Some(all.swap_remove(at).1)
        });
        if let Some(mut encoder) = kept {
            encoder.reinit()?;
            return Ok(encoder);
        }
    }
    let level = if effort == Effort::Shared { 9 } else { 3 };
    let mut encoder = raw::Encoder::with_dictionary(level, &dictionary.content)?;
    encoder.set_parameter(CParameter::WindowLog(LONG_WINDOW_LOG))?;
    Ok(encoder)
}

fn keep_with(dictionary: &Arc<SharedDictionary>, effort: Effort, encoder: raw::Encoder<'static>) {
    if effort == Effort::Shared {
        return;
    }
    WITH_DICTIONARIES.with_borrow_mut(|all| {
        if all.len() >= MAX_KEPT {
            all.remove(0);
        }
        all.push((dictionary.header, encoder));
    });
}

/// Returns the encoder of a frame, which does not state its length: a rest may end it early.
fn take(effort: Effort, window_log: u32) -> io::Result<raw::Encoder<'static>> {
    let idle = IDLE.take().filter(|(other, log, _)| (*other, *log) == (effort, window_log));
    if let Some((_, _, mut encoder)) = idle {
        encoder.reinit()?;
        return Ok(encoder);
    }
    let mut encoder = raw::Encoder::new(match effort {
        Effort::Least => 1,
        Effort::Normal => 3,
        Effort::Shared => 9,
    })?;
    encoder.set_parameter(CParameter::WindowLog(window_log))?;
    if effort != Effort::Shared {
        encoder.set_parameter(CParameter::HashLog(TABLE_LOG))?;
        encoder.set_parameter(CParameter::ChainLog(TABLE_LOG))?;
    }
    Ok(encoder)
}

/// Calls `encode` with room for output behind what `output` has.
fn in_room(
    output: &mut Vec<u8>,
    encode: impl FnOnce(&mut OutBuffer<'_, Vec<u8>>) -> io::Result<usize>,
) -> io::Result<usize> {
    output.reserve(ROOM);
    let at = output.len();
    encode(&mut OutBuffer::around_pos(output, at))
}

/// Appends a raw block (RFC 8878 §3.1.1.2).
fn stored_block(content: &[u8], is_last: bool, output: &mut Vec<u8>) {
    let head = (content.len() as u32) << 3 | u32::from(is_last);
    output.extend_from_slice(&head.to_le_bytes()[..3]);
    output.extend_from_slice(content);
}

/// Returns the logarithm of the window. There are few of them, so that encoders can be used again.
fn window(length: Option<u64>) -> u32 {
    let is_long = length.is_some_and(|length| length > 1 << WINDOW_LOG);
    if is_long { LONG_WINDOW_LOG } else { WINDOW_LOG }
}

/// Returns an estimate of the bytes of memory for a stream with a dictionary of that length, which the encoder copies and digests into
/// tables.
pub(super) fn memory_with(dictionary: usize) -> usize {
    3 * (1 << LONG_WINDOW_LOG) + 4 * dictionary + (512 << 10)
}

/// Returns an estimate of the bytes of memory for a stream: the window and a block of input, a block of output, what is known of a
/// block, and two tables of 32-bit indexes.
pub(super) fn memory(length: Option<u64>) -> usize {
    let window_log = window(length);
    3 * (1 << window_log) + (8 << TABLE_LOG) + (48 << 10)
}
