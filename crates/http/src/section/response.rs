//! Reading the section of a response (RFC 9113 §8.2, §8.3.2; RFC 9114 §4.2, §4.3.2).

use super::{DecodedField, Kind};
use crate::FieldLines;
use crate::field::FieldName;
use crate::message::ResponseHead;
use crate::request::Version;

/// The fields of one section, as they are decoded.
#[derive(Debug, Default)]
pub(crate) struct ResponseSection {
    status: Option<u16>,
    fields: FieldLines,
    length: Option<u64>,
    size: usize,
    malformed: Option<&'static str>,
}

/// Most bytes of a section, as RFC 9113 §6.5.2 counts them.
pub(crate) const MAX_SECTION: usize = 64 * 1024;
/// The size of a usual field in bytes, decoded.
pub(crate) const USUAL_FIELD: usize = 128;
/// Cost of a field besides its text.
const OVERHEAD: usize = 32;

impl ResponseSection {
    /// Takes one field, whose text ends `text`, and removes the text.
    pub(crate) fn take(&mut self, text: &mut Vec<u8>, field: &DecodedField) {
        let (name, value) = (&text[field.name.clone()], &text[field.value.clone()]);
        self.size += name.len() + value.len() + OVERHEAD;
        let result = if self.is_too_large() {
            Err("the head of the response is larger than 64 KB")
        } else if self.malformed.is_some() {
            // The rest is only decoded, as the table of the connection depends on it.
            Ok(())
        } else {
            self.field(field.kind, name, value)
        };
        if let Err(reason) = result {
            self.malformed.get_or_insert(reason);
        }
        text.truncate(field.name.start);
    }

    fn field(&mut self, kind: Kind, name: &[u8], value: &[u8]) -> Result<(), &'static str> {
        match kind {
            Kind::OtherPseudo if name == b":status" => {
                let has_fields = !self.fields.as_bytes().is_empty();
                if has_fields || self.status.is_some() {
                    return Err("a pseudo-field is repeated or stands behind a field");
                }
                self.status = Some(status(value).ok_or("the status is malformed")?);
            }
            Kind::Field(id) => {
                if id == FieldName::ContentLength {
                    self.content_length(value)?;
                }
                // Its kind states that the name and the value have only characters that they may have.
                self.fields.push_parsed(name, value);
            }
            Kind::ConnectionSpecific => return Err("a field concerns the connection"),
            Kind::Malformed => return Err("a field is malformed"),
            _ => return Err("a pseudo-field is not one of a response"),
        }
        Ok(())
    }

    fn content_length(&mut self, value: &[u8]) -> Result<(), &'static str> {
        let text = std::str::from_utf8(value).ok().filter(|text| !text.starts_with('+'));
        let length = text.and_then(|text| text.parse().ok());
        let length = length.ok_or("Content-Length is malformed")?;
        if self.length.replace(length).is_some_and(|other| other != length) {
            return Err("there are two different Content-Lengths");
        }
        Ok(())
    }

    /// Returns the size of the section, as RFC 9113 §6.5.2 counts it.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    pub(crate) fn is_too_large(&self) -> bool {
        self.size > MAX_SECTION
    }

    /// Returns the head of a response, and the length of its body if it states one.
    pub(crate) fn into_head(
        self,
        version: Version,
    ) -> Result<(ResponseHead, Option<u64>), &'static str> {
        if let Some(reason) = self.malformed {
            return Err(reason);
        }
        let status = self.status.ok_or("the status is missing")?;
        if status == 101 {
            return Err("only HTTP/1 has a 101 response");
        }
        Ok((ResponseHead { status, version, fields: self.fields }, self.length))
    }

    /// Trailer fields.
    pub(crate) fn into_trailers(self) -> Result<FieldLines, &'static str> {
        match (self.malformed, self.status) {
            (Some(reason), _) => Err(reason),
            (None, Some(_)) => Err("trailers have a status"),
            (None, None) => Ok(self.fields),
        }
    }
}

fn status(text: &[u8]) -> Option<u16> {
    let [b'1'..=b'9', b'0'..=b'9', b'0'..=b'9'] = text else { return None };
    std::str::from_utf8(text).ok()?.parse().ok()
}
