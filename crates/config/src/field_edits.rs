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
