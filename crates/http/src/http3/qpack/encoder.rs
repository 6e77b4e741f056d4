//! Encoding of field sections, and the encoder stream (RFC 9204 §2.1, §4.3, §4.5).

use std::collections::VecDeque;

use super::index::Index;
use super::{Indexing, Kind, MalformedInstruction, TABLE_SIZE, max_entries, static_table};
use crate::field::FieldName;
use crate::section::table::{OVERHEAD, Table, hash};
use crate::section::{SectionEncoder, integer, string};

/// The encoder of one direction of a connection, with its dynamic table.
///
/// Every section that it encodes must be sent on its stream, and its [`QpackEncoder::instructions`] on the encoder stream. It adds an
/// entry only if none that the peer may still need has to be evicted for it, and refers to entries that the peer may not have
/// received only on as many streams as the peer permits to be blocked.
#[derive(Debug)]
pub struct QpackEncoder {
    table: Table,
    index: Index,
    /// The peer's limit of its table, by which insert counts are encoded.
    peer_capacity: u64,
    /// Streams that may be blocked.
    max_blocked: u64,
    /// Number of insertions that the peer has certainly received (RFC 9204 §2.1.4).
    known_received: u64,
    /// Sections with references that the peer has not acknowledged, in the order of encoding.
    open: VecDeque<OpenSection>,
    current: CurrentSection,
    /// Instructions that were not sent.
    instructions: Vec<u8>,
    /// The transport did not take all instructions: entries may arrive late.
    is_stalled: bool,
    /// The beginning of an incomplete instruction of the peer's decoder stream.
    partial: Vec<u8>,
    /// A buffer for prefixes of sections.
    prefix: Vec<u8>,
}

/// The entries that an encoded section refers to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SectionReferences {
    /// Insertions that the section requires; 0 if it does not refer to the dynamic table.
    required: u64,
    /// The oldest entry that it refers to.
    oldest: u64,
}

#[derive(Debug, Clone, Copy)]
struct OpenSection {
    stream: u64,
    references: SectionReferences,
}

/// The section that is being encoded.
#[derive(Debug, Default)]
struct CurrentSection {
    stream: u64,
    base: u64,
    references: SectionReferences,
    /// The table may be used.
    may_refer: bool,
    /// The section may refer to entries that the peer may not have received; `None` before that matters.
    may_block: Option<bool>,
}

impl SectionReferences {
    fn add(&mut self, entry: u64) {
        self.oldest = if self.required == 0 { entry } else { self.oldest.min(entry) };
        self.required = self.required.max(entry + 1);
    }
}

/// Largest number of sections that wait for an acknowledgement. Further ones do not refer to the dynamic table.
const MAX_OPEN: usize = 256;
/// Bytes of instructions that are not sent, beyond which no entries are added.
const MAX_UNSENT: usize = 4096;
/// Bytes between the start of a section and its first field, in the usual case.
const PREFIX: usize = 2;

impl Default for QpackEncoder {
    /// Returns an encoder without a dynamic table, which it has once the peer's limits are known.
    fn default() -> Self {
        let mut table = Table::new(TABLE_SIZE);
        table.resize(0);
        Self {
            table,
            index: Index::default(),
            peer_capacity: 0,
            max_blocked: 0,
            known_received: 0,
            open: VecDeque::new(),
            current: CurrentSection::default(),
            instructions: Vec::new(),
            is_stalled: false,
            partial: Vec::new(),
            prefix: Vec::new(),
        }
    }
}

impl QpackEncoder {
    /// Applies the peer's settings: the largest capacity of its table in bytes, and the number of streams that may be blocked.
    /// Must be called once at most.
    pub fn set_limits(&mut self, capacity: u64, blocked_streams: u64) {
        self.peer_capacity = capacity;
        self.max_blocked = blocked_streams;
        let capacity = capacity.min(TABLE_SIZE as u64);
        if max_entries(capacity) > 0 {
            self.table.resize(capacity as usize);
            integer::encode(capacity, 5, 0x20, &mut self.instructions);
        }
    }

    /// Returns a number that changes with every change of the table. A section whose encoding did not change the table can be
    /// sent again while the state is the same, if [`QpackEncoder::repeat`] permits.
    #[inline]
    pub fn state(&self) -> u64 {
        self.table.changes()
    }

    /// Returns the instructions to send on the encoder stream. Call [`QpackEncoder::sent`] afterwards.
    pub fn instructions(&self) -> &[u8] {
        &self.instructions
    }

    /// Notes that the transport has taken the first `count` bytes of the instructions. While it has not taken all, no further
    /// entries are added (RFC 9204 §2.1.3).
    pub fn sent(&mut self, count: usize) {
        self.instructions.drain(..count.min(self.instructions.len()));
        self.is_stalled = !self.instructions.is_empty();
    }

    /// Begins a section that is sent on `stream`.
    #[inline]
    pub fn begin(&mut self, stream: u64, out: &mut Vec<u8>) {
        self.current = CurrentSection {
            stream,
            base: self.table.inserted(),
            may_refer: self.open.len() < MAX_OPEN,
            ..CurrentSection::default()
        };
        out.extend_from_slice(&[0; PREFIX]);
    }

    /// Writes `:status`.
    #[inline]
    pub fn status(&mut self, status: u16, out: &mut Vec<u8>) {
        let index = match status {
            200 => 25,
            304 => 26,
            404 => 27,
            206 => 65,
            204 => 64,
            103 => 24,
            503 => 28,
            100 => 63,
            302 => 66,
            400 => 67,
            403 => 68,
            421 => 69,
            425 => 70,
            500 => 71,
            _ => {
                let mut digits = itoa::Buffer::new();
                let value = digits.format(status).as_bytes();
                return self.field(b":status", value, Indexing::Incremental, out);
            }
        };
        integer::encode(index, 6, 0xc0, out);
    }

    /// Writes a field. `name` must be in lower case.
    pub fn field(&mut self, name: &[u8], value: &[u8], indexing: Indexing, out: &mut Vec<u8>) {
        let mut may_add = indexing == Indexing::Incremental;
        if indexing != Indexing::Never {
            let hash = hash(name, value);
            if let Some(number) = static_table::find(hash, name, value) {
                return integer::encode(number as u64, 6, 0xc0, out);
            }
            if let Some(entry) = self.find(hash, name, value) {
                if let Some(entry) = self.usable(entry, hash, name, value) {
                    return self.indexed(entry, out);
                }
                may_add = false;
            }
            if may_add
                && let Some(entry) = self.insert(hash, name, value)
                && self.may_refer_to(entry)
            {
                return self.indexed(entry, out);
            }
        }
        self.literal(name, value, indexing == Indexing::Never, out);
    }

    /// Ends the section that began at the offset `start` of `out`, and returns what it refers to.
    pub fn end(&mut self, start: usize, out: &mut Vec<u8>) -> SectionReferences {
        let CurrentSection { stream, base, references, .. } = self.current;
        if references.required == 0 {
            return references;
        }
        let required = references.required;
        self.prefix.clear();
        let full_range = 2 * max_entries(self.peer_capacity);
        integer::encode(required % full_range + 1, 8, 0, &mut self.prefix);
        match base.checked_sub(required) {
            Some(delta) => integer::encode(delta, 7, 0, &mut self.prefix),
            None => integer::encode(required - base - 1, 7, 0x80, &mut self.prefix),
        }
        match <[u8; PREFIX]>::try_from(self.prefix.as_slice()) {
            Ok(prefix) => out[start..start + PREFIX].copy_from_slice(&prefix),
            Err(_) => {
                out.splice(start..start + PREFIX, self.prefix.iter().copied());
            }
        }
        self.open.push_back(OpenSection { stream, references });
        references
    }

    /// Notes that an encoded section is sent again, on `stream`. Returns `false` if its entries may not be referred to now; it has
    /// to be encoded again.
    #[inline]
    pub fn repeat(&mut self, stream: u64, references: SectionReferences) -> bool {
        if references.required == 0 {
            return true;
        }
        if references.oldest < self.table.oldest() || self.open.len() >= MAX_OPEN {
            return false;
        }
        if references.required > self.known_received && !self.permits_block(stream) {
            return false;
        }
        self.open.push_back(OpenSection { stream, references });
        true
    }

    /// Reads instructions of the peer's decoder stream. Returns the number of those without effect.
    ///
    /// # Errors
    /// An instruction is malformed. The connection has to be closed with QPACK_DECODER_STREAM_ERROR.
    pub fn receive(&mut self, bytes: &[u8]) -> Result<usize, MalformedInstruction> {
        let mut partial = std::mem::take(&mut self.partial);
        let input = if partial.is_empty() {
            bytes
        } else {
            partial.extend_from_slice(bytes);
            &partial
        };
        let (mut at, mut idle) = (0, 0);
        while let Some(first) = input.get(at) {
            let prefix = if first & 0x80 != 0 { 7 } else { 6 };
            let mut end = at;
            let Some(number) = integer::read(input, &mut end, prefix, integer::MAX_LONG)? else {
                break;
            };
            match first >> 6 {
                0 => self.increment(number)?,
                1 => {
                    let before = self.open.len();
                    self.open.retain(|section| section.stream != number);
                    idle += usize::from(self.open.len() == before);
                }
                _ => self.acknowledge(number)?,
            }
            at = end;
        }
        // An integer is bounded, and so is what is kept.
        self.partial = input[at..].to_vec();
        Ok(idle)
    }

    /// Puts the type of the encoder stream before the instructions.
    pub(crate) fn begin_stream(&mut self, kind: u8) {
        self.instructions.push(kind);
    }

    /// Processes Section Acknowledgment (RFC 9204 §4.4.1).
    fn acknowledge(&mut self, stream: u64) -> Result<(), MalformedInstruction> {
        let position = self.open.iter().position(|section| section.stream == stream);
        let section = position.and_then(|position| self.open.remove(position));
        let section = section.ok_or(MalformedInstruction("an unknown section is acknowledged"))?;
        self.known_received = self.known_received.max(section.references.required);
        Ok(())
    }

    /// Processes Insert Count Increment (RFC 9204 §4.4.3).
    fn increment(&mut self, number: u64) -> Result<(), MalformedInstruction> {
        if number == 0 || number > self.table.inserted() - self.known_received {
            return Err(MalformedInstruction("the increment of the insert count is out of range"));
        }
        self.known_received += number;
        Ok(())
    }

    #[inline]
    fn find(&self, hash: u32, name: &[u8], value: &[u8]) -> Option<u64> {
        self.index.find(hash, self.table.oldest(), |entry| {
            self.table
                .get_absolute(entry)
                .is_some_and(|(other, text, _)| other == name && text == value)
        })
    }

    /// Returns the entry to refer to in place of `entry`: a duplicate, if it is to be evicted soon (RFC 9204 §2.1.1.1). `None` if
    /// the section may not refer to it.
    #[inline]
    fn usable(&mut self, entry: u64, hash: u32, name: &[u8], value: &[u8]) -> Option<u64> {
        if !self.may_refer_to(entry) {
            return None;
        }
        let (oldest, inserted) = (self.table.oldest(), self.table.inserted());
        let is_full = self.table.size() > self.table.max() / 4 * 3;
        let is_draining = is_full && entry - oldest < (inserted - oldest) / 4;
        if !is_draining || !self.may_block() {
            return Some(entry);
        }
        if !self.make_room(name.len() + value.len()) {
            return Some(entry);
        }
        integer::encode(inserted - entry - 1, 5, 0, &mut self.instructions);
        if !self.index.replace(hash, oldest, entry, inserted) {
            self.index.insert(hash, inserted);
        }
        self.table.insert(name, value, hash, Kind::Field(FieldName::Other));
        Some(inserted)
    }

    /// Returns `true` if the section may refer to the entry.
    #[inline]
    fn may_refer_to(&mut self, entry: u64) -> bool {
        self.current.may_refer && (entry < self.known_received || self.may_block())
    }

    /// Returns `true` if the section may refer to entries that the peer may not have received.
    fn may_block(&mut self) -> bool {
        if let Some(may_block) = self.current.may_block {
            return may_block;
        }
        let may_block = self.permits_block(self.current.stream);
        self.current.may_block = Some(may_block);
        may_block
    }

    /// Returns `true` if the peer permits that `stream` is blocked.
    fn permits_block(&self, stream: u64) -> bool {
        let is_at_risk = |section: &&OpenSection| {
            section.stream != stream && section.references.required > self.known_received
        };
        // More than one section of a stream counts as more than one stream, which is on the safe side.
        let at_risk = self.open.iter().filter(is_at_risk).count() as u64;
        !self.is_stalled && at_risk < self.max_blocked
    }

    /// Adds an entry, and writes the instruction. Returns its absolute index.
    fn insert(&mut self, hash: u32, name: &[u8], value: &[u8]) -> Option<u64> {
        let entry = self.table.inserted();
        let known_name = static_table::find_name(name);
        let same_name = if known_name.is_none() { self.table.find_name(name) } else { None };
        if !self.make_room(name.len() + value.len()) {
            return None;
        }
        let out = &mut self.instructions;
        match (known_name, same_name) {
            (Some(number), _) => integer::encode(number as u64, 6, 0xc0, out),
            (None, Some(number)) => integer::encode(number as u64, 6, 0x80, out),
            (None, None) => string::encode(name, 5, 0x40, out),
        }
        string::encode(value, 7, 0, out);
        self.table.insert(name, value, hash, Kind::Field(FieldName::Other));
        self.index.insert(hash, entry);
        Some(entry)
    }

    /// Evicts what an entry with a text of that length needs. Returns `false`, and evicts nothing, if the entry cannot be added now.
    fn make_room(&mut self, length: usize) -> bool {
        let size = length + OVERHEAD;
        if size > self.table.max() || self.is_stalled || self.instructions.len() + size > MAX_UNSENT
        {
            return false;
        }
        let count = self.table.evictions_for(size);
        if count == 0 {
            return true;
        }
        let oldest = self.table.oldest();
        let sections = self.open.iter().map(|section| section.references);
        let needed = sections
            .chain([self.current.references])
            .filter(|references| references.required > 0)
            .map(|references| references.oldest)
            .min();
        // An entry can be evicted once its insertion is acknowledged and no section refers to it (RFC 9204 §2.1.1).
        if oldest + count > needed.unwrap_or(u64::MAX).min(self.known_received) {
            return false;
        }
        for entry in oldest..oldest + count {
            let Some(hash) = self.table.hash_of(entry) else { continue };
            self.index.remove(hash, oldest, entry, |other| self.table.hash_of(other));
        }
        true
    }

    /// Writes an indexed field line (RFC 9204 §4.5.2, §4.5.3).
    #[inline]
    fn indexed(&mut self, entry: u64, out: &mut Vec<u8>) {
        self.current.references.add(entry);
        match entry.checked_sub(self.current.base) {
            Some(number) => integer::encode(number, 4, 0x10, out),
            None => integer::encode(self.current.base - entry - 1, 6, 0x80, out),
        }
    }

    /// Writes a literal field line (RFC 9204 §4.5.4, §4.5.6).
    fn literal(&mut self, name: &[u8], value: &[u8], is_secret: bool, out: &mut Vec<u8>) {
        if let Some(number) = static_table::find_name(name) {
            integer::encode(number as u64, 4, if is_secret { 0x70 } else { 0x50 }, out);
        } else if let Some(entry) = self.entry_of_name(name) {
            self.current.references.add(entry);
            let number = self.current.base - entry - 1;
            integer::encode(number, 4, if is_secret { 0x60 } else { 0x40 }, out);
        } else {
            string::encode(name, 3, if is_secret { 0x30 } else { 0x20 }, out);
        }
        string::encode(value, 7, 0, out);
    }

    /// Returns an entry with that name that the peer has certainly received.
    fn entry_of_name(&self, name: &[u8]) -> Option<u64> {
        let number = self.table.find_name(name).filter(|_| self.current.may_refer)?;
        let entry = self.table.inserted() - 1 - number as u64;
        (entry < self.known_received.min(self.current.base)).then_some(entry)
    }

    #[cfg(test)]
    pub(super) fn table(&self) -> &Table {
        &self.table
    }
}

impl SectionEncoder for QpackEncoder {
    type Target = u64;
    type Section = SectionReferences;
    const DEFERS_DATE: bool = true;

    fn state(&self) -> u64 {
        Self::state(self)
    }

    fn begin(&mut self, stream: u64, out: &mut Vec<u8>) {
        Self::begin(self, stream, out);
    }

    fn status(&mut self, status: u16, out: &mut Vec<u8>) {
        Self::status(self, status, out);
    }

    fn field(&mut self, name: &[u8], value: &[u8], indexing: Indexing, out: &mut Vec<u8>) {
        Self::field(self, name, value, indexing, out);
    }

    fn end(&mut self, start: usize, out: &mut Vec<u8>) -> SectionReferences {
        Self::end(self, start, out)
    }

    fn repeat(&mut self, stream: u64, references: SectionReferences) -> bool {
        Self::repeat(self, stream, references)
    }
}
