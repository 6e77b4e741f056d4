//! Patterns of paths: a literal, or one with a single `*` that stands for anything.

use std::borrow::Cow;
use std::cmp::Ordering;

/// A pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pattern {
    prefix: Cow<'static, [u8]>,
    /// What has to follow the `*`; `None` when there is no `*`.
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

    /// Whether it matches every path.
    pub(super) fn is_everything(&self) -> bool {
        let everything = matches!(&*self.prefix, b"" | b"/");
        everything && self.suffix.as_deref().is_some_and(<[u8]>::is_empty)
    }

    /// Whether it has no `*`.
    pub(super) fn is_literal(&self) -> bool {
        self.suffix.is_none()
    }

    /// The path to which everything that it matches lacks a slash and more: `/a` for `/a/*`.
    pub(super) fn mount(&self) -> Option<Self> {
        let suffix = self.suffix.as_ref()?;
        let path = self.prefix.strip_suffix(b"/").filter(|path| !path.is_empty())?;
        suffix.is_empty().then(|| Self { prefix: path.to_vec().into(), suffix: None })
    }

    /// What stands before the `*`, or all of it.
    pub(super) fn prefix(&self) -> &[u8] {
        &self.prefix
    }

    /// What stands behind the `*`.
    pub(super) fn suffix(&self) -> &[u8] {
        self.suffix.as_deref().unwrap_or_default()
    }

    /// What the `*` stands for in `path`.
    pub(super) fn rest<'p>(&self, path: &'p [u8]) -> &'p [u8] {
        let suffix = self.suffix.as_ref().map_or(0, |suffix| suffix.len());
        path.get(self.prefix.len()..path.len().saturating_sub(suffix)).unwrap_or_default()
    }

    /// From general to specific: a literal comes after every pattern, a longer prefix after a
    /// shorter one, then a longer suffix after a shorter one.
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
