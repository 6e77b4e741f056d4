//! Replaces texts in a body. The case of ASCII letters does not matter.
//!
//! Of texts that begin at the same place, the longest one counts. What was replaced is not searched again.

use std::sync::Arc;

use aho_corasick::{AhoCorasick, BuildError, MatchKind};
use bytes::{Bytes, BytesMut};

use super::{Part, Transform, push_bytes};

/// A text and what replaces it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern {
    /// The text; not empty.
    pub from: Bytes,
    /// What replaces it.
    pub to: Bytes,
    /// Only its first occurrence is replaced.
    pub once: bool,
}

/// The texts that are replaced in bodies.
#[derive(Debug, Clone)]
pub struct Patterns {
    patterns: Arc<[Pattern]>,
    finder: AhoCorasick,
}

/// The replacement of texts in one body.
#[derive(Debug)]
pub struct Substitution {
    /// The patterns that are still to be replaced.
    patterns: Arc<[Pattern]>,
    /// `None` if there are none.
    finder: Option<AhoCorasick>,
    /// The bytes with which an occurrence may begin.
    held: BytesMut,
}

impl Patterns {
    /// Prepares the search.
    ///
    /// # Errors
    /// If the patterns are too large.
    pub fn new(patterns: Vec<Pattern>) -> Result<Self, BuildError> {
        Ok(Self { finder: finder(&patterns)?, patterns: patterns.into() })
    }

    /// Starts with a body.
    pub fn start(&self) -> Substitution {
        Substitution {
            patterns: Arc::clone(&self.patterns),
            finder: Some(self.finder.clone()).filter(|_| !self.patterns.is_empty()),
            held: BytesMut::new(),
        }
    }

    /// Starts with a body, for which `value` makes the texts in place of those that are configured.
    pub fn start_with(&self, value: impl Fn(&Bytes) -> Bytes) -> Substitution {
        let made = self
            .patterns
            .iter()
            .map(|pattern| Pattern { to: value(&pattern.to), ..pattern.clone() });
        Substitution { patterns: made.collect(), ..self.start() }
    }
}

fn finder(patterns: &[Pattern]) -> Result<AhoCorasick, BuildError> {
    AhoCorasick::builder()
        .ascii_case_insensitive(true)
        .match_kind(MatchKind::LeftmostLongest)
        .build(patterns.iter().map(|pattern| &pattern.from))
}

impl Substitution {
    /// Replaces what is complete in the bytes that are held, and appends it.
    fn replace(&mut self, has_ended: bool, parts: &mut Vec<Part>) {
        let mut output = BytesMut::with_capacity(self.held.len());
        loop {
            let longest = self.patterns.iter().map(|pattern| pattern.from.len()).max();
            let (Some(finder), Some(longest)) = (&self.finder, longest) else {
                output.extend_from_slice(&self.held.split());
                break;
            };
            // An occurrence that begins behind it may be longer than what is here.
            let safe = match has_ended {
                true => self.held.len(),
                false => (self.held.len() + 1).saturating_sub(longest),
            };
            let found = finder.find(&self.held[..]).filter(|found| found.start() < safe);
            let Some(found) = found else {
                output.extend_from_slice(&self.held.split_to(safe));
                break;
            };
            output.extend_from_slice(&self.held[..found.start()]);
            let at = found.pattern().as_usize();
            output.extend_from_slice(&self.patterns[at].to);
            drop(self.held.split_to(found.end()));
            if self.patterns[at].once {
                self.remove(at);
            }
        }
        push_bytes(output.freeze(), parts);
    }

    fn remove(&mut self, at: usize) {
        let rest = self.patterns.iter().enumerate().filter(|(other, _)| *other != at);
        self.patterns = rest.map(|(_, pattern)| pattern.clone()).collect();
        // A part of patterns that were not too large is not.
        self.finder = finder(&self.patterns).ok().filter(|_| !self.patterns.is_empty());
    }
}

impl Transform for Substitution {
    fn push(&mut self, bytes: Bytes, parts: &mut Vec<Part>) {
        if self.finder.is_none() && self.held.is_empty() {
            return push_bytes(bytes, parts);
        }
        self.held.extend_from_slice(&bytes);
        self.replace(false, parts);
    }

    fn end(&mut self, parts: &mut Vec<Part>) {
        self.replace(true, parts);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn patterns(of: &[(&str, &str, bool)]) -> Patterns {
        let pattern = |&(from, to, once): &(&str, &str, bool)| Pattern {
            from: Bytes::copy_from_slice(from.as_bytes()),
            to: Bytes::copy_from_slice(to.as_bytes()),
            once,
        };
        Patterns::new(of.iter().map(pattern).collect()).expect("patterns")
    }

    fn replaced<'t>(patterns: &Patterns, chunks: impl IntoIterator<Item = &'t [u8]>) -> Vec<u8> {
        let (mut substitution, mut parts) = (patterns.start(), Vec::new());
        for chunk in chunks {
            substitution.push(Bytes::copy_from_slice(chunk), &mut parts);
            assert!(substitution.held.len() < 64, "little is held back");
        }
        substitution.end(&mut parts);
        parts.iter().flat_map(|part| part.bytes().to_vec()).collect()
    }

    type Case = (&'static [(&'static str, &'static str, bool)], &'static str, &'static str);

    const CASES: [Case; 9] = [
        (&[("a", "bb", false)], "xaAa", "xbbbbbb"),
        (&[("a", "bb", true)], "xaAa", "xbbAa"),
        (&[("abc", "1", false), ("ab", "2", false)], "ababcab", "212"),
        (&[("ab", "2", false), ("abc", "1", false)], "ababc", "21"),
        (&[("ab", "ab", false)], "aab", "aab"),
        (&[("aa", "b", false)], "aaaaa", "bba"),
        (&[("x", "", false)], "xaxbx", "ab"),
        (&[("a", "1", true), ("b", "2", true)], "bbaa", "2b1a"),
        (
            &[("</body>", "<script></script></body>", true)],
            "<BODY></Body></html>",
            "<BODY><script></script></body></html>",
        ),
    ];

    #[test]
    fn texts_are_replaced_wherever_the_body_is_cut() {
        for (of, text, expected) in CASES {
            let patterns = patterns(of);
            assert_eq!(replaced(&patterns, [text.as_bytes()]), expected.as_bytes());
            assert_eq!(replaced(&patterns, text.as_bytes().chunks(1)), expected.as_bytes());
            for at in 0..=text.len() {
                let (start, end) = text.as_bytes().split_at(at);
                assert_eq!(replaced(&patterns, [start, end]), expected.as_bytes(), "{at}");
            }
        }
    }

    #[test]
    fn bytes_that_cannot_begin_an_occurrence_are_not_held_back() {
        let (mut substitution, mut parts) = (patterns(&[("abc", "", false)]).start(), Vec::new());
        substitution.push(Bytes::from("xyz"), &mut parts);
        assert_eq!(parts, [Part::Bytes(Bytes::from("x"))]);
    }

    proptest! {
        #[test]
        fn the_result_does_not_depend_on_the_chunks(
            text in "[abAB]{0,60}",
            from in proptest::collection::vec("[ab]{1,4}", 1..4),
            sizes in proptest::collection::vec(1usize..9, 1..20),
            once: bool,
        ) {
            let of: Vec<_> = from.iter().map(|from| (&**from, "-", once)).collect();
            let patterns = patterns(&of);
            let (mut rest, mut chunks) = (text.as_bytes(), Vec::new());
            for size in sizes {
                let (chunk, others) = rest.split_at(size.min(rest.len()));
                (rest, _) = (others, chunks.push(chunk));
            }
            chunks.push(rest);
            prop_assert_eq!(replaced(&patterns, chunks), replaced(&patterns, [text.as_bytes()]));
        }
    }
}
