//! A route of a site, with its parsed pattern.

use std::cmp::{Ordering, Reverse};
use std::sync::Arc;

use super::file::Route;
use super::pattern::Pattern;
use super::spanned::{Span, Spanned};
use super::when::When;

/// A route of a site, for one of its patterns.
#[derive(Debug, Clone)]
pub(crate) struct SiteRoute {
    /// The parsed form of the key `path` or `regex`.
    pub(crate) pattern: Pattern,
    /// All of its patterns and its conditions, for people, and the position in the file. No other route of the site has this
    /// name, but one for another pattern of the same list.
    pub(crate) name: Spanned<String>,
    /// Its conditions besides the path.
    pub(crate) when: Option<Arc<When>>,
    /// Position in the file.
    pub(crate) order: usize,
    pub(crate) route: Arc<Route>,
}

impl SiteRoute {
    /// Returns the position by which a reader finds the route.
    pub(crate) fn place(&self) -> &Span {
        &self.name.span
    }

    /// Returns `true` if the path of a request alone does not decide whether the route applies.
    pub(crate) fn is_conditional(&self) -> bool {
        self.when.is_some()
    }

    /// Returns `true` if it is the only route for its pattern that needs no more than the path, so that a path of the pattern
    /// has its settings.
    pub(crate) fn is_plain(&self) -> bool {
        !self.is_conditional() && self.pattern.regex().is_none()
    }

    /// Orders from general to specific.
    pub(crate) fn specificity(&self, other: &Self) -> Ordering {
        let conditions = |route: &Self| {
            (route.when.as_ref().map_or(0, |when| when.count()), Reverse(route.order))
        };
        let by_pattern = self.pattern.specificity(&other.pattern);
        by_pattern.then_with(|| conditions(self).cmp(&conditions(other)))
    }
}
