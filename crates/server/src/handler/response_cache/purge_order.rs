//! The responses that a purge removes from the cache.

use dunlin_response_cache::memory::Purge;
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use super::shared::ResponseCache;

/// The responses that are to be purged, as the command names them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PurgeOrder {
    /// A path in any spelling, with `*` at its end for all that begin with it; empty if there is a tag.
    pub(super) path: String,
    /// The path as it stands in the query of the command, where `%2F` and `+` may be those of the URL itself.
    #[serde(default)]
    pub(super) verbatim: String,
    pub(super) tag: String,
    /// The name of a site; empty for all.
    pub(super) site: String,
}

/// The number of URLs, and what resolves when they are removed from the disk.
pub(crate) type Purged = (usize, Option<oneshot::Receiver<()>>);

impl PurgeOrder {
    /// Purges it from the cache. `find` returns the serial numbers of a site and its variants by the name of the site.
    ///
    /// # Errors
    /// Why nothing can be purged.
    pub(crate) fn apply(
        &self,
        cache: Option<&ResponseCache>,
        find: impl FnOnce(&str) -> Option<Vec<usize>>,
    ) -> Result<Purged, String> {
        let purges = match (&*self.path, &*self.tag) {
            (path, "") if path.starts_with('/') => self.paths().map(Purge::of_path).collect(),
            ("", tag) if !tag.is_empty() => vec![Purge::Tag(tag.as_bytes().into())],
            _ => return Err("purge: name a path that begins with `/`, or a tag".to_owned()),
        };
        let sites = match &*self.site {
            "" => vec![None],
            name => {
                let serials =
                    find(name).ok_or_else(|| format!("purge: there is no site {name:?}"))?;
                serials.into_iter().map(Some).collect()
            }
        };
        let cache = cache.ok_or("purge: no route has `cache = { responses = true }`")?;
        let mut purged = (0, None);
        for purge in purges {
            for site in &sites {
                let (count, removed) = cache.purge(*site, &purge);
                // Files are removed in the order of the purges.
                purged = (purged.0 + count, removed.or(purged.1));
            }
        }
        Ok(purged)
    }

    /// Returns the path in each of its meanings.
    fn paths(&self) -> impl Iterator<Item = &str> {
        let verbatim = Some(&*self.verbatim);
        let verbatim = verbatim.filter(|path| path.starts_with('/') && *path != self.path);
        [&*self.path].into_iter().chain(verbatim)
    }
}
