//! Record formats (VARIABLE, VFC) turned into streams of lines.
//!
//! OpenVMS's record management (RMS) keeps sequential text as records, not lines. On disk a record
//! is a length of two bytes, little-endian, then that many bytes, then one byte of padding where the
//! length is odd, so that each length starts at an even offset. In VFC files (variable with fixed
//! control) the first bytes of each record, as many in every record of the file, hold printer
//! control; they count in the length and are not text.
//!
//! Three cases that the layout leaves open are read as follows:
//! - A length of 0xFFFF (-1) says that the rest of the 512-byte block is unused, as RMS writes it
//!   where records may not span blocks. Reading goes on at the next block; if there is none, the
//!   file ends there.
//! - RMS's own limit is 32,767 bytes a record. Lengths up to 65,534 have one reading only and are
//!   accepted.
//! - The padding of the last record may be missing: some transfer programs cut it off.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::{fmt, process};

use rustix::fs::{
    AtFlags, Mode, OFlags, ResolveFlags, Stat, Timespec, Timestamps, fchmod, fsync, futimens,
    openat, openat2, renameat, unlinkat,
};

/// How the records of a file are laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordFormat {
    /// Each record is text alone.
    Variable,
    /// Each record begins with `control` bytes that are not text.
    Vfc {
        /// Bytes of control in each record; 2 in RMS unless the file says otherwise.
        control: u16,
    },
}

impl RecordFormat {
    fn control(self) -> usize {
        match self {
            Self::Variable => 0,
            Self::Vfc { control } => usize::from(control),
        }
    }
}

/// Why records could not be turned into lines.
#[derive(Debug)]
pub(crate) enum RecordError {
    /// The input is not a file of that format.
    Malformed {
        /// Where the record that is at fault begins: the byte offset of its length.
        offset: u64,
        /// What is wrong with it.
        fault: Fault,
    },
    /// Reading the input or writing the output failed.
    Io(io::Error),
}

/// What is wrong with a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The file ends after the first of a length's two bytes.
    TruncatedLength,
    /// The file ends within the record.
    TruncatedRecord {
        /// The record's length by its own account, in bytes.
        length: u16,
        /// How many of them the file has.
        present: u16,
    },
    /// The record is shorter than the control bytes that each record must have.
    ShortControl {
        /// The record's length, in bytes.
        length: u16,
        /// The control bytes that the format asks for.
        control: u16,
    },
}

impl fmt::Display for RecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed { offset, fault } => {
                write!(f, "malformed record at offset {offset}: {fault}")
            }
            Self::Io(error) => error.fmt(f),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TruncatedLength => f.write_str("the file ends within its length"),
            Self::TruncatedRecord { length, present } => {
                write!(f, "its length is {length} bytes but the file ends after {present}")
            }
            Self::ShortControl { length, control } => {
                write!(f, "its length is {length} bytes, less than the {control} control bytes")
            }
        }
    }
}

impl std::error::Error for RecordError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Malformed { .. } => None,
            Self::Io(error) => Some(error),
        }
    }
}

impl From<io::Error> for RecordError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Writes the text of each record of `input` to `output`, each followed by LF, and returns how many
/// bytes that made.
///
/// Reads and writes in large pieces; neither side needs a buffer of its own.
///
/// # Errors
/// [`RecordError::Malformed`] names the first record that breaks the format. The lines before it may
/// have been written by then, so a caller that must not answer with half a file converts into memory
/// or into a file first.
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
                    length: record.data.len() as u16, // a record's length has 16 bits
                    control: control as u16,          // as it came
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

/// Writes `converted` beside `file` (a path beneath `root`) as `FILE.stmlf`, in one step: a reader
/// sees the whole of it or what was there before, also after a crash.
///
/// `source` says what the file was *before* it was read. The new file gets its permissions and its
/// time of change, so that a source changed meanwhile or later is newer than its lines.
///
/// # Errors
/// Whatever the folder does not let happen; the temporary file is removed again.
pub(crate) fn write_beside(
    root: impl AsFd,
    file: &[u8],
    source: &Stat,
    converted: &mut impl Read,
) -> io::Result<()> {
    let (folder, name) = match memchr::memrchr(b'/', file) {
        Some(slash) => (&file[..slash], &file[slash + 1..]),
        None => (&b"."[..], file),
    };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = openat2(root, folder, flags, Mode::empty(), ResolveFlags::BENEATH)?;
    let temporary = temporary_name();
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let out = openat(&folder, temporary.as_str(), flags, Mode::RUSR | Mode::WUSR)?;
    let placed = fill(out, source, converted).and_then(|()| {
        renameat(&folder, temporary.as_str(), &folder, &*[name, b".stmlf"].concat())?;
        Ok(())
    });
    if let Err(error) = placed {
        // The first error is the one to tell; what cannot be removed stays hidden.
        let _ = unlinkat(&folder, temporary.as_str(), AtFlags::empty());
        return Err(error);
    }
    fsync(&folder)?; // makes the rename last
    Ok(())
}

/// Cuts an input into records. Its buffer holds the longest record whole, so that each is one slice.
struct Records<'a, R: ?Sized> {
    input: &'a mut R,
    buffer: Box<[u8]>,
    /// What of the buffer is read but not yet handed out.
    start: usize,
    end: usize,
    /// The file's offset of `buffer[start]`.
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

    /// What is unread, at least `wanted` bytes unless the input ends first.
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

fn fill(file: OwnedFd, source: &Stat, converted: &mut impl Read) -> io::Result<()> {
    let mut file = File::from(file);
    io::copy(converted, &mut file)?;
    fchmod(&file, Mode::from_raw_mode(source.st_mode & 0o777))?;
    let modified = Timespec { tv_sec: source.st_mtime, tv_nsec: source.st_mtime_nsec as _ };
    futimens(&file, &Timestamps { last_access: modified, last_modification: modified })?;
    fsync(&file)?;
    Ok(())
}

/// Hidden, so that it is never served, and short, so that a long source name leaves room for it.
fn temporary_name() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    format!(".stmlf-{}-{}", process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

const REST_OF_BLOCK_UNUSED: u16 = 0xffff;

/// The size of a block of an OpenVMS volume.
const BLOCK: u64 = 512;

/// More than the longest record with its length and padding, 65,537 bytes.
const BUFFER: usize = 128 * 1024;

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::time::{Duration, SystemTime};

    use proptest::prelude::*;
    use rustix::fs::fstat;

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

    /// The nursery rhyme's first lines, as RMS stores them.
    #[test]
    fn records_become_lines() {
        let image = b"\x0e\0Roses are red,\x11\0Violets are blue,\0\0\0\x03\0You\0";
        let expected = b"Roses are red,\nViolets are blue,\n\nYou\n";
        assert_eq!(lines(image, RecordFormat::Variable).unwrap(), expected);
        assert_eq!(lines(&image[..image.len() - 1], RecordFormat::Variable).unwrap(), expected);
        assert_eq!(lines(b"", RecordFormat::Variable).unwrap(), b"");
    }

    #[test]
    fn control_bytes_are_left_out() {
        let image = b"\x05\0\x01\x8dabc\0\x02\0\x01\x8d";
        assert_eq!(lines(image, RecordFormat::Vfc { control: 2 }).unwrap(), b"abc\n\n");
    }

    #[test]
    fn reading_goes_on_after_the_unused_rest_of_a_block() {
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
    fn faults_name_the_record_that_has_them() {
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
        fn encoding_then_converting_gives_the_lines(
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
        fn any_bytes_give_lines_or_an_offset_within_them(
            image in prop::collection::vec(prop_oneof![Just(0_u8), Just(0xff), 0..9_u8, any::<u8>()], 0..700),
            control in 0_u16..4,
        ) {
            match lines(&image, RecordFormat::Vfc { control }) {
                Ok(output) => prop_assert!(output.len() <= image.len()),
                Err(RecordError::Malformed { offset, .. }) => {
                    prop_assert!(offset < image.len() as u64);
                    // What lies before the offset is whole.
                    let before = lines(&image[..offset as usize], RecordFormat::Vfc { control });
                    prop_assert!(before.is_ok());
                }
                Err(RecordError::Io(error)) => panic!("{error}"),
            }
        }
    }

    /// A reader that gives a few bytes at a time.
    struct Pieces<'a> {
        rest: &'a [u8],
        piece: usize,
    }

    impl Read for Pieces<'_> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let most = into.len().min(self.piece);
            self.rest.read(&mut into[..most])
        }
    }

    #[test]
    fn lines_written_beside_carry_the_source_s_mode_and_time() {
        let folder = tempfile::tempdir().unwrap();
        let sub = folder.path().join("sub");
        fs::create_dir(&sub).unwrap();
        let source = sub.join("REPORT.TXT");
        fs::write(&source, b"\x01\0a\0").unwrap();
        let modified = SystemTime::UNIX_EPOCH + Duration::new(1_000_000_000, 123_000_000);
        let file = File::options().write(true).open(&source).unwrap();
        file.set_modified(modified).unwrap();
        fchmod(&file, Mode::from_raw_mode(0o640)).unwrap();
        let before = fstat(&file).unwrap();
        let directory = File::open(folder.path()).unwrap();
        for text in ["first\n", "a\n"] {
            write_beside(&directory, b"sub/REPORT.TXT", &before, &mut text.as_bytes()).unwrap();
        }
        let beside = sub.join("REPORT.TXT.stmlf");
        assert_eq!(fs::read(&beside).unwrap(), b"a\n");
        let metadata = fs::metadata(&beside).unwrap();
        assert_eq!(metadata.modified().unwrap(), modified);
        assert_eq!(metadata.permissions().mode() & 0o777, 0o640);
        assert_eq!(fs::read_dir(&sub).unwrap().count(), 2, "no temporary file is left");
    }

    #[test]
    fn a_place_that_cannot_be_written_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("X.stmlf")).unwrap();
        let directory = File::open(folder.path()).unwrap();
        let source = fstat(&directory).unwrap();
        write_beside(&directory, b"X", &source, &mut &b"a\n"[..]).unwrap_err();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
