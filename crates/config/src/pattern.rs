//! Path patterns: a literal, or a text with one `*` that matches any text.

use std::borrow::Cow;
use std::cmp::Ordering;

/// A pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pattern {
    prefix: Cow<'static, [u8]>,
    /// The text after the `*`; `None` without a `*`.
    suffix: Option<Cow<'static, [u8]>>,
}

impl Pattern {
    /// Matches every path.
    pub(super) const EVERYTHING: Self =
        Self { prefix: Cow::Borrowed(b"/"), suffix: Some(Cow::Borrowed(b"")) };

    pub(super) fn parse(text: &str) -> Result<Self, String> {
        if !text.starts_with(['/', '*']) {
            return Err(format!("the pattern {text:?} begins neither with `/` nor with `*`"));
        }
        if text.contains('\0') {
            return Err(format!("the pattern {text:?} holds a NUL, which no path does"));
        }
        match text.split('*').collect::<Vec<_>>()[..] {
            [prefix] => Ok(Self { prefix: prefix.as_bytes().to_vec().into(), suffix: None }),
            [prefix, suffix] => Ok(Self {
                prefix: prefix.as_bytes().to_vec().into(),
                suffix: Some(suffix.as_bytes().to_vec().into()),
            }),
            _ => Err(format!("the pattern {text:?} has more than one `*`")),
        }
    }

    pub(super) fn matches(&self, path: &[u8]) -> bool {
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

    /// Returns `true` if the pattern has no `*`.
    pub(super) fn is_literal(&self) -> bool {
        self.suffix.is_none()
    }

    /// Returns the pattern of the path that lacks the last slash: `/a` for `/a/*`.
    pub(super) fn mount(&self) -> Option<Self> {
        let suffix = self.suffix.as_ref()?;
        let path = self.prefix.strip_suffix(b"/").filter(|path| !path.is_empty())?;
        suffix.is_empty().then(|| Self { prefix: path.to_vec().into(), suffix: None })
    }

    /// Returns the text before the `*`, or the whole literal.
    pub(super) fn prefix(&self) -> &[u8] {
        &self.prefix
    }

    /// Returns the text after the `*`.
    pub(super) fn suffix(&self) -> &[u8] {
        self.suffix.as_deref().unwrap_or_default()
    }

    /// Returns the part of `path` that the `*` matches.
    pub(super) fn rest<'p>(&self, path: &'p [u8]) -> &'p [u8] {
        let suffix = self.suffix.as_ref().map_or(0, |suffix| suffix.len());
        path.get(self.prefix.len()..path.len().saturating_sub(suffix)).unwrap_or_default()
    }

    /// Orders from general to specific: patterns before literals, then shorter before longer prefixes, then shorter
    /// before longer suffixes.
    pub(super) fn specificity(&self, other: &Self) -> Ordering {
        let key = |pattern: &Self| {
            let suffix = pattern.suffix.as_ref().map_or(0, |suffix| suffix.len());
            (pattern.suffix.is_none(), pattern.prefix.len(), suffix)
        };
        key(self).cmp(&key(other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
