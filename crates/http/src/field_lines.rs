//! The fields of a response, stored as HTTP/1 lines.
//!
//! All fields are in one allocation: adding a field is two copies, and sending them over HTTP/1 is one. Other versions read
//! them as pairs of name and value.

use crate::semantics::bytes::find;

/// An ordered list of response fields, without the empty line that ends a head.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FieldLines {
    lines: Vec<u8>,
}

/// The size of a usual head in bytes.
const USUAL: usize = 256;

impl FieldLines {
    /// No fields.
    pub const NONE: Self = Self { lines: Vec::new() };

    /// Creates an empty list. Allocates at its first field, with room for a usual head.
    #[inline]
    pub fn new() -> Self {
        Self::NONE
    }

    /// Appends a field. CR, LF and NUL become spaces. Every response field is added here, so that no value can split a
    /// response.
    pub fn push(&mut self, name: &str, value: impl AsRef<[u8]>) {
        self.allocate();
        self.append(name.as_bytes());
        self.lines.extend_from_slice(b": ");
        self.append(value.as_ref());
        self.lines.extend_from_slice(b"\r\n");
    }

    /// Appends a field of a message that an engine has parsed, which needs no check. CR, LF and NUL must not occur.
    #[inline]
    pub fn push_parsed(&mut self, name: &[u8], value: &[u8]) {
        debug_assert!(![name, value].concat().iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0)));
        self.allocate();
        self.lines.reserve(name.len() + value.len() + 4);
        self.lines.extend_from_slice(name);
        self.lines.extend_from_slice(b": ");
        self.lines.extend_from_slice(value);
        self.lines.extend_from_slice(b"\r\n");
    }

    /// Appends to the value of the last field, which comes from a message that an engine has parsed.
    pub(crate) fn extend_last_value(&mut self, more: &[u8]) {
        self.lines.truncate(self.lines.len() - b"\r\n".len());
        self.lines.extend_from_slice(more);
        self.lines.extend_from_slice(b"\r\n");
    }

    /// Creates the same fields, with room for `more` bytes of others.
    pub fn with_room(&self, more: usize) -> Self {
        let mut lines = Vec::with_capacity(self.lines.len() + more);
        lines.extend_from_slice(&self.lines);
        Self { lines }
    }

    /// Returns `true` if there are no fields.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Appends a field with a numeric value.
    pub fn push_number(&mut self, name: &str, value: u64) {
        self.push(name, itoa::Buffer::new().format(value));
    }

    /// Appends all fields of `other`.
    pub fn extend(&mut self, other: &Self) {
        self.lines.extend_from_slice(&other.lines);
    }

    /// Replaces all fields with that name by one.
    pub fn set(&mut self, name: &str, value: impl AsRef<[u8]>) {
        self.remove(name);
        self.push(name, value);
    }

    /// Removes all fields with that name, without regard to case.
    pub fn remove(&mut self, name: &str) {
        self.retain(|other, _| !other.eq_ignore_ascii_case(name.as_bytes()));
    }

    /// Keeps the fields for which `keep` returns `true`, given their name and value.
    pub fn retain(&mut self, mut keep: impl FnMut(&[u8], &[u8]) -> bool) {
        let (mut at, mut kept) = (0, 0);
        while let Some(length) = find(b'\n', &self.lines[at..]) {
            let end = at + length + 1;
            let is_kept =
                split(&self.lines[at..end - 1]).is_some_and(|(name, value)| keep(name, value));
            if is_kept {
                if kept < at {
                    self.lines.copy_within(at..end, kept);
                }
                kept += end - at;
            }
            at = end;
        }
        self.lines.truncate(kept);
    }

    /// Returns the value of the first field with that name, without regard to case.
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        let name = name.as_bytes();
        let mut rest = self.lines.as_slice();
        loop {
            let end = find(b'\n', rest)?;
            let line = &rest[..end];
            // No name has a colon, so that only the line of the field has one there.
            if line.get(name.len()) == Some(&b':')
                && let Some((found, value)) = split(line)
                && found.eq_ignore_ascii_case(name)
            {
                return Some(value);
            }
            rest = &rest[end + 1..];
        }
    }

    /// Returns the names and values of all fields, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let mut rest = self.lines.as_slice();
        std::iter::from_fn(move || {
            // No line has another line feed.
            let end = find(b'\n', rest)?;
            let line = &rest[..end];
            rest = &rest[end + 1..];
            split(line)
        })
    }

    /// Returns the fields as HTTP/1 lines, each with CR LF.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        &self.lines
    }

    #[inline]
    fn allocate(&mut self) {
        if self.lines.capacity() == 0 {
            self.lines.reserve(USUAL);
        }
    }

    fn append(&mut self, text: &[u8]) {
        let start = self.lines.len();
        self.lines.extend_from_slice(text);
        for byte in &mut self.lines[start..] {
            if matches!(byte, b'\r' | b'\n' | 0) {
                *byte = b' ';
            }
        }
    }
}

/// Name and value of a line without its line feed.
#[inline]
fn split(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let line = line.strip_suffix(b"\r")?;
    // No name has a colon.
    let colon = find(b':', line)?;
    Some((&line[..colon], line[colon..].strip_prefix(b": ")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_kept_by_name_and_value() {
        let mut fields = FieldLines::new();
        for (name, value) in [("A", "1"), ("b", "22"), ("A", "333"), ("c", "")] {
            fields.push(name, value);
        }
        let mut seen = Vec::new();
        fields.retain(|name, value| {
            seen.push((name.to_vec(), value.to_vec()));
            name == b"c" || value == b"22"
        });
        assert_eq!(fields.as_bytes(), b"b: 22\r\nc: \r\n");
        assert_eq!(seen.len(), 4);
        assert_eq!(seen[2], (b"A".to_vec(), b"333".to_vec()));
        fields.retain(|_, _| false);
        assert!(fields.is_empty());
    }

    #[test]
    fn fields_are_ordered_and_replaced_and_removed_without_regard_to_case() {
        let mut fields = FieldLines::new();
        fields.push("A", "1");
        fields.push("b", "2");
        fields.push("a", "3");
        fields.set("B", "4");
        assert_eq!(fields.as_bytes(), b"A: 1\r\na: 3\r\nB: 4\r\n");
        assert_eq!(fields.get("a"), Some(b"1".as_slice()));
        fields.remove("a");
        assert_eq!(fields.get("b"), Some(b"4".as_slice()));
        assert_eq!((fields.get(""), fields.get("B: 4"), fields.get("bb")), (None, None, None));
        assert_eq!(fields.iter().count(), 1);
    }

    #[test]
    fn line_breaks_in_values_become_spaces() {
        let mut fields = FieldLines::new();
        fields.push("Location", "/\r\nSet-Cookie: a=b\0");
        assert_eq!(fields.as_bytes(), b"Location: /  Set-Cookie: a=b \r\n");
    }
}
