//! Path patterns: a literal, a text with one `*` that matches any text, or a regular expression.
//!
//! They are compared with decoded paths, which have neither empty nor `.` and `..` segments. `%23`, `%25`, `%2A` and `%3F` stand
//! for characters that have another meaning in a pattern, or would be taken for it.

use std::borrow::Cow;
use std::cmp::{Ordering, Reverse};

use super::captures::Captures;
use super::path_regex::PathRegex;

/// A pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pattern {
    /// The text before the `*`, the whole literal, or the text with which each match of the regular expression begins.
    prefix: Cow<'static, [u8]>,
    /// The text after the `*`; `None` without a `*`.
    suffix: Option<Cow<'static, [u8]>>,
    regex: Option<PathRegex>,
}

/// Returns what to write instead of a text that begins neither with `/` nor with `*`.
fn not_a_pattern(text: &str) -> String {
    let problem = format!("the pattern {text:?} begins neither with `/` nor with `*`");
    // As nginx and Apache mark regular expressions.
    let regex = text.trim_start_matches(['~', '*', ' ']);
    let is_regex = text.starts_with('~')
        || text.starts_with('^')
        || text.ends_with('$')
        || text.contains(['\\', '(', '|']);
    if let Some(extension) = extension(regex) {
        return format!("{problem}; write path = \"*.{extension}\"");
    }
    match is_regex {
        true => format!(
            "{problem}; a regular expression is written as regex = '{regex}', without `path`"
        ),
        false => format!("{problem}; write \"/{text}\""),
    }
}

/// Returns the extension that an expression such as `\.php$` matches.
fn extension(regex: &str) -> Option<&str> {
    let extension = regex.strip_prefix("\\.")?.strip_suffix('$')?;
    extension.bytes().all(|byte| byte.is_ascii_alphanumeric()).then_some(extension)
}

impl Pattern {
    /// Matches every path.
    pub(super) const EVERYTHING: Self =
        Self { prefix: Cow::Borrowed(b"/"), suffix: Some(Cow::Borrowed(b"")), regex: None };

    /// Matches every path, and is more general than every other pattern.
    pub(super) const SITE: Self =
        Self { prefix: Cow::Borrowed(b""), suffix: Some(Cow::Borrowed(b"")), regex: None };

    /// Creates the pattern of a regular expression.
    pub(super) fn of_regex(regex: PathRegex) -> Self {
        Self { prefix: regex.prefix().to_vec().into(), suffix: None, regex: Some(regex) }
    }

    pub(super) fn parse(text: &str) -> Result<Self, String> {
        if !text.starts_with(['/', '*']) {
            return Err(not_a_pattern(text));
        }
        if text.contains('\0') {
            return Err(format!("the pattern {text:?} contains a NUL, which no path does"));
        }
        check_form(text)?;
        let part = |text: &str| decode(text, SPECIAL).into_bytes().into();
        match text.split('*').collect::<Vec<_>>()[..] {
            [prefix] => Ok(Self { prefix: part(prefix), suffix: None, regex: None }),
            [prefix, suffix] => {
                Ok(Self { prefix: part(prefix), suffix: Some(part(suffix)), regex: None })
            }
            _ => Err(format!("the pattern {text:?} has more than one `*`")),
        }
    }

    pub(super) fn matches(&self, path: &[u8]) -> bool {
        if let Some(regex) = &self.regex {
            return regex.matches(path);
        }
        match &self.suffix {
            None => self.prefix == path,
            Some(suffix) => {
                path.len() >= self.prefix.len() + suffix.len()
                    && path.starts_with(&self.prefix)
                    && path.ends_with(suffix)
            }
        }
    }

    /// Returns `true` if the pattern matches every path.
    pub(super) fn is_everything(&self) -> bool {
        let everything = matches!(&*self.prefix, b"" | b"/");
        everything && self.suffix.as_deref().is_some_and(<[u8]>::is_empty)
    }

    /// Returns `true` if the pattern has no `*` and is no regular expression.
    pub(super) fn is_literal(&self) -> bool {
        self.suffix.is_none() && self.regex.is_none()
    }

    /// Returns the regular expression, if the pattern is one.
    pub(super) fn regex(&self) -> Option<&PathRegex> {
        self.regex.as_ref()
    }

    /// Returns the pattern of the path that lacks the last slash: `/a` for `/a/*`.
    pub(super) fn mount(&self) -> Option<Self> {
        let suffix = self.suffix.as_ref()?;
        let path = self.prefix.strip_suffix(b"/").filter(|path| !path.is_empty())?;
        suffix.is_empty().then(|| Self { prefix: path.to_vec().into(), suffix: None, regex: None })
    }

    /// Returns the text before the `*`, or the whole literal.
    pub(super) fn prefix(&self) -> &[u8] {
        &self.prefix
    }

    /// Returns the text after the `*`.
    pub(super) fn suffix(&self) -> &[u8] {
        self.suffix.as_deref().unwrap_or_default()
    }

    /// Returns a path that the pattern matches.
    pub(super) fn example(&self) -> Vec<u8> {
        let (prefix, suffix) = (self.prefix(), self.suffix());
        match (&self.suffix, prefix) {
            (None, _) => prefix.to_vec(),
            (_, []) => [b"/a", suffix].concat(),
            _ => [prefix, b"a", suffix].concat(),
        }
    }

    /// Returns the part of `path` that the `*` matches, or that follows the match of a regular expression.
    pub(super) fn rest<'p>(&self, path: &'p [u8]) -> &'p [u8] {
        if let Some(regex) = &self.regex {
            return regex.rest(path);
        }
        let suffix = self.suffix.as_ref().map_or(0, |suffix| suffix.len());
        path.get(self.prefix.len()..path.len().saturating_sub(suffix)).unwrap_or_default()
    }

    /// Returns what the pattern captures of `path`, for templates.
    pub(super) fn captures<'p>(&self, path: &'p [u8]) -> Captures<'_, 'p> {
        match &self.regex {
            Some(regex) => regex.captures(path),
            None => Captures::of_rest(self.rest(path)),
        }
    }

    /// Returns the names by which templates can have captures of a regular expression.
    pub(super) fn capture_names(&self) -> Vec<String> {
        self.regex.as_ref().map(PathRegex::names).unwrap_or_default()
    }

    /// Returns `true` if the expression has nothing before this group, whose text then begins with the slash of the path.
    pub(super) fn begins_with_group(&self, name: &str) -> bool {
        let Some(text) = self.regex.as_ref().map(PathRegex::text) else { return false };
        let text = text.strip_prefix("(?i)").unwrap_or(text);
        let Some(group) = text.strip_prefix('^').unwrap_or(text).strip_prefix('(') else {
            return false;
        };
        match group.strip_prefix('?') {
            None => name == "1",
            Some(named) => {
                let named = named.strip_prefix('P').unwrap_or(named);
                named
                    .strip_prefix('<')
                    .and_then(|named| named.split_once('>'))
                    .is_some_and(|(own, _)| own == name)
            }
        }
    }

    /// Orders from general to specific: patterns with `*`, shorter prefixes before longer ones, then shorter suffixes before
    /// longer ones; regular expressions, the last in the file first; literals.
    pub(super) fn specificity(&self, other: &Self) -> Ordering {
        let key = |pattern: &Self| {
            let order = pattern.regex.as_ref().map(PathRegex::order);
            let suffix = pattern.suffix.as_ref().map_or(0, |suffix| suffix.len());
            let length = if order.is_some() { 0 } else { pattern.prefix.len() };
            (pattern.is_literal(), order.map(Reverse), length, suffix)
        };
        key(self).cmp(&key(other))
    }
}

/// Characters that a pattern has in encoded form only.
const SPECIAL: &[u8] = b"#%*?";

/// Rejects a pattern that no path matches. The error names the right form, if there is one.
fn check_form(text: &str) -> Result<(), String> {
    let path = text.split(['?', '#']).next().unwrap_or_default();
    let decoded = decode_others(path);
    let normal = normal(&decoded);
    if normal == text {
        return Ok(());
    }
    let reason = if path.len() < text.len() {
        "patterns have no query and no fragment"
    } else if decoded != path {
        "patterns are compared with decoded paths"
    } else {
        "empty segments, `.` and `..` are removed from paths before"
    };
    let is_text = !normal.is_empty() && !normal.contains(['\0', char::REPLACEMENT_CHARACTER]);
    let advice = if is_text { format!("; write {normal:?}") } else { String::new() };
    Err(format!("the pattern {text:?} can match no path: {reason}{advice}"))
}

/// Decodes percent-encoded characters of `text` that are among `which`.
fn decode(text: &str, which: &[u8]) -> String {
    decode_where(text, |byte| which.contains(&byte))
}

/// Decodes percent-encoded characters of `text` that a pattern has in their decoded form.
fn decode_others(text: &str) -> String {
    decode_where(text, |byte| !SPECIAL.contains(&byte))
}

fn decode_where(text: &str, is_decoded: impl Fn(u8) -> bool) -> String {
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        let digits = after.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        let digits = digits.filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
        let named = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match named.filter(|&named| byte == b'%' && is_decoded(named)) {
            Some(named) => {
                decoded.push(named);
                rest = &after[2..];
            }
            None => {
                decoded.push(byte);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

/// Returns the pattern without empty, `.` and `..` segments.
fn normal(pattern: &str) -> String {
    let (root, relative) = match pattern.strip_prefix('/') {
        Some(relative) => ("/", relative),
        None => ("", pattern),
    };
    let mut segments = Vec::new();
    for segment in relative.split('/') {
        match segment {
            "" | "." => {}
            ".." => drop(segments.pop()),
            segment => segments.push(segment),
        }
    }
    let is_closed = matches!(relative.rsplit('/').next(), Some("" | "." | ".."));
    let slash = if is_closed && !segments.is_empty() { "/" } else { "" };
    format!("{root}{}{slash}", segments.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_that_can_match_no_path_is_an_error_that_names_the_right_form() {
        for (pattern, right) in [
            ("/a%20b/*", "write \"/a b/*\""),
            ("/caf%C3%A9/*", "write \"/café/*\""),
            ("/x//y/*", "write \"/x/y/*\""),
            ("//", "write \"/\""),
            ("/a//*", "write \"/a/*\""),
            ("/a/../b", "write \"/b\""),
            ("/a/./b/.", "write \"/a/b/\""),
            ("/*/..", "write \"/\""),
            ("*//x", "write \"*/x\""),
            ("/../x", "write \"/x\""),
            ("/%2e%2e/x", "write \"/x\""),
            ("/e%2Ff", "write \"/e/f\""),
            ("/q?x", "write \"/q\""),
            ("/q%20r/*?x=*", "write \"/q r/*\""),
            ("/a#b", "write \"/a\""),
        ] {
            let error = Pattern::parse(pattern).unwrap_err();
            assert!(error.contains("can match no path") && error.ends_with(right), "{error}");
            // The right form is accepted.
            let form = right.trim_start_matches("write \"").trim_end_matches('"');
            assert!(Pattern::parse(form).is_ok(), "{form}");
        }
        for pattern in ["/a%00b", "/a%FFb", "*/.."] {
            let error = Pattern::parse(pattern).unwrap_err();
            assert!(error.contains("can match no path") && !error.contains("write"), "{error}");
        }
    }

    #[test]
    fn characters_with_another_meaning_are_percent_encoded() {
        for (pattern, path) in [
            ("/c%23/*", "/c#/x"),
            ("/100%25/a", "/100%/a"),
            ("/100%/a", "/100%/a"),
            ("/%2a*", "/*x"),
            ("/why%3F", "/why?"),
            ("/a%2520b", "/a%20b"),
            ("/.well-known/*", "/.well-known/x"),
            ("/...", "/..."),
            ("/..*", "/..x"),
        ] {
            assert!(Pattern::parse(pattern).unwrap().matches(path.as_bytes()), "{pattern}");
        }
    }

    #[test]
    fn patterns_match_and_are_ordered_from_general_to_specific() {
        let order = ["*", "*.css", "/*", "/*.css", "/a/*", "/a/*.css", "/a/b/*", "/x"];
        let patterns: Vec<_> = order.iter().map(|text| Pattern::parse(text).unwrap()).collect();
        for (at, pattern) in patterns.iter().enumerate().skip(1) {
            assert_eq!(patterns[at - 1].specificity(pattern), Ordering::Less, "{}", order[at]);
        }
        let matches =
            |pattern: &str, path: &str| Pattern::parse(pattern).unwrap().matches(path.as_bytes());
        assert!(matches("/a/*", "/a/") && matches("/a/*", "/a/b/c") && !matches("/a/*", "/a"));
        assert!(matches("*.css", "/x/y.css") && !matches("*.css", "/x/y.csss"));
        assert!(matches("/a/*.css", "/a/b.css") && !matches("/ab*ba", "/aba"));
        assert!(matches("/x", "/x") && !matches("/x", "/x/"));
        assert_eq!(Pattern::parse("/a/*.css").unwrap().rest(b"/a/b/c.css"), b"b/c");
        assert!(Pattern::parse("a").is_err() && Pattern::parse("/*/*").is_err());
    }
}
