//! Brotli (RFC 7932), part by part.

use std::io::{self, Write};

use brotli::CompressorWriter;
use brotli::enc::BrotliEncoderParams;

use super::Effort;

/// Writes a stream. Its content is compressed until [`Brotli::store`].
pub(super) struct Brotli {
    parameters: BrotliEncoderParams,
    /// `None` until there is input, and at a boundary of bytes after a rest.
    writer: Option<Box<CompressorWriter<Vec<u8>>>>,
    is_stored: bool,
    /// The output has the head of the stream.
    has_begun: bool,
}

/// The window.
const WINDOW_LOG: i32 = 16;
/// Size of the buffer of the writer in bytes.
const BUFFER: usize = 4 << 10;
/// The head of a stream with a window of 2^16 bytes, and an empty meta-block of metadata up to the next boundary of bytes.
const HEAD: u8 = 0b1100;
/// A stream without content: the head and the last meta-block.
const EMPTY: u8 = 0b110;
/// The last, empty meta-block, at a boundary of bytes.
const LAST: u8 = 3;
/// The length of a meta-block that is stored.
const STORED: usize = 1 << 16;
/// Bytes of padding that one meta-block has room for.
pub(super) const MAX_PADDING: usize = 1 << 16;

impl Brotli {
    pub(super) fn new(effort: Effort, length: Option<u64>) -> Self {
        let parameters = BrotliEncoderParams {
            quality: match effort {
                Effort::Least => 0,
                Effort::Normal => 2,
                Effort::Shared => 5,
            },
            // With a smaller window, quality 5 takes another way that is slower and takes 30 MB.
            lgwin: if effort == Effort::Shared { 18 } else { WINDOW_LOG },
            size_hint: length.and_then(|length| usize::try_from(length).ok()).unwrap_or(0),
            ..Default::default()
        };
        Self { parameters, writer: None, is_stored: false, has_begun: false }
    }

    pub(super) fn push(&mut self, input: &[u8], output: &mut Vec<u8>) -> io::Result<()> {
        if self.is_stored {
            stored_blocks(input, output);
            return Ok(());
        }
        if input.is_empty() {
            return Ok(());
        }
        let Self { parameters, writer, .. } = self;
        let writer = writer.get_or_insert_with(|| {
            Box::new(CompressorWriter::with_params(Vec::new(), BUFFER, parameters))
        });
        writer.write_all(input)?;
        output.append(writer.get_mut());
        Ok(())
    }

    pub(super) fn flush(&mut self, output: &mut Vec<u8>) -> io::Result<()> {
        let Some(writer) = &mut self.writer else { return Ok(()) };
        self.has_begun = true;
        writer.flush()?;
        output.append(writer.get_mut());
        Ok(())
    }

    /// Releases the memory until there is more input. What another encoder appends then refers to nothing before it.
    pub(super) fn rest(&mut self, output: &mut Vec<u8>) -> io::Result<()> {
        self.flush(output)?;
        // What the writer would end the stream with is dropped with it.
        self.writer = None;
        if self.has_begun {
            (self.parameters.catable, self.parameters.bare_stream) = (true, true);
        }
        Ok(())
    }

    /// Stores what follows.
    pub(super) fn store(&mut self, output: &mut Vec<u8>) -> io::Result<()> {
        self.rest(output)?;
        if !std::mem::replace(&mut self.has_begun, true) {
            output.push(HEAD);
        }
        self.is_stored = true;
        Ok(())
    }

    pub(super) fn finish(mut self, padding: Option<usize>, output: &mut Vec<u8>) -> io::Result<()> {
        let padding = padding.filter(|&padding| padding > 0);
        if padding.is_some() || self.has_begun && self.parameters.bare_stream {
            self.store(output)?;
        }
        if let Some(padding) = padding {
            metadata_block(padding.min(MAX_PADDING), output);
        }
        match self.writer {
            Some(writer) => output.append(&mut writer.into_inner()),
            None if self.has_begun => output.push(LAST),
            None => output.push(EMPTY),
        }
        Ok(())
    }
}

/// Returns an estimate of the bytes of memory.
pub(super) fn memory(effort: Effort) -> usize {
    match effort {
        Effort::Least => 192 << 10,
        Effort::Normal => 720 << 10,
        Effort::Shared => 2200 << 10,
    }
}

/// Appends uncompressed meta-blocks (RFC 7932 §9.2), at a boundary of bytes.
fn stored_blocks(input: &[u8], output: &mut Vec<u8>) {
    for block in input.chunks(STORED) {
        // Not the last one, four nibbles of length, uncompressed.
        let head = (block.len() as u32 - 1) << 3 | 1 << 19;
        output.extend_from_slice(&head.to_le_bytes()[..3]);
        output.extend_from_slice(block);
    }
}

/// Appends a meta-block of metadata, which decoders skip, at a boundary of bytes.
fn metadata_block(length: usize, output: &mut Vec<u8>) {
    let length_less_one = length as u32 - 1;
    // Not the last one, no nibbles of length, a reserved bit, one or two bytes of length: the second one must not be 0.
    let (head, bytes) = match length_less_one {
        short @ ..256 => (0b01_0110 | short << 6, 2),
        long => (0b10_0110 | long << 6, 3),
    };
    output.extend_from_slice(&head.to_le_bytes()[..bytes]);
    output.resize(output.len() + length, 0);
}
