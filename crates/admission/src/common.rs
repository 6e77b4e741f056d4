//! One store for the entries of several caches: one bound holds for all of them, and each entry competes with all others.

use std::any::Any;
use std::fmt::Debug;
use std::hash::{BuildHasher, Hash};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use hashbrown::DefaultHashBuilder;

use crate::store::{Classed, Cost, Inserted, Store};

/// The cache that an entry belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Cache {
    /// The file cache.
    Files,
    /// The response cache.
    Responses,
}

/// The key of an entry.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Key {
    /// The cache.
    pub cache: Cache,
    /// The site.
    pub site: usize,
    /// The path of a file, or the URL of responses.
    pub name: Box<[u8]>,
}

/// A key that borrows its name.
#[derive(Debug, Clone, Copy, Hash)]
pub struct Id<'a> {
    /// The cache.
    pub cache: Cache,
    /// The site.
    pub site: usize,
    /// The name.
    pub name: &'a [u8],
}

/// An entry of a cache.
pub trait Entry: Any + Debug + Send + Sync {
    /// It made room for another entry, of any cache. It has occupied that much.
    fn evicted(&self, cost: Cost);
}

/// The entries of all caches, within bounds.
#[derive(Debug)]
pub struct CommonStore {
    hasher: DefaultHashBuilder,
    bounds: Cost,
    store: Mutex<Entries>,
}

/// The entries by their keys.
pub type Entries = Store<Key, Arc<dyn Entry>>;

impl Classed for Key {
    fn class(&self) -> usize {
        self.cache as usize
    }
}

impl Id<'_> {
    /// Returns `true` if it is this key.
    pub fn is(&self, key: &Key) -> bool {
        key.cache == self.cache && key.site == self.site && *key.name == *self.name
    }

    /// Returns the key.
    pub fn to_key(self) -> Key {
        Key { cache: self.cache, site: self.site, name: self.name.into() }
    }
}

impl CommonStore {
    /// Creates an empty store.
    pub fn new(bounds: Cost) -> Arc<Self> {
        let store = Mutex::new(Store::new(bounds));
        Arc::new(Self { hasher: DefaultHashBuilder::default(), bounds, store })
    }

    /// Returns the bounds.
    pub fn bounds(&self) -> Cost {
        self.bounds
    }

    /// Returns the hash of a key.
    pub fn hash(&self, id: Id<'_>) -> u64 {
        self.hasher.hash_one(id)
    }

    /// Returns what the entries of a cache occupy.
    pub fn used_by(&self, cache: Cache) -> Cost {
        self.lock().used_by(cache as usize)
    }

    /// Locks the entries.
    pub fn lock(&self) -> MutexGuard<'_, Entries> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the entries, unless another thread uses them.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, Entries>> {
        self.store.try_lock().ok()
    }

    /// Returns the value of a key, as the type that its cache stores.
    pub fn get<'e, T: Entry>(entries: &'e Entries, hash: u64, id: Id<'_>) -> Option<&'e T> {
        downcast(entries.find(hash, |key| id.is(key))?)
    }

    /// Stores a value, and evicts others to make room for it, of any cache, which are notified. Returns the value that had the same key, or
    /// an error if the value is not stored.
    ///
    /// # Errors
    /// If the value exceeds the bounds, or was not used often enough to displace others.
    pub fn insert(
        &self,
        mut entries: MutexGuard<'_, Entries>,
        (hash, id): (u64, Id<'_>),
        value: Arc<dyn Entry>,
        cost: Cost,
    ) -> Result<Option<Arc<dyn Entry>>, NotAdmitted> {
        let inserted = entries.insert((hash, id.to_key()), value, cost);
        drop(entries);
        match inserted {
            Inserted::Rejected => Err(NotAdmitted),
            Inserted::Stored { replaced, evicted } => {
                notify(evicted);
                Ok(replaced)
            }
        }
    }

    /// Changes the cost of an entry whose value is accepted by `is_it`, and evicts others to make room.
    pub fn set_cost<T: Entry>(
        &self,
        hash: u64,
        id: Id<'_>,
        cost: Cost,
        is_it: impl Fn(&T) -> bool,
    ) {
        let is_it = |value: &Arc<dyn Entry>| downcast(value).is_some_and(&is_it);
        let evicted = self.lock().set_cost((hash, &id.to_key()), cost, is_it);
        notify(evicted);
    }

    /// Removes the entries of a cache for which `is_out` returns true, in steps: other threads wait for one at most. Entries that
    /// are stored meanwhile may stay.
    pub fn remove_if<T: Entry>(
        &self,
        cache: Cache,
        is_out: impl Fn(&Key, &T, Cost) -> bool,
    ) -> Vec<Arc<dyn Entry>> {
        let is_out = |key: &Key, value: &Arc<dyn Entry>, cost| {
            key.cache == cache && downcast(value).is_some_and(|value| is_out(key, value, cost))
        };
        in_steps(|step| step(&mut self.lock()), is_out)
    }
}

/// Entries of one step of a removal.
const STEP: usize = 512;

/// Removes the entries of a store for which `is_out` returns true, in steps. `lock` locks the store and calls the step with it, so
/// that other threads wait for one step at most. Entries that are stored meanwhile may stay.
pub fn in_steps<K: Eq + Hash + Classed, V>(
    lock: impl Fn(&mut dyn FnMut(&mut Store<K, V>)),
    is_out: impl Fn(&K, &V, Cost) -> bool,
) -> Vec<V> {
    let (mut hashes, mut removed) = (Vec::new(), Vec::new());
    lock(&mut |store| hashes = store.hashes());
    for step in hashes.chunks(STEP) {
        lock(&mut |store| removed.extend(store.remove_some(step, &is_out)));
        // A thread that waits for the lock would not get it in time.
        thread::yield_now();
    }
    lock(&mut |store| store.end_removal());
    removed
}

/// The value was not stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotAdmitted;

/// Returns an entry as the type that its cache stores.
pub fn downcast<T: Entry>(value: &Arc<dyn Entry>) -> Option<&T> {
    let value: &dyn Any = &**value;
    value.downcast_ref()
}

fn notify(evicted: Vec<(Arc<dyn Entry>, Cost)>) {
    evicted.iter().for_each(|(value, cost)| value.evicted(*cost));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[derive(Debug)]
    struct File(Arc<AtomicUsize>);
    #[derive(Debug)]
    struct Response(Arc<AtomicUsize>);

    impl Entry for File {
        fn evicted(&self, cost: Cost) {
            self.0.fetch_add(cost.bytes, Ordering::Relaxed);
        }
    }

    impl Entry for Response {
        fn evicted(&self, cost: Cost) {
            self.0.fetch_add(cost.bytes, Ordering::Relaxed);
        }
    }

    fn id(cache: Cache, name: &[u8]) -> Id<'_> {
        Id { cache, site: 1, name }
    }

    fn insert(store: &CommonStore, id: Id<'_>, value: impl Entry, uses: usize) -> bool {
        let hash = store.hash(id);
        (0..uses).for_each(|_| store.lock().count(hash));
        let cost = Cost { bytes: 10, entries: 1, descriptors: 0 };
        store.insert(store.lock(), (hash, id), Arc::new(value), cost).is_ok()
    }

    #[test]
    fn one_bound_holds_for_both_caches_and_what_is_used_more_displaces_the_other() {
        use Cache::{Files, Responses};
        let store = CommonStore::new(Cost { bytes: 100, entries: 100, descriptors: 0 });
        let (files, responses) = (Arc::default(), Arc::default());
        let file = || File(Arc::clone(&files));
        let response = || Response(Arc::clone(&responses));
        let used = || (store.used_by(Files).bytes, store.used_by(Responses).bytes);
        for name in 0..10 {
            assert!(insert(&store, id(Files, &[name]), file(), 2));
        }
        assert_eq!(used(), (100, 0));
        assert!(!insert(&store, id(Responses, b"a"), response(), 1), "it is used less");
        for name in 0..6 {
            assert!(insert(&store, id(Responses, &[name]), response(), 5));
        }
        assert_eq!((used(), files.load(Ordering::Relaxed)), ((40, 60), 60));
        for name in 20..24 {
            assert!(insert(&store, id(Files, &[name]), file(), 9));
        }
        let (of_files, of_responses) = used();
        assert_eq!(of_files + of_responses, 100);
        assert_eq!(files.load(Ordering::Relaxed) + responses.load(Ordering::Relaxed), 100);
    }

    #[test]
    fn other_threads_use_the_store_between_the_steps_of_a_removal() {
        let store = CommonStore::new(Cost { bytes: 1 << 30, entries: 100_000, descriptors: 0 });
        let count = Arc::default();
        for number in 0..5 * STEP {
            let name = number.to_le_bytes();
            assert!(insert(&store, id(Cache::Files, &name), File(Arc::clone(&count)), 0));
        }
        // Between two steps the lock is free, and what is stored then stays.
        let (steps, is_out) = (AtomicUsize::new(0), |key: &Key, _: &Arc<dyn Entry>, _: Cost| {
            key.name[0].is_multiple_of(2)
        });
        let removed = in_steps(
            |step| {
                let number = steps.fetch_add(1, Ordering::Relaxed);
                let mut entries = store.try_lock().expect("no step holds the lock");
                step(&mut entries);
                drop(entries);
                let name = [&[0; 8][..], &number.to_le_bytes()].concat();
                assert!(insert(&store, id(Cache::Files, &name), File(Arc::clone(&count)), 0));
            },
            is_out,
        );
        let steps = steps.into_inner();
        assert_eq!((removed.len(), steps), (5 * STEP / 2, 7), "the hashes, five steps, the end");
        assert_eq!(store.used_by(Cache::Files).entries, 5 * STEP / 2 + steps);
    }

    #[test]
    fn caches_do_not_see_the_entries_of_each_other() {
        let store = CommonStore::new(Cost { bytes: 100, entries: 100, descriptors: 0 });
        let count = Arc::default();
        assert!(insert(&store, id(Cache::Files, b"a"), File(Arc::clone(&count)), 0));
        let entries = store.lock();
        let of = id(Cache::Responses, b"a");
        assert!(CommonStore::get::<Response>(&entries, store.hash(of), of).is_none());
        let of = id(Cache::Files, b"a");
        assert!(CommonStore::get::<File>(&entries, store.hash(of), of).is_some());
        drop(entries);
        assert!(store.remove_if::<Response>(Cache::Responses, |_, _, _| true).is_empty());
        assert_eq!(store.remove_if::<File>(Cache::Files, |_, _, _| true).len(), 1);
        assert_eq!(store.used_by(Cache::Files), Cost::default());
    }
}
