//! From drafts in their order to the routes of a site, each with the keys that it needs over what it inherits.

use super::assemble::{
    Draft, Drafts, NO_FILE, Paths, Place, expression, expression_of, pattern_text, text_of,
};
use super::expression::Expression;
use crate::keys::{Keys, over_all};
use crate::model::{Matching, Route};
use crate::value::Value;

/// Returns the settings of the routes with conditions after one of a place: where both hold, the first one is in force alone.
fn later(place: &Place, at: usize) -> Vec<Keys> {
    let after = place.before.iter().skip(at + 1);
    let after = after.filter(|draft| !matches!(draft.paths, Paths::Regex(_)));
    after.map(|draft| draft.keys.clone()).collect()
}

pub(super) struct Writer {
    pub(super) base: Keys,
    pub(super) root: Option<Value>,
    pub(super) prefixes: Vec<Place>,
    /// Prefixes whose routes come before an expression that excludes all their paths.
    pub(super) early: Vec<String>,
    pub(super) routes: Vec<Route>,
}

impl Writer {
    /// Returns the settings that a path inherits from patterns.
    fn inherited(&self, path: &str, is_own: bool) -> Keys {
        let is_general = |place: &&Place| {
            let prefix = text_of(&place.draft.paths);
            !place.is_regex
                && path.starts_with(prefix)
                && (is_own || prefix != path)
                && prefix != "/"
        };
        // The longest comes first.
        self.prefixes
            .iter()
            .find(is_general)
            .map_or_else(|| self.base.clone(), |place| place.draft.keys.clone())
    }

    /// Returns the settings of routes with conditions, which paths beneath their patterns inherit as well.
    fn conditional(&self, is_beneath: impl Fn(&str) -> bool) -> Vec<Keys> {
        let places = self
            .prefixes
            .iter()
            .filter(|place| !place.is_regex && is_beneath(text_of(&place.draft.paths)));
        let drafts = places
            .flat_map(|place| &place.before)
            .filter(|draft| !matches!(draft.paths, Paths::Regex(_)));
        drafts.map(|draft| draft.keys.clone()).collect()
    }

    fn push(&mut self, draft: &Draft, matching: Matching, base: &Keys, others: &[Keys]) {
        let mut keys = over_all(&draft.keys, base, others, self.root.as_ref());
        if let Matching::Paths(paths) = &matching
            && paths.iter().all(|path| !path.ends_with(['/', '*']))
        {
            // The path of a file has no index file.
            drop(keys.remove("index"));
        }
        if draft.comment.ends_with(NO_FILE) {
            // A route without a handler would redirect to the files.
            let key = draft.keys.handler().unwrap_or("root");
            let value = draft.keys.get(key).or(self.root.as_ref());
            value.into_iter().for_each(|value| keys.set(key, value.clone()));
        }
        let (comment, when) = (draft.comment.clone(), draft.when.clone());
        self.routes.push(Route { comment, matching, when, keys });
    }

    /// Exact paths, and what comes before all locations there.
    pub(super) fn exact(&mut self, drafts: &Drafts) {
        let mut kept: Vec<(&Place, String)> = Vec::new();
        let mut as_expressions = Vec::new();
        for place in &drafts.exact {
            let path = text_of(&place.draft.paths).to_owned();
            let is_taken = |draft: &Draft| {
                draft.when.is_none() && expression(draft).is_some_and(|regex| regex.matches(&path))
            };
            if drafts.first.iter().any(is_taken) {
                // Requests never get here: the first expression that matches is that of the server.
                continue;
            }
            let (base, more) = self.inherited_by_exact(&path, drafts);
            let root = self.root.as_ref();
            let ends = |keys: &Keys| place.draft.keys.over(keys, root).is_ok();
            if !ends(&base) || !more.iter().all(ends) {
                as_expressions.push(place);
                continue;
            }
            let matching = Matching::Paths(vec![pattern_text(&path)]);
            let mut conditional = self.conditional(|prefix| path.starts_with(prefix));
            conditional.extend(more);
            self.push(&place.draft, matching.clone(), &base, &conditional);
            for (at, draft) in place.before.iter().enumerate() {
                let mut others = conditional.clone();
                others.extend(later(place, at));
                self.push(draft, matching.clone(), &place.draft.keys, &others);
            }
            kept.push((place, path));
        }
        for (at, draft) in drafts.first.iter().enumerate() {
            let is_earlier = |path: &str| {
                let earlier = drafts.first[..at].iter().filter(|other| other.when == draft.when);
                earlier.filter_map(expression).any(|regex| regex.matches(path))
            };
            if draft.when.is_some() {
                self.first_of_exact(draft, kept.iter().filter(|(_, path)| !is_earlier(path)));
            }
        }
        for draft in &drafts.first {
            self.regex(draft);
        }
        for place in as_expressions {
            place.before.iter().chain([&place.draft]).for_each(|draft| self.regex(draft));
        }
    }

    /// What comes before all locations, for exact paths, which are more specific than expressions.
    fn first_of_exact<'p>(
        &mut self,
        draft: &Draft,
        exact: impl Iterator<Item = &'p (&'p Place, String)>,
    ) {
        let matches = |path: &str| expression(draft).is_some_and(|regex| regex.matches(path));
        let mut keys = Keys::default();
        let mut paths = Vec::new();
        for (place, path) in exact.filter(|(_, path)| matches(path)) {
            if let Some(own) = expression(draft).and_then(|own| of_path(&draft.keys, &own, path)) {
                // The groups of the expression are known.
                let keys = own.over(&place.draft.keys, self.root.as_ref()).unwrap_or(own);
                let matching = Matching::Paths(vec![pattern_text(path)]);
                let (comment, when) = (draft.comment.clone(), draft.when.clone());
                self.routes.push(Route { comment, matching, when, keys });
                continue;
            }
            paths.push(pattern_text(path));
            let own = draft
                .keys
                .over(&place.draft.keys, self.root.as_ref())
                .unwrap_or_else(|_| draft.keys.clone());
            own.iter().for_each(|(key, value)| keys.add(key, value));
        }
        if !paths.is_empty() {
            let (comment, when) = (draft.comment.clone(), draft.when.clone());
            self.routes.push(Route { comment, matching: Matching::Paths(paths), when, keys });
        }
    }

    /// Returns what an exact path inherits: from the first expression that matches it, or from patterns; and from the routes with
    /// conditions of that expression.
    fn inherited_by_exact(&self, path: &str, drafts: &Drafts) -> (Keys, Vec<Keys>) {
        let regexes = drafts.regexes.iter().filter(|place| place.draft.when.is_none());
        let preferred = self.prefixes.iter().filter(|place| place.is_regex && place.is_preferred);
        let others = self.prefixes.iter().filter(|place| place.is_regex && !place.is_preferred);
        let begins = |place: &&Place| path.starts_with(text_of(&place.draft.paths));
        let matches =
            |place: &&Place| expression(&place.draft).is_some_and(|regex| regex.matches(path));
        let found = preferred.clone().find(begins);
        let found =
            found.or_else(|| regexes.clone().find(matches)).or_else(|| others.clone().find(begins));
        let Some(place) = found else { return (self.inherited(path, true), Vec::new()) };
        let concerns = |draft: &&Draft| expression(draft).is_none_or(|regex| regex.matches(path));
        let conditional = place.before.iter().filter(concerns).map(|draft| draft.keys.clone());
        (place.draft.keys.clone(), conditional.collect())
    }

    /// A route with an expression inherits from every pattern; each ends what the others leave.
    pub(super) fn regex(&mut self, draft: &Draft) {
        let expression = match &draft.paths {
            Paths::Regex(expression) => expression.clone(),
            paths => expression_of(paths, &draft.keys),
        };
        let is_beneath = |prefix: &str| expression.may_match_beneath(prefix);
        let patterns = self
            .prefixes
            .iter()
            .filter(|place| !place.is_regex && is_beneath(text_of(&place.draft.paths)));
        let mut beneath: Vec<Keys> = patterns.map(|place| place.draft.keys.clone()).collect();
        beneath.extend(self.conditional(is_beneath));
        if let Some(except) = &expression.except {
            if draft.otherwise.is_none() {
                self.excluded(&expression);
            }
            // Paths that the expression excludes have the settings that they inherit.
            self.routes.push(Route {
                comment: format!("{}: not these", draft.comment),
                matching: Matching::Regex(except.clone()),
                when: draft.when.clone(),
                keys: draft
                    .otherwise
                    .as_ref()
                    .map(|keys| over_all(keys, &self.base, &beneath, self.root.as_ref()))
                    .unwrap_or_default(),
            });
        }
        let keys = over_all(&draft.keys, &self.base, &beneath, self.root.as_ref());
        let (comment, when) = (draft.comment.clone(), draft.when.clone());
        self.routes.push(Route { comment, matching: Matching::Regex(expression.text), when, keys });
    }

    /// Adds the routes of prefixes that are expressions, of which this one excludes all paths.
    fn excluded(&mut self, expression: &Expression) {
        let is_excluded = |place: &&Place| {
            let prefix = text_of(&place.draft.paths);
            place.is_regex && !place.is_preferred && expression.excludes_beneath(prefix)
        };
        let places: Vec<Place> = self.prefixes.iter().filter(is_excluded).cloned().collect();
        for place in places {
            let prefix = text_of(&place.draft.paths).to_owned();
            if !self.early.contains(&prefix) {
                self.early.push(prefix);
                place.before.iter().chain([&place.draft]).for_each(|draft| self.regex(draft));
            }
        }
    }

    pub(super) fn prefixes_as_expressions(&mut self, is_preferred: bool, drafts: &Drafts) {
        let is_wanted = |place: &&Place| {
            let is_written = self.early.iter().any(|prefix| prefix == text_of(&place.draft.paths));
            let is_own = !self.is_within_preferred(place) && !is_written;
            place.is_regex && place.is_preferred == is_preferred && is_own
        };
        let places: Vec<Place> = self.prefixes.iter().filter(is_wanted).cloned().collect();
        if is_preferred {
            self.within_preferred(drafts);
        }
        for place in &places {
            place.before.iter().chain([&place.draft]).for_each(|draft| self.regex(draft));
        }
        if is_preferred {
            // Expressions within a location come before those of the server.
            return;
        }
        let patterns: Vec<Place> =
            self.prefixes.iter().filter(|place| !place.is_regex).cloned().collect();
        for draft in patterns.iter().flat_map(|place| &place.before) {
            if matches!(draft.paths, Paths::Regex(_)) {
                self.regex(draft);
            }
        }
    }

    fn is_within_preferred(&self, place: &Place) -> bool {
        let prefix = text_of(&place.draft.paths);
        let outer = self.prefixes.iter().filter(|outer| outer.is_regex && outer.is_preferred);
        !place.is_preferred
            && outer.into_iter().any(|outer| prefix.starts_with(text_of(&outer.draft.paths)))
    }

    /// Longer prefixes beneath `^~` ones, for which expressions are tried nevertheless, come before these.
    fn within_preferred(&mut self, drafts: &Drafts) {
        let within: Vec<Place> =
            self.prefixes.iter().filter(|place| self.is_within_preferred(place)).cloned().collect();
        for place in &within {
            let prefix = text_of(&place.draft.paths);
            for regex in &drafts.regexes {
                let Some(own) =
                    expression(&regex.draft).filter(|own| own.may_match_beneath(prefix))
                else {
                    continue;
                };
                let narrow = own.beneath(prefix);
                // One that is anchored cannot be narrowed; its own route comes too late beneath the prefix.
                if narrow != own {
                    self.regex(&Draft { paths: Paths::Regex(narrow), ..regex.draft.clone() });
                }
            }
            place.before.iter().chain([&place.draft]).for_each(|draft| self.regex(draft));
        }
    }

    pub(super) fn patterns(&mut self) {
        let mut places: Vec<Place> =
            self.prefixes.iter().filter(|place| !place.is_regex).cloned().collect();
        places.reverse();
        for place in &places {
            let prefix = text_of(&place.draft.paths).to_owned();
            if prefix != "/" {
                let base = self.inherited(&prefix, false);
                let matching = Matching::Paths(vec![format!("{}*", pattern_text(&prefix))]);
                let conditional =
                    self.conditional(|outer| prefix.starts_with(outer) && outer != prefix);
                self.push(&place.draft, matching, &base, &conditional);
            }
            for (at, draft) in place.before.iter().enumerate() {
                if !matches!(draft.paths, Paths::Regex(_)) {
                    let matching = Matching::Paths(vec![format!("{}*", pattern_text(&prefix))]);
                    self.push(draft, matching, &place.draft.keys, &later(place, at));
                }
            }
        }
    }

    pub(super) fn pattern(&mut self, draft: &Draft) {
        let base = self.base.clone();
        let matching = match &draft.paths {
            Paths::Exact(path) => Matching::Paths(vec![pattern_text(path)]),
            Paths::Prefix(path) => Matching::Paths(vec![format!("{}*", pattern_text(path))]),
            Paths::Regex(expression) => Matching::Regex(expression.text.clone()),
        };
        let conditional = self.conditional(|prefix| prefix == "/");
        self.push(draft, matching, &base, &conditional);
    }
}

/// Returns settings with the groups of an expression as one path has them; `None` if they have none.
fn of_path(keys: &Keys, expression: &Expression, path: &str) -> Option<Keys> {
    let mut changed = keys.clone();
    for (key, value) in keys.iter() {
        changed.set(key, value.with_texts(&|text| expression.fill(text, path)));
    }
    (changed != *keys).then_some(changed)
}
