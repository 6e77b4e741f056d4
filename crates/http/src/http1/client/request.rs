//! Writing the head of a request (RFC 9112 §3, §6).

use crate::message::{BodySize, InvalidRequest, RequestHead, list_has};

/// The properties of the request that was sent, on which the response depends.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Sent {
    pub(super) is_head: bool,
    pub(super) is_connect: bool,
    /// The request has an `Upgrade` field, so that 101 is a valid response.
    pub(super) may_upgrade: bool,
    /// The request announces that the client closes the connection.
    pub(super) closes: bool,
    pub(super) expects_continue: bool,
}

/// Appends the head to `out`; `Host` comes first.
pub(super) fn write(
    head: &RequestHead,
    size: BodySize,
    out: &mut Vec<u8>,
) -> Result<Sent, InvalidRequest> {
    head.check()?;
    for part in [&*head.method, " ", &head.target, " HTTP/1.1\r\nHost: ", &head.authority] {
        out.extend_from_slice(part.as_bytes());
    }
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(head.fields.as_bytes());
    // RFC 9110 §8.6: a method that usually has a body states that there is none.
    let states_no_body = matches!(&*head.method, "POST" | "PUT" | "PATCH");
    match size {
        BodySize::Known(length) => content_length(length, out),
        BodySize::Empty if states_no_body => content_length(0, out),
        BodySize::Empty => {}
        BodySize::Unknown => out.extend_from_slice(b"Transfer-Encoding: chunked\r\n"),
    }
    out.extend_from_slice(b"\r\n");
    let mut sent = Sent {
        is_head: &*head.method == "HEAD",
        is_connect: &*head.method == "CONNECT",
        ..Sent::default()
    };
    for (name, value) in head.fields.iter() {
        match name.len() {
            6 if name.eq_ignore_ascii_case(b"expect") => {
                sent.expects_continue |= list_has(value, "100-continue");
            }
            7 if name.eq_ignore_ascii_case(b"upgrade") => sent.may_upgrade = true,
            10 if name.eq_ignore_ascii_case(b"connection") => {
                sent.closes |= list_has(value, "close");
            }
            _ => {}
        }
    }
    Ok(sent)
}

fn content_length(length: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(b"Content-Length: ");
    out.extend_from_slice(itoa::Buffer::new().format(length).as_bytes());
    out.extend_from_slice(b"\r\n");
}
