//! Classification of request fields.

use crate::field::FieldName;
use crate::semantics::is_field_value;

/// Classification of a request field. It is stored with each entry of the dynamic table, so that an indexed field is not
/// classified again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the first five are the pseudo-fields of that name")]
pub enum Kind {
    Method,
    Scheme,
    Authority,
    Path,
    Protocol,
    /// A pseudo-header field that is not defined for requests.
    OtherPseudo,
    /// A connection-specific field, which HTTP/2 and HTTP/3 forbid (RFC 9113 §8.2.2, RFC 9114 §4.2).
    ConnectionSpecific,
    /// A field whose name has upper-case or invalid characters, or whose value has invalid ones (RFC 9113 §8.2.1).
    Malformed,
    /// Any other field.
    Field(FieldName),
}

impl Kind {
    /// Classifies a field.
    #[inline]
    pub fn of(name: &[u8], value: &[u8]) -> Self {
        Self::of_name(name).with_value(value)
    }

    /// Returns the classification of a field with this classification of its name and with `value`.
    #[inline]
    pub(crate) fn with_value(self, value: &[u8]) -> Self {
        let spaced = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
        if is_field_value(value) && !spaced(value.first()) && !spaced(value.last()) {
            self
        } else {
            Self::Malformed
        }
    }

    pub(crate) const fn of_static(name: &[u8]) -> Self {
        match name {
            b":method" => Self::Method,
            b":scheme" => Self::Scheme,
            b":authority" => Self::Authority,
            b":path" => Self::Path,
            b":protocol" => Self::Protocol,
            [b':', ..] => Self::OtherPseudo,
            b"transfer-encoding" => Self::ConnectionSpecific,
            _ => Self::Field(FieldName::Other),
        }
    }

    /// Classifies a field by its name alone.
    pub(crate) fn of_name(name: &[u8]) -> Self {
        match name {
            [b':', ..] => Self::of_static(name),
            b"connection" | b"keep-alive" | b"proxy-connection" | b"transfer-encoding"
            | b"upgrade" => Self::ConnectionSpecific,
            _ if is_lower_token(name) => Self::Field(FieldName::from_bytes(name)),
            _ => Self::Malformed,
        }
    }
}

/// Returns `true` if the name is a token without upper-case letters (RFC 9113 §8.2).
fn is_lower_token(name: &[u8]) -> bool {
    crate::semantics::is_token(name) && !name.iter().any(u8::is_ascii_uppercase)
}
