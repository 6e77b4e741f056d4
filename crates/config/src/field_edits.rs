//! The edits of response fields that a route configures.

use dunlin_http::FieldLines;

use crate::settings::Settings;

/// Applies the field edits of a route to a response with its content.
pub fn apply_edits(settings: &Settings, fields: &mut FieldLines) {
    for name in &settings.remove_fields {
        fields.remove(name);
    }
    for (name, value) in &settings.set_fields {
        fields.set(name, value);
    }
}

/// Fields that describe the content or the meaning of an error or a redirect. The field edits of a route do not apply to
/// them in responses without the content of the route.
const PROTECTED: [&str; 8] = [
    "allow",
    "content-disposition",
    "content-language",
    "content-location",
    "content-type",
    "location",
    "retry-after",
    "www-authenticate",
];

/// Name of the field that states when a client may repeat a request.
const RETRY_AFTER: &str = "Retry-After";

/// Applies the edits of a route that concern `Retry-After` to the fields of an error of that route. Only 429 and 503 have
/// the field; in all other errors it is unchanged.
pub fn edit_retry_after(settings: &Settings, status: u16, fields: &mut FieldLines) {
    if !matches!(status, 429 | 503) {
        return;
    }
    if settings.remove_fields.iter().any(|name| name.eq_ignore_ascii_case(RETRY_AFTER)) {
        fields.remove(RETRY_AFTER);
    }
    let mut set = settings.set_fields.iter();
    if let Some((_, value)) = set.find(|(name, _)| name.eq_ignore_ascii_case(RETRY_AFTER)) {
        fields.set(RETRY_AFTER, value);
    }
}

/// Applies the field edits of a route to an error, a redirect or another response that the server generates.
pub fn apply_to_message(settings: &Settings, fields: &mut FieldLines) {
    let applies = |name: &String| !PROTECTED.iter().any(|other| name.eq_ignore_ascii_case(other));
    for name in settings.remove_fields.iter().filter(|name| applies(name)) {
        fields.remove(name);
    }
    for (name, value) in settings.set_fields.iter().filter(|(name, _)| applies(name)) {
        fields.set(name, value);
    }
}
