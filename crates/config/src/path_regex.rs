//! Regular expressions for paths. They match in linear time.

use std::sync::Arc;

use regex::bytes::{Regex, RegexBuilder, RegexSet, RegexSetBuilder};
use regex_syntax::hir::literal::{ExtractKind, Extractor};

use super::captures::Captures;
use super::regex_memo::{self, ListId};

/// A regular expression for decoded paths.
#[derive(Debug, Clone)]
pub(super) struct PathRegex {
    compiled: Arc<Compiled>,
    /// Position among the regular expressions of the site.
    order: usize,
}

#[derive(Debug)]
struct Compiled {
    text: String,
    regex: Regex,
    /// The text with which each match begins.
    prefix: Vec<u8>,
}

/// Memory of one compiled expression in bytes.
const MAX_SIZE: usize = 1 << 20;

/// Compiles an expression, with the bound of memory that each of a configuration has.
///
/// # Errors
/// The expression is malformed or too large.
pub(super) fn compile(text: &str, is_caseless: bool) -> Result<Regex, regex::Error> {
    RegexBuilder::new(text).size_limit(MAX_SIZE).case_insensitive(is_caseless).build()
}

impl PathRegex {
    /// Compiles an expression.
    ///
    /// # Errors
    /// The expression is malformed or too large. The error is one line.
    pub(super) fn parse(text: &str, order: usize) -> Result<Self, String> {
        let regex = compile(text, false).map_err(describe)?;
        let compiled = Compiled { text: text.to_owned(), regex, prefix: prefix_of(text) };
        Ok(Self { compiled: Arc::new(compiled), order })
    }

    pub(super) fn text(&self) -> &str {
        &self.compiled.text
    }

    /// Returns the position among the regular expressions of the site.
    pub(super) fn order(&self) -> usize {
        self.order
    }

    /// Returns the text with which each path that matches begins.
    pub(super) fn prefix(&self) -> &[u8] {
        &self.compiled.prefix
    }

    pub(super) fn matches(&self, path: &[u8]) -> bool {
        self.compiled.regex.is_match(path)
    }

    /// Returns the names and numbers of the groups.
    pub(super) fn names(&self) -> Vec<String> {
        let groups = self.compiled.regex.capture_names().enumerate().skip(1);
        groups
            .flat_map(|(number, name)| [Some(number.to_string()), name.map(str::to_owned)])
            .flatten()
            .collect()
    }

    /// Returns what the first group matches, or the path if there is no group.
    pub(super) fn rest<'p>(&self, path: &'p [u8]) -> &'p [u8] {
        self.captures(path).rest()
    }

    pub(super) fn captures<'p>(&self, path: &'p [u8]) -> Captures<'_, 'p> {
        let Some(found) = self.compiled.regex.captures(path) else {
            return Captures::of_rest(path);
        };
        let groups: Vec<_> =
            found.iter().map(|group| Some(&path[group?.start()..group?.end()])).collect();
        let rest = groups.get(1).map_or(path, |group| group.unwrap_or_default());
        let names = self.compiled.regex.capture_names().collect();
        Captures::of_groups(rest, groups, names)
    }
}

impl PartialEq for PathRegex {
    fn eq(&self, other: &Self) -> bool {
        self.text() == other.text()
    }
}

impl Eq for PathRegex {}

/// The regular expressions of a site, of which the first that matches a path is wanted.
#[derive(Debug, Clone)]
pub(super) struct RegexList {
    set: RegexSet,
    id: ListId,
}

/// From this number of expressions on, what was found is remembered.
const MANY: usize = 8;

impl RegexList {
    /// Creates a list of expressions in their order.
    ///
    /// # Errors
    /// All of them together are too large.
    pub(super) fn new<'r>(all: impl Iterator<Item = &'r PathRegex>) -> Result<Self, String> {
        let texts: Vec<&str> = all.map(PathRegex::text).collect();
        let limit = MAX_SIZE * texts.len().max(1);
        let set = RegexSetBuilder::new(texts).size_limit(limit).build().map_err(describe)?;
        Ok(Self { set, id: ListId::next() })
    }

    /// Returns the position of the first expression that matches.
    pub(super) fn first(&self, path: &[u8]) -> Option<usize> {
        match self.set.len() {
            MANY.. => regex_memo::first(self.id, path, |path| self.all(path).next()),
            _ => self.all(path).next(),
        }
    }

    /// Returns the positions of all expressions that match.
    pub(super) fn all(&self, path: &[u8]) -> impl Iterator<Item = usize> {
        // Most paths match none, which takes a third of the time.
        let matching = self.set.is_match(path).then(|| self.set.matches(path));
        matching.into_iter().flatten()
    }
}

/// Returns the literal with which every match of an anchored expression begins; empty if there is none.
fn prefix_of(text: &str) -> Vec<u8> {
    let Ok(hir) = regex_syntax::ParserBuilder::new().utf8(false).build().parse(text) else {
        return Vec::new();
    };
    let starts = hir.properties().look_set_prefix();
    if !starts.contains(regex_syntax::hir::Look::Start) {
        return Vec::new();
    }
    let mut extractor = Extractor::new();
    extractor.kind(ExtractKind::Prefix);
    let found = extractor.extract(&hir);
    found.longest_common_prefix().map(<[u8]>::to_vec).unwrap_or_default()
}

/// Returns the reason of an error in one line.
pub(super) fn describe(error: regex::Error) -> String {
    match error {
        regex::Error::CompiledTooBig(_) => "it is too large when compiled".to_owned(),
        error => {
            let text = error.to_string();
            let reason = text.lines().next_back().unwrap_or_default();
            reason.trim_start_matches("error: ").to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn regex(text: &str) -> PathRegex {
        PathRegex::parse(text, 0).unwrap()
    }

    #[test]
    fn groups_have_numbers_and_names() {
        let user = regex("^/user/(?<name>[a-z]+)(/.*)?$");
        assert_eq!(user.names(), ["1", "name", "2"]);
        let captures = user.captures(b"/user/ab");
        assert_eq!(captures.group("name"), Some(&b"ab"[..]));
        assert_eq!((captures.group("1"), captures.group("2")), (Some(&b"ab"[..]), None));
        assert_eq!((captures.rest(), user.rest(b"/user/ab")), (&b"ab"[..], &b"ab"[..]));
        assert_eq!(regex(r"\.php$").rest(b"/a.php"), b"/a.php");
    }

    #[test]
    fn the_prefix_is_that_of_each_match() {
        for (text, prefix) in [
            ("^/user/(?<name>[a-z]+)$", "/user/"),
            ("^/a(b|c)", "/a"),
            ("^/ab|^/ac", "/a"),
            ("^/ab|/ac", ""),
            ("/a", ""),
            (r"\.php$", ""),
            ("(?i)^/a", "/"),
            ("^", ""),
            ("^/only$", "/only"),
        ] {
            assert_eq!(regex(text).prefix(), prefix.as_bytes(), "{text}");
        }
    }

    #[test]
    fn errors_are_one_line() {
        for text in ["(", "a{2", "[z-a]", "(?<a>x)(?<a>y)", "\\p{Nothing}", "(?=a)", "\\1"] {
            let error = PathRegex::parse(text, 0).unwrap_err();
            assert!(!error.is_empty() && !error.contains('\n'), "{text}: {error}");
        }
        let error = PathRegex::parse("(a{1000}){1000}", 0).unwrap_err();
        assert_eq!(error, "it is too large when compiled");
    }
}
