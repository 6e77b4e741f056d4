//! Heads of responses. Encoded heads are cached, since servers send the same head many times.

use super::hpack::{Encoder, Indexing};

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

/// Encoder of a connection's response heads.
#[derive(Debug, Default)]
pub(super) struct Heads {
    encoder: Encoder,
    /// Cache of encoded heads, indexed by the low bits of the serial.
    slots: Vec<Slot>,
    date: Vec<u8>,
    /// Number of changes of `date`.
    dates: u32,
    /// Low bits of the serial of the first head since the cache was released, which is not in the cache; 0 before it.
    first: u32,
}

/// A cached head.
#[derive(Debug, Clone, Default)]
struct Slot {
    serial: u64,
    status: u16,
    /// State of the encoder and of the date. The section is valid while both are unchanged.
    state: u64,
    dates: u32,
    /// The encoded section; empty if encoding it has changed the table.
    section: Vec<u8>,
}

const SLOTS: usize = 16;

impl Heads {
    /// Applies the client's limit of the table.
    pub(super) fn limit_table(&mut self, size: usize) {
        self.encoder.limit_table(size);
    }

    /// Releases the cache.
    pub(super) fn shrink(&mut self) {
        self.slots = Vec::new();
        self.first = 0;
    }

    /// Appends the encoded section to `out`.
    #[inline]
    pub(super) fn write(&mut self, head: &OutgoingHead<'_>, out: &mut Vec<u8>) {
        if !head.date.is_empty() && self.date != head.date {
            self.date.clear();
            self.date.extend_from_slice(head.date);
            self.dates = self.dates.wrapping_add(1);
        }
        if head.serial == 0 {
            return self.encode(head, false, out);
        }
        if self.slots.is_empty() {
            // Many connections are idle after one response, which no cache helps.
            if self.first == 0 {
                self.first = (head.serial as u32).max(1);
                return self.encode(head, false, out);
            }
            self.slots = vec![Slot::default(); SLOTS];
        }
        let number = head.serial as usize % SLOTS;
        let slot = &self.slots[number];
        let is_cached = slot.serial == head.serial && slot.status == head.status;
        let state = self.encoder.state();
        if is_cached && !slot.section.is_empty() && slot.state == state && slot.dates == self.dates
        {
            out.extend_from_slice(&slot.section);
            return;
        }
        let known = is_cached || self.first == head.serial as u32;
        let start = out.len();
        self.encode(head, known, out);
        let slot = &mut self.slots[number];
        slot.section.clear();
        if self.encoder.state() == state {
            slot.section.extend_from_slice(&out[start..]);
        }
        (slot.serial, slot.status, slot.state, slot.dates) =
            (head.serial, head.status, state, self.dates);
    }

    /// Encodes a head. `known` heads were sent before on this connection, so that fields of the resource, such as its
    /// ETag, are worth an entry in the table.
    fn encode(&mut self, head: &OutgoingHead<'_>, known: bool, out: &mut Vec<u8>) {
        self.encoder.begin(out);
        self.encoder.status(head.status, out);
        if !head.date.is_empty() {
            self.encoder.field(b"date", head.date, Indexing::Incremental, out);
        }
        self.lines(head.lines, known, out);
    }

    /// Appends the encoded section of trailer fields to `out`.
    pub(super) fn write_trailers(&mut self, lines: &[u8], out: &mut Vec<u8>) {
        self.encoder.begin(out);
        self.lines(lines, false, out);
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
        let mut short = [0; 64];
        let long;
        let name = match short.get_mut(..name.len()) {
            Some(short) => {
                short.copy_from_slice(name);
                short.make_ascii_lowercase();
                &*short
            }
            None => {
                long = name.to_ascii_lowercase();
                &long
            }
        };
        let indexing = match name {
            // RFC 9113 §8.2.2.
            b"connection" | b"keep-alive" | b"proxy-connection" | b"transfer-encoding"
            | b"upgrade" => return,
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
        };
        self.encoder.field(name, value, indexing, out);
    }
}
