//! The levels of a configuration, from the innermost to `http`, and what is inherited from them.

use super::parse::Directive;

/// Directives of a place for files, at the first of which the report names what follows from the defaults.
pub(super) const PLACES_OF_FILES: [&str; 5] = ["root", "alias", "index", "listen", "server_name"];

/// The directives that are in force in a place.
#[derive(Debug, Clone)]
pub(super) struct Scope<'t> {
    /// From `http` to the innermost level.
    levels: Vec<&'t [Directive]>,
}

impl<'t> Scope<'t> {
    pub(super) fn new(outermost: &'t [Directive]) -> Self {
        Self { levels: vec![outermost] }
    }

    /// Returns the scope of a block within this one.
    pub(super) fn within(&self, block: &'t [Directive]) -> Self {
        let mut levels = self.levels.clone();
        levels.push(block);
        Self { levels }
    }

    /// Returns the directives of the innermost level.
    pub(super) fn own(&self) -> &'t [Directive] {
        self.levels.last().copied().unwrap_or_default()
    }

    /// Returns the directive of that name that is in force: the last one of the innermost level that has any.
    pub(super) fn get(&self, name: &str) -> Option<&'t Directive> {
        self.all(&[name]).last().copied()
    }

    /// Returns the directive of the first of these names that is there.
    pub(super) fn first(&self, names: &[&str]) -> Option<&'t Directive> {
        names.iter().find_map(|name| self.get(name))
    }

    /// Returns the directive of that name of the level around the innermost one alone.
    pub(super) fn outer_directive(&self, name: &str) -> Option<&'t Directive> {
        let outer = self.levels.len().checked_sub(2).and_then(|at| self.levels.get(at))?;
        outer.iter().rfind(|directive| directive.name == name)
    }

    /// Returns the directives of these names of the innermost level that has any: it inherits none of them.
    pub(super) fn all(&self, names: &[&str]) -> Vec<&'t Directive> {
        let of_level = |level: &&'t [Directive]| -> Vec<&'t Directive> {
            level.iter().filter(|directive| names.contains(&directive.name.as_str())).collect()
        };
        self.levels.iter().rev().map(of_level).find(|found| !found.is_empty()).unwrap_or_default()
    }

    /// Returns the directive of that name of the innermost level alone: it is not inherited.
    pub(super) fn own_directive(&self, name: &str) -> Option<&'t Directive> {
        self.own().iter().rfind(|directive| directive.name == name)
    }

    /// Returns the first word of the directive that is in force.
    pub(super) fn word(&self, name: &str) -> Option<&'t str> {
        self.get(name).map(|directive| directive.word(0))
    }

    /// Returns `true` if the directive is in force and is `on`.
    pub(super) fn is_on(&self, name: &str) -> bool {
        self.word(name) == Some("on")
    }

    /// Returns all `set` directives of the levels, from the outermost.
    pub(super) fn sets(&self) -> impl Iterator<Item = &'t Directive> {
        self.levels
            .iter()
            .flat_map(|level| level.iter())
            .filter(|directive| directive.name == "set")
    }

    /// Returns the `set` directives of the levels that give a variable its value, also those within an `if`.
    pub(super) fn sets_of(&self, name: &str) -> Vec<&'t Directive> {
        let all = self.levels.iter().flat_map(|level| level.iter());
        let all = all.flat_map(|directive| {
            let inner = if directive.name == "if" { directive.children() } else { &[] };
            std::iter::once(directive).chain(inner)
        });
        let is_it = |directive: &&Directive| {
            directive.name == "set" && directive.word(0).trim_start_matches('$') == name
        };
        all.filter(is_it).collect()
    }

    /// Returns the names of the variables that an `if` of the levels sets.
    pub(super) fn conditional_sets(&self) -> Vec<String> {
        let mut names = Vec::new();
        let all = self.levels.iter().flat_map(|level| level.iter());
        for directive in all.filter(|directive| directive.name == "if") {
            collect_sets(directive.children(), &mut names);
        }
        names
    }
}

fn collect_sets(block: &[Directive], names: &mut Vec<String>) {
    for directive in block {
        match directive.name.as_str() {
            "set" => names.push(directive.word(0).trim_start_matches('$').to_owned()),
            "if" => collect_sets(directive.children(), names),
            _ => {}
        }
    }
}
