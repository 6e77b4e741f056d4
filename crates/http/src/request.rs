//! The head of a request, in the same form for every version of HTTP.

use std::borrow::Cow;
use std::ops::Range;

use crate::field::{FieldName, FieldSet};
use crate::semantics::Method;

/// The caller's buffers for a request's head.
pub(crate) struct HeadBuffers<'a> {
    pub(crate) head: &'a mut Head,
    pub(crate) text: &'a mut Vec<u8>,
}

/// The HTTP version of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
#[expect(missing_docs, reason = "each is the version of that number")]
pub enum Version {
    Http10,
    #[default]
    Http11,
    Http2,
    Http3,
}

impl Version {
    /// Returns the version in the notation of logs and of `SERVER_PROTOCOL`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Http10 => "HTTP/1.0",
            Self::Http11 => "HTTP/1.1",
            Self::Http2 => "HTTP/2.0",
            Self::Http3 => "HTTP/3.0",
        }
    }
}

/// A range of the bytes of a head, which has at most 65,535 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Span {
    start: u16,
    end: u16,
}

impl Span {
    /// `range` must lie within the first 65,535 bytes, which the engines' limits ensure.
    #[inline]
    pub(crate) fn new(range: Range<usize>) -> Self {
        debug_assert!(range.end <= usize::from(u16::MAX));
        Self { start: range.start as u16, end: range.end as u16 }
    }

    /// Moves the range by the distance between `from` and `to`.
    #[inline]
    fn shift(&mut self, from: usize, to: usize) {
        let moved = |place: u16| (usize::from(place) - from + to) as u16;
        *self = Self { start: moved(self.start), end: moved(self.end) };
    }

    /// Returns the subrange `range`, relative to this one.
    fn part(self, range: Range<usize>) -> Self {
        let start = usize::from(self.start);
        Self::new(start + range.start..start + range.end)
    }

    #[inline]
    fn of(self, bytes: &[u8]) -> &[u8] {
        // The bytes are always those that the head was parsed from. Others give an empty slice rather than a panic.
        bytes.get(usize::from(self.start)..usize::from(self.end)).unwrap_or_default()
    }
}

#[derive(Debug, Clone, Copy)]
struct FieldSpan {
    name: Span,
    value: Span,
    id: FieldName,
}

impl FieldSpan {
    /// Returns the name as sent. The engine adds Host without one.
    #[inline]
    fn name(self, bytes: &[u8]) -> &[u8] {
        let is_added = self.id == FieldName::Host && self.name == Span::default();
        if is_added { b"Host" } else { self.name.of(bytes) }
    }
}

/// The parsed form of a request's head: ranges of its bytes. An engine fills it, a [`Request`] reads it, and its memory is
/// reused for the next request.
#[derive(Debug)]
pub struct Head {
    pub(crate) method: Method,
    pub(crate) method_text: Span,
    pub(crate) target: Span,
    pub(crate) version: Version,
    /// The value of `:protocol`; empty if the request has none.
    pub(crate) protocol: Span,
    fields: Vec<FieldSpan>,
    /// Index of the first field with each name that is present.
    first: [u8; FieldName::COUNT],
    /// Names that occur.
    present: FieldSet,
    /// Names that occur more than once.
    repeated: FieldSet,
    section: Section,
}

/// The bytes of the fields with the empty line, and their offset. Clients repeat the same fields with each request, which are
/// then not parsed again. Empty if unknown.
#[derive(Debug, Default)]
struct Section {
    bytes: Vec<u8>,
    start: usize,
}

/// Largest size of a stored section in bytes.
const MAX_STORED_SECTION: usize = 2048;

impl Clone for Head {
    fn clone(&self) -> Self {
        // No engine parses into a copy, so it needs no section.
        Self { fields: self.fields.clone(), section: Section::default(), ..*self }
    }

    fn clone_from(&mut self, other: &Self) {
        let mut fields = std::mem::take(&mut self.fields);
        fields.clone_from(&other.fields);
        let section = std::mem::take(&mut self.section);
        *self = Self { fields, section, ..*other };
    }
}

impl Default for Head {
    fn default() -> Self {
        Self {
            method: Method::Other,
            method_text: Span::default(),
            target: Span::default(),
            version: Version::Http11,
            protocol: Span::default(),
            fields: Vec::with_capacity(32),
            first: [0; FieldName::COUNT],
            present: FieldSet::EMPTY,
            repeated: FieldSet::EMPTY,
            section: Section::default(),
        }
    }
}

impl Head {
    /// Largest number of fields in a head.
    pub const MAX_FIELDS: usize = u8::MAX as usize - 1;

    pub(crate) fn clear(&mut self) {
        self.clear_fields();
        self.clear_line();
    }

    /// Clears everything but the request line. The fields of a head that was not accepted are not to be used.
    pub fn clear_fields(&mut self) {
        self.fields.clear();
        self.present = FieldSet::EMPTY;
        self.repeated = FieldSet::EMPTY;
        self.section.bytes.clear();
    }

    /// Clears everything but the fields.
    pub(crate) fn clear_line(&mut self) {
        self.method = Method::Other;
        self.method_text = Span::default();
        self.target = Span::default();
        self.version = Version::Http11;
        self.protocol = Span::default();
    }

    /// Stores the bytes that the fields were parsed from. They end with the empty line and begin at offset `start`.
    pub(crate) fn store_section(&mut self, bytes: &[u8], start: usize) {
        if bytes.len() <= MAX_STORED_SECTION {
            self.section.bytes.extend_from_slice(bytes);
            self.section.start = start;
        }
    }

    /// Reuses the fields of the previous head if `input` begins with the same section, now at offset `start`. Returns the
    /// length of the section.
    #[inline]
    pub(crate) fn repeat_section(&mut self, input: &[u8], start: usize) -> Option<usize> {
        let Section { bytes, start: before } = &mut self.section;
        if bytes.is_empty() || !input.starts_with(bytes) {
            return None;
        }
        let before = std::mem::replace(before, start);
        if before != start {
            for field in &mut self.fields {
                field.name.shift(before, start);
                field.value.shift(before, start);
            }
        }
        Some(self.section.bytes.len())
    }

    /// Adds a field. The caller ensures [`Head::MAX_FIELDS`].
    #[inline]
    pub(crate) fn push(&mut self, id: FieldName, name: Span, value: Span) {
        if self.present.contains(id) {
            self.repeated.insert(id);
        } else {
            self.present.insert(id);
            self.first[id as usize] = self.fields.len() as u8;
        }
        self.fields.push(FieldSpan { name, value, id });
    }

    /// Sets the value of Host to a part of the target, and adds the field if there is none. The stored section is dropped,
    /// since the value is not in it.
    pub(crate) fn set_host(&mut self, part: Range<usize>) {
        let value = self.target.part(part);
        match self.first(FieldName::Host) {
            Some(number) => self.fields[number].value = value,
            None => self.push(FieldName::Host, Span::default(), value),
        }
        self.section.bytes.clear();
    }

    pub(crate) fn len(&self) -> usize {
        self.fields.len()
    }

    /// Range of the value of the first field with that name.
    pub(crate) fn first_value(&self, name: FieldName) -> Option<Span> {
        self.first(name).map(|number| self.fields[number].value)
    }

    #[inline]
    fn first(&self, name: FieldName) -> Option<usize> {
        self.present.contains(name).then(|| usize::from(self.first[name as usize]))
    }
}

/// A request's head: the bytes that arrived, and their parsed form.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    bytes: &'a [u8],
    head: &'a Head,
}

impl<'a> Request<'a> {
    /// Combines a parsed head with the bytes that it was parsed from, which may be followed by others.
    #[inline]
    pub fn new(bytes: &'a [u8], head: &'a Head) -> Self {
        Self { bytes, head }
    }

    /// Returns the method.
    #[inline]
    pub fn method(&self) -> Method {
        self.head.method
    }

    /// Returns the method as sent.
    #[inline]
    pub fn method_text(&self) -> &'a [u8] {
        self.head.method_text.of(self.bytes)
    }

    /// Returns the method of the equivalent request of HTTP/1.1: GET with `Upgrade` in place of [`Method::ExtendedConnect`]
    /// (RFC 8441 §5), else the method as sent.
    pub fn equivalent_method(&self) -> &'a [u8] {
        match self.method() {
            Method::ExtendedConnect => b"GET",
            _ => self.method_text(),
        }
    }

    /// Returns the protocol that an extended CONNECT names in `:protocol` (RFC 8441 §4).
    pub fn protocol(&self) -> Option<&'a [u8]> {
        let is_extended = self.method() == Method::ExtendedConnect;
        is_extended.then(|| self.head.protocol.of(self.bytes))
    }

    /// Returns the request-target as sent (RFC 9112 §3.2).
    #[inline]
    pub fn target(&self) -> &'a [u8] {
        self.head.target.of(self.bytes)
    }

    /// Returns the HTTP version.
    #[inline]
    pub fn version(&self) -> Version {
        self.head.version
    }

    /// Returns `true` if a field with that name is present.
    #[inline]
    pub fn has(&self, name: FieldName) -> bool {
        self.head.present.contains(name)
    }

    /// Returns `true` if a field with any of those names is present.
    #[inline]
    pub fn has_any(&self, names: FieldSet) -> bool {
        self.head.present.intersects(names)
    }

    /// Returns `true` if more than one field has that name.
    #[inline]
    pub fn is_repeated(&self, name: FieldName) -> bool {
        self.head.repeated.contains(name)
    }

    /// Returns the value of the first field with that name. The value of Host is the request's authority, also if the request
    /// has it in its target (RFC 9112 §3.2.2) or in `:authority` (RFC 9113 §8.3.1).
    #[inline]
    pub fn field(&self, name: FieldName) -> Option<&'a [u8]> {
        self.head.first(name).map(|number| self.head.fields[number].value.of(self.bytes))
    }

    /// Returns the values of all fields with that name, in order.
    pub fn values(&self, name: FieldName) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let bytes = self.bytes;
        let start = self.head.first(name).unwrap_or(self.head.fields.len());
        self.head.fields[start..]
            .iter()
            .filter(move |field| field.id == name)
            .map(move |field| field.value.of(bytes))
    }

    /// Returns the names and values of all fields, in order.
    pub fn fields(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + use<'a> {
        let bytes = self.bytes;
        self.head.fields.iter().map(move |field| (field.name(bytes), field.value.of(bytes)))
    }

    /// Returns the fields as an application or another server gets them: all cookies are in one field. Clients of HTTP/2 and
    /// HTTP/3 send a field for each cookie, which recipients join before they pass them on (RFC 9113 §8.2.3).
    pub fn joined_fields(&self) -> impl Iterator<Item = (&'a [u8], Cow<'a, [u8]>)> + use<'a> {
        let bytes = self.bytes;
        let mut cookies = self.cookies();
        self.head.fields.iter().filter_map(move |field| {
            let value = match field.id {
                FieldName::Cookie => cookies.take()?,
                _ => Cow::Borrowed(field.value.of(bytes)),
            };
            Some((field.name(bytes), value))
        })
    }

    /// Returns the cookies of all `Cookie` fields as one value; `None` if there are none.
    pub fn cookies(&self) -> Option<Cow<'a, [u8]>> {
        let mut values = self.values(FieldName::Cookie).filter(|value| !value.is_empty());
        let mut all = Cow::Borrowed(values.next()?);
        for value in values {
            let all = all.to_mut();
            all.extend_from_slice(b"; ");
            all.extend_from_slice(value);
        }
        Some(all)
    }

    /// Returns an owned copy, which outlives the input buffer.
    pub fn to_owned(&self) -> OwnedRequest {
        OwnedRequest { bytes: self.bytes.into(), head: self.head.clone() }
    }
}

/// An owned request head, for work that outlives the input buffer.
#[derive(Debug, Clone)]
pub struct OwnedRequest {
    bytes: Vec<u8>,
    head: Head,
}

impl OwnedRequest {
    /// Copies another request into this one, and reuses its memory.
    pub fn assign(&mut self, request: &Request<'_>) {
        self.bytes.clear();
        self.bytes.extend_from_slice(request.bytes);
        self.head.clone_from(request.head);
    }

    /// Returns a borrowed view of the request.
    pub fn as_request(&self) -> Request<'_> {
        Request::new(&self.bytes, &self.head)
    }
}
