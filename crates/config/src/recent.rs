//! A bounded map that makes what it lacks: variants of sites and settings of paths, of which requests choose the keys.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Values that were used recently, by key.
#[derive(Debug)]
pub struct Recent<K, V> {
    all: Mutex<Used<K, V>>,
    /// Maximum of values.
    max: usize,
}

#[derive(Debug)]
struct Used<K, V> {
    by_key: HashMap<K, (u64, Arc<V>)>,
    /// Counts uses, for the age of a value.
    uses: u64,
}

impl<K: Clone + Eq + Hash, V> Recent<K, V> {
    /// Creates an empty map of at most `max` values.
    pub fn new(max: usize) -> Self {
        Self { all: Mutex::new(Used { by_key: HashMap::new(), uses: 0 }), max }
    }

    /// Returns the value of a key, which `make` makes if there is none. The value that was not used for the longest time makes
    /// room.
    pub fn find(&self, key: K, make: impl FnOnce(&K) -> Arc<V>) -> Arc<V> {
        if let Some(known) = self.lock().known(&key) {
            return known;
        }
        // Others do not wait for it. Two threads may make the same: the first is kept.
        let made = make(&key);
        let mut used = self.lock();
        if let Some(known) = used.known(&key) {
            return known;
        }
        if used.by_key.len() >= self.max {
            let oldest = used.by_key.iter().min_by_key(|(_, (last_use, _))| *last_use);
            if let Some(oldest) = oldest.map(|(key, _)| key.clone()) {
                used.by_key.remove(&oldest);
            }
        }
        let now = used.uses;
        used.by_key.insert(key, (now, Arc::clone(&made)));
        made
    }

    /// Returns the maximum of values.
    pub fn max(&self) -> usize {
        self.max
    }

    fn lock(&self) -> MutexGuard<'_, Used<K, V>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns all values.
    pub fn all(&self) -> Vec<Arc<V>> {
        self.lock().by_key.values().map(|(_, value)| Arc::clone(value)).collect()
    }
}

impl<K: Eq + Hash, V> Used<K, V> {
    /// Returns the value of a key, and notes that it is used.
    fn known(&mut self, key: &K) -> Option<Arc<V>> {
        self.uses += 1;
        let (last_use, value) = self.by_key.get_mut(key)?;
        *last_use = self.uses;
        Some(Arc::clone(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_value_that_was_not_used_for_the_longest_time_makes_room() {
        const MAX: usize = 128;
        let recent = Recent::new(MAX);
        let find = |key: usize| *recent.find(key, |key| Arc::new(*key));
        for key in 0..MAX {
            assert_eq!(find(key), key);
        }
        find(0);
        find(MAX);
        let mut kept: Vec<usize> = recent.all().iter().map(|value| **value).collect();
        kept.sort_unstable();
        assert_eq!(kept.len(), MAX);
        assert!(kept.contains(&0) && !kept.contains(&1) && kept.contains(&MAX));
    }
}
