//! ClosedSites under maintenance: their requests get 503 with `Retry-After`.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard};

use serde::{Deserialize, Serialize};

/// The sites under maintenance. All workers share it, and it lasts as long as the process.
#[derive(Debug, Default)]
pub(crate) struct Maintenance {
    /// There is one, so that requests look for theirs.
    is_any: AtomicBool,
    /// By the name of the site, or [`ALL`].
    sites: RwLock<ClosedSites>,
}

/// ClosedSites by their names.
pub(crate) type ClosedSites = BTreeMap<String, Closure>;

/// The state of maintenance that clients get to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Closure {
    /// Seconds after which they may try again.
    pub(crate) retry_after: u64,
}

/// The name for all sites.
pub(crate) const ALL: &str = "*";

impl Maintenance {
    /// Returns `true` if any site is under maintenance.
    #[inline]
    pub(crate) fn is_any(&self) -> bool {
        self.is_any.load(Ordering::Relaxed)
    }

    /// Returns whether the site with that name is under maintenance, and what its clients get to know.
    #[inline]
    pub(crate) fn of(&self, site: &str) -> Option<Closure> {
        if !self.is_any() {
            return None;
        }
        let sites = self.sites();
        sites.get(site).or_else(|| sites.get(ALL)).copied()
    }

    /// Returns the sites under maintenance.
    pub(crate) fn all(&self) -> ClosedSites {
        self.sites().clone()
    }

    /// Begins the maintenance of a site, or ends it.
    pub(crate) fn set(&self, site: &str, closure: Option<Closure>) {
        let mut sites = self.all();
        match closure {
            Some(closure) => sites.insert(site.to_owned(), closure),
            None => sites.remove(site),
        };
        self.replace(sites);
    }

    /// Replaces all of it. Logs what changes.
    pub(crate) fn replace(&self, sites: ClosedSites) {
        let mut current = self.sites.write().unwrap_or_else(PoisonError::into_inner);
        for site in sites.keys().filter(|site| !current.contains_key(*site)) {
            tracing::warn!(site, "maintenance begins: requests get 503");
        }
        for site in current.keys().filter(|site| !sites.contains_key(*site)) {
            tracing::warn!(site, "maintenance ends");
        }
        self.is_any.store(!sites.is_empty(), Ordering::Relaxed);
        *current = sites;
    }

    fn sites(&self) -> RwLockReadGuard<'_, ClosedSites> {
        self.sites.read().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_site_is_closed_by_its_name_or_by_all() {
        let maintenance = Maintenance::default();
        assert_eq!(maintenance.of("a"), None);
        maintenance.set("a", Some(Closure { retry_after: 60 }));
        assert_eq!(maintenance.of("a"), Some(Closure { retry_after: 60 }));
        assert_eq!(maintenance.of("b"), None);
        maintenance.set(ALL, Some(Closure { retry_after: 5 }));
        assert_eq!(maintenance.of("a"), Some(Closure { retry_after: 60 }));
        assert_eq!(maintenance.of("b"), Some(Closure { retry_after: 5 }));
        maintenance.replace(ClosedSites::new());
        assert!(!maintenance.is_any() && maintenance.of("a").is_none());
    }
}
