//! Paths of request-targets: decoding, normalization and encoding.

use super::bytes::alphanumeric_and;

/// An invalid path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathError {
    /// The path does not begin with a slash, or a percent sign is not followed by two digits.
    Malformed,
    /// The path contains a NUL.
    Nul,
    /// The path contains an encoded slash, which no file name can.
    EncodedSlash,
    /// `..` segments lead above the root.
    AboveRoot,
}

/// Returns a hash that is quickly computed, and whose upper half depends on all of a path: for tables with few places, in which
/// paths that collide displace each other. Clients can make paths collide.
#[inline]
pub fn quick_hash(seed: u64, path: &[u8]) -> u64 {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut hash = seed ^ path.len() as u64;
    for part in path.chunks(8) {
        let mut bytes = [0; 8];
        bytes[..part.len()].copy_from_slice(part);
        hash = (hash.rotate_left(5) ^ u64::from_le_bytes(bytes)).wrapping_mul(FACTOR);
    }
    hash
}

/// Decodes percent-encoding once, resolves `.` and `..` segments (RFC 3986 §5.2.4) and merges consecutive slashes. Appends
/// the result, which begins with a slash, to `out`, which must be empty.
///
/// Backslashes and bytes that are not UTF-8 are ordinary characters of file names.
///
/// # Errors
/// A [`PathError`]; the content of `out` is then unspecified.
pub fn decode(raw: &[u8], out: &mut Vec<u8>) -> Result<(), PathError> {
    if raw.first() != Some(&b'/') {
        return Err(PathError::Malformed);
    }
    let mut previous = 0;
    let plain = raw.iter().all(|&b| {
        let plain = b != b'%' && b != 0 && !(previous == b'/' && matches!(b, b'/' | b'.'));
        previous = b;
        plain
    });
    if plain {
        out.extend_from_slice(raw);
        return Ok(());
    }
    unescape(raw, None, out)?;
    resolve_segments(out)
}

/// As [`decode`], for a path with encoded slashes (`%2F`): they become part of their segments, as NULs, which no other path
/// has. [`encode`] restores them.
///
/// # Errors
/// A [`PathError`]; the content of `out` is then unspecified.
pub fn decode_opaque(raw: &[u8], out: &mut Vec<u8>) -> Result<(), PathError> {
    if raw.first() != Some(&b'/') {
        return Err(PathError::Malformed);
    }
    unescape(raw, Some(0), out)?;
    resolve_segments(out)
}

/// Returns a result of [`decode_opaque`] with its encoded slashes as slashes, also consecutive ones.
pub fn with_slashes(opaque: &[u8]) -> Vec<u8> {
    opaque.iter().map(|&byte| if byte == 0 { b'/' } else { byte }).collect()
}

/// Appends a result of [`decode_opaque`] to `out`, which must be empty, with its encoded slashes as slashes: the other
/// meaning that a recipient may give them. Consecutive slashes are merged.
///
/// # Errors
/// [`PathError::EncodedSlash`] if the path then has `.` or `..` segments, which would lead to different resources.
pub fn open_slashes(opaque: &[u8], out: &mut Vec<u8>) -> Result<(), PathError> {
    out.extend(with_slashes(opaque));
    out.dedup_by(|byte, before| (*byte, *before) == (b'/', b'/'));
    let has_dots = out.split(|&byte| byte == b'/').any(|name| matches!(name, b"." | b".."));
    if has_dots { Err(PathError::EncodedSlash) } else { Ok(()) }
}

/// Decodes percent-encoding. `slash` stands for encoded slashes, which are an error without it.
fn unescape(raw: &[u8], slash: Option<u8>, out: &mut Vec<u8>) -> Result<(), PathError> {
    let mut rest = raw;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte == 0 {
            return Err(PathError::Nul);
        }
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let (&[high, low], after) = rest.split_first_chunk().ok_or(PathError::Malformed)?;
        rest = after;
        match hex(high).zip(hex(low)).map(|(high, low)| high << 4 | low) {
            None => return Err(PathError::Malformed),
            Some(0) => return Err(PathError::Nul),
            Some(b'/') => out.push(slash.ok_or(PathError::EncodedSlash)?),
            Some(byte) => out.push(byte),
        }
    }
    Ok(())
}

fn hex(digit: u8) -> Option<u8> {
    (digit as char).to_digit(16).map(|value| value as u8)
}

/// Resolves segments in place: the path never grows.
fn resolve_segments(path: &mut Vec<u8>) -> Result<(), PathError> {
    let mut kept = 1;
    let mut at = 1;
    while at < path.len() {
        let end = memchr::memchr(b'/', &path[at..]).map_or(path.len(), |slash| at + slash);
        let closed = end < path.len();
        match &path[at..end] {
            b"" | b"." => {}
            b".." => {
                if kept == 1 {
                    return Err(PathError::AboveRoot);
                }
                kept = memchr::memrchr(b'/', &path[..kept - 1]).map_or(1, |slash| slash + 1);
            }
            segment => {
                let length = segment.len();
                path.copy_within(at..end, kept);
                kept += length;
                if closed {
                    path[kept] = b'/';
                    kept += 1;
                }
            }
        }
        at = end + 1;
    }
    path.truncate(kept);
    Ok(())
}

/// Returns `true` if a segment other than `.well-known` (RFC 8615) begins with a dot.
pub fn has_hidden_segment(path: &[u8]) -> bool {
    memchr::memmem::find_iter(path, b"/.").any(|at| {
        let segment = &path[at + 1..];
        let end = memchr::memchr(b'/', segment).unwrap_or(segment.len());
        &segment[..end] != b".well-known"
    })
}

/// The characters of paths (RFC 3986 §3.3) but the single quote, which ends HTML attributes.
const SEGMENTS: [bool; 256] = alphanumeric_and(b"-._~/!$&()*+,;=:@");

/// Encodes a decoded path for a Location field or a link. The result never begins with two slashes, which would be an
/// authority. A NUL stands for an encoded slash, as in the results of [`decode_opaque`].
pub fn encode(path: &[u8]) -> String {
    let mut text = String::with_capacity(path.len() + 8);
    for (at, &byte) in path.iter().enumerate() {
        if SEGMENTS[usize::from(byte)] && !(at == 1 && path.starts_with(b"//")) {
            text.push(byte as char);
        } else if byte == 0 {
            text.push_str("%2F");
        } else {
            const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
            text.push('%');
            text.push(DIGITS[usize::from(byte >> 4)] as char);
            text.push(DIGITS[usize::from(byte & 15)] as char);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decoded(raw: &[u8]) -> Result<Vec<u8>, PathError> {
        let mut out = Vec::new();
        decode(raw, &mut out).map(|()| out)
    }

    #[test]
    fn paths_are_decoded_once_and_never_lead_above_the_root() {
        for (raw, expected) in [
            ("/", "/"),
            ("/a/b.html", "/a/b.html"),
            ("/a/", "/a/"),
            ("//a///b//", "/a/b/"),
            ("/a/./b/.", "/a/b/"),
            ("/a/../b", "/b"),
            ("/a/b/..", "/a/"),
            ("/a/b/../", "/a/"),
            ("/%61%2f".trim_end_matches("%2f"), "/a"),
            ("/a/%2e%2E/b", "/b"),
            ("/%252e%252e/x", "/%2e%2e/x"),
            ("/...", "/..."),
            ("/..a/.b", "/..a/.b"),
            ("/a%20b", "/a b"),
            ("/a\\..\\b", "/a\\..\\b"),
            ("/a;b=c/..;/d", "/a;b=c/..;/d"),
        ] {
            let got =
                decoded(raw.as_bytes()).map(|path| String::from_utf8_lossy(&path).into_owned());
            assert_eq!(got.as_deref(), Ok(expected), "{raw}");
        }
        assert_eq!(decoded(b"/%c0%ae%c0%ae/x"), Ok(b"/\xc0\xae\xc0\xae/x".to_vec()));
        for (raw, expected) in [
            ("/..", PathError::AboveRoot),
            ("/a/../..", PathError::AboveRoot),
            ("/%2e%2e/etc/passwd", PathError::AboveRoot),
            ("/a%00b", PathError::Nul),
            ("/a%2fb", PathError::EncodedSlash),
            ("/a%5", PathError::Malformed),
            ("/a%zz", PathError::Malformed),
            ("/a%+1", PathError::Malformed),
            ("a", PathError::Malformed),
            ("", PathError::Malformed),
        ] {
            assert_eq!(decoded(raw.as_bytes()), Err(expected), "{raw}");
        }
    }

    #[test]
    fn encoded_slashes_are_part_of_a_name_or_slashes() {
        for (raw, opaque, open) in [
            ("/a%2fb/c", "/a\0b/c", "/a/b/c"),
            ("/a/../b%2F%2Fc", "/b\0\0c", "/b/c"),
            ("/%2Fa%20b/", "/\0a b/", "/a b/"),
            ("/a%2Fb/../c", "/c", "/c"),
            ("/a%252F", "/a%2F", "/a%2F"),
        ] {
            let (mut first, mut second) = (Vec::new(), Vec::new());
            assert_eq!(decode_opaque(raw.as_bytes(), &mut first), Ok(()), "{raw}");
            assert_eq!(open_slashes(&first, &mut second), Ok(()), "{raw}");
            assert_eq!((&first[..], &second[..]), (opaque.as_bytes(), open.as_bytes()), "{raw}");
        }
        assert_eq!(encode(b"/a\0b c"), "/a%2Fb%20c");
        for raw in ["/a/..%2Fb", "/a/%2e.%2fb", "/a%2F..", "/a%2F.", "/.%2Fa"] {
            let (mut opaque, mut open) = (Vec::new(), Vec::new());
            assert_eq!(decode_opaque(raw.as_bytes(), &mut opaque), Ok(()), "{raw}");
            assert_eq!(open_slashes(&opaque, &mut open), Err(PathError::EncodedSlash), "{raw}");
        }
        assert_eq!(decode_opaque(b"/a%2F%00", &mut Vec::new()), Err(PathError::Nul));
    }

    #[test]
    fn hidden_segments_are_seen_and_well_known_is_not_one() {
        assert!(has_hidden_segment(b"/.git/config"));
        assert!(has_hidden_segment(b"/a/.htpasswd"));
        assert!(has_hidden_segment(b"/.well-known2"));
        assert!(!has_hidden_segment(b"/.well-known/acme-challenge/x"));
        assert!(has_hidden_segment(b"/.well-known/.x"));
        assert!(!has_hidden_segment(b"/a.b/c."));
    }

    #[test]
    fn a_location_never_names_a_host() {
        assert_eq!(encode(b"//evil.example/"), "/%2Fevil.example/");
        assert_eq!(encode("/ä b?#%\"<".as_bytes()), "/%C3%A4%20b%3F%23%25%22%3C");
    }

    proptest! {
        #[test]
        fn any_path_is_rejected_or_safe(raw in proptest::collection::vec(
            prop_oneof![Just(b'/'), Just(b'.'), Just(b'%'), Just(b'2'), Just(b'e'), any::<u8>()], 0..40,
        )) {
            if let Ok(path) = decoded(&raw) {
                prop_assert_eq!(path[0], b'/');
                prop_assert!(!path.contains(&0));
                prop_assert!(memchr::memmem::find(&path, b"//").is_none());
                for segment in path.split(|&b| b == b'/') {
                    prop_assert!(segment != b"." && segment != b"..");
                }
            }
        }

        #[test]
        fn encoded_text_decodes_to_the_input(
            names in proptest::collection::vec("[^/\0]{1,12}", 1..4),
        ) {
            prop_assume!(names.iter().all(|name| name != "." && name != ".."));
            let path = format!("/{}", names.join("/"));
            prop_assert_eq!(decoded(encode(path.as_bytes()).as_bytes()), Ok(path.into_bytes()));
        }
    }
}
