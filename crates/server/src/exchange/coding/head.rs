//! The heads of responses: what they state of codings, and how they change with the coding.

use dunlin_http::FieldLines;
use dunlin_http::semantics::ContentCoding;

/// What the fields of a response state of its content.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Described<'a> {
    pub(super) media_type: Option<&'a [u8]>,
    /// The coding of the content.
    pub(super) coding: Option<&'a [u8]>,
    /// It must not be changed (`no-transform`, RFC 9111 §5.2.2.6).
    pub(super) is_final: bool,
    /// Other fields are about its bytes, or it is a part.
    pub(super) is_exact: bool,
    /// The response depends on `Accept-Encoding`.
    pub(super) varies: bool,
    /// The response depends on `Available-Dictionary`.
    varies_by_dictionary: bool,
}

impl<'a> Described<'a> {
    /// Looks at each field once. The lengths of their names distinguish most of them.
    pub(super) fn of(fields: &'a FieldLines) -> Self {
        let mut described = Self::default();
        for (name, value) in fields.iter() {
            let is = |other: &str| name.eq_ignore_ascii_case(other.as_bytes());
            match name.len() {
                4 if is("Vary") => {
                    described.varies |=
                        has_token(value, b"accept-encoding") || has_token(value, b"*");
                    described.varies_by_dictionary |=
                        has_token(value, b"available-dictionary") || has_token(value, b"*");
                }
                12 if is("Content-Type") => described.media_type = Some(value),
                13 if is("Cache-Control") => {
                    described.is_final |= has_token(value, b"no-transform");
                }
                16 if is("Content-Encoding") => {
                    described.coding = Some(value);
                }
                6 | 11 | 13 | 14 if OF_BYTES.iter().any(|other| is(other)) => {
                    described.is_exact = true;
                }
                _ => {}
            }
        }
        described
    }

    /// Returns the coding of the content, if the server can decode it.
    pub(super) fn known_coding(&self) -> Option<ContentCoding> {
        let coding = self.coding?.trim_ascii();
        let known = [ContentCoding::Gzip, ContentCoding::Brotli, ContentCoding::Zstd];
        let is_gzip = coding.eq_ignore_ascii_case(b"x-gzip").then_some(ContentCoding::Gzip);
        let named = |known: &ContentCoding| coding.eq_ignore_ascii_case(known.as_str().as_bytes());
        known.into_iter().find(named).or(is_gzip)
    }
}

/// Fields that are about the bytes of the content, or a part of it.
const OF_BYTES: [&str; 5] =
    ["Content-Range", "Content-Digest", "Repr-Digest", "Digest", "Content-MD5"];

/// Returns `true` if a list has a member without parameters, in any case.
fn has_token(list: &[u8], token: &[u8]) -> bool {
    list.split(|&byte| byte == b',').any(|member| member.trim_ascii().eq_ignore_ascii_case(token))
}

/// Adds `Accept-Encoding` to `Vary` (RFC 9110 §12.5.5).
pub(super) fn add_vary(fields: &mut FieldLines) {
    if !Described::of(fields).varies {
        vary_by_coding(fields);
    }
}

/// Adds `Accept-Encoding` and `Available-Dictionary` to `Vary` (RFC 9842 §6.2).
pub(super) fn vary_by_dictionary(fields: &mut FieldLines) {
    let Described { varies, varies_by_dictionary, .. } = Described::of(fields);
    if !varies {
        vary_by_coding(fields);
    }
    if !varies_by_dictionary {
        vary_by(fields, b"Available-Dictionary");
    }
}

/// Adds `Accept-Encoding` to `Vary`, which does not have it.
pub(super) fn vary_by_coding(fields: &mut FieldLines) {
    vary_by(fields, b"Accept-Encoding");
}

fn vary_by(fields: &mut FieldLines, name: &[u8]) {
    let values = fields.iter().filter(|(name, _)| name.eq_ignore_ascii_case(b"Vary"));
    let before: Vec<u8> = values.flat_map(|(_, value)| [value, b", "].concat()).collect();
    match before.is_empty() {
        true => fields.push("Vary", name),
        // One line: some clients have the last one alone.
        false => fields.set("Vary", [&before, name].concat()),
    }
}

/// Changes the head for coded content. A strong entity tag would claim equal bytes (RFC 9110 §8.8.1), and ranges would be those of
/// the content as it was.
pub(super) fn set_coding(fields: &mut FieldLines, coding: &str) {
    weaken_tag(fields);
    fields.remove("Accept-Ranges");
    fields.push("Content-Encoding", coding);
}

/// Changes the head for content that is decoded.
pub(super) fn remove_coding(fields: &mut FieldLines) {
    weaken_tag(fields);
    for name in OF_BYTES.iter().chain(&["Accept-Ranges", "Content-Encoding"]) {
        fields.remove(name);
    }
}

fn weaken_tag(fields: &mut FieldLines) {
    if let Some(tag) = fields.get("ETag").filter(|tag| !tag.starts_with(b"W/")) {
        let weak = [b"W/", tag].concat();
        fields.set("ETag", weak);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_in_any_case_and_order() {
        let mut fields = FieldLines::new();
        fields.push("vary", "Cookie, accept-encoding");
        fields.push("CONTENT-TYPE", "text/html");
        fields.push("cache-control", "max-age=1, No-Transform");
        fields.push("content-encoding", "X-GZIP");
        let described = Described::of(&fields);
        assert_eq!(described.media_type, Some(b"text/html".as_slice()));
        assert!(described.varies && described.is_final && !described.is_exact);
        assert_eq!(described.known_coding(), Some(ContentCoding::Gzip));
        for name in OF_BYTES {
            let mut fields = FieldLines::new();
            fields.push(&name.to_lowercase(), "x");
            let described = Described::of(&fields);
            assert!(described.is_exact && !described.is_final && !described.varies, "{name}");
        }
        assert_eq!(Described { coding: Some(b"gzip, br"), ..described }.known_coding(), None);
    }
}
