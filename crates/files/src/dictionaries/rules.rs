//! The files that may be dictionaries, or be sent as the difference to one.

use dunlin_coding::MIN_LENGTH;
use dunlin_config::Settings;
use dunlin_dictionary::MAX_LENGTH;
use dunlin_http::FieldLines;
use dunlin_http::semantics::ContentCoding;
use dunlin_http::semantics::list::{members, split};

use super::forms::Dictionaries;
use crate::cache::resource::Resource;
use crate::media_type::ContentType;
use crate::render;

/// Returns `true` if a file whose representation has these fields may be a dictionary and depend on one: text that everyone may see and store for a time.
pub(crate) fn may_be_used(
    settings: &Settings,
    content_type: &ContentType,
    fields: &FieldLines,
) -> bool {
    if settings.dictionary.is_none() {
        return false;
    }
    let fields = render::with_edits(settings, 200, fields.clone());
    !settings.compress.is_empty()
        && content_type.is_compressible
        && content_type.coding == ContentCoding::Identity
        && fields.get("Set-Cookie").is_none()
        && fields.get("Vary").is_none_or(|vary| vary != b"*")
        && fields.get("Cache-Control").is_some_and(has_lifetime)
}

/// Returns `true` if the value of `Cache-Control` lets a client use a response without validation for a time.
fn has_lifetime(value: &[u8]) -> bool {
    let mut is_fresh = false;
    for directive in members(&[value]) {
        let mut parts = split(directive, b'=');
        let name = parts.next().unwrap_or_default().to_ascii_lowercase();
        match &*name {
            b"no-store" | b"no-cache" | b"private" => return false,
            b"max-age" => {
                let seconds = parts.next().unwrap_or_default();
                is_fresh = seconds.iter().any(|digit| (b'1'..=b'9').contains(digit));
            }
            _ => {}
        }
    }
    is_fresh
}

/// Returns the state of a new resource; `None` if it is no dictionary and depends on none.
pub(crate) fn of(resource: &Resource) -> Option<Box<Dictionaries>> {
    let Resource { key, settings, file, content_type, identity, .. } = resource;
    let max = settings.compress_size.min(MAX_LENGTH);
    let is_own_path = key.path.ends_with(b"/") || *key.path == *settings.url_path(file);
    let is_used = is_own_path
        && identity.remote.is_none()
        && (MIN_LENGTH..=max).contains(&identity.length)
        && may_be_used(settings, content_type, &identity.fields);
    is_used.then(Box::default)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dictionary_needs_a_stated_lifetime() {
        for (value, expected) in [
            ("max-age=31536000, immutable", true),
            ("public, Max-Age=60", true),
            ("max-age=0", false),
            ("max-age=", false),
            ("no-cache", false),
            ("max-age=60, no-cache", false),
            ("private, max-age=60", false),
            ("no-store", false),
            ("s-maxage=60", false),
            ("", false),
        ] {
            assert_eq!(has_lifetime(value.as_bytes()), expected, "{value}");
        }
    }
}
