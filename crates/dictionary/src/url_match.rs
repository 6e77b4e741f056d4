//! The URLs for which browsers use a dictionary that the server has made: a path with `*` for any text.

use super::pattern;

/// The value of `match` (RFC 9842 §2.1.1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UrlMatch {
    /// The text between the parts that vary, as in URLs.
    pieces: Vec<String>,
    url_pattern: String,
}

impl UrlMatch {
    /// Creates the match of a decoded path, in which `*` is any text.
    pub fn new(path: &str) -> Self {
        let pieces: Vec<String> =
            path.split('*').map(|piece| pattern::escaped(piece.as_bytes())).collect();
        let url_pattern = pieces.join("*");
        Self {
            pieces: pieces.into_iter().map(|piece| piece.replace('\\', "")).collect(),
            url_pattern,
        }
    }

    /// Returns `true` if one URL matches only.
    pub fn is_exact(&self) -> bool {
        self.pieces.len() == 1
    }

    /// Returns `true` if the path of a URL matches.
    pub fn matches(&self, path: &[u8]) -> bool {
        let Some((first, rest)) = self.pieces.split_first() else { return false };
        let Some(mut left) = path.strip_prefix(first.as_bytes()) else { return false };
        let Some((last, middle)) = rest.split_last() else { return left.is_empty() };
        for piece in middle {
            let mut places = 0..=left.len().saturating_sub(piece.len());
            let Some(at) = places.find(|&at| left[at..].starts_with(piece.as_bytes())) else {
                return false;
            };
            left = &left[at + piece.len()..];
        }
        left.ends_with(last.as_bytes())
    }

    /// Returns the URL pattern.
    pub fn as_url_pattern(&self) -> &str {
        &self.url_pattern
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_is_any_text() {
        for (pattern, path, expected) in [
            ("/blog/*", "/blog/", true),
            ("/blog/*", "/blog/2026/a.html", true),
            ("/blog/*", "/blog", false),
            ("/a", "/a", true),
            ("/a", "/ab", false),
            ("/*/b*c", "/x/y/bc", true),
            ("/*/b*c", "/x/y/cb", false),
            ("/*.html", "/a/b.html", true),
            ("/ab*ba", "/aba", false),
            ("/é/*", "/%C3%A9/x", true),
        ] {
            assert_eq!(
                UrlMatch::new(pattern).matches(path.as_bytes()),
                expected,
                "{pattern} {path}"
            );
        }
        assert!(UrlMatch::new("/a").is_exact() && !UrlMatch::new("/*").is_exact());
    }

    #[test]
    fn characters_of_patterns_are_escaped() {
        let found = UrlMatch::new("/a(b)+/:x/*");
        assert_eq!(found.as_url_pattern(), "/a\\(b\\)\\+/\\:x/*");
        assert!(found.matches(b"/a(b)+/:x/y"));
    }
}
