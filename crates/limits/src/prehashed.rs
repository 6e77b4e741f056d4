//! Hasher for maps whose keys are keyed hashes already. Clients cannot choose colliding keys, so hashing
//! them again gains nothing.

use std::hash::{BuildHasher, Hasher};

/// Builds hashers that use integer keys unchanged; keys of 128 bits are truncated to 64.
#[derive(Debug, Clone, Copy, Default)]
pub struct Prehashed;

/// Hasher of [`Prehashed`].
pub struct PrehashedHasher(u64);

impl BuildHasher for Prehashed {
    type Hasher = PrehashedHasher;

    fn build_hasher(&self) -> PrehashedHasher {
        PrehashedHasher(0)
    }
}

impl Hasher for PrehashedHasher {
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
