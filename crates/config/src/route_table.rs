//! Lookup of the settings of a path without trying every route.
//!
//! A literal route depends on the whole path; a pattern depends on a prefix and a suffix of the path. The longest known
//! prefix of a path determines which shorter ones it has, and the longest known suffix likewise. The settings of all
//! pairs of prefix and suffix are made when the configuration is read. A lookup searches for the two and indexes a
//! table.
//!
//! A path that is shorter than prefix and suffix together (`/abc` has the prefix `/ab` and the suffix `bc`) may be too
//! short for some patterns. There are few such paths; their settings are made as well.

use std::collections::HashMap;
use std::sync::Arc;

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
}

/// Maximum number of pairs; a file with more is rejected.
const MAX: usize = 1 << 18;

impl<T> RouteTable<T> {
    /// Makes the settings of every path by `make`, which gets the indexes of the matching patterns, from general to
    /// specific.
    ///
    /// # Errors There are too many patterns.
    pub(super) fn new(
        patterns: &[&Pattern],
        make: impl FnMut(&[usize]) -> T,
    ) -> Result<Self, String> {
        let mut maker = Maker { patterns, make, made: HashMap::new() };
        let with_star = || patterns.iter().filter(|pattern| !pattern.is_literal());
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
                table.push(maker.of(&[beginning, b"\0", &end].concat()));
                for overlap in 1..=beginning.len().min(end.len()) {
                    if beginning.ends_with(&end[..overlap]) {
                        let path = [beginning, &end[overlap..]].concat();
                        let settings = maker.of(&path);
                        short.insert(path, settings);
                    }
                }
            }
        }
        let literals = patterns.iter().filter(|pattern| pattern.is_literal());
        let literal = literals
            .map(|pattern| (pattern.prefix().to_vec(), maker.of(pattern.prefix())))
            .collect();
        Ok(Self { literal, beginnings, ends, table, short })
    }

    /// Creates a table with the same settings for every path.
    pub(super) fn same_for_all(settings: T) -> Self {
        Self {
            literal: HashMap::new(),
            beginnings: Affixes::new(std::iter::empty()),
            ends: Affixes::new(std::iter::empty()),
            table: vec![Arc::new(settings)],
            short: HashMap::new(),
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
        RouteTable {
            literal,
            beginnings: self.beginnings.clone(),
            ends: self.ends.clone(),
            table: self.table.iter().map(map).collect(),
            short,
        }
    }

    /// Returns all settings; some occur more than once.
    pub fn values(&self) -> impl Iterator<Item = &Arc<T>> {
        self.literal.values().chain(&self.table).chain(self.short.values())
    }

    /// Returns the settings of a decoded path.
    #[inline]
    pub fn find(&self, path: &[u8]) -> &Arc<T> {
        if let ([settings], true) = (&self.table[..], self.literal.is_empty()) {
            return settings;
        }
        self.search(path)
    }

    fn search(&self, path: &[u8]) -> &Arc<T> {
        if let Some(settings) = self.literal.get(path) {
            return settings;
        }
        let beginning = self.beginnings.longest(path.iter().copied());
        let end = self.ends.longest(path.iter().rev().copied());
        let together = self.beginnings.all[beginning].text.len() + self.ends.all[end].text.len();
        if together > path.len()
            && let Some(settings) = self.short.get(path)
        {
            return settings;
        }
        &self.table[beginning * self.ends.all.len() + end]
    }
}

fn backwards(text: &[u8]) -> Vec<u8> {
    text.iter().rev().copied().collect()
}

/// Makes settings once for each set of patterns.
struct Maker<'a, F, T> {
    patterns: &'a [&'a Pattern],
    make: F,
    made: HashMap<Vec<usize>, Arc<T>>,
}

impl<T, F: FnMut(&[usize]) -> T> Maker<'_, F, T> {
    fn of(&mut self, path: &[u8]) -> Arc<T> {
        let numbered = self.patterns.iter().enumerate();
        let matching: Vec<usize> =
            numbered.filter(|(_, pattern)| pattern.matches(path)).map(|(at, _)| at).collect();
        if let Some(settings) = self.made.get(&matching) {
            return Arc::clone(settings);
        }
        let settings = Arc::new((self.make)(&matching));
        self.made.insert(matching, Arc::clone(&settings));
        settings
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

    /// Returns the index of the longest entry that is a prefix of `path`.
    fn longest(&self, path: impl Iterator<Item = u8> + Clone) -> usize {
        // All texts between a prefix of the path and the path itself, in lexical order, have that prefix. Therefore the
        // last entry up to the path, or one of its parents, is the longest.
        let after = self.all.partition_point(|affix| affix.text.iter().copied().le(path.clone()));
        let mut at = after.saturating_sub(1);
        while !path.clone().take(self.all[at].text.len()).eq(self.all[at].text.iter().copied()) {
            at = self.all[at].parent;
        }
        at
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use proptest::prelude::*;

    use super::*;
    use crate::file::Route;
    use crate::merge::Patterns;
    use crate::settings::Settings;

    /// Settings whose index names are the numbers of the patterns.
    fn settings(matching: &[usize]) -> Settings {
        let mut settings = Settings::new(
            &Route::default(),
            PathBuf::new(),
            0,
            Patterns::EVERYTHING,
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
                prop_assert_eq!(&table.find(path.as_bytes()).index, &matching, "{}", path);
            }
        }
    }

    #[test]
    fn too_many_pairs_are_rejected() {
        let patterns: Vec<Pattern> =
            (0..600).map(|n| Pattern::parse(&format!("/{n}*{n}")).unwrap()).collect();
        assert!(RouteTable::new(&patterns.iter().collect::<Vec<_>>(), settings).is_err());
    }
}
