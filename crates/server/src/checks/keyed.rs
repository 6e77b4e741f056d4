//! Tables whose keys are hashes already, by a key of this process's own: nobody can choose what meets in
//! one place, and hashing them again would gain nothing.

use std::hash::{BuildHasher, Hasher};

/// Takes keys as they are: numbers, or half of larger ones.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Keyed;

/// See [`Keyed`].
pub(super) struct Taken(u64);

impl BuildHasher for Keyed {
    type Hasher = Taken;

    fn build_hasher(&self) -> Taken {
        Taken(0)
    }
}

impl Hasher for Taken {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.0 = self.0.rotate_left(8) ^ u64::from(byte));
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number;
    }

    fn write_u128(&mut self, number: u128) {
        self.0 = number as u64;
    }
}
