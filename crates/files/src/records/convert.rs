//! The conversion of records to lines.

use std::io::{self, Read, Write};

use super::error::{Fault, RecordError};
use dunlin_config::RecordFormat;

/// Writes the text of each record of `input`, followed by LF, to `output`. Returns the number of bytes written.
///
/// It reads and writes in large pieces, so neither side needs a buffer.
///
/// # Errors
/// [`RecordError::Malformed`] names the first record that breaks the format. `output` may contain the lines before it, so
/// a caller that must not send an incomplete file converts into memory or into a temporary file.
pub(crate) fn convert<R: Read + ?Sized, W: Write + ?Sized>(
    input: &mut R,
    format: RecordFormat,
    output: &mut W,
) -> Result<u64, RecordError> {
    let control = format.control();
    let mut records = Records::new(input);
    let mut lines = Vec::with_capacity(BUFFER);
    let mut written = 0;
    while let Some(record) = records.next()? {
        let Some(text) = record.data.get(control..) else {
            return Err(RecordError::Malformed {
                offset: record.offset,
                fault: Fault::ShortControl {
                    length: record.data.len() as u16, // a length has 16 bits
                    control: control as u16,          // from 16 bits
                },
            });
        };
        lines.extend_from_slice(text);
        lines.push(b'\n');
        if lines.len() >= BUFFER / 2 {
            output.write_all(&lines)?;
            written += lines.len() as u64;
            lines.clear();
        }
    }
    output.write_all(&lines)?;
    Ok(written + lines.len() as u64)
}

/// Splits an input into records. The buffer has room for the longest record, so that each record is one slice.
struct Records<'a, R: ?Sized> {
    input: &'a mut R,
    buffer: Box<[u8]>,
    /// Start of the unread part of the buffer.
    start: usize,
    /// End of the unread part.
    end: usize,
    /// Offset of `buffer[start]` in the file.
    offset: u64,
    at_end: bool,
}

struct Record<'a> {
    offset: u64,
    data: &'a [u8],
}

impl<'a, R: Read + ?Sized> Records<'a, R> {
    fn new(input: &'a mut R) -> Self {
        Self {
            input,
            buffer: vec![0; BUFFER].into_boxed_slice(),
            start: 0,
            end: 0,
            offset: 0,
            at_end: false,
        }
    }

    fn next(&mut self) -> Result<Option<Record<'_>>, RecordError> {
        let length = loop {
            match self.peek(2)? {
                &[low, high, ..] => match u16::from_le_bytes([low, high]) {
                    REST_OF_BLOCK_UNUSED => self.skip_to_next_block()?,
                    length => break length,
                },
                [] => return Ok(None),
                [_] => return Err(self.malformed(Fault::TruncatedLength)),
            }
        };
        let size = usize::from(length);
        let held = self.peek(2 + size)?.len();
        if held < 2 + size {
            let present = (held - 2) as u16; // less than `length`
            return Err(self.malformed(Fault::TruncatedRecord { length, present }));
        }
        let padded = 2 + size + size % 2;
        let padded = self.peek(padded)?.len().min(padded); // the last record's padding may be missing
        let record = Record {
            offset: self.offset,
            data: &self.buffer[self.start + 2..self.start + 2 + size],
        };
        self.start += padded;
        self.offset += padded as u64;
        Ok(Some(record))
    }

    /// Returns the unread part of the buffer: at least `wanted` bytes unless the input ends before.
    #[inline]
    fn peek(&mut self, wanted: usize) -> io::Result<&[u8]> {
        if self.end - self.start < wanted && !self.at_end {
            self.fill(wanted)?;
        }
        Ok(&self.buffer[self.start..self.end])
    }

    fn fill(&mut self, wanted: usize) -> io::Result<()> {
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        while self.end < wanted {
            match self.input.read(&mut self.buffer[self.end..]) {
                Ok(0) => {
                    self.at_end = true;
                    break;
                }
                Ok(read) => self.end += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn skip_to_next_block(&mut self) -> io::Result<()> {
        let length = (BLOCK - self.offset % BLOCK) as usize; // at most 512
        let skipped = self.peek(length)?.len().min(length);
        self.start += skipped;
        self.offset += skipped as u64;
        Ok(())
    }

    fn malformed(&self, fault: Fault) -> RecordError {
        RecordError::Malformed { offset: self.offset, fault }
    }
}

/// The length that marks the rest of a block as unused.
const REST_OF_BLOCK_UNUSED: u16 = 0xffff;

/// Block size of OpenVMS volumes in bytes.
const BLOCK: u64 = 512;

/// Exceeds the longest record with its length and padding (65,537 bytes).
const BUFFER: usize = 128 * 1024;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Appends a record to a file's image, padded as RMS does.
    fn push_record(image: &mut Vec<u8>, control: &[u8], text: &[u8]) {
        let length = control.len() + text.len();
        assert!(length < usize::from(REST_OF_BLOCK_UNUSED));
        image.extend_from_slice(&(length as u16).to_le_bytes());
        image.extend_from_slice(control);
        image.extend_from_slice(text);
        if length % 2 == 1 {
            image.push(0);
        }
    }

    fn lines(image: &[u8], format: RecordFormat) -> Result<Vec<u8>, RecordError> {
        let mut output = Vec::new();
        let count = convert(&mut &image[..], format, &mut output)?;
        assert_eq!(count, output.len() as u64);
        Ok(output)
    }

    fn fault(image: &[u8], format: RecordFormat) -> (u64, Fault) {
        match lines(image, format) {
            Err(RecordError::Malformed { offset, fault }) => (offset, fault),
            other => panic!("{other:?}"),
        }
    }

    /// Lines as RMS stores them.
    #[test]
    fn records_become_lines() {
        let image = b"\x0e\0Roses are red,\x11\0Violets are blue,\0\0\0\x03\0You\0";
        let expected = b"Roses are red,\nViolets are blue,\n\nYou\n";
        assert_eq!(lines(image, RecordFormat::Variable).unwrap(), expected);
        assert_eq!(lines(&image[..image.len() - 1], RecordFormat::Variable).unwrap(), expected);
        assert_eq!(lines(b"", RecordFormat::Variable).unwrap(), b"");
    }

    #[test]
    fn control_bytes_are_omitted() {
        let image = b"\x05\0\x01\x8dabc\0\x02\0\x01\x8d";
        assert_eq!(lines(image, RecordFormat::Vfc { control: 2 }).unwrap(), b"abc\n\n");
    }

    #[test]
    fn reading_continues_after_the_unused_rest_of_a_block() {
        let mut image = Vec::new();
        push_record(&mut image, b"", &[b'a'; 400]);
        image.extend_from_slice(&[0xff, 0xff]);
        image.resize(512, 0x55);
        push_record(&mut image, b"", &[b'b'; 508]);
        image.extend_from_slice(&[0xff, 0xff]); // exactly the last two bytes of its block
        push_record(&mut image, b"", b"c");
        image.extend_from_slice(&[0xff, 0xff]); // nothing follows
        let expected = [&[b'a'; 400][..], b"\n", &[b'b'; 508], b"\nc\n"].concat();
        assert_eq!(image.len(), 512 + 512 + 4 + 2);
        assert_eq!(lines(&image, RecordFormat::Variable).unwrap(), expected);
    }

    #[test]
    fn errors_name_the_malformed_record() {
        let variable = RecordFormat::Variable;
        assert_eq!(fault(b"\x02\0ab\x01", variable), (4, Fault::TruncatedLength));
        assert_eq!(
            fault(b"\x01\0a\0\x09\0abc", variable),
            (4, Fault::TruncatedRecord { length: 9, present: 3 })
        );
        assert_eq!(
            fault(b"\x02\0ab\x01\0a\0", RecordFormat::Vfc { control: 2 }),
            (4, Fault::ShortControl { length: 1, control: 2 })
        );
        let error = lines(b"\x09\0abc", variable).unwrap_err();
        assert_eq!(
            error.to_string(),
            "malformed record at offset 0: its length is 9 bytes but the file ends after 3"
        );
    }

    proptest! {
        #[test]
        fn conversion_restores_encoded_lines(
            texts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..60), 0..20),
            long in prop::option::of(60_000_usize..65_530),
            control in 0_u16..5,
            piece in 100_usize..5000,
        ) {
            let texts = texts.into_iter().chain(long.map(|length| vec![b'x'; length]));
            let (mut image, mut expected) = (Vec::new(), Vec::new());
            for text in texts {
                push_record(&mut image, &vec![7; usize::from(control)], &text);
                expected.extend_from_slice(&text);
                expected.push(b'\n');
            }
            let mut output = Vec::new();
            let mut input = Pieces { rest: &image, piece };
            convert(&mut input, RecordFormat::Vfc { control }, &mut output).unwrap();
            prop_assert_eq!(output, expected);
        }

        #[test]
        fn any_bytes_give_lines_or_an_offset_within_the_input(
            image in prop::collection::vec(prop_oneof![Just(0_u8), Just(0xff), 0..9_u8, any::<u8>()], 0..700),
            control in 0_u16..4,
        ) {
            match lines(&image, RecordFormat::Vfc { control }) {
                Ok(output) => prop_assert!(output.len() <= image.len()),
                Err(RecordError::Malformed { offset, .. }) => {
                    prop_assert!(offset < image.len() as u64);
                    // The records before the offset are complete.
                    let before = lines(&image[..offset as usize], RecordFormat::Vfc { control });
                    prop_assert!(before.is_ok());
                }
                Err(RecordError::Io(error)) => panic!("{error}"),
            }
        }
    }

    /// A reader that returns a few bytes at a time.
    struct Pieces<'a> {
        rest: &'a [u8],
        piece: usize,
    }

    impl Read for Pieces<'_> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let max = into.len().min(self.piece);
            self.rest.read(&mut into[..max])
        }
    }
}
