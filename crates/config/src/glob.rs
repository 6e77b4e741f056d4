//! Patterns for values: texts with any number of `*`, each of which matches any text.

use std::fmt;

/// A pattern for values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Glob {
    text: Box<str>,
}

impl Glob {
    pub(super) fn new(text: &str) -> Self {
        Self { text: text.into() }
    }

    /// Returns `true` if the pattern matches all of the value. It takes at most the product of the lengths.
    pub(super) fn matches(&self, value: &[u8]) -> bool {
        self.matches_by(value, |a, b| a == b)
    }

    /// As [`Glob::matches`], for values whose letters have no case.
    pub(super) fn matches_any_case(&self, value: &[u8]) -> bool {
        self.matches_by(value, |a, b| a.eq_ignore_ascii_case(&b))
    }

    fn matches_by(&self, value: &[u8], equal: impl Fn(u8, u8) -> bool) -> bool {
        let pattern = self.text.as_bytes();
        let (mut at, mut from) = (0, 0);
        // Where the last `*` stands, and where the text that it matches ends.
        let mut star: Option<(usize, usize)> = None;
        while from < value.len() {
            match pattern.get(at) {
                Some(b'*') => {
                    star = Some((at, from));
                    at += 1;
                }
                Some(&byte) if equal(byte, value[from]) => (at, from) = (at + 1, from + 1),
                _ => {
                    let Some((mark, end)) = star else { return false };
                    star = Some((mark, end + 1));
                    (at, from) = (mark + 1, end + 1);
                }
            }
        }
        pattern[at..].iter().all(|&byte| byte == b'*')
    }
}

impl fmt::Display for Glob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Tries every length of the text that each `*` matches.
    fn reference(pattern: &[u8], value: &[u8]) -> bool {
        match pattern.split_first() {
            None => value.is_empty(),
            Some((b'*', rest)) => (0..=value.len()).any(|at| reference(rest, &value[at..])),
            Some((byte, rest)) => value.first() == Some(byte) && reference(rest, &value[1..]),
        }
    }

    proptest! {
        #[test]
        fn a_pattern_equals_the_reference(pattern in "[ab*]{0,8}", value in "[ab]{0,10}") {
            let matches = Glob::new(&pattern).matches(value.as_bytes());
            prop_assert_eq!(matches, reference(pattern.as_bytes(), value.as_bytes()));
        }
    }

    #[test]
    fn many_stars_take_no_exponential_time() {
        let glob = Glob::new(&"*a".repeat(2_000));
        assert!(!glob.matches("a".repeat(1_999).as_bytes()));
    }
}
