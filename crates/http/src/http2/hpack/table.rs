//! The dynamic table (RFC 7541 §2.3.2, §4).

use std::collections::VecDeque;

use super::{Kind, TABLE_SIZE};

/// Size of an entry beside its text (RFC 7541 §4.1).
pub(super) const OVERHEAD: usize = 32;

/// Fields in the order of insertion; index 0 is the newest. The text of all entries is one allocation, which is
/// compacted from time to time.
#[derive(Debug)]
pub(super) struct Table {
    /// Oldest first.
    entries: VecDeque<Entry>,
    text: Vec<u8>,
    /// Bytes removed from the front of `text` since the start.
    removed: u64,
    size: usize,
    max: usize,
    inserted: u64,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    /// Offset of the text, counted from the start of the connection.
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
            max: TABLE_SIZE,
            inserted: 0,
        }
    }
}

impl Table {
    /// Returns the number of changes since the start. All indices are valid while it is unchanged.
    #[inline]
    pub(super) fn inserted(&self) -> u64 {
        self.inserted
    }

    pub(super) fn max(&self) -> usize {
        self.max
    }

    #[cfg(test)]
    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// Sets the largest total size of the entries, at most [`TABLE_SIZE`].
    pub(super) fn resize(&mut self, max: usize) {
        self.max = max.min(TABLE_SIZE);
        self.evict(0);
        // Eviction changes indices, too.
        self.inserted += 1;
    }

    /// Name, value and classification of the entry with that index.
    #[inline]
    pub(super) fn get(&self, number: usize) -> Option<(&[u8], &[u8], Kind)> {
        let entry = self.entries.get(self.entries.len().checked_sub(number + 1)?)?;
        let (name, value) = self.text_of(entry);
        Some((name, value, entry.kind))
    }

    /// Adds an entry. One that is larger than the table empties it (RFC 7541 §4.4).
    pub(super) fn insert(&mut self, name: &[u8], value: &[u8], hash: u32, kind: Kind) {
        self.inserted += 1;
        let size = name.len() + value.len() + OVERHEAD;
        self.evict(size);
        if size > self.max {
            return;
        }
        if self.text.len() + name.len() + value.len() > 2 * TABLE_SIZE {
            self.compact();
        }
        let at = self.removed + self.text.len() as u64;
        self.text.extend_from_slice(name);
        self.text.extend_from_slice(value);
        // Both lengths fit, since they are smaller than the table.
        let (name, value) = (name.len() as u16, value.len() as u16);
        self.entries.push_back(Entry { at, hash, name, value, kind });
        self.size += size;
    }

    /// Index of the newest entry with that hash and text.
    #[inline]
    pub(super) fn find(&self, hash: u32, name: &[u8], value: &[u8]) -> Option<usize> {
        let same = |entry: &&Entry| entry.hash == hash && self.text_of(entry) == (name, value);
        self.number_of(same)
    }

    /// Index of the newest entry with that name.
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

    /// Evicts entries until `size` bytes are free.
    fn evict(&mut self, size: usize) {
        while self.size + size > self.max {
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

/// Hash of a field. It needs no secret key: a collision costs the client that causes it one comparison.
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
