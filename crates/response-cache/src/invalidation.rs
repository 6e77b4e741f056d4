//! Invalidation by unsafe requests (RFC 9111 §4.4).

use dunlin_http::FieldLines;

use crate::fields::values;
use crate::key::{self, KeyText};

/// Returns the URLs that a successful response to an unsafe request invalidates, apart from the request's own: those of
/// `Location` and `Content-Location` that have the same origin.
pub fn named_urls(url: &[u8], fields: &FieldLines) -> impl Iterator<Item = KeyText> {
    let names = ["Location", "Content-Location"];
    let lines = names.into_iter().flat_map(|name| values(fields, name).into_vec());
    lines.filter_map(|reference| resolve(url, reference))
}

/// Returns `true` if a response with this status shows that the request was successful.
pub fn is_successful(status: u16) -> bool {
    matches!(status, 200..=399)
}

/// Returns the URL that a reference names relative to `url`; `None` if its origin is another one or it is relative to the
/// path.
fn resolve(url: &[u8], reference: &[u8]) -> Option<KeyText> {
    let end = reference.iter().position(|&byte| byte == b'#').unwrap_or(reference.len());
    let reference = reference[..end].trim_ascii();
    let authority = key::authority(url);
    let is_encrypted = url.starts_with(b"https:");
    if reference.is_empty() {
        return Some(url.into());
    }
    let lower = reference.to_ascii_lowercase();
    let rest = if lower.starts_with(b"https://") && is_encrypted {
        Some(&reference[8..])
    } else if lower.starts_with(b"http://") && !is_encrypted {
        Some(&reference[7..])
    } else {
        reference.strip_prefix(b"//")
    };
    let target = match rest {
        Some(rest) => {
            let start = rest.iter().position(|&byte| byte == b'/').unwrap_or(rest.len());
            let (other, target) = rest.split_at(start);
            let other = key::url(is_encrypted, other, b"", None);
            if key::authority(&other) != authority {
                return None;
            }
            if target.is_empty() { b"/" } else { target }
        }
        None if reference.starts_with(b"/") => reference,
        None if reference.starts_with(b"?") => {
            return Some(key::url(is_encrypted, authority, key::path(url), Some(&reference[1..])));
        }
        // Another scheme.
        None if reference.iter().take_while(|&&byte| byte != b'/').any(|&byte| byte == b':') => {
            return None;
        }
        None => {
            let path = key::path(url);
            let slash = path.iter().rposition(|&byte| byte == b'/')?;
            let joined = [&path[..=slash], reference].concat();
            return Some(with_query(is_encrypted, authority, &joined));
        }
    };
    Some(with_query(is_encrypted, authority, target))
}

/// Returns the URL of a path that a query may follow.
fn with_query(is_encrypted: bool, authority: &[u8], target: &[u8]) -> KeyText {
    let mut parts = target.splitn(2, |&byte| byte == b'?');
    let path = parts.next().unwrap_or_default();
    key::url(is_encrypted, authority, path, parts.next())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::fields;

    #[test]
    fn named_urls_of_the_same_origin_are_invalidated() {
        let url = b"http://example.com/a/b?c";
        for (name, value, expected) in [
            ("Location", "/x?y#z", Some("http://example.com/x?y")),
            ("Content-Location", "", Some("http://example.com/a/b?c")),
            ("location", "http://EXAMPLE.com:80/X", Some("http://example.com/X")),
            ("Location", "//example.com", Some("http://example.com/")),
            ("Location", "x/y", Some("http://example.com/a/x/y")),
            ("Location", "../x/%79?%7A", Some("http://example.com/x/y?%7A")),
            ("Location", "?d", Some("http://example.com/a/b?d")),
            ("Location", "https://example.com/x", None),
            ("Location", "http://other.com/x", None),
            ("Location", "//other.com/x", None),
            ("Location", "mailto:x", None),
            ("Link", "/x", None),
        ] {
            let fields = fields(&[(name, value)]);
            let found: Vec<_> = named_urls(url, &fields).collect();
            let expected: Vec<_> =
                expected.map(|url| KeyText::from(url.as_bytes())).into_iter().collect();
            assert_eq!(found, expected, "{name}: {value}");
        }
        assert!(is_successful(204) && is_successful(303) && !is_successful(404));
    }
}
