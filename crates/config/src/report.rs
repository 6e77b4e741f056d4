//! The callback that collects errors, and checks that several tables share.

use dunlin_http::semantics::is_field_value;

use super::spanned::{Span, Spanned};

/// Receives an error and its position in the file.
pub(crate) type Report<'a> = &'a mut dyn FnMut(&Span, String);

/// Returns the value of a key that becomes a field value; `None` if the key is absent or its value cannot be one.
pub(crate) fn field_value(
    key: &str,
    text: Option<&Spanned<String>>,
    report: Report<'_>,
) -> Option<String> {
    let text = text?;
    if is_field_value(text.as_bytes()) {
        return Some(text.value.clone());
    }
    report(&text.span, format!("{key}: {:?} contains a control character", text.value));
    None
}
