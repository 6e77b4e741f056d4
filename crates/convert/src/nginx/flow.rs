//! What the directives of a level leave of the requests.

use super::assemble::Draft;
use super::condition::Condition;
use super::parse::Directive;
use crate::keys::Keys;

/// What the directives of a level do with requests.
#[derive(Debug, Default)]
pub(super) struct Flow<'t> {
    /// Routes for some of the requests.
    pub(super) before: Vec<Draft>,
    /// Routes for some of the requests that change settings alone: the last one that applies is in force, unless one of `before` ends
    /// the request.
    pub(super) settings: Vec<Draft>,
    /// The settings of all others, if a `return` or `rewrite` is for all of them.
    pub(super) end: Option<Keys>,
    /// What is left to do for all others.
    pub(super) rest: Rest<'t>,
    /// What conditions set.
    pub(super) sets: Vec<Assigned<'t>>,
    /// The first route before which links were verified.
    pub(super) signed_from: Option<usize>,
}

/// What rewriting leaves to do.
#[derive(Debug, Default, Clone)]
pub(super) struct Rest<'t> {
    /// The path that is looked for where there is no file.
    pub(super) fallback: Option<String>,
    /// Requests are passed on where there is no file.
    pub(super) pass: Option<(&'t Directive, &'static str)>,
    /// The prefix that is removed from the path, and what takes its place.
    pub(super) replaced: Option<(String, String)>,
    /// The path for the upstream.
    pub(super) path: Option<String>,
}

/// A variable that has a value under a condition.
#[derive(Debug)]
pub(super) struct Assigned<'t> {
    pub(super) name: &'t str,
    pub(super) value: String,
    pub(super) condition: Condition,
    /// The `if`.
    pub(super) directive: &'t Directive,
    /// A condition uses it.
    pub(super) is_used: bool,
}
