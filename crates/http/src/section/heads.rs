//! Heads of responses. Encoded heads are cached, since servers send the same head many times.

use super::{Indexing, with_lower_case};

/// A response's head.
#[derive(Debug, Clone, Copy)]
pub struct OutgoingHead<'a> {
    /// The status.
    pub status: u16,
    /// The value of Date; empty for none.
    pub date: &'a [u8],
    /// The other fields as HTTP/1 lines (`Name: value`, CR LF) without the empty line. Connection-specific fields are not
    /// sent.
    pub lines: &'a [u8],
    /// An identifier of `lines`, unique in the process, by which the encoded head is cached; 0 for a head that is not
    /// cached.
    pub serial: u64,
}

/// An encoder of field sections.
pub(crate) trait SectionEncoder {
    /// What a section is encoded for: the stream, if that matters.
    type Target: Copy;
    /// What an encoded section depends on.
    type Section: Copy + Default + std::fmt::Debug;

    /// The value of Date is added to the table once it repeats, rather than at once: an addition costs messages in both directions.
    const DEFERS_DATE: bool;

    /// Returns a number that changes with every change of the table.
    fn state(&self) -> u64;

    /// Begins a section. Must be called once before its fields.
    fn begin(&mut self, target: Self::Target, out: &mut Vec<u8>);

    /// Writes `:status`.
    fn status(&mut self, status: u16, out: &mut Vec<u8>);

    /// Writes a field. `name` must be in lower case.
    fn field(&mut self, name: &[u8], value: &[u8], indexing: Indexing, out: &mut Vec<u8>);

    /// Ends the section that began at the offset `start` of `out`.
    fn end(&mut self, start: usize, out: &mut Vec<u8>) -> Self::Section;

    /// Notes that a section is sent again. Returns `false` if it has to be encoded again; nothing is noted then.
    fn repeat(&mut self, target: Self::Target, section: Self::Section) -> bool;
}

/// Encoder of a connection's response heads.
#[derive(Debug, Default)]
pub(crate) struct Heads<E: SectionEncoder> {
    pub(crate) encoder: E,
    /// Cache of encoded heads, indexed by the low bits of the serial.
    slots: Vec<Slot<E::Section>>,
    date: Vec<u8>,
    /// Number of changes of `date`, and of how it is encoded.
    dates: u32,
    /// The date was sent before.
    is_date_repeated: bool,
    /// Low bits of the serial of the first head since the cache was released, which is not in the cache; 0 before it.
    first: u32,
}

/// A cached head.
#[derive(Debug, Clone, Default)]
struct Slot<S> {
    serial: u64,
    status: u16,
    /// State of the encoder and of the date. The section is valid while both are unchanged.
    state: u64,
    dates: u32,
    /// The encoded section; empty if encoding it has changed the table.
    section: Vec<u8>,
    depends_on: S,
}

const SLOTS: usize = 16;

impl<E: SectionEncoder> Heads<E> {
    pub(crate) fn new(encoder: E) -> Self {
        Self {
            encoder,
            slots: Vec::new(),
            date: Vec::new(),
            dates: 0,
            is_date_repeated: false,
            first: 0,
        }
    }

    /// Releases the cache.
    pub(crate) fn shrink(&mut self) {
        self.slots = Vec::new();
        self.first = 0;
    }

    /// Appends the encoded section to `out`.
    #[inline]
    pub(crate) fn write(&mut self, target: E::Target, head: &OutgoingHead<'_>, out: &mut Vec<u8>) {
        if !head.date.is_empty() {
            self.note_date(head.date);
        }
        if head.serial == 0 {
            self.encode(target, head, false, out);
            return;
        }
        if self.slots.is_empty() {
            // Many connections are idle after one response, which no cache helps.
            if self.first == 0 {
                self.first = (head.serial as u32).max(1);
                self.encode(target, head, false, out);
                return;
            }
            self.slots = vec![Slot::default(); SLOTS];
        }
        let number = head.serial as usize % SLOTS;
        let slot = &self.slots[number];
        let is_cached = slot.serial == head.serial && slot.status == head.status;
        let state = self.encoder.state();
        let is_valid = !slot.section.is_empty() && slot.state == state && slot.dates == self.dates;
        if is_cached && is_valid && self.encoder.repeat(target, slot.depends_on) {
            out.extend_from_slice(&slot.section);
            return;
        }
        let known = is_cached || self.first == head.serial as u32;
        let start = out.len();
        let depends_on = self.encode(target, head, known, out);
        let slot = &mut self.slots[number];
        slot.section.clear();
        if self.encoder.state() == state {
            slot.section.extend_from_slice(&out[start..]);
        }
        (slot.serial, slot.status, slot.state, slot.dates) =
            (head.serial, head.status, state, self.dates);
        slot.depends_on = depends_on;
    }

    #[inline]
    fn note_date(&mut self, date: &[u8]) {
        if self.date != date {
            self.date.clear();
            self.date.extend_from_slice(date);
            self.is_date_repeated = false;
        } else if self.is_date_repeated {
            return;
        } else {
            self.is_date_repeated = true;
            if !E::DEFERS_DATE {
                return;
            }
        }
        self.dates = self.dates.wrapping_add(1);
    }

    /// Encodes a head. `known` heads were sent before on this connection, so that fields of the resource, such as its
    /// ETag, are worth an entry in the table.
    fn encode(
        &mut self,
        target: E::Target,
        head: &OutgoingHead<'_>,
        known: bool,
        out: &mut Vec<u8>,
    ) -> E::Section {
        let start = out.len();
        self.encoder.begin(target, out);
        self.encoder.status(head.status, out);
        if !head.date.is_empty() {
            let is_added = self.is_date_repeated || !E::DEFERS_DATE;
            let indexing = if is_added { Indexing::Incremental } else { Indexing::Without };
            self.encoder.field(b"date", head.date, indexing, out);
        }
        self.lines(head.lines, known, out);
        self.encoder.end(start, out)
    }

    /// Appends the encoded section of trailer fields to `out`.
    pub(crate) fn write_trailers(&mut self, target: E::Target, lines: &[u8], out: &mut Vec<u8>) {
        let start = out.len();
        self.encoder.begin(target, out);
        self.lines(lines, false, out);
        self.encoder.end(start, out);
    }

    fn lines(&mut self, lines: &[u8], known: bool, out: &mut Vec<u8>) {
        let mut rest = lines;
        while let Some(end) = memchr::memchr(b'\n', rest) {
            let line = rest[..end].strip_suffix(b"\r").unwrap_or(&rest[..end]);
            rest = &rest[end + 1..];
            let Some(colon) = memchr::memchr(b':', line) else { continue };
            self.line(&line[..colon], line[colon + 1..].trim_ascii(), known, out);
        }
    }

    fn line(&mut self, name: &[u8], value: &[u8], known: bool, out: &mut Vec<u8>) {
        with_lower_case(name, |name| {
            if let Some(indexing) = indexing(name, known) {
                self.encoder.field(name, value, indexing, out);
            }
        });
    }
}

/// Returns the treatment of a field; `None` for those that are not sent.
fn indexing(name: &[u8], known: bool) -> Option<Indexing> {
    Some(match name {
        // RFC 9113 §8.2.2, RFC 9114 §4.2.
        b"connection" | b"keep-alive" | b"proxy-connection" | b"transfer-encoding" | b"upgrade" => {
            return None;
        }
        b"set-cookie"
        | b"cookie"
        | b"authorization"
        | b"proxy-authorization"
        | b"authentication-info"
        | b"proxy-authentication-info" => Indexing::Never,
        b"etag"
        | b"last-modified"
        | b"content-length"
        | b"content-range"
        | b"location"
        | b"content-location"
        | b"date"
        | b"content-disposition"
        | b"expires"
        | b"age"
        | b"repr-digest"
        | b"server-timing"
            if !known =>
        {
            Indexing::Without
        }
        _ => Indexing::Incremental,
    })
}
