//! Errors in record files.

use std::{fmt, io};

/// Why records cannot be converted to lines.
#[derive(Debug)]
pub(crate) enum RecordError {
    /// The input does not have that format.
    Malformed {
        /// Byte offset of the malformed record: the offset of its length.
        offset: u64,
        /// The fault of the record.
        fault: Fault,
    },
    /// Reading the input or writing the output failed.
    Io(io::Error),
}

/// A fault of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The file ends after the first of a length's two bytes.
    TruncatedLength,
    /// The file ends within the record.
    TruncatedRecord {
        /// The stated length of the record in bytes.
        length: u16,
        /// Number of these bytes that the file contains.
        present: u16,
    },
    /// The record is shorter than the control bytes that each record must have.
    ShortControl {
        /// The length of the record in bytes.
        length: u16,
        /// Number of control bytes that the format requires.
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
