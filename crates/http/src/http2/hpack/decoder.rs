//! Decoding of field sections.

use super::static_table::STATIC;
use super::{DecodedField, Kind, MalformedSection, TABLE_SIZE};
use crate::field::FieldName;
use crate::section::table::Table;
use crate::section::{integer, string};

/// The decoder of one direction of a connection, with its dynamic table. It must decode all sections in order.
#[derive(Debug)]
pub struct HpackDecoder {
    table: Table,
}

impl Default for HpackDecoder {
    fn default() -> Self {
        Self { table: Table::new(TABLE_SIZE) }
    }
}

/// Classifications of the static table's entries.
static STATIC_KINDS: [Kind; 61] = {
    let mut kinds = [Kind::Malformed; 61];
    let mut at = 0;
    while at < 61 {
        kinds[at] = Kind::of_static(STATIC[at].0.as_bytes());
        at += 1;
    }
    kinds[15] = Kind::Field(FieldName::AcceptEncoding);
    kinds[18] = Kind::Field(FieldName::Accept);
    kinds[22] = Kind::Field(FieldName::Authorization);
    kinds[27] = Kind::Field(FieldName::ContentLength);
    kinds[30] = Kind::Field(FieldName::ContentType);
    kinds[31] = Kind::Field(FieldName::Cookie);
    kinds[34] = Kind::Field(FieldName::Expect);
    kinds[37] = Kind::Field(FieldName::Host);
    kinds[38] = Kind::Field(FieldName::IfMatch);
    kinds[39] = Kind::Field(FieldName::IfModifiedSince);
    kinds[40] = Kind::Field(FieldName::IfNoneMatch);
    kinds[41] = Kind::Field(FieldName::IfRange);
    kinds[42] = Kind::Field(FieldName::IfUnmodifiedSince);
    kinds[49] = Kind::Field(FieldName::Range);
    kinds[50] = Kind::Field(FieldName::Referer);
    kinds[57] = Kind::Field(FieldName::UserAgent);
    kinds
};

impl HpackDecoder {
    /// Decodes the field section `block`. Appends the text of each field to `text` and calls `take`, which may truncate it
    /// again.
    ///
    /// # Errors
    /// The section is malformed. The connection has to be closed.
    pub fn decode(
        &mut self,
        block: &[u8],
        text: &mut Vec<u8>,
        mut take: impl FnMut(&mut Vec<u8>, DecodedField),
    ) -> Result<(), MalformedSection> {
        let mut at = 0;
        let mut may_resize = true;
        while let Some(&first) = block.get(at) {
            if first & 0xe0 == 0x20 {
                let size = integer::decode(block, &mut at, 5)?;
                if !may_resize || size > TABLE_SIZE {
                    return Err(MalformedSection(
                        "a table size is too large, or not at the beginning",
                    ));
                }
                self.table.resize(size);
                continue;
            }
            may_resize = false;
            let start = text.len();
            let field = if first & 0x80 != 0 {
                let index = integer::decode(block, &mut at, 7)?;
                let (name, kind) = self.copy(index, true, text)?;
                DecodedField { kind, name: start..start + name, value: start + name..text.len() }
            } else {
                self.literal(block, &mut at, text)?
            };
            take(text, field);
        }
        Ok(())
    }

    /// Decodes a field with a literal value (RFC 7541 §6.2).
    fn literal(
        &mut self,
        block: &[u8],
        at: &mut usize,
        text: &mut Vec<u8>,
    ) -> Result<DecodedField, MalformedSection> {
        let indexed = block[*at] & 0x40 != 0;
        let start = text.len();
        match integer::decode(block, at, if indexed { 6 } else { 4 })? {
            0 => string::decode(block, at, 7, text)?,
            index => {
                self.copy(index, false, text)?;
            }
        }
        let middle = text.len();
        string::decode(block, at, 7, text)?;
        let (name, value) = (&text[start..middle], &text[middle..]);
        let kind = Kind::of(name, value);
        if indexed {
            self.table.insert(name, value, 0, kind);
        }
        Ok(DecodedField { kind, name: start..middle, value: middle..text.len() })
    }

    /// Appends the name of an entry, and its value if requested. Returns the length of the name and the classification.
    #[inline]
    fn copy(
        &self,
        index: usize,
        with_value: bool,
        text: &mut Vec<u8>,
    ) -> Result<(usize, Kind), MalformedSection> {
        let (name, value, kind) = match index {
            1..=61 => {
                let (name, value) = STATIC[index - 1];
                (name.as_bytes(), value.as_bytes(), STATIC_KINDS[index - 1])
            }
            _ => index
                .checked_sub(62)
                .and_then(|number| self.table.get(number))
                .ok_or(MalformedSection("there is no entry of that index"))?,
        };
        text.extend_from_slice(name);
        if with_value {
            text.extend_from_slice(value);
        }
        Ok((name.len(), kind))
    }

    #[cfg(test)]
    pub(super) fn table(&self) -> &Table {
        &self.table
    }
}
