//! Lookup of the settings of a path without trying every route.
//!
//! A literal route depends on the whole path; a pattern depends on a prefix and a suffix of the path. The longest known
//! prefix of a path determines which shorter ones it has, and the longest known suffix likewise. The settings of all
//! pairs of prefix and suffix are made when the configuration is read. A lookup searches for the two and indexes a
//! table.
//!
//! A path that is shorter than prefix and suffix together (`/abc` has the prefix `/ab` and the suffix `bc`) may be too
//! short for some patterns. There are few such paths; their settings are made as well.
//!
//! Of the regular expressions of a site only the first that matches a path applies. All of them are matched at once. If there are
//! few pairs that a path can have, of a cell of the table and an expression, their settings are made when the configuration is
//! read: the text with which each match of an expression begins leaves few cells for most of them. Otherwise a lookup returns the
//! pair, whose settings a request makes.

use std::collections::HashMap;
use std::sync::Arc;

use super::path_regex::{PathRegex, RegexList};
use super::pattern::Pattern;

/// The settings of every path of a site.
#[derive(Debug)]
pub struct RouteTable<T> {
    literal: HashMap<Vec<u8>, Arc<T>>,
    /// Prefixes of patterns.
    beginnings: Affixes,
    /// Suffixes of patterns, reversed.
    ends: Affixes,
    /// Settings by prefix and suffix; one row per prefix.
    table: Vec<Arc<T>>,
    /// Settings of paths in which prefix and suffix overlap.
    short: HashMap<Vec<u8>, Arc<T>>,
    regexes: Option<Regexes<T>>,
}

/// The regular expressions of a site.
#[derive(Debug)]
struct Regexes<T> {
    list: Arc<RegexList>,
    /// Settings by the index in the table and the position of the expression.
    settings: HashMap<Pair, Arc<T>>,
}

/// Maximum number of pairs of a beginning and an end; a file with more is rejected.
const MAX: usize = 1 << 18;

/// Maximum number of pairs of a cell and a regular expression whose settings are made before the first request.
const MAX_PAIRS: usize = 1 << 11;

/// The settings of a path in a table.
#[derive(Debug)]
pub enum Found<'t, T> {
    /// They are in the table.
    Made(&'t Arc<T>),
    /// There are too many pairs to make the settings of each: the patterns of this cell apply, and the regular expression at
    /// this position. All paths with the same pair have the same settings.
    Pair(Pair),
}

/// The index of a cell in a table, and the position of a regular expression.
pub type Pair = (usize, usize);

impl<T> RouteTable<T> {
    /// Makes the settings of every path by `make`, which gets the indexes of the matching patterns, from general to
    /// specific.
    ///
    /// # Errors There are too many patterns.
    pub(super) fn new(
        patterns: &[&Pattern],
        make: impl FnMut(&[usize]) -> T,
    ) -> Result<Self, String> {
        let mut maker = Maker::new(patterns, make)?;
        let is_plain = |pattern: &&&Pattern| !pattern.is_literal() && pattern.regex().is_none();
        let with_star = || patterns.iter().filter(is_plain);
        let beginnings = Affixes::new(with_star().map(|pattern| pattern.prefix().to_vec()));
        let ends = Affixes::new(with_star().map(|pattern| backwards(pattern.suffix())));
        let size = beginnings.all.len() * ends.all.len();
        if size > MAX {
            return Err(format!(
                "the patterns have {} beginnings and {} ends, which are more pairs than {MAX}",
                beginnings.all.len(),
                ends.all.len()
            ));
        }
        let mut table = Vec::with_capacity(size);
        let mut short = HashMap::new();
        for beginning in beginnings.iter() {
            for end in ends.iter() {
                let end = backwards(end);
                // No pattern contains a NUL, so that this path has no longer prefix or suffix.
                table.push(maker.of(&[beginning, b"\0", &end].concat(), None));
                for overlap in 1..=beginning.len().min(end.len()) {
                    if beginning.ends_with(&end[..overlap]) {
                        let path = [beginning, &end[overlap..]].concat();
                        let settings = maker.of_path(&path);
                        short.insert(path, settings);
                    }
                }
            }
        }
        let literals = patterns.iter().filter(|pattern| pattern.is_literal());
        let literal = literals
            .map(|pattern| (pattern.prefix().to_vec(), maker.of_path(pattern.prefix())))
            .collect();
        let regexes = maker.regexes(&beginnings, &ends);
        Ok(Self { literal, beginnings, ends, table, short, regexes })
    }

    /// Creates a table with the same settings for every path.
    pub(super) fn same_for_all(settings: T) -> Self {
        Self {
            literal: HashMap::new(),
            beginnings: Affixes::new(std::iter::empty()),
            ends: Affixes::new(std::iter::empty()),
            table: vec![Arc::new(settings)],
            short: HashMap::new(),
            regexes: None,
        }
    }

    /// Maps all settings by `make`, which is called once for each.
    pub fn map<U>(&self, mut make: impl FnMut(&Arc<T>) -> U) -> RouteTable<U> {
        let mut made: HashMap<*const T, Arc<U>> = HashMap::new();
        let mut map = |settings: &Arc<T>| {
            let made = made.entry(Arc::as_ptr(settings));
            Arc::clone(made.or_insert_with(|| Arc::new(make(settings))))
        };
        let mut map_all = |settings: &HashMap<Vec<u8>, Arc<T>>| -> HashMap<Vec<u8>, Arc<U>> {
            settings.iter().map(|(path, settings)| (path.clone(), map(settings))).collect()
        };
        let (literal, short) = (map_all(&self.literal), map_all(&self.short));
        let regexes = self.regexes.as_ref().map(|regexes| Regexes {
            list: Arc::clone(&regexes.list),
            settings: regexes.settings.iter().map(|(at, of)| (*at, map(of))).collect(),
        });
        RouteTable {
            literal,
            beginnings: self.beginnings.clone(),
            ends: self.ends.clone(),
            table: self.table.iter().map(map).collect(),
            short,
            regexes,
        }
    }

    /// Returns all settings that were made; some occur more than once.
    pub fn values(&self) -> impl Iterator<Item = &Arc<T>> {
        let of_regexes = self.regexes.iter().flat_map(|regexes| regexes.settings.values());
        self.literal.values().chain(&self.table).chain(self.short.values()).chain(of_regexes)
    }

    /// Returns the settings of a decoded path.
    #[inline]
    pub fn find(&self, path: &[u8]) -> Found<'_, T> {
        if let ([settings], true, None) = (&self.table[..], self.literal.is_empty(), &self.regexes)
        {
            return Found::Made(settings);
        }
        let (settings, cell) = self.search(path);
        let of_regex = self.regexes.as_ref().zip(cell).and_then(|(regexes, cell)| {
            let pair = (cell, regexes.list.first(path)?);
            Some(regexes.settings.get(&pair).map_or(Found::Pair(pair), Found::Made))
        });
        of_regex.unwrap_or(Found::Made(settings))
    }

    /// Returns `true` if the settings of all paths were made.
    pub fn is_complete(&self) -> bool {
        self.regexes.as_ref().is_none_or(|regexes| !regexes.settings.is_empty())
    }

    /// Returns the settings of a decoded path, where no regular expression applies to it.
    pub(super) fn find_by_pattern(&self, path: &[u8]) -> &Arc<T> {
        self.search(path).0
    }

    /// Returns the settings that the patterns give, and the index of the cell beside whose patterns a regular expression may apply.
    fn search(&self, path: &[u8]) -> (&Arc<T>, Option<usize>) {
        if let Some(settings) = self.literal.get(path) {
            return (settings, None);
        }
        let (beginning, end) = (self.beginnings.at_beginning(path), self.ends.at_end(path));
        let together = self.beginnings.all[beginning].text.len() + self.ends.all[end].text.len();
        if together > path.len()
            && let Some(settings) = self.short.get(path)
        {
            return (settings, None);
        }
        let cell = beginning * self.ends.all.len() + end;
        (&self.table[cell], Some(cell))
    }
}

fn backwards(text: &[u8]) -> Vec<u8> {
    text.iter().rev().copied().collect()
}

/// Makes settings once for each set of patterns.
struct Maker<'a, F, T> {
    patterns: &'a [&'a Pattern],
    /// Indexes of the regular expressions in `patterns`, in the order of the file.
    regexes: Vec<usize>,
    list: Arc<RegexList>,
    make: F,
    made: HashMap<Vec<usize>, Arc<T>>,
}

impl<'a, T, F: FnMut(&[usize]) -> T> Maker<'a, F, T> {
    fn new(patterns: &'a [&'a Pattern], make: F) -> Result<Self, String> {
        // The patterns are sorted: the first expression of the file is the last of them.
        let indexes = (0..patterns.len()).rev();
        let regexes: Vec<usize> = indexes.filter(|&at| patterns[at].regex().is_some()).collect();
        let list = RegexList::new(regexes.iter().filter_map(|&at| patterns[at].regex()))?;
        Ok(Self { patterns, regexes, list: Arc::new(list), make, made: HashMap::new() })
    }

    /// Returns the settings of a path.
    fn of_path(&mut self, path: &[u8]) -> Arc<T> {
        let first = self.list.first(path).map(|first| self.regexes[first]);
        self.of(path, first)
    }

    /// Returns the settings of a path for which the regular expression at `first` is the first that matches.
    fn of(&mut self, path: &[u8], first: Option<usize>) -> Arc<T> {
        // One expression may have several routes, for the values of a map.
        let first = first.and_then(|first| self.patterns[first].regex()).map(PathRegex::order);
        let matches = |at: &usize| match self.patterns[*at].regex() {
            Some(regex) => first == Some(regex.order()),
            None => self.patterns[*at].matches(path),
        };
        let matching: Vec<usize> = (0..self.patterns.len()).filter(matches).collect();
        if let Some(settings) = self.made.get(&matching) {
            return Arc::clone(settings);
        }
        let settings = Arc::new((self.make)(&matching));
        self.made.insert(matching, Arc::clone(&settings));
        settings
    }

    /// Makes the settings of each cell and each regular expression that a path can have together, or of none if these are too
    /// many.
    fn regexes(&mut self, beginnings: &Affixes, ends: &Affixes) -> Option<Regexes<T>> {
        if self.regexes.is_empty() {
            return None;
        }
        let mut settings = HashMap::new();
        'all: for (position, at) in self.regexes.clone().into_iter().enumerate() {
            let prefix = self.patterns[at].prefix();
            let nearest = beginnings.at_beginning(prefix);
            for (row, beginning) in beginnings.iter().enumerate() {
                if row != nearest && !beginning.starts_with(prefix) {
                    continue;
                }
                for (column, end) in ends.iter().enumerate() {
                    let path = [beginning, b"\0", &backwards(end)].concat();
                    let cell = row * ends.all.len() + column;
                    settings.insert((cell, position), self.of(&path, Some(at)));
                }
                if settings.len() > MAX_PAIRS {
                    settings.clear();
                    break 'all;
                }
            }
        }
        Some(Regexes { list: Arc::clone(&self.list), settings })
    }
}

/// Prefixes (or reversed suffixes) in lexical order; the first is empty.
#[derive(Debug, Clone)]
struct Affixes {
    all: Vec<Affix>,
}

#[derive(Debug, Clone)]
struct Affix {
    text: Vec<u8>,
    /// Index of the longest other entry that is a prefix of this one; the empty one refers to itself.
    parent: usize,
}

impl Affixes {
    fn new(texts: impl Iterator<Item = Vec<u8>>) -> Self {
        let mut texts: Vec<Vec<u8>> = texts.chain([Vec::new()]).collect();
        texts.sort();
        texts.dedup();
        let mut all: Vec<Affix> = Vec::with_capacity(texts.len());
        for text in texts {
            // The previous entry, or one of its parents, is the longest prefix of this one.
            let mut parent = all.len().saturating_sub(1);
            while all.get(parent).is_some_and(|affix| !text.starts_with(&affix.text)) {
                parent = all[parent].parent;
            }
            all.push(Affix { text, parent });
        }
        Self { all }
    }

    fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.all.iter().map(|affix| &affix.text[..])
    }

    /// Returns the index of the longest entry that is a prefix of a path. `is_up_to` returns `true` for texts up to the path in
    /// lexical order, `begins` for its prefixes.
    fn longest(&self, is_up_to: impl Fn(&[u8]) -> bool, begins: impl Fn(&[u8]) -> bool) -> usize {
        // All texts between a prefix of the path and the path itself, in lexical order, have that prefix. Therefore the
        // last entry up to the path, or one of its parents, is the longest.
        let after = self.all.partition_point(|affix| is_up_to(&affix.text));
        let mut at = after.saturating_sub(1);
        while !begins(&self.all[at].text) {
            at = self.all[at].parent;
        }
        at
    }

    /// Returns the index of the longest entry with which `path` begins.
    fn at_beginning(&self, path: &[u8]) -> usize {
        self.longest(|text| text <= path, |text| path.starts_with(text))
    }

    /// Returns the index of the longest reversed entry with which `path` ends.
    fn at_end(&self, path: &[u8]) -> usize {
        let backwards = || path.iter().rev();
        self.longest(
            |text| text.iter().le(backwards()),
            |text| backwards().take(text.len()).eq(text),
        )
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use proptest::prelude::*;

    use super::*;
    use crate::file::Route;
    use crate::map::Maps;
    use crate::merge::Patterns;
    use crate::settings::Settings;

    /// Returns what the table, which makes all settings, has for a path.
    fn found<'t>(table: &'t RouteTable<Settings>, path: &str) -> &'t Settings {
        match table.find(path.as_bytes()) {
            Found::Made(settings) => settings,
            Found::Pair(pair) => panic!("no settings for {pair:?}"),
        }
    }

    /// Settings whose index names are the numbers of the patterns.
    fn settings(matching: &[usize]) -> Settings {
        let mut settings = Settings::new(
            &Route::default(),
            PathBuf::new(),
            0,
            Patterns::everything(&Maps::default()),
            &mut |_, _| {},
        );
        settings.index = matching.iter().map(ToString::to_string).collect();
        settings
    }

    proptest! {
        #[test]
        fn the_table_equals_the_result_of_trying_every_pattern(
            texts in prop::collection::hash_set("[/*][ab/]{0,3}[*]?[ab/]{0,3}", 0..8),
            paths in prop::collection::vec("/[ab/]{0,7}", 1..40),
        ) {
            let patterns: Vec<Pattern> =
                texts.iter().filter_map(|text| Pattern::parse(text).ok()).collect();
            let table = RouteTable::new(&patterns.iter().collect::<Vec<_>>(), settings).unwrap();
            for path in paths {
                let matching: Vec<String> = (0..patterns.len())
                    .filter(|&at| patterns[at].matches(path.as_bytes()))
                    .map(|at| at.to_string())
                    .collect();
                prop_assert_eq!(&found(&table, &path).index, &matching, "{}", path);
            }
        }
    }

    proptest! {
        #[test]
        fn the_first_regular_expression_applies_besides_the_patterns(
            texts in prop::collection::hash_set("[/*][ab/]{0,3}[*]?[ab/]{0,3}", 0..6),
            expressions in prop::collection::hash_set(r"\^?/?[ab]{0,2}(\(a\|b\))?[/b.]{0,2}\$?", 1..5),
            paths in prop::collection::vec("/[ab/]{0,6}", 1..40),
        ) {
            let mut patterns: Vec<Pattern> =
                texts.iter().filter_map(|text| Pattern::parse(text).ok()).collect();
            let regexes = expressions.iter().enumerate();
            patterns.extend(regexes.map(|(order, text)| {
                Pattern::of_regex(PathRegex::parse(text, order).unwrap())
            }));
            patterns.sort_by(Pattern::specificity);
            let table = RouteTable::new(&patterns.iter().collect::<Vec<_>>(), settings).unwrap();
            for path in paths {
                let first = first_of(&patterns, path.as_bytes());
                let applies = |&at: &usize| match patterns[at].regex() {
                    None => patterns[at].matches(path.as_bytes()),
                    Some(_) => first == Some(at),
                };
                let matching: Vec<String> =
                    (0..patterns.len()).filter(applies).map(|at| at.to_string()).collect();
                prop_assert_eq!(&found(&table, &path).index, &matching, "{}", path);
            }
        }
    }

    /// Returns the index of the regular expression that stands first in the file among those that match.
    fn first_of(patterns: &[Pattern], path: &[u8]) -> Option<usize> {
        let matching = (0..patterns.len()).filter(|&at| patterns[at].matches(path));
        matching.filter_map(|at| Some((patterns[at].regex()?.order(), at))).min().map(|(_, at)| at)
    }

    #[test]
    fn too_many_pairs_are_rejected() {
        let patterns: Vec<Pattern> =
            (0..600).map(|n| Pattern::parse(&format!("/{n}*{n}")).unwrap()).collect();
        assert!(RouteTable::new(&patterns.iter().collect::<Vec<_>>(), settings).is_err());
    }
}
