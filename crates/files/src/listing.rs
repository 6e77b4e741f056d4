//! Directory listings as HTML and as JSON, in pages.
//!
//! A directory with at most 2,000 names is read for each request. A larger one is read completely, sorted and kept for a
//! short time ([`cache`]), so that its other pages need the metadata of their own names only.

pub mod cache;
pub(crate) mod contents;
mod json;
mod navigation;
mod nginx;
mod order;
mod page;
mod query;
mod read;
pub mod respond;

use dunlin_http::semantics::date;
use dunlin_http::semantics::path::encode;

/// Maximum number of names on a page.
const PAGE: usize = 2_000;

/// A directory entry.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    name: Vec<u8>,
    directory: bool,
    /// Bytes; 0 for a directory.
    size: u64,
    /// Seconds since 1970, negative before.
    modified: i64,
}

impl Entry {
    /// Returns the relative link to the entry. The prefix `./` prevents that the name is read as a scheme or as an absolute
    /// path.
    fn href(&self) -> String {
        let slash: &[u8] = if self.directory { b"/" } else { b"" };
        encode(&[b"./", &*self.name, slash].concat())
    }

    /// Returns the time of modification as RFC 3339 in UTC.
    fn timestamp(&self) -> String {
        /// Seconds of 2,000 years, after which the calendar repeats.
        const CYCLES: u64 = 5 * 146_097 * 86_400;
        /// The beginning of the year 0, and the end of the year 9999.
        const FIRST: i64 = -62_167_219_200;
        const LAST: i64 = 253_402_300_799;
        let unix = CYCLES.saturating_add_signed(self.modified.clamp(FIRST, LAST));
        let (year, month, day) = date::civil_from_days(unix / 86_400);
        let year = year - 2000;
        let (hour, minute, second) = (unix / 3600 % 24, unix / 60 % 60, unix % 60);
        format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
    }
}

/// One page of a listing.
#[derive(Debug)]
struct Page {
    entries: Vec<Entry>,
    /// From 1.
    number: usize,
    /// The number of pages, at least 1.
    pages: usize,
    /// The totals of all pages.
    listed: Totals,
    /// The number of names in the directory, whether the filter selects them or not.
    names: usize,
    /// The directory has more names than were read.
    truncated: bool,
}

/// The number of entries, and the size of the files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Totals {
    directories: usize,
    files: usize,
    /// Bytes.
    size: u64,
}

impl Totals {
    fn names(&self) -> usize {
        self.directories + self.files
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_1970_are_formatted() {
        for (modified, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (-1, "1969-12-31T23:59:59Z"),
            (-86_400 * 365, "1969-01-01T00:00:00Z"),
            (-2_208_988_800, "1900-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (i64::MIN, "0000-01-01T00:00:00Z"),
            (i64::MAX, "9999-12-31T23:59:59Z"),
        ] {
            let entry = Entry { name: Vec::new(), directory: false, size: 0, modified };
            assert_eq!(entry.timestamp(), text);
        }
    }
}
