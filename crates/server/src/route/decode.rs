//! The path of a request-target as the routes of a site see it.

use dunlin_config::Site;
use dunlin_http::semantics::path::{self, PathError};

/// Decodes a path for a site. An encoded slash (`%2F`) is part of a name, and stands in the result as a NUL, which no other
/// path has: files have no such names, interpreters and upstreams get what their interfaces define.
///
/// # Errors
/// The path is malformed, leads above the root, or has encoded slashes that [`check_slashes`] rejects.
pub(crate) fn decode(raw_path: &[u8], site: &Site, path: &mut Vec<u8>) -> Result<(), PathError> {
    match path::decode(raw_path, path) {
        Err(PathError::EncodedSlash) => {}
        result => return result,
    }
    path.clear();
    path::decode_opaque(raw_path, path)?;
    check_slashes(path, site)
}

/// Checks a path with encoded slashes: the same routes have to match it whether a recipient takes them for slashes or not, so
/// that the checks of the path hold for every meaning. Patterns have no NUL, so that a pattern that matches the path matches
/// each mixture of both meanings, too, and one that matches a mixture matches the path with nothing but slashes.
///
/// # Errors
/// [`PathError::EncodedSlash`] if another route matches, or the path would have `.` or `..` segments.
pub(crate) fn check_slashes(path: &[u8], site: &Site) -> Result<(), PathError> {
    let mut merged = Vec::with_capacity(path.len());
    path::open_slashes(path, &mut merged)?;
    let settings = site.route(path);
    let conditional = site.conditional_routes(path);
    let is_same = |other: &[u8]| {
        site.has_settings(other, &settings) && site.conditional_routes(other) == conditional
    };
    // A regular expression may match a mixture of both meanings only.
    if site.has_regexes() && !mixtures(path).is_some_and(|mut all| all.all(|path| is_same(&path))) {
        return Err(PathError::EncodedSlash);
    }
    if is_same(&merged) && is_same(&path::with_slashes(path)) {
        Ok(())
    } else {
        Err(PathError::EncodedSlash)
    }
}

/// Returns all paths with some encoded slashes as slashes; `None` if there are too many.
fn mixtures(path: &[u8]) -> Option<impl Iterator<Item = Vec<u8>>> {
    const MAX_SLASHES: usize = 8;
    let slashes: Vec<usize> = memchr::memchr_iter(0, path).collect();
    (slashes.len() <= MAX_SLASHES).then(|| {
        (0_u32..1 << slashes.len()).map(move |chosen| {
            let mut mixture = path.to_vec();
            for (bit, &at) in slashes.iter().enumerate() {
                if chosen >> bit & 1 == 1 {
                    mixture[at] = b'/';
                }
            }
            mixture
        })
    })
}

/// Returns the status of the response to a path that cannot be decoded, and the reason.
pub(crate) fn rejection(error: PathError) -> (u16, &'static str) {
    match error {
        PathError::Malformed => {
            (400, "a percent sign in the path is not followed by two hexadecimal digits")
        }
        PathError::Nul => (400, "the path contains a NUL"),
        PathError::EncodedSlash => (
            404,
            "the path contains an encoded slash, and other routes would match if it were a slash",
        ),
        PathError::AboveRoot => (400, "the path leads above the root"),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use dunlin_config::{Config, Overrides};
    use proptest::prelude::*;

    use super::*;

    /// Returns every meaning that recipients may give to the encoded slashes of a path.
    fn meanings(raw: &[u8]) -> Vec<Vec<u8>> {
        let mut opaque = Vec::new();
        path::decode_opaque(raw, &mut opaque).unwrap();
        let slashes: Vec<usize> = (0..opaque.len()).filter(|&at| opaque[at] == 0).collect();
        let mut meanings = Vec::new();
        for chosen in 0_u32..1 << slashes.len() {
            let mut meaning = opaque.clone();
            for (bit, &at) in slashes.iter().enumerate() {
                if chosen >> bit & 1 == 1 {
                    meaning[at] = b'/';
                }
            }
            meanings.push(meaning);
        }
        let mut merged = path::with_slashes(&opaque);
        merged.dedup_by(|byte, before| (*byte, *before) == (b'/', b'/'));
        meanings.push(merged);
        meanings
    }

    fn site(patterns: &std::collections::HashSet<String>) -> Arc<Site> {
        let mut text = "[[listen]]\naddress = ':1'\n[[site]]\nroot = '/'\n".to_owned();
        for pattern in patterns {
            text += &format!("[[site.route]]\npath = '{pattern}'\ndeny = ['0.0.0.0/0']\n");
        }
        let config = Config::parse(&text, Path::new("/d.toml"), &Overrides::default()).unwrap();
        Arc::clone(config.sites.iter().next().unwrap())
    }

    proptest! {
        /// A path that passes is in the same routes with each meaning: no encoded slash leads into a protected pattern or out of
        /// it.
        #[test]
        fn an_encoded_slash_crosses_no_pattern(
            patterns in prop::collection::hash_set("(/[ab]{1,2}){0,2}(/[ab]?\\*|\\*[ab]?|\\*/[ab])?", 0..6),
            raws in prop::collection::vec("/([ab]|/|%2F|%2f){0,7}", 1..40),
        ) {
            let patterns = patterns.into_iter().filter(|pattern| !pattern.is_empty()).collect();
            let site = site(&patterns);
            for raw in raws {
                let mut path = Vec::new();
                if decode(raw.as_bytes(), &site, &mut path).is_err() {
                    continue;
                }
                for meaning in meanings(raw.as_bytes()) {
                    let other = site.route(&meaning);
                    prop_assert!(
                        Arc::ptr_eq(&site.route(&path), &other),
                        "{raw}: {:?} is in {:?}", String::from_utf8_lossy(&meaning), other.pattern
                    );
                }
            }
        }
    }

    #[test]
    fn an_encoded_slash_passes_within_one_route() {
        let patterns = ["/app/*", "/app/private/*", "*/admin"].map(str::to_owned);
        let site = site(&patterns.into());
        for (raw, expected) in [
            ("/app/a%2Fb", Some("/app/a\0b")),
            ("/a%2fb", Some("/a\0b")),
            ("/app/private/a%2F", Some("/app/private/a\0")),
            ("/app/https%3A%2F%2Fexample.com", Some("/app/https:\0\0example.com")),
            ("/app%2Fa", None),
            ("/app/private%2Fa", None),
            ("/app%2Fprivate/a", None),
            ("/x%2Fadmin", None),
            ("/app/a%2F..%2Fprivate%2Fx", None),
            ("/app/private/..%2Fx", None),
        ] {
            let mut path = Vec::new();
            let decoded = decode(raw.as_bytes(), &site, &mut path);
            let decoded = decoded.ok().map(|()| String::from_utf8(path).unwrap());
            assert_eq!(decoded.as_deref(), expected, "{raw}");
        }
    }
}
