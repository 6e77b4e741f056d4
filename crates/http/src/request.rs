//! A request's head, as every engine hands it to the handlers.

use std::ops::Range;

use crate::field::{FieldName, FieldSet};
use crate::semantics::Method;

/// The version that a request came in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
#[expect(missing_docs, reason = "each is the version of that number")]
pub enum Version {
    Http10,
    #[default]
    Http11,
    Http2,
}

impl Version {
    /// The version as logs and scripts name it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Http10 => "HTTP/1.0",
            Self::Http11 => "HTTP/1.1",
            Self::Http2 => "HTTP/2.0",
        }
    }
}

/// A part of the bytes that hold a head. A head has at most 65,535 bytes.
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

    /// Moves with what stood at `from` and now stands at `to`, as far as [`Span::new`] allows.
    #[inline]
    fn shift(&mut self, from: usize, to: usize) {
        let moved = |place: u16| (usize::from(place) - from + to) as u16;
        *self = Self { start: moved(self.start), end: moved(self.end) };
    }

    /// The part `range` of this part.
    fn part(self, range: Range<usize>) -> Self {
        let start = usize::from(self.start);
        Self::new(start + range.start..start + range.end)
    }

    #[inline]
    fn of(self, bytes: &[u8]) -> &[u8] {
        // A head is only ever read beside the bytes it was parsed from; other bytes give
        // nothing rather than a panic.
        bytes.get(usize::from(self.start)..usize::from(self.end)).unwrap_or_default()
    }
}

#[derive(Debug, Clone, Copy)]
struct FieldSpan {
    name: Span,
    value: Span,
    id: FieldName,
}

/// Where the parts of a request's head stand in its bytes. It is filled by an engine, keeps its
/// memory from one request to the next, and is read through [`Request`].
#[derive(Debug)]
pub struct Head {
    pub(crate) method: Method,
    pub(crate) method_text: Span,
    pub(crate) target: Span,
    pub(crate) version: Version,
    fields: Vec<FieldSpan>,
    /// For each name that is present the number of its first field.
    first: [u8; FieldName::COUNT],
    /// Bit by [`FieldName`]: the name occurs.
    present: FieldSet,
    /// Bit by [`FieldName`]: the name occurs more than once.
    repeated: FieldSet,
    section: Section,
}

/// The bytes that the fields were read from, with the empty line, and where they stood: a client sends them alike
/// with one request after the other. Empty when it is not known.
#[derive(Debug, Default)]
struct Section {
    bytes: Vec<u8>,
    start: usize,
}

/// Bytes of a section that is kept at most.
const KEPT_SECTION: usize = 2048;

impl Clone for Head {
    fn clone(&self) -> Self {
        // Nothing more is read into a copy.
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
            fields: Vec::with_capacity(32),
            first: [0; FieldName::COUNT],
            present: FieldSet::EMPTY,
            repeated: FieldSet::EMPTY,
            section: Section::default(),
        }
    }
}

impl Head {
    /// The most fields that a head can hold.
    pub const MOST_FIELDS: usize = u8::MAX as usize - 1;

    pub(crate) fn clear(&mut self) {
        self.clear_fields();
        self.clear_line();
    }

    pub(crate) fn clear_fields(&mut self) {
        self.fields.clear();
        self.present = FieldSet::EMPTY;
        self.repeated = FieldSet::EMPTY;
        self.section.bytes.clear();
    }

    /// Forgets everything but the fields.
    pub(crate) fn clear_line(&mut self) {
        self.method = Method::Other;
        self.method_text = Span::default();
        self.target = Span::default();
        self.version = Version::Http11;
    }

    /// The fields were read from these bytes, which end with the empty line and stand at `start`.
    pub(crate) fn keep_section(&mut self, bytes: &[u8], start: usize) {
        if bytes.len() <= KEPT_SECTION {
            self.section.bytes.extend_from_slice(bytes);
            self.section.start = start;
        }
    }

    /// Has the fields be those of the section that `input` begins with, and stand at `start`, if they are the same as
    /// the ones before: the section's length.
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

    /// Adds a field; the caller keeps to [`Head::MOST_FIELDS`].
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

    /// Makes a part of the target the value of Host, which is added if there is none. No field is repeated from this
    /// head: the value is not in its section.
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

    /// Where the value of the first field of that name stands.
    pub(crate) fn first_value(&self, name: FieldName) -> Option<Span> {
        self.first(name).map(|number| self.fields[number].value)
    }

    #[inline]
    fn first(&self, name: FieldName) -> Option<usize> {
        self.present.contains(name).then(|| usize::from(self.first[name as usize]))
    }
}

/// A request's head together with the bytes it was parsed from.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    bytes: &'a [u8],
    head: &'a Head,
}

impl<'a> Request<'a> {
    /// Reads `head` beside `bytes`, the bytes that it was parsed from.
    #[inline]
    pub fn new(bytes: &'a [u8], head: &'a Head) -> Self {
        Self { bytes, head }
    }

    /// The method.
    #[inline]
    pub fn method(&self) -> Method {
        self.head.method
    }

    /// The method as it was sent.
    #[inline]
    pub fn method_text(&self) -> &'a [u8] {
        self.head.method_text.of(self.bytes)
    }

    /// The request-target as it was sent (RFC 9112 §3.2).
    #[inline]
    pub fn target(&self) -> &'a [u8] {
        self.head.target.of(self.bytes)
    }

    /// The version it was sent in.
    #[inline]
    pub fn version(&self) -> Version {
        self.head.version
    }

    /// Whether there is a field of that name.
    #[inline]
    pub fn has(&self, name: FieldName) -> bool {
        self.head.present.contains(name)
    }

    /// Whether there is a field of any of those names.
    #[inline]
    pub fn has_any(&self, names: FieldSet) -> bool {
        self.head.present.intersects(names)
    }

    /// Whether there is more than one field of that name.
    #[inline]
    pub fn is_repeated(&self, name: FieldName) -> bool {
        self.head.repeated.contains(name)
    }

    /// The value of the first field of that name. Host has the request's authority: also when the request named it in its
    /// target (RFC 9112 §3.2.2) or in `:authority` (RFC 9113 §8.3.1).
    #[inline]
    pub fn field(&self, name: FieldName) -> Option<&'a [u8]> {
        self.head.first(name).map(|number| self.head.fields[number].value.of(self.bytes))
    }

    /// The values of all fields of that name, in order.
    pub fn values(&self, name: FieldName) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let bytes = self.bytes;
        let start = self.head.first(name).unwrap_or(self.head.fields.len());
        self.head.fields[start..]
            .iter()
            .filter(move |field| field.id == name)
            .map(move |field| field.value.of(bytes))
    }

    /// Every field as name and value, in order.
    pub fn fields(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + use<'a> {
        let bytes = self.bytes;
        self.head.fields.iter().map(move |field| {
            let is_added = field.id == FieldName::Host && field.name == Span::default();
            let name = if is_added { b"Host" } else { field.name.of(bytes) };
            (name, field.value.of(bytes))
        })
    }

    /// A copy that outlives the buffer that the request was read into.
    pub fn to_owned(&self) -> OwnedRequest {
        OwnedRequest { bytes: self.bytes.into(), head: self.head.clone() }
    }
}

/// A request's head with bytes of its own, for work that goes on after the buffer is reused.
#[derive(Debug, Clone)]
pub struct OwnedRequest {
    bytes: Vec<u8>,
    head: Head,
}

impl OwnedRequest {
    /// Becomes a copy of another request, in the memory that it has.
    pub fn assign(&mut self, request: &Request<'_>) {
        self.bytes.clear();
        self.bytes.extend_from_slice(request.bytes);
        self.head.clone_from(request.head);
    }

    /// The request.
    pub fn as_request(&self) -> Request<'_> {
        Request::new(&self.bytes, &self.head)
    }
}
