//! What a request for an object is for.

use std::sync::Arc;

use dunlin_config::Settings;

use super::store::Version;
use crate::cache::resource::Resource;
use crate::cache::shared_cache::Key;

/// The object that is requested.
#[derive(Debug)]
pub(super) struct RequestedObject {
    /// The key, as the store has it.
    pub(super) key: String,
    /// The version that all have which wait for the response.
    pub(super) unless: Option<Version>,
}

/// A place in the cache that wants the object.
#[derive(Debug, Clone)]
pub(super) struct CacheClaim {
    pub(super) key: Key,
    pub(super) settings: Arc<Settings>,
    /// Path beneath the root.
    pub(super) file: Box<[u8]>,
    /// The largest object that it wants whole.
    pub(super) limit: u64,
    /// The resource that the cache has.
    pub(super) held: Option<Arc<Resource>>,
}

impl CacheClaim {
    /// Returns the version of the object that the cache has.
    pub(super) fn version(&self) -> Option<&Version> {
        Some(&self.held.as_ref()?.object()?.metadata.version)
    }
}
