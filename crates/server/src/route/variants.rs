//! Sites whose routes have conditions besides the path. What such a site serves depends on the conditions that hold for a request:
//! for each set of them that occurs, a variant of the site has the routes that apply, as if there were no conditions.
//!
//! A variant has a serial number of its own, so that files and responses that are cached for it are not those of others.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The variants `S` of a site.
#[derive(Debug)]
pub(super) struct Variants<S> {
    all: Mutex<Used<S>>,
    /// Maximum of variants.
    max: usize,
}

/// Variants by the indexes of the routes with conditions that apply.
#[derive(Debug)]
struct Used<S> {
    by_routes: HashMap<Vec<usize>, (u64, Arc<S>)>,
    /// Counts uses, for the age of a variant.
    uses: u64,
}

impl<S> Variants<S> {
    /// Creates an empty set of at most `max` variants. Clients choose the conditions that hold.
    pub(super) fn new(max: usize) -> Self {
        Self { all: Mutex::new(Used { by_routes: HashMap::new(), uses: 0 }), max }
    }

    /// Returns the variant for these routes, which `make` makes if there is none.
    pub(super) fn find(&self, routes: Vec<usize>, make: impl FnOnce(&[usize]) -> S) -> Arc<S> {
        if let Some(known) = self.lock().known(&routes) {
            return known;
        }
        // Others do not wait for it. Two threads may make the same: the first is kept.
        let made = Arc::new(make(&routes));
        let mut used = self.lock();
        if let Some(known) = used.known(&routes) {
            return known;
        }
        if used.by_routes.len() >= self.max {
            let oldest = used.by_routes.iter().min_by_key(|(_, (last_use, _))| *last_use);
            if let Some(oldest) = oldest.map(|(routes, _)| routes.clone()) {
                used.by_routes.remove(&oldest);
            }
        }
        let now = used.uses;
        used.by_routes.insert(routes, (now, Arc::clone(&made)));
        made
    }

    fn lock(&self) -> MutexGuard<'_, Used<S>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns all variants.
    pub(super) fn all(&self) -> Vec<Arc<S>> {
        self.lock().by_routes.values().map(|(_, site)| Arc::clone(site)).collect()
    }
}

impl<S> Used<S> {
    /// Returns the variant for these routes, and notes that it is used.
    fn known(&mut self, routes: &[usize]) -> Option<Arc<S>> {
        self.uses += 1;
        let (last_use, site) = self.by_routes.get_mut(routes)?;
        *last_use = self.uses;
        Some(Arc::clone(site))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variant_that_was_not_used_for_the_longest_time_makes_room() {
        const MAX: usize = 128;
        let variants = Variants::new(MAX);
        let find = |routes: usize| *variants.find(vec![routes], |routes| routes[0]);
        for routes in 0..MAX {
            assert_eq!(find(routes), routes);
        }
        find(0);
        find(MAX);
        let mut kept: Vec<usize> = variants.all().iter().map(|site| **site).collect();
        kept.sort_unstable();
        assert_eq!(kept.len(), MAX);
        assert!(kept.contains(&0) && !kept.contains(&1) && kept.contains(&MAX));
    }
}
