//! A version of a file as a record: its name and its content in one file.

use super::pattern::Pattern;
use super::{Hash, sha256};

/// The first line of a record.
const MAGIC: &[u8] = b"dunlin dictionary 1\n";

/// No head is longer, in bytes.
pub(crate) const MAX_HEAD: usize = 8 << 10;

/// What a version is known by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct VersionName {
    /// The name of the site.
    pub(crate) site: Box<str>,
    /// The decoded path of its URL.
    pub(crate) path: Box<[u8]>,
    /// The paths of versions of the same file.
    pub(crate) pattern: Pattern,
}

/// The key of a version: the SHA-256 of its content, and the beginning of that of its head.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key {
    pub(crate) content: Hash,
    pub(crate) head: [u8; 8],
}

impl VersionName {
    /// Returns the head of the record; `None` if it would be too long.
    pub(crate) fn head(&self) -> Option<Vec<u8>> {
        let pattern = self.pattern.to_bytes();
        let mut head = MAGIC.to_vec();
        for text in [self.site.as_bytes(), &self.path, &pattern] {
            head.extend_from_slice(&u32::try_from(text.len()).ok()?.to_le_bytes());
            head.extend_from_slice(text);
        }
        (head.len() <= MAX_HEAD).then_some(head)
    }

    /// Reads the head at the start of a record. Returns its length, too.
    pub(crate) fn parse(record: &[u8]) -> Option<(Self, usize)> {
        let mut rest = record.strip_prefix(MAGIC)?;
        let mut text = || {
            let (length, after) = rest.split_first_chunk()?;
            let (text, after) = after.split_at_checked(u32::from_le_bytes(*length) as usize)?;
            rest = after;
            Some(text)
        };
        let (site, path, pattern) = (text()?, text()?, text()?);
        let pattern = Pattern::from_bytes(pattern);
        let site = std::str::from_utf8(site).ok()?;
        let version = Self { site: site.into(), path: path.into(), pattern };
        Some((version, record.len() - rest.len()))
    }
}

impl Key {
    /// Returns the key of content with this SHA-256 and head.
    pub(crate) fn new(content: Hash, head: &[u8]) -> Self {
        let [a, b, c, d, e, f, g, h, ..] = sha256(head);
        Self { content, head: [a, b, c, d, e, f, g, h] }
    }

    /// Returns the name of its file.
    pub(crate) fn file_name(&self) -> String {
        let bytes = self.head.iter().chain(&self.content);
        bytes.map(|byte| format!("{byte:02x}")).collect()
    }

    /// Reads the name of a file.
    pub(crate) fn from_file_name(name: &str) -> Option<Self> {
        let mut bytes = [0_u8; 40];
        if name.len() != 2 * bytes.len() {
            return None;
        }
        for (at, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(name.get(2 * at..2 * at + 2)?, 16).ok()?;
        }
        let (head, content) = bytes.split_first_chunk()?;
        Some(Self { head: *head, content: content.try_into().ok()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_keeps_what_its_version_is_known_by() {
        let path = b"/app.3f2a.js".as_slice();
        let version =
            VersionName { site: "a.example".into(), path: path.into(), pattern: Pattern::of(path) };
        let head = version.head().unwrap();
        let record = [&head[..], b"content"].concat();
        assert_eq!(VersionName::parse(&record), Some((version.clone(), head.len())));
        for length in 0..head.len() {
            assert_eq!(VersionName::parse(&record[..length]), None, "{length}");
        }
        let key = Key::new([7; 32], &head);
        assert_eq!(Key::from_file_name(&key.file_name()), Some(key));
        assert_eq!(Key::from_file_name("x"), None);
        assert_eq!(Key::from_file_name(&"é".repeat(40)), None);
        let long = VersionName { path: vec![b'a'; MAX_HEAD].into(), ..version };
        assert_eq!(long.head(), None);
    }
}
