//! Names of the request fields that the server evaluates.

/// The name of a request field that some part of the server evaluates. The parser classifies every field once; all others
/// are [`FieldName::Other`], to be compared by their text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
#[expect(missing_docs, reason = "each is the field of that name")]
pub enum FieldName {
    Accept,
    AcceptEncoding,
    Authorization,
    Connection,
    ContentLength,
    ContentType,
    Cookie,
    Expect,
    Forwarded,
    Host,
    IfMatch,
    IfModifiedSince,
    IfNoneMatch,
    IfRange,
    IfUnmodifiedSince,
    Priority,
    Range,
    Referer,
    Te,
    Trailer,
    TransferEncoding,
    Upgrade,
    UserAgent,
    WantReprDigest,
    Other,
}

impl FieldName {
    /// Number of names, including [`FieldName::Other`].
    pub const COUNT: usize = Self::Other as usize + 1;

    /// Classifies a field name, without regard to case.
    #[inline]
    pub fn from_bytes(name: &[u8]) -> Self {
        let (candidate, text): (Self, &[u8]) = match (name.len(), name.first().map(|b| b | 0x20)) {
            (2, _) => (Self::Te, b"te"),
            (4, _) => (Self::Host, b"host"),
            (5, _) => (Self::Range, b"range"),
            (6, Some(b'a')) => (Self::Accept, b"accept"),
            (6, Some(b'c')) => (Self::Cookie, b"cookie"),
            (6, _) => (Self::Expect, b"expect"),
            (7, Some(b'u')) => (Self::Upgrade, b"upgrade"),
            (7, Some(b'r')) => (Self::Referer, b"referer"),
            (7, _) => (Self::Trailer, b"trailer"),
            (8, Some(b'i')) if name[3] | 0x20 == b'm' => (Self::IfMatch, b"if-match"),
            (8, Some(b'i')) => (Self::IfRange, b"if-range"),
            (8, _) => (Self::Priority, b"priority"),
            (9, _) => (Self::Forwarded, b"forwarded"),
            (10, Some(b'c')) => (Self::Connection, b"connection"),
            (10, _) => (Self::UserAgent, b"user-agent"),
            (12, _) => (Self::ContentType, b"content-type"),
            (13, Some(b'i')) => (Self::IfNoneMatch, b"if-none-match"),
            (13, _) => (Self::Authorization, b"authorization"),
            (14, _) => (Self::ContentLength, b"content-length"),
            (15, _) => (Self::AcceptEncoding, b"accept-encoding"),
            (16, _) => (Self::WantReprDigest, b"want-repr-digest"),
            (17, Some(b'i')) => (Self::IfModifiedSince, b"if-modified-since"),
            (17, _) => (Self::TransferEncoding, b"transfer-encoding"),
            (19, _) => (Self::IfUnmodifiedSince, b"if-unmodified-since"),
            _ => return Self::Other,
        };
        if name.eq_ignore_ascii_case(text) { candidate } else { Self::Other }
    }
}

/// A set of field names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FieldSet(u32);

impl FieldSet {
    /// The empty set.
    pub const EMPTY: Self = Self(0);

    /// Creates the set of `names`.
    pub const fn of(names: &[FieldName]) -> Self {
        let (mut bits, mut at) = (0, 0);
        while at < names.len() {
            bits |= 1 << names[at] as u32;
            at += 1;
        }
        Self(bits)
    }

    /// Adds a name.
    #[inline]
    pub fn insert(&mut self, name: FieldName) {
        self.0 |= 1 << name as u32;
    }

    /// Returns `true` if the set contains the name.
    #[inline]
    pub fn contains(self, name: FieldName) -> bool {
        self.0 & (1 << name as u32) != 0
    }

    /// Returns `true` if the sets have a name in common.
    #[inline]
    pub fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_classified_without_regard_to_case() {
        for (text, name) in [
            ("Host", FieldName::Host),
            ("hOST", FieldName::Host),
            ("TRANSFER-ENCODING", FieldName::TransferEncoding),
            ("If-Match", FieldName::IfMatch),
            ("If-Range", FieldName::IfRange),
            ("Priority", FieldName::Priority),
            ("if-none-match", FieldName::IfNoneMatch),
            ("Authorization", FieldName::Authorization),
            ("If-Modified-Since", FieldName::IfModifiedSince),
            ("If-Unmodified-Since", FieldName::IfUnmodifiedSince),
            ("Want-Repr-Digest", FieldName::WantReprDigest),
            ("User-Agent", FieldName::UserAgent),
            ("TE", FieldName::Te),
            ("X-Host", FieldName::Other),
            ("Hosx", FieldName::Other),
            ("", FieldName::Other),
            ("Transfer_Encoding", FieldName::Other),
        ] {
            assert_eq!(FieldName::from_bytes(text.as_bytes()), name, "{text}");
        }
    }
}
