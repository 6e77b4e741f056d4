//! The levels of a configuration, from the server to the innermost section, and what is inherited from them.

use crate::directive::Directive;

/// The directives that are in force in a place.
#[derive(Debug, Clone, Default)]
pub(super) struct Scope<'t> {
    /// From the server to the innermost section, in the order in which Apache merges them.
    levels: Vec<&'t [Directive]>,
}

impl<'t> Scope<'t> {
    pub(super) fn new(levels: Vec<&'t [Directive]>) -> Self {
        Self { levels }
    }

    pub(super) fn push(&mut self, level: &'t [Directive]) {
        self.levels.push(level);
    }

    /// Returns the innermost level.
    pub(super) fn last(&self) -> &'t [Directive] {
        self.levels.last().copied().unwrap_or_default()
    }

    /// Returns the directives of these names of all levels, from the outermost.
    pub(super) fn all<'n>(&self, names: &'n [&'n str]) -> impl Iterator<Item = &'t Directive> {
        let levels = self.levels.clone();
        levels
            .into_iter()
            .flat_map(move |level| of_level(level, names))
            .collect::<Vec<_>>()
            .into_iter()
    }

    /// Returns the directive of that name that is in force: the last one of the innermost level that has any.
    pub(super) fn get(&self, name: &str) -> Option<&'t Directive> {
        self.levels.iter().rev().find_map(|level| of_level(level, &[name]).last().copied())
    }

    /// Returns the directives of these names of the innermost level that has any.
    pub(super) fn innermost(&self, names: &[&str]) -> Vec<&'t Directive> {
        let found = self.levels.iter().rev().map(|level| of_level(level, names));
        found.into_iter().find(|found| !found.is_empty()).unwrap_or_default()
    }

    /// Returns the first word of the directive that is in force.
    pub(super) fn word(&self, name: &str) -> Option<&'t str> {
        self.get(name).map(|directive| directive.word(0))
    }

    /// Returns `true` if the directive is in force and is `On`.
    pub(super) fn is_on(&self, name: &str) -> bool {
        self.word(name).is_some_and(|word| word.eq_ignore_ascii_case("on"))
    }
}

fn of_level<'t>(level: &'t [Directive], names: &[&str]) -> Vec<&'t Directive> {
    let is_named =
        |directive: &&Directive| names.iter().any(|name| directive.name.eq_ignore_ascii_case(name));
    level.iter().filter(is_named).collect()
}

/// Returns `true` if the directive has that name.
pub(super) fn is(directive: &Directive, name: &str) -> bool {
    directive.name.eq_ignore_ascii_case(name)
}
