//! The path of a request-target as the routes of a site see it.

use std::sync::Arc;

use dunlin_config::Site;
use dunlin_http::semantics::path::{self, PathError};

/// Decodes a path for a site. A proxy gets encoded slashes, whose meaning its upstreams determine, if the path belongs to the
/// same routes with each meaning. No other handler does: file names have no slashes.
///
/// # Errors
/// The path is malformed, or has encoded slashes, or leads above the root.
pub(crate) fn decode(raw_path: &[u8], site: &Site, path: &mut Vec<u8>) -> Result<(), PathError> {
    let error = match path::decode(raw_path, path) {
        Err(error @ PathError::EncodedSlash) => error,
        result => return result,
    };
    let mut opaque = Vec::new();
    path.clear();
    path::decode_opaque(raw_path, &mut opaque)?;
    path::open_slashes(&opaque, path)?;
    let settings = site.route(path);
    let is_same = Arc::ptr_eq(settings, site.route(&opaque));
    if is_same && settings.handler.proxy().is_some() { Ok(()) } else { Err(error) }
}

/// The status of the response to a path that cannot be decoded, and the reason.
pub(crate) fn rejection(error: PathError) -> (u16, &'static str) {
    match error {
        PathError::Malformed => {
            (400, "a percent sign in the path is not followed by two hexadecimal digits")
        }
        PathError::Nul => (400, "the path holds a NUL"),
        PathError::EncodedSlash => (
            404,
            "the path holds an encoded slash, which no file name can, or which hides another path",
        ),
        PathError::AboveRoot => (400, "the path leads above the root"),
    }
}
