//! A route of a site, with its parsed pattern.

use super::file::Route;
use super::pattern::Pattern;

/// A route of a site.
#[derive(Debug)]
pub(crate) struct SiteRoute {
    /// The parsed form of the key `path`.
    pub(crate) pattern: Pattern,
    pub(crate) route: Route,
}
