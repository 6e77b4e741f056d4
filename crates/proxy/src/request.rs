//! The head of a request as an upstream gets it.

use std::borrow::Cow;
use std::net::IpAddr;

use dunlin_client::{Origin, Request as ClientRequest, Timeouts};
use dunlin_config::{ForwardCertificate, as_read};
use dunlin_exchange::{Incoming, RequestContext, Scheme};
use dunlin_http::semantics::host;
use dunlin_http::{BodyLength, FieldLines, FieldName, RequestHead};
use dunlin_telemetry::ip;

use crate::address;
use crate::call::Call;
use crate::switch::Switch;
use crate::target;
use crate::upstream::Upstream;

/// The name of this server in `Via` (RFC 9110 §7.6.3).
const VIA: &str = "1.1 dunlin";
/// A request that came through servers of this name so often is taken for one in a loop.
const MAX_VIA: usize = 8;
/// The field with the authenticated user.
const USER: &str = "Remote-User";

/// The request to send to `upstream`, whose origin is `origin`. `switch` is the protocol upgrade that the client requested.
pub(crate) fn request(
    call: &Call<'_>,
    incoming: &Incoming,
    upstream: &Upstream,
    origin: Origin,
    switch: Option<&Switch<'_>>,
) -> ClientRequest {
    let rules = call.group.rules();
    let host = call.request.field(FieldName::Host).unwrap_or_default();
    let host = std::str::from_utf8(host).unwrap_or_default();
    let preserved = Some(host).filter(|host| rules.preserves_host && !host.is_empty());
    let authority = preserved.unwrap_or_else(|| address::authority(&upstream.address));
    let (target, prefix) = target::target(rules, call.raw_path, call.path, call.query);
    let method = std::str::from_utf8(call.request.equivalent_method()).unwrap_or_default();
    let mut head = RequestHead::new(method, authority, &target);
    let protocol = switch.and_then(Switch::extended_connect);
    if let Some(protocol) = protocol.filter(|_| upstream.address.is_http2()) {
        head.method = "CONNECT".into();
        head.protocol = Some(String::from_utf8_lossy(protocol).into());
    }
    let fields = &mut head.fields;
    *fields = FieldLines::new();
    add_client_fields(call, incoming, fields);
    add_server_fields(call, incoming, host, prefix.as_deref(), fields);
    let is_http2 = upstream.address.is_http2();
    if wants_trailers(call) {
        if !is_http2 {
            fields.push("Connection", "TE");
        }
        fields.push("TE", "trailers");
    }
    if let Some(switch) = switch.filter(|_| !is_http2) {
        switch.add_fields(fields);
    }
    for (name, value) in &rules.set_request_fields {
        match value.is_empty() {
            true => fields.remove(name),
            false => fields.set(name, value),
        }
    }
    let timeouts = Timeouts::none();
    ClientRequest { origin, head: head.assume_parsed(), timeouts }
}

/// Whether the request has come through this server so often that it is in a loop.
pub(crate) fn is_in_loop(call: &Call<'_>) -> bool {
    let is_via = |(name, _): &(&[u8], &[u8])| name.eq_ignore_ascii_case(b"via");
    let values = call.request.fields().filter(is_via).map(|(_, value)| value);
    let entries = values.flat_map(|value| value.split(|&byte| byte == b','));
    entries.filter(|entry| entry.trim_ascii().ends_with(b" dunlin")).count() >= MAX_VIA
}

/// Adds the client's fields, apart from those that end here.
fn add_client_fields(call: &Call<'_>, incoming: &Incoming, fields: &mut FieldLines) {
    let listed = listed_options(call);
    let keeps_traceparent = incoming.script_context.traceparent.is_none();
    let keeps_authorization = call.checked.and_then(RequestContext::scheme) != Some(Scheme::Basic);
    let mut lower = [0_u8; 64];
    for (name, value) in call.request.joined_fields() {
        let kept = match lower.get_mut(..name.len()) {
            Some(lower) => {
                lower.copy_from_slice(name);
                lower.make_ascii_lowercase();
                match &*lower {
                    b"traceparent" => keeps_traceparent,
                    b"authorization" => keeps_authorization,
                    b"trailer" => incoming.length == BodyLength::Chunked,
                    lower => is_kept(call, lower),
                }
            }
            None => is_kept(call, &name.to_ascii_lowercase()),
        };
        if kept && !listed.iter().any(|option| name.eq_ignore_ascii_case(option)) {
            fields.push_parsed(name, &value);
        }
    }
}

/// Whether an upstream gets a field of the client. The name is in lower case.
fn is_kept(call: &Call<'_>, name: &[u8]) -> bool {
    match name {
        b"accept"
        | b"accept-encoding"
        | b"accept-language"
        | b"cache-control"
        | b"content-type"
        | b"cookie"
        | b"dnt"
        | b"expect"
        | b"if-modified-since"
        | b"if-none-match"
        | b"origin"
        | b"pragma"
        | b"priority"
        | b"range"
        | b"referer"
        | b"sec-ch-ua"
        | b"sec-ch-ua-mobile"
        | b"sec-ch-ua-platform"
        | b"sec-fetch-dest"
        | b"sec-fetch-mode"
        | b"sec-fetch-site"
        | b"sec-fetch-user"
        | b"upgrade-insecure-requests"
        | b"user-agent" => true,
        _ if ends_here(name) => false,
        _ => {
            let read = as_read(name);
            !(matches!(read, Cow::Owned(_)) && ends_here(&read)
                || is_identity(call, &read)
                || call.forwarded_field.is_spoofed(name, call.client.via_proxy))
        }
    }
}

/// Whether a field of the client ends here, also in another spelling. The name is in lower case.
fn ends_here(name: &[u8]) -> bool {
    match name {
        // They describe the connection, or the framing of the message (RFC 9110 §7.6.1), or are set by the proxy.
        b"connection"
        | b"content-length"
        | b"early-data"
        | b"forwarded"
        | b"host"
        | b"keep-alive"
        | b"te"
        | b"trailer"
        | b"transfer-encoding"
        | b"upgrade"
        | b"x-forwarded-for"
        | b"x-forwarded-host"
        | b"x-forwarded-prefix"
        | b"x-forwarded-proto" => true,
        _ => is_for_proxy(name),
    }
}

/// Whether a field concerns a proxy, so that only this server could set it. The name is in lower case. `Proxy` would become
/// HTTP_PROXY in CGI programs, which many of them obey; the others choose the files that an application names.
pub(crate) fn is_for_proxy(name: &[u8]) -> bool {
    match name {
        b"proxy" | b"x-sendfile-type" => true,
        _ => name.starts_with(b"proxy-") || name.starts_with(b"x-accel-"),
    }
}

/// Whether only the server may set a field of this name, which is in lower case.
fn is_identity(call: &Call<'_>, name: &[u8]) -> bool {
    matches!(name, b"client-cert" | b"client-cert-chain")
        || name.eq_ignore_ascii_case(USER.as_bytes())
        || call.user_fields.iter().any(|user| user.as_bytes() == name)
}

/// The fields that `Connection` lists, which end here.
pub(crate) fn listed_options<'r>(call: &Call<'r>) -> Vec<&'r [u8]> {
    let values = call.request.values(FieldName::Connection);
    let options =
        values.flat_map(|value| value.split(|&byte| byte == b',')).map(<[u8]>::trim_ascii);
    options.filter(|option| !option.eq_ignore_ascii_case(b"keep-alive")).collect()
}

/// Adds the fields that the server sets.
fn add_server_fields(
    call: &Call<'_>,
    incoming: &Incoming,
    host: &str,
    prefix: Option<&str>,
    fields: &mut FieldLines,
) {
    let scheme = if call.client.encrypted { "https" } else { "http" };
    let mut forwarded = Vec::with_capacity(64);
    if let Some(address) = call.client.address.ip() {
        let mut text = Vec::with_capacity(40);
        ip(address, &mut text);
        fields.push_parsed(b"X-Forwarded-For", &text);
        let is_v6 = matches!(address.to_canonical(), IpAddr::V6(_));
        let (start, end): (&[u8], &[u8]) =
            if is_v6 { (b"for=\"[", b"]\";") } else { (b"for=", b";") };
        forwarded.extend_from_slice(start);
        forwarded.extend_from_slice(&text);
        forwarded.extend_from_slice(end);
    }
    fields.push_parsed(b"X-Forwarded-Proto", scheme.as_bytes());
    if let Some(host) = Some(host).filter(|host| host::parse(host.as_bytes()).is_some()) {
        fields.push_parsed(b"X-Forwarded-Host", host.as_bytes());
        forwarded.extend_from_slice(b"host=\"");
        forwarded.extend_from_slice(host.as_bytes());
        forwarded.extend_from_slice(b"\";");
    }
    forwarded.extend_from_slice(b"proto=");
    forwarded.extend_from_slice(scheme.as_bytes());
    fields.push_parsed(b"Forwarded", &forwarded);
    if let Some(prefix) = prefix {
        fields.push("X-Forwarded-Prefix", prefix);
    }
    fields.push_parsed(b"Via", VIA.as_bytes());
    if let Some(user) = call.checked.and_then(RequestContext::user) {
        fields.push(USER, user);
    }
    if let Some(traceparent) = &incoming.script_context.traceparent {
        fields.push("traceparent", traceparent.as_bytes());
    }
    if let Some(how) = call.group.rules().forward_client_certificate {
        add_client_certificate(how, incoming, fields);
    }
    if incoming.tls.as_ref().is_some_and(|tls| tls.early) {
        // RFC 8470 §5.1.
        fields.push("Early-Data", "1");
    }
}

/// Adds the verified certificate of the client (RFC 9440).
fn add_client_certificate(how: ForwardCertificate, incoming: &Incoming, fields: &mut FieldLines) {
    let client = incoming.tls.as_ref().and_then(|tls| tls.client.as_ref());
    let Some(client) = client else { return };
    fields.push("Client-Cert", client.client_cert());
    if how == ForwardCertificate::Chain && !client.client_cert_chain().is_empty() {
        fields.push("Client-Cert-Chain", client.client_cert_chain());
    }
}

/// Whether the client accepts trailer fields (RFC 9110 §10.1.4).
fn wants_trailers(call: &Call<'_>) -> bool {
    let members = call.request.values(FieldName::Te).flat_map(|te| te.split(|&byte| byte == b','));
    members.map(<[u8]>::trim_ascii).any(|member| member.eq_ignore_ascii_case(b"trailers"))
}
