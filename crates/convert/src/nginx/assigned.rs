//! Variables that an `if` sets, and the conditions on them: `if (A) { set $block 1; }` and `if ($block = 1) { return 403; }`.

use super::condition::{Condition, terms};
use super::flow::{Assigned, Flow};
use super::parse::Directive;
use super::server::{Builder, Location};
use super::variables::{Constants, constant};

/// Returns `true` if a value makes a condition hold that compares a variable with a text, or that tests whether it is true.
fn holds(value: &str, text: Option<&str>) -> bool {
    match text {
        Some(text) => value == text,
        None => !value.is_empty() && value != "0",
    }
}

/// Returns `true` if the condition holds for a variable without a value.
fn holds_unset(text: Option<&str>) -> bool {
    holds("", text)
}

/// Returns the name of the variable that a condition is about, and the text that it is compared with.
fn compared(words: &[String]) -> Option<(&str, Option<&str>)> {
    match terms(words)[..] {
        [variable] => Some((variable.strip_prefix('$')?, None)),
        [variable, "=", text] => Some((variable.strip_prefix('$')?, Some(text))),
        _ => None,
    }
}

impl<'t> Builder<'_, 't> {
    /// Returns `true` if a condition is about a variable to which no `set` gives a value with which it holds.
    pub(super) fn is_never_set(&self, directive: &Directive, location: &Location<'t>) -> bool {
        let Some((name, text)) = compared(&directive.words) else { return false };
        let sets = location.scope.sets_of(name);
        let holds = |set: &&Directive| set.word(1).contains('$') || holds(set.word(1), text);
        !sets.is_empty()
            && !self.context.is_map(name)
            && !sets.iter().any(holds)
            && !holds_unset(text)
    }

    /// Records what an `if` sets. Returns `true` if it does nothing else.
    pub(super) fn assigns(
        &mut self,
        directive: &'t Directive,
        condition: &Condition,
        constants: &Constants,
        flow: &mut Flow<'t>,
    ) -> bool {
        let is_known = matches!(condition, Condition::When(_) | Condition::Path(_));
        let children = directive.children();
        if !is_known || children.is_empty() || !children.iter().all(|child| child.name == "set") {
            return false;
        }
        let values = children.iter().map(|set| constant(set.word(1), constants));
        let Ok(values) = values.collect::<Result<Vec<String>, String>>() else { return false };
        for (set, value) in children.iter().zip(values) {
            let name = set.word(0).trim_start_matches('$');
            let condition = condition.clone();
            flow.sets.push(Assigned { name, value, condition, directive, is_used: false });
        }
        true
    }

    /// Returns the conditions under which that of an `if` on a variable holds: one of them must. `None` if there are others.
    pub(super) fn assigned(
        &mut self,
        directive: &'t Directive,
        location: &Location<'t>,
        flow: &mut Flow<'t>,
    ) -> Option<Vec<Condition>> {
        let (name, text) = compared(&directive.words)?;
        let holds = |value: &str| holds(value, text);
        let sets: Vec<_> = flow.sets.iter_mut().filter(|set| set.name == name).collect();
        // All that set it are known, and none ends what another one has set.
        let all = location.scope.conditional_sets();
        let is_complete = all.iter().filter(|other| *other == name).count() == sets.len();
        if sets.is_empty() || !is_complete || !sets.iter().all(|set| holds(&set.value)) {
            return None;
        }
        let is_it = |set: &&Directive| set.word(0).trim_start_matches('$') == name;
        let initial: Vec<&Directive> = location.scope.sets().filter(is_it).collect();
        let first = sets.first().map_or(0, |set| set.directive.id);
        let is_other =
            |set: &Directive| set.id < first && !set.word(1).contains('$') && !holds(set.word(1));
        if initial.len() > 1 || !initial.iter().all(|set| is_other(set)) {
            return None;
        }
        initial.iter().for_each(|set| self.context.report.carried(set));
        let mut conditions = Vec::new();
        for set in sets {
            set.is_used = true;
            conditions.push(set.condition.clone());
            set.directive.children().iter().for_each(|child| self.context.report.carried(child));
        }
        Some(conditions)
    }
}
