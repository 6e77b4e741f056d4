//! The fields of a request that a script gets as variables.

use std::borrow::Cow;

use super::call::Call;
use super::variables::Treatment;
use dunlin_config::{ForwardedField, as_read};
use dunlin_exchange::Client;

/// Decides which fields of a request a script gets.
pub(super) struct ForwardedFields<'a> {
    client: Client,
    authorization: bool,
    forwarded_field: &'a ForwardedField,
    user_fields: &'a [String],
}

impl<'a> ForwardedFields<'a> {
    pub(super) fn of(call: &'a Call<'_>, client: Client) -> Self {
        Self {
            client,
            authorization: call.rules.authorization,
            forwarded_field: &call.scripts.ctx.shared.forwarded_field,
            user_fields: call.route.user_fields(),
        }
    }

    /// As [`of`](Self::of), for a request whose `Authorization` counts whether the script gets it or not.
    pub(super) fn with_authorization(
        client: Client,
        forwarded_field: &'a ForwardedField,
        user_fields: &'a [String],
    ) -> Self {
        Self { client, authorization: true, forwarded_field, user_fields }
    }

    /// Returns `true` if the client's address is the value of a field of that name, or would be if a proxy had set it. The
    /// name is in lower case.
    pub(super) fn is_address(&self, name: &[u8]) -> bool {
        matches!(name, b"forwarded" | b"x-forwarded-for" | b"x-real-ip")
            || name == self.forwarded_field.name().as_bytes()
    }

    /// Returns `true` if only a trusted proxy or the server may set a field of this name, and neither has. The name is in
    /// lower case.
    fn is_spoofed(&self, name: &[u8]) -> bool {
        let read = as_read(name);
        if self.user_fields.iter().any(|user| user.as_bytes() == &*read) {
            return true;
        }
        let is_plain = matches!(read, Cow::Borrowed(_));
        let Client { is_subrequest: is_set_by_server, via_proxy, .. } = self.client;
        let names_user = matches!(&*read, b"remote-user" | b"client-cert" | b"client-cert-chain");
        let is_other = !is_plain && (*read == *b"early-data" || omitted(&read));
        is_other
            || names_user && !(is_plain && (via_proxy || is_set_by_server))
            || !is_set_by_server && self.forwarded_field.is_spoofed(name, via_proxy)
    }

    /// Decides about a field by its name in lower case.
    pub(super) fn treatment(&self, name: &[u8]) -> Treatment {
        match name {
            b"authorization" if !self.authorization => Treatment::Omit,
            b"accept"
            | b"accept-encoding"
            | b"accept-language"
            | b"cache-control"
            | b"dnt"
            | b"host"
            | b"origin"
            | b"priority"
            | b"sec-ch-ua"
            | b"sec-ch-ua-mobile"
            | b"sec-ch-ua-platform"
            | b"sec-fetch-dest"
            | b"sec-fetch-mode"
            | b"sec-fetch-site"
            | b"upgrade-insecure-requests"
            | b"user-agent" => Treatment::Keep,
            _ if omitted(name) || self.is_spoofed(name) => Treatment::Omit,
            _ => Treatment::Vary,
        }
    }
}

/// Returns `true` if no script gets a field of this name, also in another spelling. The name is in lower case.
fn omitted(name: &[u8]) -> bool {
    match name {
        // They describe the connection (RFC 9110 §7.6.1) or have a variable of their own.
        b"connection" | b"content-length" | b"content-type" | b"expect" | b"keep-alive" | b"te"
        | b"trailer" | b"transfer-encoding" | b"upgrade" => true,
        // The server sets its own values.
        b"traceparent" | b"x-request-id" => true,
        // They concern a proxy. `Proxy` would become HTTP_PROXY, which many programs obey; the others choose the files that an
        // application names.
        b"proxy" | b"x-sendfile-type" => true,
        _ => name.starts_with(b"proxy-") || name.starts_with(b"x-accel-"),
    }
}
