//! Numbers for the label values of metrics: pairs of site and route.
//!
//! The names come from configurations only, so their number is small. A pair keeps its number over a reload,
//! and its counters continue.

use std::sync::{Mutex, PoisonError};

/// Number of a pair of site and route.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Label(pub(super) u32);

impl Label {
    /// Label of requests without a site.
    pub const NONE: Self = Self(0);

    /// Returns all numbers in order.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..).map(Self)
    }
}

static NAMES: Mutex<Vec<(Box<str>, Box<str>)>> = Mutex::new(Vec::new());

/// Returns the number of `site` and `route`. Assigns one to a new pair.
pub fn label(site: &str, route: &str) -> Label {
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    let known = names.iter().position(|(a, b)| &**a == site && &**b == route);
    let place = known.unwrap_or_else(|| {
        names.push((site.into(), route.into()));
        names.len() - 1
    });
    // The fallback is unreachable: no process has that many routes.
    Label(u32::try_from(place + 1).unwrap_or(0))
}

/// Returns the site and the route of a number.
pub fn named(label: Label) -> (Box<str>, Box<str>) {
    let names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    let place = (label.0 as usize).checked_sub(1);
    place.and_then(|place| names.get(place).cloned()).unwrap_or_default()
}
