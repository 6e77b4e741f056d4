//! Resources of the server that a script or an upstream names in place of the body of its response.

use dunlin_http::FieldLines;

use super::Response;

/// A resource that is sent in place of a body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Named {
    /// A path of the site, which may be internal (`X-Accel-Redirect`).
    Path(Vec<u8>),
    /// A file by its absolute path (`X-Sendfile`).
    File(Vec<u8>),
}

impl Named {
    /// Returns the resource that a field of a response names, if it names one.
    pub fn of_field(name: &[u8], value: &[u8]) -> Option<Self> {
        match name.len() {
            16 if name.eq_ignore_ascii_case(b"x-accel-redirect") => Some(Self::Path(value.into())),
            10 if name.eq_ignore_ascii_case(b"x-sendfile") => Some(Self::File(value.into())),
            _ => None,
        }
    }

    /// Returns the resource as the field names it.
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Path(path) | Self::File(path) => path,
        }
    }
}

/// Returns `true` if a field of a response is an instruction for the server before the application (`X-Accel-…`), which no
/// client gets.
pub fn is_instruction(name: &[u8]) -> bool {
    name.get(..8).is_some_and(|start| start.eq_ignore_ascii_case(b"x-accel-"))
}

/// Fields that describe the sent bytes, which the one who names them does not know.
const OF_CONTENT: [&str; 5] =
    ["accept-ranges", "content-encoding", "content-range", "etag", "last-modified"];

impl Response {
    /// Replaces fields of the response by those of the response that has named it, except for those that describe the
    /// content.
    #[must_use]
    pub fn under(mut self, naming: &FieldLines) -> Self {
        let in_parts = self.status == 206 && self.fields.get("Content-Range").is_none();
        let stays = |name: &str| {
            let is = |other: &str| name.eq_ignore_ascii_case(other);
            let of_content = OF_CONTENT.iter().any(|other| is(other));
            match self.status {
                400.. => is("set-cookie"),
                304 => !of_content && !name.to_ascii_lowercase().starts_with("content-"),
                _ if in_parts => !of_content && !is("content-type"),
                _ => !of_content,
            }
        };
        let fields: Vec<_> = naming
            .iter()
            .filter_map(|(name, value)| Some((std::str::from_utf8(name).ok()?, value)))
            .filter(|(name, _)| stays(name))
            .collect();
        for (name, _) in &fields {
            // Both lists apply.
            if !name.eq_ignore_ascii_case("vary") {
                self.fields.remove(name);
            }
        }
        for (name, value) in fields {
            self.fields.push(name, value);
        }
        self
    }
}
