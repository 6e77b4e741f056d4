//! Encoding of field sections.

use super::static_table::index_of_name;
use super::{Indexing, Kind, TABLE_SIZE};
use crate::field::FieldName;
use crate::section::table::{Table, hash};
use crate::section::{SectionEncoder, integer, string};

/// The encoder of one direction of a connection, with its dynamic table. Every section that it encodes must be sent, in
/// order.
#[derive(Debug)]
pub struct HpackEncoder {
    table: Table,
    /// The smallest and the last size that the table was given since the last section. The next section has to begin with
    /// them (RFC 7541 §4.2).
    resized: Option<(usize, usize)>,
}

impl Default for HpackEncoder {
    fn default() -> Self {
        Self { table: Table::new(TABLE_SIZE), resized: None }
    }
}

impl HpackEncoder {
    /// Returns a number that changes with every change of the table. A section whose encoding did not change the table can be
    /// sent again while the state is the same.
    #[inline]
    pub fn state(&self) -> u64 {
        self.table.changes()
    }

    /// Applies the receiver's limit of the table, in bytes.
    pub fn limit_table(&mut self, max: usize) {
        let max = max.min(TABLE_SIZE);
        if max == self.table.max() && self.resized.is_none() {
            return;
        }
        let smallest = self.resized.map_or(max, |(smallest, _)| smallest.min(max));
        self.resized = Some((smallest, max));
        self.table.resize(max);
    }

    /// Begins a section. Must be called once before its fields.
    #[inline]
    pub fn begin(&mut self, out: &mut Vec<u8>) {
        if let Some((smallest, last)) = self.resized.take() {
            if smallest < last {
                integer::encode(smallest as u64, 5, 0x20, out);
            }
            integer::encode(last as u64, 5, 0x20, out);
        }
    }

    /// Writes `:status`.
    #[inline]
    pub fn status(&mut self, status: u16, out: &mut Vec<u8>) {
        let index = match status {
            200 => 8,
            204 => 9,
            206 => 10,
            304 => 11,
            400 => 12,
            404 => 13,
            500 => 14,
            _ => {
                let mut digits = itoa::Buffer::new();
                let value = digits.format(status).as_bytes();
                return self.field(b":status", value, Indexing::Incremental, out);
            }
        };
        out.push(0x80 | index);
    }

    /// Writes a field. `name` must be in lower case.
    pub fn field(&mut self, name: &[u8], value: &[u8], indexing: Indexing, out: &mut Vec<u8>) {
        let hash = hash(name, value);
        if indexing != Indexing::Never
            && let Some(number) = self.table.find(hash, name, value)
        {
            return integer::encode(number as u64 + 62, 7, 0x80, out);
        }
        let index = index_of_name(name).or_else(|| Some(self.table.find_name(name)? + 62));
        let (prefix, first) = match indexing {
            Indexing::Incremental => (6, 0x40),
            Indexing::Without => (4, 0),
            Indexing::Never => (4, 0x10),
        };
        match index {
            Some(index) => integer::encode(index as u64, prefix, first, out),
            None => {
                out.push(first);
                string::encode(name, 7, 0, out);
            }
        }
        string::encode(value, 7, 0, out);
        if indexing == Indexing::Incremental {
            // Response fields need no classification.
            self.table.insert(name, value, hash, Kind::Field(FieldName::Other));
        }
    }

    #[cfg(test)]
    pub(super) fn table(&self) -> &Table {
        &self.table
    }
}

impl SectionEncoder for HpackEncoder {
    type Target = ();
    type Section = ();
    const DEFERS_DATE: bool = false;

    fn state(&self) -> u64 {
        Self::state(self)
    }

    fn begin(&mut self, (): (), out: &mut Vec<u8>) {
        Self::begin(self, out);
    }

    fn status(&mut self, status: u16, out: &mut Vec<u8>) {
        Self::status(self, status, out);
    }

    fn field(&mut self, name: &[u8], value: &[u8], indexing: Indexing, out: &mut Vec<u8>) {
        Self::field(self, name, value, indexing, out);
    }

    fn end(&mut self, _: usize, _: &mut Vec<u8>) {}

    fn repeat(&mut self, (): (), (): ()) -> bool {
        true
    }
}
