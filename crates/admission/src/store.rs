//! Entries within bounds, with admission and eviction by frequency of use.
//!
//! When the store is full, a new key displaces entries only if it was used more often than all of them together (TinyLFU
//! with aggregated victims: G. Einziger, O. Eytan, R. Friedman, B. Manes: "Lightweight Robust Size Aware Cache
//! Management", ACM Transactions on Storage 18(3), 2022), by more than `MARGIN`. Keys that are used once, as by a crawler,
//! displace nothing, and a set of keys that is larger than the store and used evenly leaves it mostly as it is. The victims
//! come from a ring of the entries: the one of the next few that was used least.

use std::collections::VecDeque;
use std::hash::Hash;

use hashbrown::{HashSet, HashTable};
use smallvec::{SmallVec, smallvec};

use crate::frequency::Frequencies;

/// The bytes and places that an entry occupies, and the bounds of what all entries occupy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cost {
    /// Memory in bytes.
    pub bytes: usize,
    /// Number of entries.
    pub entries: usize,
    /// Number of open descriptors.
    pub descriptors: usize,
}

/// Entries of which a victim is the least used one.
const CANDIDATES: usize = 5;
/// Uses by which a new key must exceed its victims. Estimates are small numbers that are sampled: a difference of one is
/// chance, and to act on it costs more than it gains.
const MARGIN: u64 = 1;
/// The memory of an average entry, which determines the size of the table of frequencies.
const AVERAGE: usize = 4096;

/// Values by key, within bounds.
#[derive(Debug)]
pub struct Store<K, V> {
    bounds: Cost,
    table: HashTable<Entry<K, V>>,
    /// The hashes of the entries in the order in which they are considered for eviction, with some of removed entries.
    ring: VecDeque<u64>,
    /// The cost of the entries of each class.
    used: [Cost; CLASSES],
    frequencies: Frequencies,
}

/// A key whose class is counted apart.
pub trait Classed {
    /// Returns a number below [`CLASSES`].
    fn class(&self) -> usize {
        0
    }
}

/// The number of classes of keys.
pub const CLASSES: usize = 2;

#[derive(Debug)]
struct Entry<K, V> {
    key: K,
    hash: u64,
    value: V,
    cost: Cost,
}

/// The result of [`Store::insert`].
#[derive(Debug, PartialEq, Eq)]
pub enum Inserted<V> {
    /// The value is stored.
    Stored {
        /// The value that had the same key.
        replaced: Option<V>,
        /// The values that made room, with what they occupied.
        evicted: Vec<(V, Cost)>,
    },
    /// The value exceeds the bounds, or was not used often enough to displace others.
    Rejected,
}

impl Cost {
    /// Returns the sum of both.
    fn plus(self, other: Self) -> Self {
        Self {
            bytes: self.bytes + other.bytes,
            entries: self.entries + other.entries,
            descriptors: self.descriptors + other.descriptors,
        }
    }

    /// Returns what is left of it without `other`.
    fn minus(self, other: Self) -> Self {
        Self {
            bytes: self.bytes.saturating_sub(other.bytes),
            entries: self.entries.saturating_sub(other.entries),
            descriptors: self.descriptors.saturating_sub(other.descriptors),
        }
    }

    /// Returns `true` if none of its parts exceeds that of `bounds`.
    fn is_within(self, bounds: Self) -> bool {
        self.bytes <= bounds.bytes
            && self.entries <= bounds.entries
            && self.descriptors <= bounds.descriptors
    }
}

impl<K: Eq + Hash + Classed, V> Store<K, V> {
    /// Creates an empty store.
    pub fn new(bounds: Cost) -> Self {
        let entries = bounds.entries.min(bounds.bytes / AVERAGE);
        Self {
            bounds,
            table: HashTable::new(),
            ring: VecDeque::new(),
            used: Default::default(),
            frequencies: Frequencies::new(entries),
        }
    }

    /// Returns the bounds.
    pub fn bounds(&self) -> Cost {
        self.bounds
    }

    /// Returns what all entries occupy.
    pub fn used(&self) -> Cost {
        self.used.into_iter().fold(Cost::default(), Cost::plus)
    }

    /// Returns what the entries of a class occupy.
    pub fn used_by(&self, class: usize) -> Cost {
        self.used.get(class).copied().unwrap_or_default()
    }

    /// Returns all values.
    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.table.iter().map(|entry| &entry.value)
    }

    /// Returns the value of a key.
    pub fn get(&self, hash: u64, key: &K) -> Option<&V> {
        self.find(hash, |other| other == key)
    }

    /// Returns the value of the key with that hash which `is_it` accepts.
    pub fn find(&self, hash: u64, is_it: impl Fn(&K) -> bool) -> Option<&V> {
        self.table.find(hash, |entry| is_it(&entry.key)).map(|entry| &entry.value)
    }

    /// Counts a use of a key, whether the store has it or not.
    pub fn count(&mut self, hash: u64) {
        self.frequencies.add(hash, self.table.len());
    }

    /// Returns `true` if there is room for an average entry.
    pub fn has_room(&self) -> bool {
        self.used().plus(self.average()).is_within(self.bounds)
    }

    fn average(&self) -> Cost {
        let bytes = self.used().bytes / self.table.len().max(1);
        Cost { bytes, entries: 1, descriptors: 0 }
    }

    /// Returns `true` if an average entry with this hash would displace others. Looks at other victims each time.
    pub fn would_displace(&mut self, hash: u64) -> bool {
        let limit = self.frequencies.of(hash);
        let Some(victims) = self.victims(self.average(), Some(limit), None) else { return false };
        // The next call considers the same ones first.
        victims.into_iter().rev().for_each(|hash| self.ring.push_front(hash));
        true
    }

    /// Stores a value, and evicts others to make room for it.
    pub fn insert(&mut self, (hash, key): (u64, K), value: V, cost: Cost) -> Inserted<V> {
        if !cost.is_within(self.bounds) {
            return Inserted::Rejected;
        }
        let replaced = self.remove(hash, &key);
        let limit = replaced.is_none().then(|| self.frequencies.of(hash));
        let Some(victims) = self.victims(cost, limit, None) else { return Inserted::Rejected };
        let evicted = self.evict(victims);
        if let Some(used) = self.used.get_mut(key.class()) {
            *used = used.plus(cost);
        }
        self.table.insert_unique(hash, Entry { key, hash, value, cost }, |entry| entry.hash);
        self.ring.push_back(hash);
        self.compact();
        Inserted::Stored { replaced, evicted }
    }

    /// Changes the cost of an entry whose value is accepted by `is_it`. Returns what was evicted to make room for more.
    pub fn set_cost(
        &mut self,
        (hash, key): (u64, &K),
        cost: Cost,
        is_it: impl Fn(&V) -> bool,
    ) -> Vec<(V, Cost)> {
        let found = self.table.find_mut(hash, |entry| entry.key == *key);
        let Some(entry) = found.filter(|entry| is_it(&entry.value)) else { return Vec::new() };
        if let Some(used) = self.used.get_mut(key.class()) {
            *used = used.minus(entry.cost).plus(cost);
        }
        entry.cost = cost;
        let victims = match cost.is_within(self.bounds) {
            true => self.victims(Cost::default(), None, Some(hash)).unwrap_or_default(),
            false => smallvec![hash],
        };
        self.evict(victims)
    }

    /// Removes an entry.
    pub fn remove(&mut self, hash: u64, key: &K) -> Option<V> {
        let found = self.table.find_entry(hash, |entry| entry.key == *key).ok()?;
        let (entry, _) = found.remove();
        subtract(&mut self.used, &entry);
        Some(entry.value)
    }

    /// Removes the entries for which `is_out` returns true.
    pub fn remove_if(&mut self, is_out: impl Fn(&K, &V, Cost) -> bool) -> Vec<V> {
        let out = self.table.extract_if(|entry| is_out(&entry.key, &entry.value, entry.cost));
        let out: Vec<Entry<K, V>> = out.collect();
        out.iter().for_each(|entry| subtract(&mut self.used, entry));
        self.compact();
        out.into_iter().map(|entry| entry.value).collect()
    }

    /// Returns the hashes of all entries, for [`remove_some`](Self::remove_some); with some of removed entries.
    pub fn hashes(&self) -> Vec<u64> {
        self.ring.iter().copied().collect()
    }

    /// As [`remove_if`](Self::remove_if), for the entries with these hashes: a step of a removal that is long. The ring is not
    /// compacted before [`end_removal`](Self::end_removal).
    pub fn remove_some(&mut self, hashes: &[u64], is_out: impl Fn(&K, &V, Cost) -> bool) -> Vec<V> {
        let mut removed = Vec::new();
        for &hash in hashes {
            let is_it = |entry: &Entry<K, V>| {
                entry.hash == hash && is_out(&entry.key, &entry.value, entry.cost)
            };
            // Keys may have the same hash.
            while let Ok(found) = self.table.find_entry(hash, is_it) {
                let (entry, _) = found.remove();
                subtract(&mut self.used, &entry);
                removed.push(entry.value);
            }
        }
        removed
    }

    /// Ends a removal in steps.
    pub fn end_removal(&mut self) {
        self.compact();
    }

    /// Returns the hashes of entries whose eviction makes room for `extra`, taken from the ring. `None` if they were used
    /// `limit - MARGIN` times or more in total, or if there are none; the entries stay then. The entry with the hash `spared`
    /// is not evicted.
    fn victims(
        &mut self,
        extra: Cost,
        limit: Option<u64>,
        spared: Option<u64>,
    ) -> Option<SmallVec<[u64; 4]>> {
        let mut victims: SmallVec<[u64; 4]> = SmallVec::new();
        let (mut left, mut frequency) = (self.used().plus(extra), 0);
        while !left.is_within(self.bounds) {
            let victim = self.next_victim(&victims, spared);
            if let Some((hash, cost)) = victim {
                victims.push(hash);
                left = left.minus(cost);
                frequency += self.frequencies.of(hash);
            }
            if victim.is_none() || limit.is_some_and(|limit| frequency + MARGIN >= limit) {
                self.ring.extend(victims);
                return None;
            }
        }
        Some(victims)
    }

    /// Takes the least used of the next entries from the ring, and moves the others to its end.
    fn next_victim(&mut self, taken: &[u64], spared: Option<u64>) -> Option<(u64, Cost)> {
        let mut least: Option<(u64, u64, Cost)> = None;
        let mut seen = 0;
        // Each hash is checked at most once.
        for _ in 0..self.ring.len() {
            let Some(hash) = self.ring.pop_front() else { break };
            let found = self.table.find(hash, |entry| entry.hash == hash);
            let Some(entry) = found.filter(|_| !taken.contains(&hash)) else { continue };
            if spared == Some(hash) {
                self.ring.push_back(hash);
                continue;
            }
            let frequency = self.frequencies.of(hash);
            let other = match least {
                Some((_, known, _)) if known <= frequency => Some(hash),
                _ => least.replace((hash, frequency, entry.cost)).map(|(hash, ..)| hash),
            };
            self.ring.extend(other);
            seen += 1;
            if seen == CANDIDATES {
                break;
            }
        }
        least.map(|(hash, _, cost)| (hash, cost))
    }

    fn evict(&mut self, victims: SmallVec<[u64; 4]>) -> Vec<(V, Cost)> {
        let mut evicted = Vec::with_capacity(victims.len());
        for hash in victims {
            let Ok(found) = self.table.find_entry(hash, |entry| entry.hash == hash) else {
                continue;
            };
            let (entry, _) = found.remove();
            subtract(&mut self.used, &entry);
            evicted.push((entry.value, entry.cost));
        }
        evicted
    }

    /// Drops the hashes of removed entries from the ring when they outnumber the others.
    fn compact(&mut self) {
        if self.ring.len() > 2 * self.table.len() + 64 {
            let mut seen = HashSet::new();
            let table = &self.table;
            let is_stored = |hash: u64| table.find(hash, |entry| entry.hash == hash).is_some();
            self.ring.retain(|&hash| is_stored(hash) && seen.insert(hash));
        }
    }
}

fn subtract<K: Classed, V>(used: &mut [Cost; CLASSES], entry: &Entry<K, V>) {
    if let Some(used) = used.get_mut(entry.key.class()) {
        *used = used.minus(entry.cost);
    }
}

#[cfg(test)]
pub(crate) mod tests;
