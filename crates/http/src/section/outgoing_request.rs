//! Writing the section of a request's head (RFC 9113 §8.2, §8.3.1; RFC 9114 §4.2, §4.3.1).

use super::{Indexing, SectionEncoder, with_lower_case};
use crate::FieldLines;
use crate::message::{BodySize, RequestHead, list_has};

/// Fields that concern one connection, which HTTP/2 and HTTP/3 do not have (RFC 9113 §8.2.2, RFC 9114 §4.2).
const CONNECTION_SPECIFIC: [&[u8]; 7] = [
    b"connection",
    b"keep-alive",
    b"proxy-connection",
    b"transfer-encoding",
    b"upgrade",
    b"host",
    b"http2-settings",
];

/// Appends the encoded head of a request to `block`.
pub(crate) fn encode<E: SectionEncoder>(
    head: &RequestHead,
    scheme: &str,
    size: BodySize,
    (encoder, target): (&mut E, E::Target),
    block: &mut Vec<u8>,
) {
    let start = block.len();
    encoder.begin(target, block);
    let mut pseudo = |name: &str, value: &str, indexing| {
        encoder.field(name.as_bytes(), value.as_bytes(), indexing, block);
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
    fields(&head.fields, encoder, block);
    let states_no_body = matches!(&*head.method, "POST" | "PUT" | "PATCH");
    let length = match size {
        BodySize::Known(length) => Some(length),
        BodySize::Empty if states_no_body => Some(0),
        BodySize::Empty | BodySize::Unknown => None,
    };
    if let Some(length) = length {
        let mut digits = itoa::Buffer::new();
        let value = digits.format(length).as_bytes();
        encoder.field(b"content-length", value, Indexing::Without, block);
    }
    encoder.end(start, block);
}

/// Appends the encoded section of trailer fields to `block`.
pub(crate) fn encode_trailers<E: SectionEncoder>(
    trailers: &FieldLines,
    (encoder, target): (&mut E, E::Target),
    block: &mut Vec<u8>,
) {
    let start = block.len();
    encoder.begin(target, block);
    fields(trailers, encoder, block);
    encoder.end(start, block);
}

fn fields<E: SectionEncoder>(lines: &FieldLines, encoder: &mut E, block: &mut Vec<u8>) {
    let is_connection = |field: &[u8]| field.eq_ignore_ascii_case(b"connection");
    let has_connection = lines.iter().any(|(field, _)| is_connection(field));
    let nominated = |name: &[u8]| {
        let name = std::str::from_utf8(name).unwrap_or_default();
        let mut lines = lines.iter().filter(|(field, _)| is_connection(field));
        has_connection && lines.any(|(_, value)| list_has(value, name))
    };
    for (name, value) in lines.iter() {
        with_lower_case(name, |name| {
            let is_te = name == b"te" && !list_has(value, "trailers");
            if CONNECTION_SPECIFIC.contains(&name) || is_te || name != b"te" && nominated(name) {
                return;
            }
            let value: &[u8] = if name == b"te" { b"trailers" } else { value };
            encoder.field(name, value, indexing(name), block);
        });
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
