//! Names of files whose versions have different names: which part of a name changes with the content.
//!
//! Build tools put a hash or a version into names (`app.3f2a.js`, `index-B3kLa_x9.js`, `jquery-3.7.1.min.js`). A hash is known by its
//! letters, a version by its predecessor: a name that differs in one part, and whose file no longer exists.

use std::fmt::Write;

/// Decoded paths of files that may be versions of one file: a directory, and a name of which one or more parts vary.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pattern {
    /// The text between the parts that vary; the path if there is only one.
    pieces: Vec<Box<[u8]>>,
}

/// Separates the pieces in the text form, as no path has it.
const VARYING: u8 = 0;

/// A hash of Vite and Rollup has this length, and may contain the characters that separate parts of names.
const URL_SAFE_HASH: usize = 8;

impl Pattern {
    /// Returns the pattern of a path by its hashes. A name that is nothing but a hash has no part that is known to stay.
    pub fn of(path: &[u8]) -> Self {
        let parts = parts(path);
        let Some(stem) = parts.last().map(|end| end.start.saturating_sub(1)) else {
            return Self::exact(path);
        };
        let name = path.len() - name_of(path).len();
        if let Some(start) = stem.checked_sub(URL_SAFE_HASH)
            && start > name + 1
            && matches!(path[start - 1], b'-' | b'.')
            && is_url_safe_hash(&path[start..stem])
        {
            return Self::varying(path, Some(start..stem));
        }
        let inner = parts.get(1..parts.len() - 1).unwrap_or_default();
        let hashes = inner.iter().filter(|part| is_hash(&path[(*part).clone()])).cloned();
        Self::varying(path, hashes)
    }

    /// Returns the pattern of two paths that differ in one part of the name, which is neither its first nor its last.
    pub fn between(one: &[u8], other: &[u8]) -> Option<Self> {
        let (ones, others) = (parts(one), parts(other));
        if ones.len() != others.len() || directory_of(one) != directory_of(other) {
            return None;
        }
        let mut differing =
            (0..ones.len()).filter(|&at| one[ones[at].clone()] != other[others[at].clone()]);
        let at = differing.next().filter(|&at| at > 0 && at + 1 < ones.len())?;
        let pattern = Self::varying(one, Some(ones[at].clone()));
        (differing.next().is_none() && pattern.matches(other)).then_some(pattern)
    }

    /// Returns the beginning of a path that all its versions have: with the first part of the name.
    pub(crate) fn stem(path: &[u8]) -> &[u8] {
        parts(path).first().map_or(path, |first| &path[..first.end])
    }

    /// Returns the pattern of one path.
    pub(crate) fn exact(path: &[u8]) -> Self {
        Self { pieces: vec![path.into()] }
    }

    fn varying(path: &[u8], ranges: impl IntoIterator<Item = std::ops::Range<usize>>) -> Self {
        let mut pieces: Vec<Box<[u8]>> = Vec::new();
        let mut at = 0;
        for range in ranges {
            pieces.push(path[at..range.start].into());
            at = range.end;
        }
        pieces.push(path[at..].into());
        Self { pieces }
    }

    /// Reads the text form.
    pub(crate) fn from_bytes(text: &[u8]) -> Self {
        Self { pieces: text.split(|&b| b == VARYING).map(Into::into).collect() }
    }

    /// Returns the text form.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        self.pieces.join(&VARYING)
    }

    /// Returns `true` if no part varies.
    pub fn is_exact(&self) -> bool {
        self.pieces.len() == 1
    }

    /// Returns `true` if a path has the pattern. What varies is not empty and stays within the directory.
    pub fn matches(&self, path: &[u8]) -> bool {
        let Some((first, rest)) = self.pieces.split_first() else { return false };
        let Some(mut left) = path.strip_prefix(&**first) else { return false };
        let Some((last, middle)) = rest.split_last() else { return left.is_empty() };
        for piece in middle {
            let found = (1..left.len()).find(|&at| left[at..].starts_with(piece));
            let Some(at) = found.filter(|&at| !left[..at].contains(&b'/')) else { return false };
            left = &left[at + piece.len()..];
        }
        left.strip_suffix(&**last).is_some_and(|part| !part.is_empty() && !part.contains(&b'/'))
    }

    /// Returns the URL pattern of the paths, for `Use-As-Dictionary`.
    pub fn to_url_pattern(&self) -> String {
        let pieces: Vec<String> = self.pieces.iter().map(|piece| escaped(piece)).collect();
        pieces.join("*")
    }
}

/// Returns the text of a path in a URL pattern: percent-encoded as browsers do, and with a backslash before characters of patterns.
pub(crate) fn escaped(path: &[u8]) -> String {
    let mut text = String::with_capacity(path.len());
    for &byte in path {
        match byte {
            b'(' | b')' | b'*' | b'+' | b':' => {
                text.push('\\');
                text.push(char::from(byte));
            }
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => text.push(char::from(byte)),
            _ if b"/-._~!$&',;=@".contains(&byte) => text.push(char::from(byte)),
            // Writing to a string does not fail.
            _ => drop(write!(text, "%{byte:02X}")),
        }
    }
    text
}

/// Returns the last segment of a path.
fn name_of(path: &[u8]) -> &[u8] {
    path.rsplit(|&b| b == b'/').next().unwrap_or_default()
}

fn directory_of(path: &[u8]) -> &[u8] {
    &path[..path.len() - name_of(path).len()]
}

/// Returns the ranges of the parts of the name between `.`, `-`, `_`, `~` and `@`.
fn parts(path: &[u8]) -> Vec<std::ops::Range<usize>> {
    let mut parts = Vec::new();
    let mut start = path.len() - name_of(path).len();
    for part in name_of(path).split(|b| matches!(b, b'.' | b'-' | b'_' | b'~' | b'@')) {
        parts.push(start..start + part.len());
        start += part.len() + 1;
    }
    parts
}

/// Returns `true` if a part of a name looks like a hash: hexadecimal digits with letters, a long number, or letters of both cases and
/// digits without a pattern.
fn is_hash(part: &[u8]) -> bool {
    let has = |kind: fn(&u8) -> bool| part.iter().any(kind);
    let (digits, letters) = (has(u8::is_ascii_digit), has(u8::is_ascii_alphabetic));
    if !part.iter().all(u8::is_ascii_alphanumeric) {
        return false;
    }
    match part.len() {
        4..8 => digits && letters && part.iter().all(u8::is_ascii_hexdigit),
        8..=128 => digits,
        _ => false,
    }
}

/// Returns `true` if text looks like a hash in Base64 of URLs: digits or capitals within it.
fn is_url_safe_hash(text: &[u8]) -> bool {
    let is_safe = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_');
    let varies = |b: &u8| b.is_ascii_digit() || b.is_ascii_uppercase();
    text.iter().all(is_safe)
        && text[1..].iter().any(varies)
        && text.iter().any(u8::is_ascii_alphabetic)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pattern(path: &str) -> String {
        Pattern::of(path.as_bytes()).to_url_pattern()
    }

    #[test]
    fn hashes_in_names_vary() {
        for (path, expected) in [
            ("/assets/app.3f2a.js", "/assets/app.*.js"),
            ("/app.js", "/app.js"),
            ("/", "/"),
            ("/a/index.html", "/a/index.html"),
            ("/assets/index-B3kLa_x9.js", "/assets/index-*.js"),
            ("/assets/index-DiwrgTda.css", "/assets/index-*.css"),
            ("/static/js/main.8f3b2c1d.chunk.js", "/static/js/main.*.chunk.js"),
            (
                "/_next/static/chunks/4bd1b696-52b6e96e04d3d8b8.js",
                "/_next/static/chunks/4bd1b696-*.js",
            ),
            ("/app.1718000000.min.js", "/app.*.min.js"),
            ("/d41d8cd98f00b204e9800998ecf8427e.js", "/d41d8cd98f00b204e9800998ecf8427e.js"),
            ("/jquery-3.7.1.min.js", "/jquery-3.7.1.min.js"),
            ("/bootstrap.bundle.min.js", "/bootstrap.bundle.min.js"),
            ("/ein b(1)+.js", "/ein%20b\\(1\\)\\+.js"),
            ("/\u{e9}.css", "/%C3%A9.css"),
            ("", ""),
            ("/.", "/."),
        ] {
            assert_eq!(pattern(path), expected, "{path}");
        }
    }

    #[test]
    fn a_version_is_known_by_its_predecessor() {
        let between = |one: &str, other: &str| {
            Pattern::between(one.as_bytes(), other.as_bytes()).map(|found| found.to_url_pattern())
        };
        let found = between("/jquery-3.7.1.min.js", "/jquery-3.7.2.min.js");
        assert_eq!(found.as_deref(), Some("/jquery-3.7.*.min.js"));
        for (one, other) in [
            ("/a.js", "/b.js"),
            ("/a.1.js", "/a.1.css"),
            ("/a.1.js", "/a.1.js"),
            ("/a.1.2.js", "/a.2.1.js"),
            ("/x/a.1.js", "/y/a.2.js"),
            ("/a.1.js", "/a.1.2.js"),
        ] {
            assert_eq!(between(one, other), None, "{one} {other}");
        }
    }

    #[test]
    fn versions_of_a_file_have_its_pattern() {
        let pattern = Pattern::of(b"/js/main.8f3b2c1d.chunk.js");
        assert!(pattern.matches(b"/js/main.8f3b2c1d.chunk.js"));
        assert!(pattern.matches(b"/js/main.00.chunk.js"));
        for other in ["/js/main..chunk.js", "/js/main.a/b.chunk.js", "/js/main.a.chunk.css", "/js/"]
        {
            assert!(!pattern.matches(other.as_bytes()), "{other}");
        }
        assert_eq!(Pattern::from_bytes(&pattern.to_bytes()), pattern);
        assert!(Pattern::of(b"/a.js").is_exact() && !pattern.is_exact());
    }

    proptest! {
        #[test]
        fn a_path_has_its_pattern(path in "/[a-cA-C0-3./_~@-]{0,40}") {
            let pattern = Pattern::of(path.as_bytes());
            prop_assert!(pattern.matches(path.as_bytes()), "{pattern:?}");
            prop_assert_eq!(Pattern::from_bytes(&pattern.to_bytes()), pattern);
        }
    }
}
