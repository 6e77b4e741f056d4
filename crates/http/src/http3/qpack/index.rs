//! The entries of an encoder's dynamic table by hash.

/// Number of places: a power of two, and twice as many as a table of [`TABLE_SIZE`](super::TABLE_SIZE) has entries.
const PLACES: usize = 256;
/// A place without an entry.
const FREE: u16 = u16::MAX;
/// The bits of an absolute index that a place has. Others follow from the oldest entry of the table.
const BITS: u64 = 0x7fff;

/// A hash table with open addressing. The table of the fields has hashes and texts; this one has only the places.
#[derive(Debug, Default)]
pub(super) struct Index {
    /// Empty before the first entry.
    places: Vec<u16>,
}

impl Index {
    /// Returns the entry with that hash for which `is_it` returns `true`. `oldest` is the absolute index of the oldest entry.
    #[inline]
    pub(super) fn find(&self, hash: u32, oldest: u64, is_it: impl Fn(u64) -> bool) -> Option<u64> {
        self.place_of(hash, oldest, is_it).map(|place| absolute(self.places[place], oldest))
    }

    /// Adds an entry.
    pub(super) fn insert(&mut self, hash: u32, entry: u64) {
        if self.places.is_empty() {
            self.places = vec![FREE; PLACES];
        }
        let mut place = home(hash);
        while self.places[place] != FREE {
            place = next(place);
        }
        self.places[place] = (entry & BITS) as u16;
    }

    /// Puts a duplicate of an entry in its place. Returns `false` if the entry is not there.
    pub(super) fn replace(&mut self, hash: u32, oldest: u64, entry: u64, duplicate: u64) -> bool {
        let place = self.place_of(hash, oldest, |other| other == entry);
        if let Some(place) = place {
            self.places[place] = (duplicate & BITS) as u16;
        }
        place.is_some()
    }

    /// Removes an entry, if it is there. `hash_of` returns the hash of every entry.
    pub(super) fn remove(
        &mut self,
        hash: u32,
        oldest: u64,
        entry: u64,
        hash_of: impl Fn(u64) -> Option<u32>,
    ) {
        let Some(mut gap) = self.place_of(hash, oldest, |other| other == entry) else { return };
        // Entries behind the gap move into it, unless they would stand before the place where their search begins.
        let mut place = gap;
        loop {
            place = next(place);
            if self.places[place] == FREE {
                break;
            }
            let begin = hash_of(absolute(self.places[place], oldest)).map_or(place, home);
            let distance = |from: usize| (place + PLACES - from) % PLACES;
            if distance(begin) >= distance(gap) {
                self.places[gap] = self.places[place];
                gap = place;
            }
        }
        self.places[gap] = FREE;
    }

    #[inline]
    fn place_of(&self, hash: u32, oldest: u64, is_it: impl Fn(u64) -> bool) -> Option<usize> {
        if self.places.is_empty() {
            return None;
        }
        let mut place = home(hash);
        loop {
            match self.places[place] {
                FREE => return None,
                found if is_it(absolute(found, oldest)) => return Some(place),
                _ => place = next(place),
            }
        }
    }
}

fn home(hash: u32) -> usize {
    hash as usize % PLACES
}

fn next(place: usize) -> usize {
    (place + 1) % PLACES
}

/// The absolute index whose lower bits a place has.
fn absolute(bits: u16, oldest: u64) -> u64 {
    oldest + (u64::from(bits).wrapping_sub(oldest) & BITS)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn entries_are_found_until_they_are_removed(
            start in prop_oneof![0_u64..100_000, Just(0x7ff0), Just(u64::from(u32::MAX) - 5)],
            hashes in proptest::collection::vec(prop_oneof![0_u32..600, Just(255)], 1..200),
            held in 1..128_usize,
        ) {
            let (mut index, mut oldest) = (Index::default(), start);
            let hash_of = |entry: u64| hashes.get((entry - start) as usize).copied();
            for number in 0..hashes.len() as u64 {
                let entry = start + number;
                if entry - oldest == held as u64 {
                    index.remove(hash_of(oldest).unwrap(), oldest, oldest, hash_of);
                    oldest += 1;
                }
                index.insert(hash_of(entry).unwrap(), entry);
                for other in start..=entry {
                    let hash = hash_of(other).unwrap();
                    let found = index.find(hash, oldest, |found| found == other);
                    prop_assert_eq!(found, (other >= oldest).then_some(other));
                }
            }
        }
    }
}
