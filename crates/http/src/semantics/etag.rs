//! Entity tags (RFC 9110 §8.8.3).

use std::fmt;

/// An entity tag.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntityTag {
    /// The tag is weak: representations with equal weak tags can differ in their bytes.
    pub weak: bool,
    /// The text between the quotes.
    pub opaque: Box<[u8]>,
}

/// The value of If-Match or If-None-Match.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TagList {
    /// `*`: any representation.
    Any,
    /// These tags. Empty if the value is malformed, so that it matches nothing.
    Tags(Vec<EntityTag>),
}

impl EntityTag {
    /// Returns a strong tag. `opaque` must not contain quotes or control characters.
    pub fn strong(opaque: impl Into<String>) -> Self {
        Self { weak: false, opaque: opaque.into().into_bytes().into() }
    }

    /// Returns a weak tag. `opaque` must not contain quotes or control characters.
    pub fn weak(opaque: impl Into<String>) -> Self {
        Self { weak: true, ..Self::strong(opaque) }
    }

    /// Parses a tag with its quotes.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let (weak, quoted) = match text.strip_prefix(b"W/") {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let opaque = quoted.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
        let legal = |&b: &u8| b == 0x21 || (0x23..=0x7e).contains(&b) || b >= 0x80;
        opaque.iter().all(legal).then(|| Self { weak, opaque: opaque.into() })
    }

    /// Returns the tag with its quotes, as fields have it.
    pub fn to_bytes(&self) -> Vec<u8> {
        let prefix: &[u8] = if self.weak { b"W/\"" } else { b"\"" };
        [prefix, &self.opaque, b"\""].concat()
    }

    /// Strong comparison (RFC 9110 §8.8.3.2): both tags are strong and equal.
    pub fn strong_eq(&self, other: &Self) -> bool {
        !self.weak && !other.weak && self.opaque == other.opaque
    }

    /// Weak comparison (RFC 9110 §8.8.3.2): the texts are equal.
    pub fn weak_eq(&self, other: &Self) -> bool {
        self.opaque == other.opaque
    }
}

impl fmt::Display for EntityTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let prefix = if self.weak { "W/" } else { "" };
        write!(f, "{prefix}\"{}\"", String::from_utf8_lossy(&self.opaque))
    }
}

impl TagList {
    /// Parses a list of tags. Malformed members are ignored: If-Match then fails unless another member matches, and
    /// If-None-Match lets the request proceed.
    pub fn parse(values: &[&[u8]]) -> Self {
        if let [value] = values
            && value.trim_ascii() == b"*"
        {
            return Self::Any;
        }
        Self::Tags(tags(values).collect())
    }
}

/// Splits a list of tags, which can contain commas, and in which a backslash escapes nothing.
fn tags<'a>(values: &'a [&'a [u8]]) -> impl Iterator<Item = EntityTag> + 'a {
    values.iter().flat_map(|value| {
        let mut rest = *value;
        std::iter::from_fn(move || {
            loop {
                let start = rest.iter().position(|b| !matches!(b, b' ' | b'\t' | b','))?;
                rest = &rest[start..];
                let quote = if rest.starts_with(b"W/\"") { 2 } else { 0 };
                let end = if rest.get(quote) == Some(&b'"') {
                    memchr::memchr(b'"', &rest[quote + 1..]).map(|end| quote + end + 2)
                } else {
                    None
                };
                let end = end.unwrap_or_else(|| memchr::memchr(b',', rest).unwrap_or(rest.len()));
                let (member, after) = rest.split_at(end);
                rest = after;
                if let Some(tag) = EntityTag::parse(member) {
                    return Some(tag);
                }
            }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_comparisons_of_the_rfc() {
        let weak = |text: &str| EntityTag::weak(text);
        let strong = |text: &str| EntityTag::strong(text);
        for (a, b, strongly, weakly) in [
            (weak("1"), weak("1"), false, true),
            (weak("1"), weak("2"), false, false),
            (weak("1"), strong("1"), false, true),
            (strong("1"), strong("1"), true, true),
        ] {
            assert_eq!((a.strong_eq(&b), a.weak_eq(&b)), (strongly, weakly), "{a} {b}");
        }
    }

    #[test]
    fn lists_keep_commas_within_tags_and_skip_invalid_members() {
        let values: [&[u8]; 2] = [b" \"a,b\" , W/\"c\",x, \"open", b"\"d\\\""];
        let TagList::Tags(tags) = TagList::parse(&values) else { panic!("not a list") };
        let text: Vec<_> = tags.iter().map(ToString::to_string).collect();
        assert_eq!(text, ["\"a,b\"", "W/\"c\"", "\"d\\\""]);
        assert_eq!(TagList::parse(&[b"*"]), TagList::Any);
        assert_eq!(TagList::parse(&[b"\"a\" b\"\""]), TagList::Tags(vec![EntityTag::strong("a")]));
    }
}
