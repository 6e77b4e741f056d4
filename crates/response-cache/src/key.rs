//! The key of stored responses: the site and the URL (RFC 9111 §2).

use std::borrow::Cow;

use dunlin_admission::store::Classed;
use dunlin_http::semantics::path;
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

/// Returns the URL of a request: scheme, authority in lower case, path in its [normal form](normal) and query.
pub fn url(is_encrypted: bool, authority: &[u8], path: &[u8], query: Option<&[u8]>) -> KeyText {
    let mut url = KeyText::new();
    let (scheme, default): (&[u8], &[u8]) =
        if is_encrypted { (b"https://", b":443") } else { (b"http://", b":80") };
    url.extend_from_slice(scheme);
    url.extend_from_slice(authority.strip_suffix(default).unwrap_or(authority));
    url.make_ascii_lowercase();
    url.extend_from_slice(&normal(path).unwrap_or(Cow::Borrowed(path)));
    if let Some(query) = query {
        url.push(b'?');
        url.extend_from_slice(query);
    }
    url
}

/// Returns the form of a path that all its spellings have: without percent-encoding that nothing needs, without `.`, `..` and
/// empty segments, as the router reads it. Encoded slashes stay. `None` if the path is malformed.
pub fn normal(path: &[u8]) -> Option<Cow<'_, [u8]>> {
    if is_plain(path, |byte| is_unreserved(byte) || is_delimiter(byte)) {
        return Some(Cow::Borrowed(path));
    }
    let mut decoded = Vec::with_capacity(path.len());
    path::decode_opaque(path, &mut decoded).ok()?;
    Some(Cow::Owned(path::encode(&decoded).into_bytes()))
}

/// Returns the spelling of a path that an origin gets, so that few spellings have a response of their own: normalised as far
/// as that cannot change what any recipient reads (RFC 3986 §6.2.2). Characters with a meaning (RFC 3986 §2.2) stay as they
/// are, encoded or not.
pub fn respelled(path: &[u8]) -> Cow<'_, [u8]> {
    if is_plain(path, |byte| is_unreserved(byte) || is_delimiter(byte) || byte == b'\'') {
        return Cow::Borrowed(path);
    }
    let mut text = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((&byte, after)) = rest.split_first() {
        let encoded = after.first_chunk().filter(|_| byte == b'%').and_then(|hex| decoded(*hex));
        let (byte, is_encoded) = encoded.map_or((byte, false), |byte| (byte, true));
        rest = if is_encoded { &after[2..] } else { after };
        let is_text = is_unreserved(byte) || !is_encoded && matches!(byte, 0x21..=0x7e);
        match is_text {
            true => text.push(byte),
            false => text.extend_from_slice(format!("%{byte:02X}").as_bytes()),
        }
    }
    without_dots(&text).into()
}

/// Returns `true` if a path has neither empty segments nor some that begin with a dot, and only characters that `is_plain`
/// accepts.
fn is_plain(path: &[u8], is_plain: impl Fn(u8) -> bool) -> bool {
    let mut before = 0;
    path.first() == Some(&b'/')
        && path.iter().all(|&byte| {
            let is_segment = !(before == b'/' && matches!(byte, b'/' | b'.'));
            before = byte;
            is_segment && is_plain(byte)
        })
}

/// Returns a path without `.`, `..` and empty segments (RFC 3986 §5.2.4).
fn without_dots(path: &[u8]) -> Vec<u8> {
    let mut segments: Vec<&[u8]> = Vec::new();
    for segment in path.split(|&byte| byte == b'/') {
        match segment {
            b"" | b"." => {}
            b".." => drop(segments.pop()),
            segment => segments.push(segment),
        }
    }
    let is_directory = matches!(path, [.., b'/'] | [.., b'/', b'.'] | [.., b'/', b'.', b'.']);
    if is_directory && !segments.is_empty() {
        segments.push(b"");
    }
    [b"/", &segments.join(&b'/')[..]].concat()
}

/// Returns the byte that two hexadecimal digits stand for.
fn decoded([high, low]: [u8; 2]) -> Option<u8> {
    let digit = |byte: u8| (byte as char).to_digit(16);
    u8::try_from(digit(high)? << 4 | digit(low)?).ok()
}

/// Characters whose encoding has no meaning (RFC 3986 §2.3).
fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

/// Further characters of paths that the normal form does not encode.
fn is_delimiter(byte: u8) -> bool {
    b"/!$&()*+,;=:@".contains(&byte)
}

/// Returns the path of the URL of a key, without the query and without the content of a QUERY, which stands behind a line
/// feed.
pub fn path(url: &[u8]) -> &[u8] {
    let target = target(url);
    let end = target.iter().position(|&byte| matches!(byte, b'?' | b'\n'));
    &target[..end.unwrap_or(target.len())]
}

/// Returns the authority of the URL of a key.
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
    use proptest::prelude::*;

    use super::*;

    fn text(path: &[u8]) -> String {
        String::from_utf8_lossy(path).into_owned()
    }

    #[test]
    fn all_spellings_of_a_path_have_one_normal_form_and_few_are_sent() {
        for (raw, form, sent) in [
            ("/a/b", "/a/b", "/a/b"),
            ("/%61/b", "/a/b", "/a/b"),
            ("//a/./x/%2E%2e/b", "/a/b", "/a/b"),
            ("/a/b/", "/a/b/", "/a/b/"),
            ("/a/b/.", "/a/b/", "/a/b/"),
            ("/a/b/c/..", "/a/b/", "/a/b/"),
            ("/..a/.b", "/..a/.b", "/..a/.b"),
            ("/", "/", "/"),
            ("/./", "/", "/"),
            ("/a%20b", "/a%20b", "/a%20b"),
            ("/%c3%a4", "/%C3%A4", "/%C3%A4"),
            ("/\u{e4}", "/%C3%A4", "/%C3%A4"),
            ("/a%2fb", "/a%2Fb", "/a%2Fb"),
            ("/a;b", "/a;b", "/a;b"),
            ("/a%3bb", "/a;b", "/a%3Bb"),
            ("/it's", "/it%27s", "/it's"),
            ("/it%27s", "/it%27s", "/it%27s"),
            ("/a%25", "/a%25", "/a%25"),
            ("/%3F%23", "/%3F%23", "/%3F%23"),
            ("/~%7E", "/~~", "/~~"),
        ] {
            let normal = normal(raw.as_bytes()).expect("a path");
            assert_eq!(
                (&*text(&normal), &*text(&respelled(raw.as_bytes()))),
                (form, sent),
                "{raw}"
            );
        }
        assert!(normal(b"/%zz").is_none() && normal(b"/..").is_none() && normal(b"a").is_none());
    }

    proptest! {
        #[test]
        fn what_is_sent_has_the_same_meaning(
            segments in prop::collection::vec("(%2[eE]|%2[fF]|%[46][0-9a-f]|%3[bB]|[a-c.;' \u{e4}]){0,4}", 1..6),
        ) {
            let raw = format!("/{}", segments.join("/"));
            let Some(form) = normal(raw.as_bytes()) else { return Ok(()) };
            let sent = respelled(raw.as_bytes());
            prop_assert_eq!(text(&normal(&sent).expect("a path")), text(&form));
            prop_assert_eq!(text(&respelled(&sent)), text(&sent));
            prop_assert_eq!(text(&normal(&form).expect("a path")), text(&form));
            prop_assert_eq!(text(&respelled(&form)), text(&form));
            let (mut of_raw, mut of_sent) = (Vec::new(), Vec::new());
            path::decode_opaque(raw.as_bytes(), &mut of_raw).expect("a path");
            path::decode_opaque(&sent, &mut of_sent).expect("a path");
            prop_assert_eq!(of_raw, of_sent);
        }
    }

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
