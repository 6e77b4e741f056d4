//! The head of a request as an upstream gets it.

use std::borrow::Cow;
use std::net::IpAddr;

use dunlin_client::{Origin, Request as ClientRequest, Timeouts};
use dunlin_config::{ForwardCertificate, RequestField, UpstreamHost, as_read, is_read_as};
use dunlin_exchange::{Incoming, RequestContext, Scheme};
use dunlin_http::semantics::{address as address_text, host};
use dunlin_http::{BodyLength, FieldLines, FieldName, RequestHead};
use dunlin_tls::ClientCertificate;

use crate::address;
use crate::call::Call;
use crate::hop_fields::{is_for_proxy, listed_options};
use crate::target;
use crate::upgrade_request::UpgradeRequest;
use crate::upstream::Upstream;

/// The name of this server in `Via` (RFC 9110 §7.6.3).
const VIA: &str = "1.1 dunlin";
/// A request that came through servers of this name so often is taken for one in a loop.
const MAX_VIA: usize = 8;
/// The field with the authenticated user.
const USER: &str = "Remote-User";

/// Returns the request to send to `upstream`, whose origin is `origin`. `upgrade` is the protocol upgrade that the client
/// requested.
pub(crate) fn request(
    call: &Call<'_>,
    incoming: &Incoming,
    upstream: &Upstream,
    origin: Origin,
    upgrade: Option<&UpgradeRequest<'_>>,
) -> ClientRequest {
    let rules = call.group.rules();
    let host = call.request.field(FieldName::Host).unwrap_or_default();
    let host = std::str::from_utf8(host).unwrap_or_default();
    let named = match &rules.host {
        UpstreamHost::Named(field) => call.host_value(field),
        _ => None,
    };
    let authority = match &named {
        Some(name) => name,
        None if rules.host != UpstreamHost::Upstream && !host.is_empty() => host,
        None => address::authority(&upstream.address),
    };
    let (target, prefix) = target::of_call(call);
    let method = std::str::from_utf8(call.request.equivalent_method()).unwrap_or_default();
    let method = rules.method.as_deref().unwrap_or(method);
    let mut head = RequestHead::new(method, authority, &target);
    let protocol = upgrade.and_then(UpgradeRequest::extended_connect);
    if let Some(protocol) = protocol.filter(|_| upstream.address.is_http2()) {
        head.method = "CONNECT".into();
        head.protocol = Some(String::from_utf8_lossy(protocol).into());
    }
    let is_http2 = upstream.address.is_http2();
    head.fields = fields(call, &Facts::of(incoming), prefix.as_deref(), (is_http2, upgrade));
    let timeouts = Timeouts::none();
    ClientRequest { origin, head: head.assume_parsed(), timeouts }
}

/// The properties of the client's connection that are added to its request.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Facts<'a> {
    /// The verified certificate of the client.
    pub(crate) certificate: Option<&'a ClientCertificate>,
    /// The request came as early data of TLS.
    pub(crate) is_early: bool,
    /// The body may have trailer fields.
    pub(crate) has_trailers: bool,
    /// The span of the request, if it is traced.
    pub(crate) traceparent: Option<&'a str>,
}

impl<'a> Facts<'a> {
    fn of(incoming: &'a Incoming) -> Self {
        let tls = incoming.tls.as_ref();
        Self {
            certificate: tls.and_then(|tls| tls.client.as_deref()),
            is_early: tls.is_some_and(|tls| tls.early),
            has_trailers: incoming.length == BodyLength::Chunked,
            traceparent: incoming.script_context.traceparent.as_deref(),
        }
    }
}

/// Returns the fields of the request to an upstream, apart from `Host`. [`Sent`](crate::Sent) has the same ones by their
/// names.
pub(crate) fn fields(
    call: &Call<'_>,
    facts: &Facts<'_>,
    prefix: Option<&str>,
    (is_http2, upgrade): (bool, Option<&UpgradeRequest<'_>>),
) -> FieldLines {
    let mut fields = FieldLines::new();
    add_client_fields(call, facts, &mut fields);
    add_server_fields(call, facts, prefix, &mut fields);
    if wants_trailers(call) && !is_http2 {
        fields.push("Connection", "TE");
    }
    if let Some(upgrade) = upgrade.filter(|_| !is_http2) {
        upgrade.add_fields(&mut fields);
    }
    set_fields(call, &mut fields);
    fields
}

/// Sets the fields that the route sets in place of others, also of those with another spelling of a name, which programs may
/// take for it. The last one of a name counts.
fn set_fields(call: &Call<'_>, fields: &mut FieldLines) {
    let all = &*call.group.rules().set_request_fields;
    if all.is_empty() {
        return;
    }
    let is_in = |set: &[RequestField], name: &[u8]| {
        set.iter().any(|field| is_read_as(field.name.as_bytes(), name))
    };
    fields.retain(|name, _| !is_in(all, name));
    for (at, field) in all.iter().enumerate() {
        let value = call.field_value(field);
        if !value.is_empty() && !is_in(&all[at + 1..], field.name.as_bytes()) {
            fields.push(&field.name, value);
        }
    }
}

/// Returns `true` if the request has come through this server so often that it is in a loop.
pub(crate) fn is_in_loop(call: &Call<'_>) -> bool {
    let is_via = |(name, _): &(&[u8], &[u8])| name.eq_ignore_ascii_case(b"via");
    let values = call.request.fields().filter(is_via).map(|(_, value)| value);
    let entries = values.flat_map(|value| value.split(|&byte| byte == b','));
    entries.filter(|entry| entry.trim_ascii().ends_with(b" dunlin")).count() >= MAX_VIA
}

/// Adds the client's fields, apart from those that end here.
fn add_client_fields(call: &Call<'_>, facts: &Facts<'_>, fields: &mut FieldLines) {
    if !call.group.rules().passes_fields {
        return;
    }
    let listed = listed_options(&call.request);
    let mut lower = [0_u8; 64];
    for (name, value) in call.request.joined_fields() {
        let kept = match lower.get_mut(..name.len()) {
            Some(lower) => {
                lower.copy_from_slice(name);
                lower.make_ascii_lowercase();
                is_kept(call, facts, lower)
            }
            None => is_kept(call, facts, &name.to_ascii_lowercase()),
        };
        if kept && !listed.iter().any(|option| name.eq_ignore_ascii_case(option)) {
            fields.push_parsed(name, &value);
        }
    }
}

/// Returns `true` if an upstream gets a field of the client, unless `Connection` lists it. The name is in lower case.
pub(crate) fn is_kept(call: &Call<'_>, facts: &Facts<'_>, name: &[u8]) -> bool {
    match name {
        b"traceparent" => facts.traceparent.is_none(),
        b"authorization" => {
            let scheme = call.checked.and_then(RequestContext::scheme);
            scheme != Some(Scheme::Basic) || call.group.rules().passes_credentials
        }
        b"trailer" => facts.has_trailers,
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

/// Returns `true` if a field of the client ends here, also in another spelling. The name is in lower case.
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

/// Returns `true` if only the server may set a field of this name, which is in lower case.
fn is_identity(call: &Call<'_>, name: &[u8]) -> bool {
    matches!(name, b"client-cert" | b"client-cert-chain")
        || name.eq_ignore_ascii_case(USER.as_bytes())
        || is_set_by_checks(call, name)
}

/// Adds the fields that the server sets: those of [`SET_BY_SERVER`]. `prefix` was removed from the path.
pub(crate) fn add_server_fields(
    call: &Call<'_>,
    facts: &Facts<'_>,
    prefix: Option<&str>,
    fields: &mut FieldLines,
) {
    let host = call.request.field(FieldName::Host).unwrap_or_default();
    let scheme = if call.client.encrypted { "https" } else { "http" };
    let address = call.client.address.ip();
    if let Some(address) = address {
        fields.push_written(b"X-Forwarded-For", |text| address_text::push(address, text));
    }
    fields.push_parsed(b"X-Forwarded-Proto", scheme.as_bytes());
    let host = host::parse(host).map(|_| host);
    if let Some(host) = host {
        fields.push_parsed(b"X-Forwarded-Host", host);
    }
    fields.push_written(b"Forwarded", |text| {
        if let Some(address) = address {
            let is_v6 = matches!(address.to_canonical(), IpAddr::V6(_));
            let (start, end) = if is_v6 { ("for=\"[", "]\";") } else { ("for=", ";") };
            text.extend_from_slice(start.as_bytes());
            address_text::push(address, text);
            text.extend_from_slice(end.as_bytes());
        }
        if let Some(host) = host {
            text.extend_from_slice(b"host=\"");
            text.extend_from_slice(host);
            text.extend_from_slice(b"\";");
        }
        text.extend_from_slice(b"proto=");
        text.extend_from_slice(scheme.as_bytes());
    });
    if let Some(prefix) = prefix {
        fields.push("X-Forwarded-Prefix", prefix);
    }
    fields.push_parsed(b"Via", VIA.as_bytes());
    if let Some(user) = call.checked.and_then(RequestContext::user) {
        fields.push(USER, user);
    }
    if let Some(checked) = call.checked {
        fields.extend(&checked.request_fields());
    }
    if let Some(traceparent) = facts.traceparent {
        fields.push("traceparent", traceparent.as_bytes());
    }
    let how = call.group.rules().forward_client_certificate;
    if let (Some(how), Some(client)) = (how, facts.certificate) {
        add_client_certificate(how, client, fields);
    }
    if facts.is_early {
        // RFC 8470 §5.1.
        fields.push("Early-Data", "1");
    }
    if wants_trailers(call) {
        fields.push("TE", "trailers");
    }
}

/// Returns `true` if authentication may set a field of that name, which is in lower case.
pub(crate) fn is_set_by_checks(call: &Call<'_>, name: &[u8]) -> bool {
    call.user_fields.iter().any(|user| user.as_bytes() == name)
}

/// The names of the fields that the server may set, in lower case. [`is_set_by_checks`] names further ones.
pub(crate) const SET_BY_SERVER: [&[u8]; 12] = [
    b"client-cert",
    b"client-cert-chain",
    b"early-data",
    b"forwarded",
    b"remote-user",
    b"te",
    b"traceparent",
    b"via",
    b"x-forwarded-for",
    b"x-forwarded-host",
    b"x-forwarded-prefix",
    b"x-forwarded-proto",
];

/// Adds the verified certificate of the client (RFC 9440).
fn add_client_certificate(
    how: ForwardCertificate,
    client: &ClientCertificate,
    fields: &mut FieldLines,
) {
    fields.push("Client-Cert", client.client_cert());
    if how == ForwardCertificate::Chain && !client.client_cert_chain().is_empty() {
        fields.push("Client-Cert-Chain", client.client_cert_chain());
    }
}

/// Returns `true` if the client accepts trailer fields (RFC 9110 §10.1.4).
fn wants_trailers(call: &Call<'_>) -> bool {
    let members = call.request.values(FieldName::Te).flat_map(|te| te.split(|&byte| byte == b','));
    members.map(<[u8]>::trim_ascii).any(|member| member.eq_ignore_ascii_case(b"trailers"))
}
