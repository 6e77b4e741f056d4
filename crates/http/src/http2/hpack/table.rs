//! The dynamic table (RFC 7541 §2.3.2, §4).

use std::collections::VecDeque;

use super::{Kind, TABLE_SIZE};

/// What an entry costs besides its text (RFC 7541 §4.1).
pub(super) const OVERHEAD: usize = 32;

/// Fields in the order of their insertion, the newest first in numbering. Their text stands in one
/// block of memory, which grows with use and is moved together now and then.
#[derive(Debug)]
pub(super) struct Table {
    /// The oldest first.
    entries: VecDeque<Entry>,
    text: Vec<u8>,
    /// What was removed from the front of `text` since the start.
    removed: u64,
    size: usize,
    most: usize,
    inserted: u64,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    /// Where its text begins, counted from the start of the connection.
    at: u64,
    hash: u32,
    name: u16,
    value: u16,
    kind: Kind,
}

impl Default for Table {
    fn default() -> Self {
        Self {
            entries: VecDeque::new(),
            text: Vec::new(),
            removed: 0,
            size: 0,
            most: TABLE_SIZE,
            inserted: 0,
        }
    }
}

impl Table {
    /// How many entries there were since the start: while this stays the same, so do all indices.
    #[inline]
    pub(super) fn inserted(&self) -> u64 {
        self.inserted
    }

    pub(super) fn most(&self) -> usize {
        self.most
    }

    #[cfg(test)]
    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// Sets the size that entries may have together, at most [`TABLE_SIZE`].
    pub(super) fn resize(&mut self, most: usize) {
        self.most = most.min(TABLE_SIZE);
        self.evict(0);
        // Indices change by eviction too, and whoever remembers some has to look again.
        self.inserted += 1;
    }

    /// The entry of that number, the newest being 0: name, value and what it is.
    #[inline]
    pub(super) fn get(&self, number: usize) -> Option<(&[u8], &[u8], Kind)> {
        let entry = self.entries.get(self.entries.len().checked_sub(number + 1)?)?;
        let (name, value) = self.text_of(entry);
        Some((name, value, entry.kind))
    }

    /// Adds an entry; one that is larger than the table only empties it (RFC 7541 §4.4).
    pub(super) fn insert(&mut self, name: &[u8], value: &[u8], hash: u32, kind: Kind) {
        self.inserted += 1;
        let size = name.len() + value.len() + OVERHEAD;
        self.evict(size);
        if size > self.most {
            return;
        }
        if self.text.len() + name.len() + value.len() > 2 * TABLE_SIZE {
            self.compact();
        }
        let at = self.removed + self.text.len() as u64;
        self.text.extend_from_slice(name);
        self.text.extend_from_slice(value);
        // Both fit: they are shorter than the table.
        let (name, value) = (name.len() as u16, value.len() as u16);
        self.entries.push_back(Entry { at, hash, name, value, kind });
        self.size += size;
    }

    /// The number of the newest entry with that hash and text.
    #[inline]
    pub(super) fn find(&self, hash: u32, name: &[u8], value: &[u8]) -> Option<usize> {
        let same = |entry: &&Entry| entry.hash == hash && self.text_of(entry) == (name, value);
        self.number_of(same)
    }

    /// The number of the newest entry of that name.
    pub(super) fn find_name(&self, name: &[u8]) -> Option<usize> {
        self.number_of(|entry| {
            usize::from(entry.name) == name.len() && self.text_of(entry).0 == name
        })
    }

    #[inline]
    fn number_of(&self, same: impl FnMut(&&Entry) -> bool) -> Option<usize> {
        let mut same = same;
        self.entries.iter().rev().position(|entry| same(&entry))
    }

    #[inline]
    fn text_of(&self, entry: &Entry) -> (&[u8], &[u8]) {
        let start = (entry.at - self.removed) as usize;
        let middle = start + usize::from(entry.name);
        (&self.text[start..middle], &self.text[middle..middle + usize::from(entry.value)])
    }

    /// Makes room for `size` bytes.
    fn evict(&mut self, size: usize) {
        while self.size + size > self.most {
            let Some(oldest) = self.entries.pop_front() else { return };
            self.size -= usize::from(oldest.name) + usize::from(oldest.value) + OVERHEAD;
        }
    }

    fn compact(&mut self) {
        let start = match self.entries.front() {
            Some(oldest) => (oldest.at - self.removed) as usize,
            None => self.text.len(),
        };
        self.text.drain(..start);
        self.removed += start as u64;
    }
}

/// A number that equal fields share. It is not secret: whom a collision would slow down is the
/// client that brought it about, by one comparison.
#[inline]
pub(super) fn hash(name: &[u8], value: &[u8]) -> u32 {
    const PRIME: u64 = 0x9e37_79b9_7f4a_7c15;
    let mix = |state: u64, text: &[u8]| {
        let (chunks, rest) = text.as_chunks::<8>();
        let state = chunks.iter().fold(state ^ text.len() as u64, |state, chunk| {
            (state ^ u64::from_le_bytes(*chunk)).wrapping_mul(PRIME).rotate_left(29)
        });
        rest.iter().fold(state, |state, &byte| {
            (state ^ u64::from(byte)).wrapping_mul(PRIME).rotate_left(29)
        })
    };
    (mix(mix(PRIME, name), value) >> 32) as u32
}
