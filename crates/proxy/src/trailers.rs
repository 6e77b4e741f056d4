//! Trailer fields of requests on their way to an upstream.

use dunlin_config::{ForwardedField, as_read};
use dunlin_exchange::stream;
use dunlin_http::FieldLines;

use crate::hop_fields::is_for_proxy;

/// The trailer fields of a body.
///
/// Programs may merge them into the fields of the head, so that nothing passes that is decided there (RFC 9110 §6.5.1), or
/// that only the server may set.
#[derive(Debug)]
pub(crate) struct Trailers {
    fields: FieldLines,
    forwarded_field: ForwardedField,
    user_fields: Vec<String>,
}

/// Fields that have no meaning after the body, or another one: framing, routing, authentication, conditions, and the format of the
/// content. In lower case.
const HEAD_ONLY: [&str; 42] = [
    "accept",
    "accept-charset",
    "accept-encoding",
    "accept-language",
    "authorization",
    "cache-control",
    "client-cert",
    "client-cert-chain",
    "connection",
    "content-encoding",
    "content-length",
    "content-range",
    "content-type",
    "cookie",
    "early-data",
    "expect",
    "forwarded",
    "from",
    "host",
    "if-match",
    "if-modified-since",
    "if-none-match",
    "if-range",
    "if-unmodified-since",
    "keep-alive",
    "max-forwards",
    "origin",
    "pragma",
    "priority",
    "range",
    "referer",
    "remote-user",
    "sec-websocket-key",
    "te",
    "traceparent",
    "tracestate",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "user-agent",
    "via",
    "x-http-method-override",
];

impl Trailers {
    /// None yet, of a request. `user_fields` are fields that only the server sets, in lower case.
    pub(crate) fn new(forwarded_field: &ForwardedField, user_fields: &[String]) -> Self {
        Self {
            fields: FieldLines::default(),
            forwarded_field: forwarded_field.clone(),
            user_fields: user_fields.to_vec(),
        }
    }

    /// Takes those of a body that has ended. Returns `true` if there are any.
    pub(crate) fn receive(&mut self, body: &mut stream::Receiver) -> bool {
        for (name, value) in body.take_trailers().iter() {
            if self.passes(name) {
                self.fields.push_parsed(name, value);
            }
        }
        !self.fields.is_empty()
    }

    /// Returns the fields for the upstream.
    pub(crate) fn fields(&self) -> FieldLines {
        self.fields.clone()
    }

    fn passes(&self, name: &[u8]) -> bool {
        let lower = name.to_ascii_lowercase();
        let name = as_read(&lower);
        let is_it = |other: &str| other.as_bytes() == &*name;
        !HEAD_ONLY.iter().any(|other| is_it(other))
            && !name.starts_with(b"sec-")
            && !is_for_proxy(&name)
            && !self.forwarded_field.is_spoofed(&name, false)
            && !self.user_fields.iter().any(|user| is_it(user))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_fields_that_decide_nothing_pass() {
        let (sender, mut body) = stream::channel(1);
        let mut fields = FieldLines::default();
        for name in [
            "Digest",
            "Content-Length",
            "Content_Type",
            "authorization",
            "X-Forwarded-For",
            "x_real_ip",
            "X-Customer",
            "X.User",
            "Client-Cert",
            "Remote_User",
            "Sec-Fetch-Site",
            "Proxy.Authorization",
            "Early~Data",
            "X-Accel-Mapping",
            "X-Checksum",
        ] {
            fields.push(name, "v");
        }
        sender.end_with(fields);
        let mut trailers = Trailers {
            fields: FieldLines::default(),
            forwarded_field: ForwardedField::parse("X-Customer").unwrap(),
            user_fields: vec!["x-user".to_owned()],
        };
        assert!(trailers.receive(&mut body));
        assert_eq!(trailers.fields().as_bytes(), b"Digest: v\r\nX-Checksum: v\r\n");
    }
}
