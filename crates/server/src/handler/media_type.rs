//! Media types by file name extension.

use std::borrow::Cow;
use std::collections::HashMap;

pub(crate) fn media_type(file_name: &str, overrides: &HashMap<String, String>, charset: &str) -> Cow<'static, str> {
    let extension = file_name.rsplit_once('.').map_or("", |(_, extension)| extension).to_ascii_lowercase();
    if let Some(media_type) = overrides.get(&extension) { return media_type.clone().into(); }
    let found = mime_guess::from_ext(&extension).first_raw().unwrap_or("application/octet-stream");
    if found.starts_with("text/") && !charset.is_empty() { format!("{found}; charset={charset}").into() } else { found.into() }
}
