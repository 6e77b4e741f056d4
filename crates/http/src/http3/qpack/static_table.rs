//! The static table (RFC 9204, appendix A).

use super::Kind;
use crate::field::FieldName;
use crate::section::table::hash;

const LENGTH: usize = 99;

/// The entries of the table in order; the first has the index 0.
const STATIC: [(&str, &str); LENGTH] = [
    (":authority", ""),
    (":path", "/"),
    ("age", "0"),
    ("content-disposition", ""),
    ("content-length", "0"),
    ("cookie", ""),
    ("date", ""),
    ("etag", ""),
    ("if-modified-since", ""),
    ("if-none-match", ""),
    ("last-modified", ""),
    ("link", ""),
    ("location", ""),
    ("referer", ""),
    ("set-cookie", ""),
    (":method", "CONNECT"),
    (":method", "DELETE"),
    (":method", "GET"),
    (":method", "HEAD"),
    (":method", "OPTIONS"),
    (":method", "POST"),
    (":method", "PUT"),
    (":scheme", "http"),
    (":scheme", "https"),
    (":status", "103"),
    (":status", "200"),
    (":status", "304"),
    (":status", "404"),
    (":status", "503"),
    ("accept", "*/*"),
    ("accept", "application/dns-message"),
    ("accept-encoding", "gzip, deflate, br"),
    ("accept-ranges", "bytes"),
    ("access-control-allow-headers", "cache-control"),
    ("access-control-allow-headers", "content-type"),
    ("access-control-allow-origin", "*"),
    ("cache-control", "max-age=0"),
    ("cache-control", "max-age=2592000"),
    ("cache-control", "max-age=604800"),
    ("cache-control", "no-cache"),
    ("cache-control", "no-store"),
    ("cache-control", "public, max-age=31536000"),
    ("content-encoding", "br"),
    ("content-encoding", "gzip"),
    ("content-type", "application/dns-message"),
    ("content-type", "application/javascript"),
    ("content-type", "application/json"),
    ("content-type", "application/x-www-form-urlencoded"),
    ("content-type", "image/gif"),
    ("content-type", "image/jpeg"),
    ("content-type", "image/png"),
    ("content-type", "text/css"),
    ("content-type", "text/html; charset=utf-8"),
    ("content-type", "text/plain"),
    ("content-type", "text/plain;charset=utf-8"),
    ("range", "bytes=0-"),
    ("strict-transport-security", "max-age=31536000"),
    ("strict-transport-security", "max-age=31536000; includesubdomains"),
    ("strict-transport-security", "max-age=31536000; includesubdomains; preload"),
    ("vary", "accept-encoding"),
    ("vary", "origin"),
    ("x-content-type-options", "nosniff"),
    ("x-xss-protection", "1; mode=block"),
    (":status", "100"),
    (":status", "204"),
    (":status", "206"),
    (":status", "302"),
    (":status", "400"),
    (":status", "403"),
    (":status", "421"),
    (":status", "425"),
    (":status", "500"),
    ("accept-language", ""),
    ("access-control-allow-credentials", "FALSE"),
    ("access-control-allow-credentials", "TRUE"),
    ("access-control-allow-headers", "*"),
    ("access-control-allow-methods", "get"),
    ("access-control-allow-methods", "get, post, options"),
    ("access-control-allow-methods", "options"),
    ("access-control-expose-headers", "content-length"),
    ("access-control-request-headers", "content-type"),
    ("access-control-request-method", "get"),
    ("access-control-request-method", "post"),
    ("alt-svc", "clear"),
    ("authorization", ""),
    ("content-security-policy", "script-src 'none'; object-src 'none'; base-uri 'none'"),
    ("early-data", "1"),
    ("expect-ct", ""),
    ("forwarded", ""),
    ("if-range", ""),
    ("origin", ""),
    ("purpose", "prefetch"),
    ("server", ""),
    ("timing-allow-origin", "*"),
    ("upgrade-insecure-requests", "1"),
    ("user-agent", ""),
    ("x-forwarded-for", ""),
    ("x-frame-options", "deny"),
    ("x-frame-options", "sameorigin"),
];

/// Classifications of the entries.
static KINDS: [Kind; LENGTH] = {
    let mut kinds = [Kind::Malformed; LENGTH];
    let mut index = 0;
    while index < LENGTH {
        let name = STATIC[index].0.as_bytes();
        kinds[index] = match Kind::of_static(name) {
            Kind::Field(_) => Kind::Field(evaluated(name)),
            kind => kind,
        };
        index += 1;
    }
    kinds
};

/// Returns the name of a field of the table that the server evaluates.
const fn evaluated(name: &[u8]) -> FieldName {
    match name {
        b"accept" => FieldName::Accept,
        b"accept-encoding" => FieldName::AcceptEncoding,
        b"authorization" => FieldName::Authorization,
        b"content-length" => FieldName::ContentLength,
        b"content-type" => FieldName::ContentType,
        b"cookie" => FieldName::Cookie,
        b"forwarded" => FieldName::Forwarded,
        b"if-modified-since" => FieldName::IfModifiedSince,
        b"if-none-match" => FieldName::IfNoneMatch,
        b"if-range" => FieldName::IfRange,
        b"range" => FieldName::Range,
        b"referer" => FieldName::Referer,
        b"user-agent" => FieldName::UserAgent,
        _ => FieldName::Other,
    }
}

/// Number of places of the hash tables.
const PLACES: usize = 256;
/// A place without an entry.
const FREE: u8 = u8::MAX;

/// The indices of the entries by the hash of name and value.
static BY_FIELD: [u8; PLACES] = places(true);
/// The indices of the first entry of each name by the hash of the name.
static BY_NAME: [u8; PLACES] = places(false);

const fn places(with_values: bool) -> [u8; PLACES] {
    let mut places = [FREE; PLACES];
    // Backwards, so that the first entry of a name replaces the others.
    let mut index = LENGTH;
    while index > 0 {
        index -= 1;
        let (name, value) = (STATIC[index].0.as_bytes(), STATIC[index].1.as_bytes());
        let mut place = hash(name, if with_values { value } else { b"" }) as usize % PLACES;
        while places[place] != FREE
            && (with_values || !is_equal(STATIC[places[place] as usize].0.as_bytes(), name))
        {
            place = (place + 1) % PLACES;
        }
        places[place] = index as u8;
    }
    places
}

const fn is_equal(one: &[u8], other: &[u8]) -> bool {
    let mut at = 0;
    if one.len() != other.len() {
        return false;
    }
    while at < one.len() {
        if one[at] != other[at] {
            return false;
        }
        at += 1;
    }
    true
}

/// Returns the name, the value and the classification of an entry.
#[inline]
pub(super) fn get(index: usize) -> Option<(&'static [u8], &'static [u8], Kind)> {
    let (name, value) = STATIC.get(index)?;
    Some((name.as_bytes(), value.as_bytes(), *KINDS.get(index)?))
}

/// Returns the index of the entry with that name and value, whose hash is `hash`.
#[inline]
pub(super) fn find(hash: u32, name: &[u8], value: &[u8]) -> Option<usize> {
    find_in(&BY_FIELD, hash, |entry| entry.1.as_bytes() == value && entry.0.as_bytes() == name)
}

/// Returns the index of the first entry with that name.
#[inline]
pub(super) fn find_name(name: &[u8]) -> Option<usize> {
    find_in(&BY_NAME, hash(name, b""), |entry| entry.0.as_bytes() == name)
}

#[inline]
fn find_in(
    places: &[u8; PLACES],
    hash: u32,
    is_it: impl Fn(&(&str, &str)) -> bool,
) -> Option<usize> {
    let mut place = hash as usize % PLACES;
    loop {
        let index = places[place];
        if index == FREE {
            return None;
        }
        if is_it(&STATIC[usize::from(index)]) {
            return Some(usize::from(index));
        }
        place = (place + 1) % PLACES;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_entry_is_found_and_classified() {
        for (index, (name, value)) in STATIC.iter().enumerate() {
            let (name, value) = (name.as_bytes(), value.as_bytes());
            assert_eq!(find(hash(name, value), name, value), Some(index));
            let first = STATIC.iter().position(|entry| entry.0.as_bytes() == name);
            assert_eq!(find_name(name), first);
            assert_eq!(get(index), Some((name, value, Kind::of(name, value))));
        }
        assert_eq!(find_name(b"x"), None);
        assert_eq!(find(hash(b"server", b"x"), b"server", b"x"), None);
        assert_eq!(get(LENGTH), None);
    }
}
