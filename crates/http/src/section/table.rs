//! The dynamic table (RFC 7541 §2.3.2, §4; RFC 9204 §3.2).

use std::collections::VecDeque;

use super::Kind;

/// Size of an entry beside its text (RFC 7541 §4.1, RFC 9204 §3.2.1).
pub(crate) const OVERHEAD: usize = 32;

/// Fields in the order of insertion. The text of all entries is one allocation, which is compacted from time to time.
#[derive(Debug)]
pub(crate) struct Table {
    /// Oldest first.
    entries: VecDeque<Entry>,
    text: Vec<u8>,
    /// Bytes removed from the front of `text` since the start.
    removed: u64,
    size: usize,
    max: usize,
    /// Bound of `max`.
    limit: usize,
    /// Number of entries that were evicted since the start.
    evicted: u64,
    changes: u64,
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

impl Entry {
    fn size(&self) -> usize {
        usize::from(self.name) + usize::from(self.value) + OVERHEAD
    }
}

impl Table {
    /// Creates an empty table for at most `limit` bytes, which is less than 64 KB.
    pub(crate) fn new(limit: usize) -> Self {
        debug_assert!(limit <= usize::from(u16::MAX));
        Self {
            entries: VecDeque::new(),
            text: Vec::new(),
            removed: 0,
            size: 0,
            max: limit,
            limit,
            evicted: 0,
            changes: 0,
        }
    }

    /// Returns the number of changes since the start. All indices are valid while it is unchanged.
    #[inline]
    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    pub(crate) fn max(&self) -> usize {
        self.max
    }

    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// Number of entries that were inserted since the start: the absolute index of the next one (RFC 9204 §3.2.4).
    #[inline]
    pub(crate) fn inserted(&self) -> u64 {
        self.evicted + self.entries.len() as u64
    }

    /// The absolute index of the oldest entry.
    #[inline]
    pub(crate) fn oldest(&self) -> u64 {
        self.evicted
    }

    /// Sets the largest total size of the entries, within the limit.
    pub(crate) fn resize(&mut self, max: usize) {
        self.max = max.min(self.limit);
        self.evict(0);
        // Eviction changes indices, too.
        self.changes += 1;
    }

    /// Name, value and classification of the entry with that index; the newest has the index 0.
    #[inline]
    pub(crate) fn get(&self, number: usize) -> Option<(&[u8], &[u8], Kind)> {
        let entry = self.entries.get(self.entries.len().checked_sub(number + 1)?)?;
        let (name, value) = self.text_of(entry);
        Some((name, value, entry.kind))
    }

    /// Name, value and classification of the entry with that absolute index.
    #[inline]
    pub(crate) fn get_absolute(&self, index: u64) -> Option<(&[u8], &[u8], Kind)> {
        let entry = self.entries.get(usize::try_from(index.checked_sub(self.evicted)?).ok()?)?;
        let (name, value) = self.text_of(entry);
        Some((name, value, entry.kind))
    }

    /// Returns the hash of the entry with that absolute index.
    pub(crate) fn hash_of(&self, index: u64) -> Option<u32> {
        let number = usize::try_from(index.checked_sub(self.evicted)?).ok()?;
        self.entries.get(number).map(|entry| entry.hash)
    }

    /// Returns the number of the oldest entries that an entry of `size` bytes evicts.
    pub(crate) fn evictions_for(&self, size: usize) -> u64 {
        let (mut left, mut count) = (self.size, 0);
        for entry in &self.entries {
            if left + size <= self.max {
                break;
            }
            left -= entry.size();
            count += 1;
        }
        count
    }

    /// Adds an entry. One that is larger than the table empties it (RFC 7541 §4.4).
    pub(crate) fn insert(&mut self, name: &[u8], value: &[u8], hash: u32, kind: Kind) {
        self.changes += 1;
        let size = name.len() + value.len() + OVERHEAD;
        self.evict(size);
        if size > self.max {
            return;
        }
        if self.text.len() + name.len() + value.len() > 2 * self.limit {
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
    pub(crate) fn find(&self, hash: u32, name: &[u8], value: &[u8]) -> Option<usize> {
        let same = |entry: &&Entry| entry.hash == hash && self.text_of(entry) == (name, value);
        self.number_of(same)
    }

    /// Index of the newest entry with that name.
    pub(crate) fn find_name(&self, name: &[u8]) -> Option<usize> {
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
            self.size -= oldest.size();
            self.evicted += 1;
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
pub(crate) const fn hash(name: &[u8], value: &[u8]) -> u32 {
    (mix(mix(PRIME, name), value) >> 32) as u32
}

const PRIME: u64 = 0x9e37_79b9_7f4a_7c15;

const fn mix(state: u64, text: &[u8]) -> u64 {
    let (mut state, mut rest) = (state ^ text.len() as u64, text);
    while let Some((chunk, next)) = rest.split_first_chunk::<8>() {
        state = (state ^ u64::from_le_bytes(*chunk)).wrapping_mul(PRIME).rotate_left(29);
        rest = next;
    }
    let mut last = 0;
    while let Some((byte, next)) = rest.split_first() {
        last = last << 8 | *byte as u64;
        rest = next;
    }
    (state ^ last).wrapping_mul(PRIME).rotate_left(29)
}
