//! The key of stored responses: the site and the URL (RFC 9111 §2).

use dunlin_admission::store::Classed;
use smallvec::SmallVec;

/// A key that borrows nothing, for the time of a request.
pub type KeyText = SmallVec<[u8; 192]>;

/// The key of the responses for one URL.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Key {
    /// The site: a number that no other configuration of it has.
    pub site: usize,
    /// The URL; see [`url`]. For a QUERY, a line feed and what identifies its content follow.
    pub url: Box<[u8]>,
}

impl Classed for Key {}

/// The URL of a request: scheme, authority in lower case, path and query.
pub fn url(is_encrypted: bool, authority: &[u8], path: &[u8], query: Option<&[u8]>) -> KeyText {
    let mut url = KeyText::new();
    let (scheme, default): (&[u8], &[u8]) =
        if is_encrypted { (b"https://", b":443") } else { (b"http://", b":80") };
    url.extend_from_slice(scheme);
    url.extend_from_slice(authority.strip_suffix(default).unwrap_or(authority));
    url.make_ascii_lowercase();
    url.extend_from_slice(path);
    if let Some(query) = query {
        url.push(b'?');
        url.extend_from_slice(query);
    }
    url
}

/// The path of the URL of a key, without the query and without the content of a QUERY, which stands behind a line feed.
pub fn path(url: &[u8]) -> &[u8] {
    let target = target(url);
    let end = target.iter().position(|&byte| matches!(byte, b'?' | b'\n'));
    &target[..end.unwrap_or(target.len())]
}

/// The authority of the URL of a key.
pub fn authority(url: &[u8]) -> &[u8] {
    let rest = after_scheme(url);
    &rest[..rest.len() - target(url).len()]
}

fn target(url: &[u8]) -> &[u8] {
    let rest = after_scheme(url);
    let start = rest.iter().position(|&byte| byte == b'/');
    &rest[start.unwrap_or(rest.len())..]
}

fn after_scheme(url: &[u8]) -> &[u8] {
    let rest = url.strip_prefix(b"https://").or_else(|| url.strip_prefix(b"http://"));
    rest.unwrap_or(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_normalised_and_taken_apart() {
        let url = url(false, b"Example.COM:80", b"/A/b", Some(b"q=/"));
        assert_eq!(&url[..], b"http://example.com/A/b?q=/");
        assert_eq!((authority(&url), path(&url)), (&b"example.com"[..], &b"/A/b"[..]));
        assert_eq!(path(b"http://example.com/a\n?x"), b"/a");
        let url = super::url(true, b"[::1]:80", b"/", None);
        assert_eq!(&url[..], b"https://[::1]:80/");
        assert_eq!((authority(&url), path(&url)), (&b"[::1]:80"[..], &b"/"[..]));
    }
}
