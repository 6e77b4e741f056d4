//! The fields of a response, stored as HTTP/1 lines.
//!
//! The text of all fields is in one allocation, so that sending them over HTTP/1 is one copy. Other versions read them as pairs of
//! name and value.

use std::ops::Range;

/// An ordered list of response fields, without the empty line that ends a head.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FieldLines {
    text: Vec<u8>,
    /// Where the lines are in the text: reading fields searches nothing.
    lines: Vec<Line>,
}

/// The place of a line, which begins where the one before it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Line {
    /// The offset of its colon.
    colon: u32,
    /// The offset after its CR LF.
    end: u32,
}

/// The size of a usual head in bytes.
const USUAL: usize = 256;
/// The number of lines of a usual head.
const USUAL_LINES: usize = 12;
const SEPARATOR: &[u8] = b": ";
const LINE_END: &[u8] = b"\r\n";

impl FieldLines {
    /// No fields.
    pub const NONE: Self = Self { text: Vec::new(), lines: Vec::new() };

    /// Creates an empty list. Allocates at its first field, with room for a usual head.
    #[inline]
    pub fn new() -> Self {
        Self::NONE
    }

    /// Appends a field. CR, LF and NUL become spaces. Every response field is added here, so that no value can split a
    /// response.
    pub fn push(&mut self, name: &str, value: impl AsRef<[u8]>) {
        let start = self.text.len();
        self.push_parsed_unchecked(name.as_bytes(), value.as_ref());
        let end = self.text.len() - LINE_END.len();
        for byte in &mut self.text[start..end] {
            if matches!(byte, b'\r' | b'\n' | 0) {
                *byte = b' ';
            }
        }
    }

    /// Appends a field of a message that an engine has parsed, which needs no check. CR, LF and NUL must not occur.
    #[inline]
    pub fn push_parsed(&mut self, name: &[u8], value: &[u8]) {
        debug_assert!(![name, value].concat().iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0)));
        self.push_parsed_unchecked(name, value);
    }

    #[inline]
    fn push_parsed_unchecked(&mut self, name: &[u8], value: &[u8]) {
        self.push_written(name, |text| text.extend_from_slice(value));
    }

    /// Appends a field whose value `write` appends to a text. CR, LF and NUL must not occur, and nothing may be removed.
    #[inline]
    pub fn push_written(&mut self, name: &[u8], write: impl FnOnce(&mut Vec<u8>)) {
        if self.text.capacity() == 0 {
            self.text.reserve(USUAL);
            self.lines.reserve(USUAL_LINES);
        }
        self.text.extend_from_slice(name);
        let colon = offset(self.text.len());
        self.text.extend_from_slice(SEPARATOR);
        write(&mut self.text);
        self.text.extend_from_slice(LINE_END);
        self.lines.push(Line { colon, end: offset(self.text.len()) });
    }

    /// Appends to the value of the last field, which comes from a message that an engine has parsed.
    pub(crate) fn extend_last_value(&mut self, more: &[u8]) {
        let Some(last) = self.lines.last_mut() else { return };
        self.text.truncate(self.text.len() - LINE_END.len());
        self.text.extend_from_slice(more);
        self.text.extend_from_slice(LINE_END);
        last.end = offset(self.text.len());
    }

    /// Creates the same fields, with room for `more` bytes of others.
    pub fn with_room(&self, more: usize) -> Self {
        let mut text = Vec::with_capacity(self.text.len() + more);
        text.extend_from_slice(&self.text);
        let mut lines = Vec::with_capacity(self.lines.len() + USUAL_LINES);
        lines.extend_from_slice(&self.lines);
        Self { text, lines }
    }

    /// Returns `true` if there are no fields.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Appends a field with a numeric value.
    pub fn push_number(&mut self, name: &str, value: u64) {
        self.push_parsed(name.as_bytes(), itoa::Buffer::new().format(value).as_bytes());
    }

    /// Appends all fields of `other`.
    pub fn extend(&mut self, other: &Self) {
        let base = offset(self.text.len());
        self.text.extend_from_slice(&other.text);
        let moved = |line: &Line| Line { colon: base + line.colon, end: base + line.end };
        self.lines.extend(other.lines.iter().map(moved));
    }

    /// Replaces all fields with that name by one.
    pub fn set(&mut self, name: &str, value: impl AsRef<[u8]>) {
        self.remove(name);
        self.push(name, value);
    }

    /// Removes all fields with that name, without regard to case.
    pub fn remove(&mut self, name: &str) {
        let name = name.as_bytes();
        if self.get_bytes(name).is_some() {
            self.retain(|other, _| !other.eq_ignore_ascii_case(name));
        }
    }

    /// Keeps the fields for which `keep` returns `true`, given their name and value.
    pub fn retain(&mut self, mut keep: impl FnMut(&[u8], &[u8]) -> bool) {
        let (mut at, mut kept) = (0, 0);
        let Self { text, lines } = self;
        lines.retain_mut(|line| {
            let (start, end) = (at, line.end as usize);
            at = end;
            let is_kept = line.split(start, text).is_some_and(|(name, value)| keep(name, value));
            if is_kept {
                if kept < start {
                    text.copy_within(start..end, kept);
                    let moved = offset(start - kept);
                    *line = Line { colon: line.colon - moved, end: line.end - moved };
                }
                kept += end - start;
            }
            is_kept
        });
        text.truncate(kept);
    }

    /// Returns the value of the first field with that name, without regard to case.
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        self.get_bytes(name.as_bytes())
    }

    fn get_bytes(&self, name: &[u8]) -> Option<&[u8]> {
        let mut start = 0;
        for line in &self.lines {
            if line.colon as usize - start == name.len()
                && let Some((found, value)) = line.split(start, &self.text)
                && found.eq_ignore_ascii_case(name)
            {
                return Some(value);
            }
            start = line.end as usize;
        }
        None
    }

    /// Returns the names and values of all fields, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let mut start = 0;
        self.lines.iter().map_while(move |line| {
            let at = std::mem::replace(&mut start, line.end as usize);
            line.split(at, &self.text)
        })
    }

    /// Returns the fields as HTTP/1 lines, each with CR LF.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        &self.text
    }
}

impl Line {
    /// Returns name and value of the line, which begins at `start`.
    #[inline]
    fn split(self, start: usize, text: &[u8]) -> Option<(&[u8], &[u8])> {
        let (colon, end) = (self.colon as usize, self.end as usize);
        let name = text.get(start..colon)?;
        let value = text.get(colon + SEPARATOR.len()..end - LINE_END.len())?;
        Some((name, value))
    }
}

/// The fields of a head that an engine reads. Lines that stand in the head as they are stored here are copied together.
#[derive(Debug)]
pub(crate) struct ReadLines<'a> {
    fields: FieldLines,
    head: &'a [u8],
    /// The lines that are not copied yet.
    uncopied: Range<usize>,
}

impl<'a> ReadLines<'a> {
    pub(crate) fn of(head: &'a [u8]) -> Self {
        let lines = Vec::with_capacity(USUAL_LINES);
        Self { fields: FieldLines { text: Vec::new(), lines }, head, uncopied: 0..0 }
    }

    /// Returns `true` if there are no fields.
    pub(crate) fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    /// Appends the line `range` of the head, which is stored as it is. Its colon is at `colon`.
    #[inline]
    pub(crate) fn push_line(&mut self, range: Range<usize>, colon: usize) {
        if range.start != self.uncopied.end {
            self.copied();
            self.uncopied.start = range.start;
        }
        self.uncopied.end = range.end;
        let place = |at: usize| offset(self.fields.text.len() + at - self.uncopied.start);
        let line = Line { colon: place(colon), end: place(range.end) };
        self.fields.lines.push(line);
    }

    /// Returns the fields read so far.
    pub(crate) fn copied(&mut self) -> &mut FieldLines {
        let lines = &self.head[std::mem::take(&mut self.uncopied)];
        // Others are added to those of a usual head.
        self.fields.text.reserve(lines.len() + USUAL / 2);
        self.fields.text.extend_from_slice(lines);
        &mut self.fields
    }

    pub(crate) fn finish(mut self) -> FieldLines {
        self.copied();
        self.fields
    }
}

/// Returns an offset in a head, which is far below 4 GB.
#[inline]
fn offset(offset: usize) -> u32 {
    u32::try_from(offset).unwrap_or(u32::MAX)
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
