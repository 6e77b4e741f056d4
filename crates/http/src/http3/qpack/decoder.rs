//! Decoding of field sections, and the decoder stream (RFC 9204 §2.2, §4.4, §4.5).

use super::{
    DecodedField, Kind, MalformedInstruction, MalformedSection, TABLE_SIZE, max_entries,
    static_table,
};
use crate::section::table::{OVERHEAD, Table};
use crate::section::{integer, string};

/// The decoder of one direction of a connection, with its dynamic table.
#[derive(Debug)]
pub struct QpackDecoder {
    table: Table,
    /// The largest capacity that the peer may set.
    max_capacity: usize,
    max_blocked: usize,
    /// Streams whose sections wait for insertions, and the number of insertions that they require.
    blocked: Vec<(u64, u64)>,
    /// Insertions that the peer knows to have been received.
    acknowledged: u64,
    /// Instructions that were not sent.
    instructions: Vec<u8>,
    /// The beginning of an incomplete instruction.
    partial: Vec<u8>,
    /// The text of the entry that is being added.
    entry: Vec<u8>,
}

/// The result of the decoding of a section.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decoded {
    /// All fields were decoded.
    Complete,
    /// The callback has ended the decoding.
    Stopped,
    /// The section requires insertions that have not arrived. Decode it when [`QpackDecoder::next_unblocked`] returns the stream.
    Blocked,
}

/// The start of a section (RFC 9204 §4.5.1).
struct Prefix {
    required: u64,
    base: u64,
}

/// Smallest part of a byte that a coded byte takes: the longest Huffman code has 30 bits.
const LONGEST_CODE: usize = 4;

impl QpackDecoder {
    /// Creates a decoder for a table of at most `capacity` bytes, bounded by [`TABLE_SIZE`], and at most `blocked_streams` streams
    /// that wait for insertions. The peer has to learn both by settings.
    pub fn new(capacity: usize, blocked_streams: usize) -> Self {
        let max_capacity = capacity.min(TABLE_SIZE);
        let mut table = Table::new(max_capacity);
        table.resize(0);
        Self {
            table,
            max_capacity,
            max_blocked: blocked_streams,
            blocked: Vec::new(),
            acknowledged: 0,
            instructions: Vec::new(),
            partial: Vec::new(),
            entry: Vec::new(),
        }
    }

    /// Reads bytes of the peer's encoder stream. Returns the number of insertions.
    ///
    /// # Errors
    /// An instruction is malformed. The connection has to be closed with QPACK_ENCODER_STREAM_ERROR.
    pub fn receive(&mut self, bytes: &[u8]) -> Result<u64, MalformedInstruction> {
        let before = self.table.inserted();
        let mut partial = std::mem::take(&mut self.partial);
        let input = if partial.is_empty() {
            bytes
        } else {
            partial.extend_from_slice(bytes);
            &partial
        };
        let mut at = 0;
        while at < input.len() {
            let mut end = at;
            if !self.instruction(input, &mut end)? {
                break;
            }
            at = end;
        }
        // The strings of an instruction are bounded, and so is what is kept.
        self.partial = input[at..].to_vec();
        Ok(self.table.inserted() - before)
    }

    /// Decodes the section of a stream. Appends the text of each field to `text` and calls `take`, which may truncate it again, and
    /// returns `false` to end the decoding.
    ///
    /// # Errors
    /// The section is malformed, or more streams are blocked than permitted. The connection has to be closed with
    /// QPACK_DECOMPRESSION_FAILED.
    pub fn decode(
        &mut self,
        stream: u64,
        section: &[u8],
        text: &mut Vec<u8>,
        mut take: impl FnMut(&mut Vec<u8>, DecodedField) -> bool,
    ) -> Result<Decoded, MalformedSection> {
        let mut at = 0;
        let prefix = self.prefix(section, &mut at)?;
        if prefix.required > self.table.inserted() {
            return self.block(stream, prefix.required);
        }
        if !self.blocked.is_empty() {
            self.blocked.retain(|blocked| blocked.0 != stream);
        }
        let mut decoded = Decoded::Complete;
        while at < section.len() {
            let field = self.field(section, &mut at, &prefix, text)?;
            if !take(text, field) {
                decoded = Decoded::Stopped;
                break;
            }
        }
        if prefix.required > 0 {
            integer::encode(stream, 7, 0x80, &mut self.instructions);
            self.acknowledged = self.acknowledged.max(prefix.required);
        }
        Ok(decoded)
    }

    /// Returns a stream whose section can be decoded now.
    pub fn next_unblocked(&mut self) -> Option<u64> {
        let inserted = self.table.inserted();
        let position = self.blocked.iter().position(|blocked| blocked.1 <= inserted)?;
        Some(self.blocked.remove(position).0)
    }

    /// Returns the number of streams whose sections wait for insertions.
    pub fn blocked_streams(&self) -> usize {
        self.blocked.len()
    }

    /// Notes that no further section of a stream is decoded: it was reset, or is not read to its end.
    pub fn cancel(&mut self, stream: u64) {
        self.blocked.retain(|blocked| blocked.0 != stream);
        if self.max_capacity > 0 {
            integer::encode(stream, 6, 0x40, &mut self.instructions);
        }
    }

    /// Returns the instructions to send on the decoder stream. Call [`QpackDecoder::sent`] afterwards.
    pub fn instructions(&mut self) -> &[u8] {
        let inserted = self.table.inserted();
        if inserted > self.acknowledged {
            integer::encode(inserted - self.acknowledged, 6, 0, &mut self.instructions);
            self.acknowledged = inserted;
        }
        &self.instructions
    }

    /// Notes that the transport has taken the first `count` bytes of the instructions.
    pub fn sent(&mut self, count: usize) {
        self.instructions.drain(..count.min(self.instructions.len()));
    }

    /// Returns the number of bytes that wait to be sent or to be complete.
    pub fn held(&self) -> usize {
        self.instructions.len() + self.partial.len()
    }

    /// Puts the type of the decoder stream before the instructions.
    pub(crate) fn begin_stream(&mut self, kind: u8) {
        self.instructions.push(kind);
    }

    /// Reads one instruction (RFC 9204 §4.3). Returns `false` if it is incomplete.
    fn instruction(&mut self, input: &[u8], at: &mut usize) -> Result<bool, MalformedInstruction> {
        let first = input[*at];
        self.entry.clear();
        if first & 0x80 != 0 {
            let Some(number) = integer::read(input, at, 6, integer::MAX)? else { return Ok(false) };
            let kind = self.copy_name(number, first & 0x40 != 0)?;
            return self.insert(input, at, kind);
        }
        if first & 0x40 != 0 {
            let Some(name) = string::read(input, at, 5, self.max_string())? else {
                return Ok(false);
            };
            name.append_to(&mut self.entry)?;
            return self.insert(input, at, None);
        }
        let Some(number) = integer::read(input, at, 5, integer::MAX)? else { return Ok(false) };
        if first & 0x20 != 0 {
            if number > self.max_capacity as u64 {
                return Err(MalformedInstruction("the capacity exceeds the limit"));
            }
            self.table.resize(number as usize);
            return Ok(true);
        }
        let missing = MalformedInstruction("a duplicate of an entry that does not exist");
        let (name, value, kind) = self.table.get(number as usize).ok_or(missing)?;
        self.entry.extend_from_slice(name);
        self.entry.extend_from_slice(value);
        self.add(name.len(), kind)?;
        Ok(true)
    }

    /// Copies the name that an instruction refers to, and returns its classification.
    fn copy_name(
        &mut self,
        number: u64,
        is_static: bool,
    ) -> Result<Option<Kind>, MalformedInstruction> {
        let entry = match is_static {
            true => static_table::get(number as usize),
            false => self.table.get(number as usize),
        };
        let missing = MalformedInstruction("an entry with the name of one that does not exist");
        let (name, _, kind) = entry.ok_or(missing)?;
        self.entry.extend_from_slice(name);
        Ok(kind_of_name(kind))
    }

    /// Adds an entry whose name is in `self.entry` and whose value is at `at`. Returns `false` if the value is incomplete.
    fn insert(
        &mut self,
        input: &[u8],
        at: &mut usize,
        kind: Option<Kind>,
    ) -> Result<bool, MalformedInstruction> {
        let Some(value) = string::read(input, at, 7, self.max_string())? else { return Ok(false) };
        let middle = self.entry.len();
        value.append_to(&mut self.entry)?;
        let (name, value) = self.entry.split_at(middle);
        let kind = kind.unwrap_or_else(|| Kind::of_name(name)).with_value(value);
        self.add(middle, kind)?;
        Ok(true)
    }

    /// Adds the entry in `self.entry`, whose name has the length `middle`.
    fn add(&mut self, middle: usize, kind: Kind) -> Result<(), MalformedInstruction> {
        if self.entry.len() + OVERHEAD > self.table.max() {
            return Err(MalformedInstruction("an entry is larger than the table"));
        }
        let (name, value) = self.entry.split_at(middle);
        self.table.insert(name, value, 0, kind);
        Ok(())
    }

    /// Bytes of the largest string that an entry can have.
    fn max_string(&self) -> usize {
        self.table.max() * LONGEST_CODE
    }

    /// Reads the prefix of a section (RFC 9204 §4.5.1).
    fn prefix(&self, section: &[u8], at: &mut usize) -> Result<Prefix, MalformedSection> {
        let required = self.required(integer::decode(section, at, 8)? as u64)?;
        let is_negative = section.get(*at).is_some_and(|first| first & 0x80 != 0);
        let delta = integer::decode(section, at, 7)? as u64;
        let base = match is_negative {
            false => Some(required + delta),
            true => required.checked_sub(delta + 1),
        };
        let base = base.ok_or(MalformedSection("the base of a section is negative"))?;
        Ok(Prefix { required, base })
    }

    /// Decodes the required insert count (RFC 9204 §4.5.1.1).
    fn required(&self, encoded: u64) -> Result<u64, MalformedSection> {
        if encoded == 0 {
            return Ok(0);
        }
        let malformed = MalformedSection("the required insert count is out of range");
        let entries = max_entries(self.max_capacity as u64);
        let full_range = 2 * entries;
        if encoded > full_range {
            return Err(malformed);
        }
        let max = self.table.inserted() + entries;
        let required = max / full_range * full_range + encoded - 1;
        let required = match required > max {
            true => required.checked_sub(full_range).ok_or(malformed)?,
            false => required,
        };
        if required == 0 { Err(malformed) } else { Ok(required) }
    }

    fn block(&mut self, stream: u64, required: u64) -> Result<Decoded, MalformedSection> {
        self.blocked.retain(|blocked| blocked.0 != stream);
        if self.blocked.len() >= self.max_blocked {
            return Err(MalformedSection("more streams are blocked than the limit"));
        }
        self.blocked.push((stream, required));
        Ok(Decoded::Blocked)
    }

    /// Decodes a field line (RFC 9204 §4.5.2 to §4.5.6), and appends its text.
    #[inline]
    fn field(
        &self,
        section: &[u8],
        at: &mut usize,
        prefix: &Prefix,
        text: &mut Vec<u8>,
    ) -> Result<DecodedField, MalformedSection> {
        let (first, start) = (section[*at], text.len());
        let entry = if first & 0x80 != 0 {
            let number = integer::decode(section, at, 6)?;
            self.entry(number, first & 0x40 != 0, prefix)?
        } else if first & 0xf0 == 0x10 {
            self.entry_after_base(integer::decode(section, at, 4)?, prefix)?
        } else {
            return self.literal(section, at, prefix, text);
        };
        let (name, value, kind) = entry;
        text.extend_from_slice(name);
        text.extend_from_slice(value);
        let middle = start + name.len();
        Ok(DecodedField { kind, name: start..middle, value: middle..text.len() })
    }

    /// Decodes a field line with a literal value.
    fn literal(
        &self,
        section: &[u8],
        at: &mut usize,
        prefix: &Prefix,
        text: &mut Vec<u8>,
    ) -> Result<DecodedField, MalformedSection> {
        let (first, start) = (section[*at], text.len());
        let kind = if first & 0x20 != 0 && first & 0x40 == 0 {
            string::decode(section, at, 3, text)?;
            None
        } else {
            let (name, _, kind) = if first & 0x40 != 0 {
                let number = integer::decode(section, at, 4)?;
                self.entry(number, first & 0x10 != 0, prefix)?
            } else {
                self.entry_after_base(integer::decode(section, at, 3)?, prefix)?
            };
            text.extend_from_slice(name);
            kind_of_name(kind)
        };
        let middle = text.len();
        string::decode(section, at, 7, text)?;
        let (name, value) = (&text[start..middle], &text[middle..]);
        let kind = kind.unwrap_or_else(|| Kind::of_name(name)).with_value(value);
        Ok(DecodedField { kind, name: start..middle, value: middle..text.len() })
    }

    /// Returns an entry of the static table, or that many entries before the base.
    #[inline]
    fn entry(
        &self,
        number: usize,
        is_static: bool,
        prefix: &Prefix,
    ) -> Result<(&[u8], &[u8], Kind), MalformedSection> {
        if is_static {
            return static_table::get(number).ok_or(MISSING);
        }
        self.dynamic(prefix.base.checked_sub(number as u64 + 1).ok_or(MISSING)?, prefix)
    }

    /// Returns the entry that many entries behind the base.
    fn entry_after_base(
        &self,
        number: usize,
        prefix: &Prefix,
    ) -> Result<(&[u8], &[u8], Kind), MalformedSection> {
        self.dynamic(prefix.base + number as u64, prefix)
    }

    #[inline]
    fn dynamic(
        &self,
        index: u64,
        prefix: &Prefix,
    ) -> Result<(&[u8], &[u8], Kind), MalformedSection> {
        if index >= prefix.required {
            return Err(MalformedSection("a field refers to an entry that is not required"));
        }
        self.table.get_absolute(index).ok_or(MISSING)
    }

    #[cfg(test)]
    pub(super) fn table(&self) -> &Table {
        &self.table
    }
}

const MISSING: MalformedSection =
    MalformedSection("a field refers to an entry that does not exist");

/// Returns the classification of a name by that of a field, which follows from its name unless the field is malformed.
fn kind_of_name(kind: Kind) -> Option<Kind> {
    (kind != Kind::Malformed).then_some(kind)
}
