//! Writing the section of a request's head (RFC 9113 §8.2, §8.3.1).

use crate::FieldLines;
use crate::http2::frame::{FrameHeader, flag, kind};
use crate::http2::hpack::{Encoder, Indexing};
use crate::message::{BodySize, RequestHead, list_has};

/// Fields that concern one connection, which HTTP/2 does not have (RFC 9113 §8.2.2).
const CONNECTION_SPECIFIC: [&[u8]; 7] = [
    b"connection",
    b"keep-alive",
    b"proxy-connection",
    b"transfer-encoding",
    b"upgrade",
    b"host",
    b"http2-settings",
];

/// Encodes the head of a request.
pub(super) fn encode(
    head: &RequestHead,
    scheme: &str,
    size: BodySize,
    encoder: &mut Encoder,
) -> Vec<u8> {
    let mut block = Vec::with_capacity(256);
    encoder.begin(&mut block);
    let mut pseudo = |name: &str, value: &str, indexing| {
        encoder.field(name.as_bytes(), value.as_bytes(), indexing, &mut block);
    };
    pseudo(":method", &head.method, Indexing::Incremental);
    if let Some(protocol) = &head.protocol {
        pseudo(":protocol", protocol, Indexing::Without);
    }
    if &*head.method == "CONNECT" && head.protocol.is_none() {
        pseudo(":authority", &head.target, Indexing::Incremental);
    } else {
        pseudo(":scheme", scheme, Indexing::Incremental);
        if !head.authority.is_empty() {
            pseudo(":authority", &head.authority, Indexing::Incremental);
        }
        pseudo(":path", &head.target, Indexing::Without);
    }
    fields(&head.fields, encoder, &mut block);
    let states_no_body = matches!(&*head.method, "POST" | "PUT" | "PATCH");
    let length = match size {
        BodySize::Known(length) => Some(length),
        BodySize::Empty if states_no_body => Some(0),
        BodySize::Empty | BodySize::Unknown => None,
    };
    if let Some(length) = length {
        let mut digits = itoa::Buffer::new();
        let value = digits.format(length).as_bytes();
        encoder.field(b"content-length", value, Indexing::Without, &mut block);
    }
    block
}

/// Encodes trailer fields.
pub(super) fn encode_trailers(trailers: &FieldLines, encoder: &mut Encoder) -> Vec<u8> {
    let mut block = Vec::new();
    encoder.begin(&mut block);
    fields(trailers, encoder, &mut block);
    block
}

fn fields(lines: &FieldLines, encoder: &mut Encoder, block: &mut Vec<u8>) {
    let nominated = |name: &[u8]| {
        let name = std::str::from_utf8(name).unwrap_or_default();
        let mut lines = lines.iter().filter(|(field, _)| field.eq_ignore_ascii_case(b"connection"));
        lines.any(|(_, value)| list_has(value, name))
    };
    for (name, value) in lines.iter() {
        let name = name.to_ascii_lowercase();
        let is_te = name == b"te" && !list_has(value, "trailers");
        if CONNECTION_SPECIFIC.contains(&&*name) || is_te || name != b"te" && nominated(&name) {
            continue;
        }
        let value: &[u8] = if name == b"te" { b"trailers" } else { value };
        encoder.field(&name, value, indexing(&name), block);
    }
}

fn indexing(name: &[u8]) -> Indexing {
    match name {
        b"authorization" | b"proxy-authorization" | b"cookie" => Indexing::Never,
        b"accept" | b"accept-encoding" | b"accept-language" | b"user-agent" | b"content-type"
        | b"x-forwarded-proto" | b"te" => Indexing::Incremental,
        _ => Indexing::Without,
    }
}

/// Appends a block as a HEADERS frame, and CONTINUATION frames if it is larger than one frame may be.
pub(super) fn write_block(stream: u32, block: &[u8], is_end: bool, max: usize, out: &mut Vec<u8>) {
    let mut parts = block.chunks(max).peekable();
    let first = parts.next().unwrap_or_default();
    let end_stream = if is_end { flag::END_STREAM } else { 0 };
    let end = |is_last: bool| if is_last { flag::END_HEADERS } else { 0 };
    let flags = end_stream | end(parts.peek().is_none());
    FrameHeader { length: first.len(), kind: kind::HEADERS, flags, stream }.write(out);
    out.extend_from_slice(first);
    while let Some(part) = parts.next() {
        let flags = end(parts.peek().is_none());
        FrameHeader { length: part.len(), kind: kind::CONTINUATION, flags, stream }.write(out);
        out.extend_from_slice(part);
    }
}
