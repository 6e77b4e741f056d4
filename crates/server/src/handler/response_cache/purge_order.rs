//! What a purge removes from the cache.

use dunlin_response_cache::memory::Purge;
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use super::shared::ResponseCache;

/// What is to be purged, as the command names it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PurgeOrder {
    /// A path in any spelling, with `*` at its end for all that begin with it; empty if there is a tag.
    pub(super) path: String,
    pub(super) tag: String,
    /// The name of a site; empty for all.
    pub(super) site: String,
}

/// The number of URLs, and what resolves when they are removed from the disk.
pub(crate) type Purged = (usize, Option<oneshot::Receiver<()>>);

impl PurgeOrder {
    /// Purges it from the cache. `find` returns the serial number of a site by its name.
    ///
    /// # Errors
    /// Why nothing can be purged.
    pub(crate) fn apply(
        &self,
        cache: Option<&ResponseCache>,
        find: impl FnOnce(&str) -> Option<usize>,
    ) -> Result<Purged, String> {
        let purge = match (&*self.path, &*self.tag) {
            (path, "") if path.starts_with('/') => Purge::of_path(path),
            ("", tag) if !tag.is_empty() => Purge::Tag(tag.as_bytes().into()),
            _ => return Err("purge: name a path that begins with `/`, or a tag".to_owned()),
        };
        let site = match &*self.site {
            "" => None,
            name => Some(find(name).ok_or_else(|| format!("purge: there is no site {name:?}"))?),
        };
        let cache = cache.ok_or("purge: no route has `cache = { responses = true }`")?;
        Ok(cache.purge(site, &purge))
    }
}
