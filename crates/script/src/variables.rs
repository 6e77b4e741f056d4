//! The variables of a request in one buffer.

use std::cell::Cell;
use std::ffi::OsStr;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;

use dunlin_http::Request;

use super::search_path::search_path;

/// The treatment of a request field that becomes a variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Treatment {
    /// It becomes none.
    Omit,
    /// The value is the same in most requests.
    Keep,
    /// The value is likely to differ in the next request.
    Vary,
}

/// Variables in one buffer.
#[derive(Debug)]
pub(super) struct Variables {
    /// A line for each, `NAME=value`.
    bytes: Vec<u8>,
    entries: Vec<Entry>,
    /// The buffer holds exactly the entries, in their order.
    is_exact: bool,
}

#[derive(Debug)]
struct Entry {
    name: Range<usize>,
    value: Range<usize>,
    /// The value is likely to differ in the next request.
    varies: bool,
}

thread_local! {
    /// The buffers of earlier variables, for reuse.
    static SPARE: Cell<Option<(Vec<u8>, Vec<Entry>)>> = const { Cell::new(None) };
}

/// Size of the largest buffer that is kept.
const KEPT: usize = 64 * 1024;

impl Default for Variables {
    fn default() -> Self {
        let (bytes, entries) = SPARE.take().unwrap_or_default();
        Self { bytes, entries, is_exact: true }
    }
}

impl Drop for Variables {
    fn drop(&mut self) {
        if self.bytes.capacity() <= KEPT {
            self.bytes.clear();
            self.entries.clear();
            SPARE.set(Some((std::mem::take(&mut self.bytes), std::mem::take(&mut self.entries))));
        }
    }
}

impl Variables {
    /// Returns all names and values.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.entries.iter().map(|entry| self.of(entry))
    }

    /// Returns the variables whose values are likely to differ in the next request (`vary`), or the others.
    pub(super) fn which(&self, vary: bool) -> impl Iterator<Item = (&[u8], &[u8])> {
        let entries = self.entries.iter().filter(move |entry| entry.varies == vary);
        entries.map(|entry| self.of(entry))
    }

    fn of(&self, entry: &Entry) -> (&[u8], &[u8]) {
        (&self.bytes[entry.name.clone()], &self.bytes[entry.value.clone()])
    }

    /// Returns the variables as lines, `NAME=value`; `None` if the buffer holds anything else, or a value contains a line
    /// break.
    pub(super) fn lines(&self) -> Option<&[u8]> {
        let ends = memchr::memchr_iter(b'\n', &self.bytes).count();
        let is_plain = self.is_exact && ends == self.entries.len();
        (is_plain && memchr::memchr(b'\r', &self.bytes).is_none()).then_some(&self.bytes)
    }

    /// Returns the variables for the environment of a process.
    pub(super) fn as_texts(&self) -> impl Iterator<Item = (&OsStr, &OsStr)> {
        self.iter().map(|(name, value)| (OsStr::from_bytes(name), OsStr::from_bytes(value)))
    }

    /// Returns the value of a variable.
    pub(super) fn value(&self, name: &str) -> Option<&OsStr> {
        self.as_texts().find(|(known, _)| *known == name).map(|(_, value)| value)
    }

    /// Adds `PATH` unless it is set.
    pub(super) fn add_path(&mut self) {
        if self.value("PATH").is_none() {
            self.add("PATH", search_path().as_bytes());
        }
    }

    /// Adds a variable whose value is likely to be the same in the next request.
    pub(super) fn add(&mut self, name: impl AsRef<[u8]>, value: impl AsRef<[u8]>) {
        self.enter(name.as_ref(), value.as_ref(), false);
    }

    /// Adds a variable whose value is likely to differ in the next request.
    pub(super) fn vary(&mut self, name: impl AsRef<[u8]>, value: impl AsRef<[u8]>) {
        self.enter(name.as_ref(), value.as_ref(), true);
    }

    fn enter(&mut self, name: &[u8], value: &[u8], varies: bool) {
        self.write(name, varies, |bytes| bytes.extend_from_slice(value));
    }

    /// Adds a variable whose value `write` appends.
    pub(super) fn write(
        &mut self,
        name: impl AsRef<[u8]>,
        varies: bool,
        write: impl FnOnce(&mut Vec<u8>),
    ) {
        let name = self.push(name.as_ref());
        self.bytes.push(b'=');
        let start = self.bytes.len();
        write(&mut self.bytes);
        let value = start..self.bytes.len();
        self.bytes.push(b'\n');
        self.entries.push(Entry { name, value, varies });
    }

    /// Drops values with a NUL, which the system rejects. No value of a request holds one, as the engine rejects it.
    pub(super) fn drop_invalid(&mut self) {
        if memchr::memchr(0, &self.bytes).is_none() {
            return;
        }
        let bytes = &self.bytes;
        self.entries.retain(|entry| !bytes[entry.value.clone()].contains(&0));
        self.is_exact = false;
    }

    /// Adds a variable, or replaces the one of this name.
    pub(super) fn replace(&mut self, name: &str, value: impl AsRef<[u8]>, varies: bool) {
        let (bytes, before) = (&self.bytes, self.entries.len());
        self.entries.retain(|entry| bytes[entry.name.clone()] != *name.as_bytes());
        self.is_exact &= self.entries.len() == before;
        self.enter(name.as_bytes(), value.as_ref(), varies);
    }

    fn push(&mut self, bytes: &[u8]) -> Range<usize> {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        start..self.bytes.len()
    }

    /// Adds the request's fields (RFC 3875 §4.1.18), as `classify` decides by their names in lower case.
    pub(super) fn add_fields(
        &mut self,
        request: &Request<'_>,
        classify: impl Fn(&[u8]) -> Treatment,
    ) {
        let first = self.entries.len();
        for (name, value) in request.joined_fields() {
            // With `_`, two fields would become the same variable, and a proxy may check only one of them.
            if !name.iter().all(|&b| b.is_ascii_alphanumeric() || b == b'-') {
                continue;
            }
            let start = self.bytes.len();
            self.bytes.extend_from_slice(b"HTTP_");
            self.bytes.extend_from_slice(name);
            let variable = start..self.bytes.len();
            let name = &mut self.bytes[start + b"HTTP_".len()..];
            name.make_ascii_lowercase();
            let treatment = classify(name);
            if treatment == Treatment::Omit {
                self.bytes.truncate(start);
                continue;
            }
            for byte in name {
                *byte = if *byte == b'-' { b'_' } else { byte.to_ascii_uppercase() };
            }
            let earlier = self.entries[first..]
                .iter()
                .position(|other| self.bytes[other.name.clone()] == self.bytes[variable.clone()]);
            match earlier {
                Some(at) => {
                    let before = &self.bytes[self.entries[first + at].value.clone()];
                    let joined = [before, b", ", &value].concat();
                    self.entries[first + at].value = self.push(&joined);
                    self.is_exact = false;
                }
                None => {
                    self.bytes.push(b'=');
                    let value = self.push(&value);
                    self.bytes.push(b'\n');
                    let varies = treatment == Treatment::Vary;
                    self.entries.push(Entry { name: variable, value, varies });
                }
            }
        }
    }
}
