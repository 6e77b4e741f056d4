//! What restricts access and is lost: its requests are rejected, so that nothing is open that was not.

use super::assemble::Paths;
use super::expression::Expression;
use super::flow::Flow;
use super::parse::Directive;
use super::restriction::{rejection, restricts};
use super::server::{Builder, Location};
use super::variables::Constants;
use crate::keys::Keys;
use crate::value::Value;

impl<'t> Builder<'_, 't> {
    /// A lost condition that rejects requests holds for every request. Returns `true` if nothing after it is reached.
    pub(super) fn closed(
        &mut self,
        directive: &'t Directive,
        location: &Location<'t>,
        what: &str,
        constants: &Constants,
        flow: &mut Flow<'t>,
    ) -> bool {
        if !restricts(directive.children()) {
            self.lose_condition(directive, what);
            return false;
        }
        let end = directive
            .children()
            .iter()
            .find(|child| child.name == "return" && rejection(child).is_some());
        let status = end.map_or("403", |end| end.word(0));
        self.context
            .report
            .lost(directive, format!("no condition is like {what}: every request gets {status}"));
        flow.end = Some(match end {
            Some(end) => self.fixed(end, &location.scope, &location.paths, constants),
            None => self.forbidden(location),
        });
        true
    }

    /// Returns the settings of requests that are rejected.
    pub(super) fn forbidden(&mut self, location: &Location<'t>) -> Keys {
        let mut keys = self.fixed_keys(&location.scope);
        keys.set("respond", Value::table([("status", Value::Number(403))]));
        keys
    }

    /// Returns the location in place of one whose expression has no counterpart: if that restricts access, more paths than
    /// those that it is for are rejected.
    pub(super) fn closed_location(
        &mut self,
        directive: &'t Directive,
        location: Location<'t>,
        (text, ignores_case): (&str, bool),
        what: &str,
    ) -> Option<Location<'t>> {
        if !restricts(directive.children()) {
            self.lose(directive, what);
            return None;
        }
        let wider = Expression::wider(text, ignores_case);
        let paths = match &location.paths {
            Paths::Prefix(prefix) => Paths::Regex(wider.beneath(prefix)),
            _ => Paths::Regex(wider),
        };
        self.lose(directive, &format!("{what}; every request that it may be for gets 403"));
        self.rejected.insert(directive.id);
        Some(Location { paths, ..location })
    }
}
