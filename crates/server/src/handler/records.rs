//! Files of records, as OpenVMS keeps text, turned into streams of lines.
//!
//! A file is a sequence of records. Each begins with its length, two bytes, the low one first; its
//! bytes follow, and one more when the length is odd, so that every record begins at an even
//! offset. In VFC format ("variable with fixed-length control") the first bytes of each record are
//! a control header that is no part of the text. A length of 65535 stands where no record follows.

use std::fmt;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsFd;

use rustix::fs::{Mode, OFlags, ResolveFlags, fchmod, fsync, openat, openat2, renameat, unlinkat};

/// How records are laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordFormat {
    /// Length and text.
    Variable,
    /// Length, a control header of so many bytes, and text.
    Vfc {
        /// Bytes of the control header.
        control: u16,
    },
}

/// Why a file could not be converted.
#[derive(Debug)]
pub(crate) enum RecordError {
    /// The file ends within the record that begins at this offset.
    Cut {
        offset: u64,
    },
    /// The record at this offset is shorter than its control header.
    Short {
        offset: u64,
    },
    Io(io::Error),
}

impl fmt::Display for RecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cut { offset } => write!(f, "the record at offset {offset} is cut off"),
            Self::Short { offset } => {
                write!(f, "the record at offset {offset} is shorter than its control header")
            }
            Self::Io(error) => error.fmt(f),
        }
    }
}

impl From<io::Error> for RecordError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

const END: u16 = u16::MAX;

/// Writes the text of each record with a newline behind it and returns how many bytes that is.
/// Both sides should be buffered.
///
/// # Errors
/// A [`RecordError`] that names the offset of the record that is malformed.
pub(crate) fn convert(
    input: &mut impl Read,
    format: RecordFormat,
    output: &mut impl Write,
) -> Result<u64, RecordError> {
    let control = match format {
        RecordFormat::Variable => 0,
        RecordFormat::Vfc { control } => usize::from(control),
    };
    let mut record = [0; END as usize + 2];
    let (mut offset, mut written) = (0, 0);
    loop {
        let cut = |error: io::Error| match error.kind() {
            ErrorKind::UnexpectedEof => RecordError::Cut { offset },
            _ => RecordError::Io(error),
        };
        let mut prefix = [0; 2];
        if input.read(&mut prefix[..1])? == 0 {
            return Ok(written);
        }
        input.read_exact(&mut prefix[1..]).map_err(cut)?;
        let length = u16::from_le_bytes(prefix);
        if length == END {
            return Ok(written);
        }
        let length = usize::from(length);
        input.read_exact(&mut record[..length]).map_err(cut)?;
        if length % 2 == 1 {
            // The last record of a file may lack the byte that only fills up.
            let mut pad = [0];
            let _ = input.read(&mut pad)?;
        }
        if length < control {
            return Err(RecordError::Short { offset });
        }
        record[length] = b'\n';
        output.write_all(&record[control..=length])?;
        written += (length - control + 1) as u64;
        offset += 2 + (length + length % 2) as u64;
    }
}

/// Writes `converted` beside `file` (a path beneath `root`) under the name `FILE.stmlf`, whole or
/// not at all.
///
/// # Errors
/// Whatever the folder does not let happen.
pub(crate) fn write_beside(
    root: &impl AsFd,
    file: &[u8],
    source: &File,
    converted: &mut impl Read,
) -> io::Result<()> {
    let slash = memchr::memrchr(b'/', file);
    let (folder, name) = match slash {
        Some(slash) => (&file[..slash], &file[slash + 1..]),
        None => (&b"."[..], file),
    };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = openat2(root, folder, flags, Mode::empty(), ResolveFlags::BENEATH)?;
    let target = [name, b".stmlf"].concat();
    let temporary = [b".", name, format!(".{}.tmp", std::process::id()).as_bytes()].concat();
    let flags =
        OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut out = File::from(openat(&folder, &*temporary, flags, Mode::from_raw_mode(0o600))?);
    let result = io::copy(converted, &mut out).and_then(|_| {
        let mode = rustix::fs::fstat(source)?.st_mode & 0o777;
        fchmod(&out, Mode::from_raw_mode(mode))?;
        fsync(&out)?;
        renameat(&folder, &*temporary, &folder, &*target)?;
        Ok(())
    });
    if result.is_err() {
        // The first error is the one to tell.
        let _ = unlinkat(&folder, &*temporary, rustix::fs::AtFlags::empty());
    }
    result
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn encode(records: &[Vec<u8>], control: usize) -> Vec<u8> {
        let mut file = Vec::new();
        for record in records {
            let length = (record.len() + control) as u16;
            file.extend_from_slice(&length.to_le_bytes());
            file.resize(file.len() + control, 0x8d);
            file.extend_from_slice(record);
            file.resize(file.len().next_multiple_of(2), 0);
        }
        file
    }

    fn converted(file: &[u8], format: RecordFormat) -> Result<Vec<u8>, String> {
        let mut output = Vec::new();
        let written =
            convert(&mut &*file, format, &mut output).map_err(|error| error.to_string())?;
        assert_eq!(written, output.len() as u64);
        Ok(output)
    }

    #[test]
    fn malformed_files_are_told_of_by_offset() {
        let good = encode(&[b"one".to_vec()], 0);
        let with = |tail: &[u8]| converted(&[&good, tail].concat(), RecordFormat::Variable);
        assert_eq!(with(b"\xff\xffrest"), Ok(b"one\n".to_vec()));
        assert_eq!(with(b"\x05"), Err("the record at offset 6 is cut off".into()));
        assert_eq!(with(b"\x05\x00abc"), Err("the record at offset 6 is cut off".into()));
        assert_eq!(with(b"\x03\x00abc"), Ok(b"one\nabc\n".to_vec()));
        assert_eq!(
            converted(b"\x01\x00a\0", RecordFormat::Vfc { control: 2 }),
            Err("the record at offset 0 is shorter than its control header".into())
        );
    }

    proptest! {
        #[test]
        fn records_become_lines(
            records in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), 0..20),
            control in 0_usize..5,
        ) {
            let file = encode(&records, control);
            let expected: Vec<u8> = records.iter().flat_map(|r| [r.as_slice(), b"\n"].concat()).collect();
            let format = RecordFormat::Vfc { control: control as u16 };
            prop_assert_eq!(converted(&file, format), Ok(expected));
        }

        #[test]
        fn no_file_does_harm(file: Vec<u8>, control: u16) {
            let _ = converted(&file, RecordFormat::Vfc { control });
        }
    }
}
