//! What a handler does by hand if nothing does it for the interface: the form in the body of the request is decoded, and the
//! result encoded as JSON.

use crate::operation::{self, Reply};

/// Returns a CGI response (RFC 3875 §6) to a request whose body is `payload=...`.
pub fn respond(body: &[u8]) -> Vec<u8> {
    let Reply { start, stop, payload } = operation::echo(|| payload(body));
    let mut out = b"Content-Type: application/json\r\n\r\n".to_vec();
    out.extend_from_slice(format!("{{\"start\":{start},\"stop\":{stop},\"payload\":").as_bytes());
    write_string(&payload, &mut out);
    out.push(b'}');
    out
}

/// Returns the value of the field `payload`, without its encoding (application/x-www-form-urlencoded).
fn payload(body: &[u8]) -> String {
    let mut fields = body.split(|&byte| byte == b'&');
    let value = fields.find_map(|field| field.strip_prefix(b"payload=")).unwrap_or_default();
    let (mut decoded, mut rest) = (Vec::with_capacity(value.len()), value);
    while let [byte, after @ ..] = rest {
        rest = after;
        let escaped = match (byte, after) {
            (b'%', [high, low, ..]) => digit(*high).zip(digit(*low)),
            _ => None,
        };
        match (byte, escaped) {
            (_, Some((high, low))) => {
                decoded.push(high << 4 | low);
                rest = &after[2..];
            }
            (b'+', None) => decoded.push(b' '),
            _ => decoded.push(*byte),
        }
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

fn digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

/// Appends a string of JSON.
fn write_string(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
            0..0x20 => out.extend_from_slice(format!("\\u{byte:04x}").as_bytes()),
            _ => out.push(byte),
        }
    }
    out.push(b'"');
}
