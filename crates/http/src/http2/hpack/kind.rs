//! What a field of a request is to HTTP/2, found once when its text is first seen.

use crate::field::FieldName;
use crate::semantics::is_field_value;

/// What a field of a request is. It is kept with an entry of the dynamic table, so that a field
/// that is only referred to costs no look at its text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the first four are the pseudo-fields of that name")]
pub enum Kind {
    Method,
    Scheme,
    Authority,
    Path,
    /// A pseudo-field that no request has.
    OtherPseudo,
    /// A field that concerns a connection, which HTTP/2 does not have (RFC 9113 §8.2.2).
    ConnectionSpecific,
    /// A name in capitals, or with a character that no name holds, or a value with one that no
    /// value holds (RFC 9113 §8.2.1).
    Malformed,
    /// Any other field.
    Field(FieldName),
}

impl Kind {
    /// What a field of that text is.
    #[inline]
    pub fn of(name: &[u8], value: &[u8]) -> Self {
        let kind = Self::of_name(name);
        let spaced = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
        if is_field_value(value) && !spaced(value.first()) && !spaced(value.last()) {
            kind
        } else {
            Self::Malformed
        }
    }

    pub(super) const fn of_static(name: &[u8]) -> Self {
        match name {
            b":method" => Self::Method,
            b":scheme" => Self::Scheme,
            b":authority" => Self::Authority,
            b":path" => Self::Path,
            [b':', ..] => Self::OtherPseudo,
            b"transfer-encoding" => Self::ConnectionSpecific,
            _ => Self::Field(FieldName::Other),
        }
    }

    fn of_name(name: &[u8]) -> Self {
        match name {
            [b':', ..] => Self::of_static(name),
            b"connection" | b"keep-alive" | b"proxy-connection" | b"transfer-encoding"
            | b"upgrade" => Self::ConnectionSpecific,
            _ if is_lower_token(name) => Self::Field(FieldName::from_bytes(name)),
            _ => Self::Malformed,
        }
    }
}

/// RFC 9113 §8.2: a token without capitals.
fn is_lower_token(name: &[u8]) -> bool {
    crate::semantics::is_token(name) && !name.iter().any(u8::is_ascii_uppercase)
}
