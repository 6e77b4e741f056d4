//! Response heads of files, built once for each version of a file.

use std::sync::Arc;

use bytes::Bytes;
use dunlin_http::FieldLines;
use dunlin_http::semantics::{ContentCoding, EntityTag, date};

use super::cache::resource::Representation;
use super::dictionaries::rules;
use super::media_type::ContentType;
use super::objects::remote::RemoteContent;
use dunlin_config::Settings;
use dunlin_config::field_edits::{apply_conditional, apply_unconditional};
use dunlin_fs::content::StoredContent;

/// The properties from which heads are built.
pub(super) struct Description<'a> {
    pub(super) settings: &'a Settings,
    pub(super) content_type: &'a ContentType,
    pub(super) coding: ContentCoding,
    pub(super) etag: Option<EntityTag>,
    /// Seconds since 1970.
    pub(super) last_modified: Option<u64>,
    pub(super) length: u64,
    pub(super) sha256: Option<[u8; 32]>,
    pub(super) is_settled: bool,
    /// It will be cached. Otherwise it serves one request, and the head of a 304 is built on demand.
    pub(super) keep: bool,
}

/// Makes a representation of `body`.
pub(super) fn representation(
    description: Description<'_>,
    body: StoredContent,
    server_field: bool,
) -> Representation {
    let fields = fields(&description);
    let Description { coding, etag, last_modified, length, sha256, is_settled, keep, .. } =
        description;
    let settings = description.settings;
    let whole = with_edits(settings, 200, fields.clone());
    let mut block = head(&whole, Some(length), server_field);
    let head_length = block.len();
    // One allocation for head and body, so that they are contiguous.
    let (block, body) = match body {
        StoredContent::Memory(bytes) => {
            block.extend_from_slice(&bytes);
            let block = Bytes::from(block);
            let body = block.slice(head_length..);
            (block, StoredContent::Memory(body))
        }
        body => (Bytes::from(block), body),
    };
    let not_modified = if keep {
        head(&with_edits(settings, 304, without_content(&fields)), None, server_field).into()
    } else {
        Box::default()
    };
    Representation {
        coding,
        serial: Representation::next_serial(),
        block,
        head_length,
        head_not_modified: not_modified,
        fields,
        etag,
        last_modified,
        length,
        body,
        remote: None,
        sha256,
        is_settled,
    }
}

/// Makes a representation whose body is not here.
pub(super) fn remote(
    description: Description<'_>,
    remote: Arc<dyn RemoteContent>,
    server_field: bool,
) -> Representation {
    let none = StoredContent::Memory(Bytes::new());
    Representation { remote: Some(remote), ..representation(description, none, server_field) }
}

/// Returns the fields of a 304 (RFC 9110 §15.4.5): those that describe the representation to a cache, but not those that
/// describe a body.
pub(super) fn without_content(fields: &FieldLines) -> FieldLines {
    let mut rest = fields.clone();
    for name in ["Content-Type", "Content-Encoding", "Accept-Ranges", "X-Content-Type-Options"] {
        rest.remove(name);
    }
    rest
}

/// Returns the serialized fields with the empty line, in a buffer with room for a small body.
fn head(fields: &FieldLines, length: Option<u64>, server_field: bool) -> Vec<u8> {
    let small = length.filter(|&length| length <= SMALL).unwrap_or_default();
    let mut head = Vec::with_capacity(fields.as_bytes().len() + 64 + small as usize);
    head.extend_from_slice(fields.as_bytes());
    if let Some(length) = length {
        head.extend_from_slice(b"Content-Length: ");
        head.extend_from_slice(itoa::Buffer::new().format(length).as_bytes());
        head.extend_from_slice(b"\r\n");
    }
    if server_field {
        head.extend_from_slice(b"Server: dunlin\r\n");
    }
    head.extend_from_slice(b"\r\n");
    head
}

/// Content in memory is never larger; see [`StoredContent::in_memory`].
const SMALL: u64 = 32 * 1024;

/// Returns the fields of a response with this status.
pub(super) fn with_edits(settings: &Settings, status: u16, mut fields: FieldLines) -> FieldLines {
    apply_conditional(settings, status, &mut fields);
    fields
}

/// Returns the fields of the representation without `Content-Length`. [`with_edits`] makes those of a response.
pub(super) fn fields(description: &Description<'_>) -> FieldLines {
    let Description { settings, content_type, coding, etag, last_modified, .. } = description;
    let mut fields = FieldLines::new();
    fields.push("Content-Type", &*content_type.media_type);
    let content_coding =
        if *coding == ContentCoding::Identity { content_type.coding } else { *coding };
    if content_coding != ContentCoding::Identity {
        fields.push("Content-Encoding", content_coding.as_str());
    }
    if may_be_coded(settings, content_type) {
        fields.push("Vary", "Accept-Encoding");
    }
    if let Some(etag) = etag {
        fields.push("ETag", etag.to_bytes());
    }
    if let Some(last_modified) = last_modified {
        fields.push("Last-Modified", date::format(*last_modified));
    }
    fields.push("Accept-Ranges", if settings.ranges == 0 { "none" } else { "bytes" });
    if let Some(control) = settings.stated_lifetime() {
        fields.push("Cache-Control", &*control);
    }
    if settings.nosniff {
        fields.push("X-Content-Type-Options", "nosniff");
    }
    apply_unconditional(settings, &mut fields);
    if rules::may_be_used(settings, content_type, &fields) {
        let before = fields.get("Vary").map(|vary| [vary, b", "].concat()).unwrap_or_default();
        fields.set("Vary", [&before, b"Available-Dictionary".as_slice()].concat());
    }
    fields
}

/// Returns `true` if the response depends on Accept-Encoding.
pub(super) fn may_be_coded(settings: &Settings, content_type: &ContentType) -> bool {
    if content_type.coding != ContentCoding::Identity {
        false
    } else if content_type.is_compressible {
        !settings.compress.is_empty() || !settings.precompressed.is_empty()
    } else {
        !settings.precompressed.is_empty() && !content_type.is_compressed
    }
}
