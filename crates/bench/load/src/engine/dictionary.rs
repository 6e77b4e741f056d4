//! Bodies that are compressed with a dictionary (RFC 9842), as they are verified: decoded.

use std::collections::HashMap;

use dunlin_dictionary::dcz;

use crate::verify::{Digest, Expected};

/// Decodes bodies with the dictionary of a run. A body that comes again is decoded once.
pub(super) struct Decoder {
    dictionary: Vec<u8>,
    /// The contents of coded bodies; `None` if a body is malformed.
    known: HashMap<Expected, Option<Expected>>,
}

/// A larger content is malformed, in bytes.
const MAX_CONTENT: usize = 64 << 20;

/// Contents that are known at most.
const MAX_KNOWN: usize = 1000;

impl Decoder {
    /// Creates the decoder of a worker.
    pub(super) fn new(dictionary: Vec<u8>) -> Self {
        Self { dictionary, known: HashMap::new() }
    }

    /// Returns the content of a body, which is `found` itself if it has no dictionary; `None` if it is malformed.
    pub(super) fn content(&mut self, body: &[u8], found: Expected) -> Option<Expected> {
        dcz::dictionary_of(body).map_or(Some(found), |_| {
            if self.known.len() >= MAX_KNOWN {
                self.known.clear();
            }
            *self.known.entry(found).or_insert_with(|| {
                let content = dcz::decompress(&self.dictionary, body, MAX_CONTENT).ok()?;
                Some(Expected { length: content.len() as u64, hash: Digest::of(&content) })
            })
        })
    }
}
