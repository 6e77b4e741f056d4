//! Numbers for the names that requests are counted by: a site and a route.
//!
//! Names come from configurations alone, so that there are few of them. A number stays what it is when a
//! configuration is replaced, and what was counted goes on.

use std::sync::{Mutex, PoisonError};

/// The number of a site and a route.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Label(pub(super) u32);

impl Label {
    /// Of a request that found no site.
    pub(crate) const NONE: Self = Self(0);

    /// Every number, in order.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        (0..).map(Self)
    }
}

static NAMES: Mutex<Vec<(Box<str>, Box<str>)>> = Mutex::new(Vec::new());

/// The number of `site` and `route`.
pub(crate) fn label(site: &str, route: &str) -> Label {
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    let known = names.iter().position(|(a, b)| &**a == site && &**b == route);
    let place = known.unwrap_or_else(|| {
        names.push((site.into(), route.into()));
        names.len() - 1
    });
    // No configuration has so many routes.
    Label(u32::try_from(place + 1).unwrap_or(0))
}

/// The site and the route of a number.
pub(crate) fn named(label: Label) -> (Box<str>, Box<str>) {
    let names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    let place = (label.0 as usize).checked_sub(1);
    place.and_then(|place| names.get(place).cloned()).unwrap_or_default()
}
