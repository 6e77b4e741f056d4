//! Variables that `set` gives values of requests, also within an `if`: maps, which are written where a setting uses them.

use super::condition::terms;
use super::context::Context;
use super::expression::Expression;
use super::parse::Directive;
use super::variables::{Constants, Part, parts};
use crate::map::OTHER;

/// A `set`, with its `if`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Assignment<'t> {
    set: &'t Directive,
    condition: Option<&'t Directive>,
    /// It stands in a `server`.
    is_of_server: bool,
}

/// What a variable of an `if` is compared with: the text of a map, and the keys for which the condition holds.
struct Test {
    from: String,
    key: String,
    expression: Expression,
    is_negated: bool,
}

impl<'t> Context<'t> {
    /// Records the variables that a level sets, in place of those of another location.
    pub(super) fn assign(&mut self, level: &'t [Directive], is_of_server: bool) {
        self.assignments.retain(|known| known.is_of_server && !is_of_server);
        for directive in level {
            let sets: Vec<(&'t Directive, Option<&'t Directive>)> = match directive.name.as_str() {
                "set" => vec![(directive, None)],
                "if" => directive.children().iter().map(|set| (set, Some(directive))).collect(),
                _ => continue,
            };
            for (set, condition) in sets.into_iter().filter(|(set, _)| set.name == "set") {
                self.assignments.push(Assignment { set, condition, is_of_server });
            }
        }
    }

    /// Returns `true` if the variable that a `set` is about can be a map; what sets it is carried over then.
    pub(super) fn is_assigned(&mut self, set: &Directive) -> bool {
        let name = set.word(0).trim_start_matches('$');
        if !self.assignments.iter().any(|known| known.set.id == set.id) {
            return false;
        }
        // Only a use writes the maps.
        let maps = self.document.maps.clone();
        let is_assigned = self.assigned_value(name).is_some();
        self.document.maps = maps;
        let all = self.assignments.iter().filter(|known| known.name() == name);
        for Assignment { set, condition, .. } in all.filter(|_| is_assigned) {
            [Some(*set), *condition].into_iter().flatten().for_each(|one| self.report.carried(one));
        }
        is_assigned
    }

    /// Returns the placeholder of a variable that `set` has given its value; `None` if there is no counterpart.
    pub(super) fn assigned_value(&mut self, name: &str) -> Option<String> {
        if self.reading.iter().any(|other| other == name) {
            return None;
        }
        let all: Vec<Assignment<'t>> =
            self.assignments.iter().copied().filter(|known| known.name() == name).collect();
        if all.is_empty() {
            return None;
        }
        self.reading.push(name.to_owned());
        let value =
            all.iter().try_fold(String::new(), |before, one| self.after(name, one, &before));
        self.reading.pop();
        value
    }

    /// Returns the value of a variable after a `set`, and that from `before` where its condition does not hold.
    fn after(&mut self, name: &str, one: &Assignment<'t>, before: &str) -> Option<String> {
        let test = match one.condition {
            Some(condition) => Some(self.test_of(condition)?),
            None => None,
        };
        let group = |group: &str| {
            let test = test.as_ref().filter(|test| !test.is_negated)?;
            test.expression.has_group(group).then(|| format!("{{{group}}}"))
        };
        let own = |other: &str| if other == name { Some(before.to_owned()) } else { group(other) };
        let text = one.set.word(1);
        let has_brace =
            |part: &Part<'_>| matches!(part, Part::Text(text) if text.contains(['{', '}']));
        if parts(text).iter().any(has_brace) || before.contains("{1}") {
            return None;
        }
        let value = self.template(text, &Constants::new(), own).ok()?;
        let Some(Test { from, key, is_negated, .. }) = test else { return Some(value) };
        let (holds, others) =
            if is_negated { (before.to_owned(), value) } else { (value, before.to_owned()) };
        let mut entries = vec![(key, holds)];
        if !others.is_empty() {
            entries.push((OTHER.to_owned(), others));
        }
        let map = self.made(name, &from, entries);
        Some(format!("{{map.{map}}}"))
    }

    /// Reads the condition of an `if` on one variable.
    fn test_of(&mut self, condition: &Directive) -> Option<Test> {
        let words = terms(&condition.words);
        let (variable, sign, text) = match words[..] {
            [variable] => (variable, "", ""),
            [variable, sign @ ("=" | "!=")] => (variable, sign, ""),
            [variable, sign, text] => (variable, sign, text),
            _ => return None,
        };
        let name = variable.strip_prefix('$')?.trim_matches(|c| matches!(c, '{' | '}'));
        let expression = match sign.trim_start_matches('!') {
            "~" | "~*" => Expression::whole(text, sign.ends_with('*')).ok()?,
            _ if text.contains('$') => return None,
            "=" => Expression::new(&format!("(?s)^{}$", regex::escape(text)), false).ok()?,
            "" => Expression::new("(?s)^([^0]|..)", false).ok()?,
            _ => return None,
        };
        expression.except.is_none().then_some(())?;
        let from = self.placeholder(name).ok()?;
        let key = format!("~{}", expression.text);
        Some(Test { from, key, expression, is_negated: sign.starts_with('!') })
    }
}

impl Assignment<'_> {
    fn name(&self) -> &str {
        self.set.word(0).trim_start_matches('$')
    }
}
