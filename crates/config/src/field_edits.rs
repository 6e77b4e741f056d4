//! The edits of response fields that a route configures.

use dunlin_http::FieldLines;

use crate::fields::FieldToSet;
use crate::settings::Settings;

/// Applies the field edits of a route to a response with its content.
pub fn apply_edits(settings: &Settings, status: u16, fields: &mut FieldLines) {
    apply_unconditional(settings, fields);
    apply_conditional(settings, status, fields);
}

/// Applies the edits that every response of a route gets.
pub fn apply_unconditional(settings: &Settings, fields: &mut FieldLines) {
    for name in settings.remove_fields.iter().filter(|name| !is_vary(name)) {
        fields.remove(name);
    }
    for field in settings.set_fields.iter().filter(|field| !field.is_conditional()) {
        put(field, fields);
    }
}

/// Applies the edits whose conditions hold for a response, which has those of [`apply_unconditional`].
pub fn apply_conditional(settings: &Settings, status: u16, fields: &mut FieldLines) {
    for field in settings.set_fields.iter().filter(|field| field.is_conditional()) {
        set(field, status, fields);
    }
}

fn set(field: &FieldToSet, status: u16, fields: &mut FieldLines) {
    if field.concerns(status) && !(field.absent && fields.get(&field.name).is_some()) {
        put(field, fields);
    }
}

/// Caches depend on what the handler names; a route ends only what a more general one adds.
fn is_vary(name: &str) -> bool {
    name.eq_ignore_ascii_case("vary")
}

/// Sets a field in place of that of the handler. `Vary` keeps what the handler names.
fn put(field: &FieldToSet, fields: &mut FieldLines) {
    if !is_vary(&field.name) {
        return fields.set(&field.name, &field.value);
    }
    let lines = fields.iter().filter(|(name, _)| name.eq_ignore_ascii_case(b"vary"));
    let known: Vec<&[u8]> = lines.map(|(_, value)| value).collect();
    let is_known = |name: &str| {
        let mut names = known.iter().flat_map(|line| line.split(|byte| *byte == b','));
        names.any(|known| known.trim_ascii().eq_ignore_ascii_case(name.as_bytes()))
    };
    let added = field.value.split(',').map(str::trim).filter(|name| !is_known(name));
    let all: Vec<&[u8]> = known.iter().copied().chain(added.map(str::as_bytes)).collect();
    let value = all.join(&b", "[..]);
    fields.set(&field.name, value);
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
    let mut fields_to_set = settings.set_fields.iter();
    if let Some(field) = fields_to_set.find(|field| field.name.eq_ignore_ascii_case(RETRY_AFTER)) {
        set(field, status, fields);
    }
}

/// Applies the field edits of a route to an error, a redirect or another response that the server generates.
pub fn apply_to_message(settings: &Settings, status: u16, fields: &mut FieldLines) {
    let applies = |name: &str| !PROTECTED.iter().any(|other| name.eq_ignore_ascii_case(other));
    for name in settings.remove_fields.iter().filter(|name| applies(name) && !is_vary(name)) {
        fields.remove(name);
    }
    let (conditional, plain): (Vec<_>, Vec<_>) =
        settings.set_fields.iter().partition(|field| field.is_conditional());
    for field in plain.into_iter().chain(conditional).filter(|field| applies(&field.name)) {
        set(field, status, fields);
    }
}
