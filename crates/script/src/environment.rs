//! The variables that describe a request to a script (RFC 3875 §4).

use std::net::IpAddr;
use std::os::unix::ffi::OsStrExt;

use dunlin_exchange::{Incoming, RequestContext, Scheme};
use dunlin_http::semantics::target::{self, Target};
use dunlin_http::semantics::{address, host, is_token, path};
use dunlin_http::{BodyLength, FieldName, Request};
use dunlin_net::address::{Peer, UNIX};
use dunlin_tls::TlsInfo;

use super::call::Call;
use super::request_fields::ForwardedFields;
use super::request_id;
use super::resolved_script::ResolvedScript;
use super::variables::Variables;
use dunlin_config::Mapping;

/// Returns the variables of a request. `length` is that of the body as the script reads it.
pub(super) fn variables(
    call: &Call<'_>,
    incoming: &Incoming,
    located: &ResolvedScript,
    length: Option<u64>,
) -> Variables {
    let request = call.request;
    let mut list = Variables::default();
    list.add("GATEWAY_INTERFACE", "CGI/1.1");
    list.add("SERVER_SOFTWARE", concat!("dunlin/", env!("CARGO_PKG_VERSION")));
    list.write("SERVER_NAME", false, |value| server_name(&request, incoming, value));
    let mut digits = itoa::Buffer::new();
    list.add("SERVER_PORT", digits.format(server_port(&request, incoming)));
    if let Some(ends) = incoming.ends {
        list.write("SERVER_ADDR", false, |value| address::push(ends.local.ip(), value));
    }
    list.add("SERVER_PROTOCOL", request.version().as_str());
    list.add("REQUEST_METHOD", request.equivalent_method());
    let client = call.client(incoming);
    list.add("REQUEST_SCHEME", if client.encrypted { "https" } else { "http" });
    if client.encrypted {
        list.add("HTTPS", "on");
    }
    if let Some(tls) = &incoming.tls {
        add_tls(&mut list, tls);
    }
    list.write("REQUEST_URI", true, |value| request_uri(call, value));
    list.vary("QUERY_STRING", query(call, located).unwrap_or_default());
    list.add("SCRIPT_NAME", &located.name);
    // What nginx adds to those of RFC 3875: the path within the site.
    list.write("DOCUMENT_URI", false, |value| {
        value.extend_from_slice(&located.name);
        value.extend_from_slice(&located.info);
    });
    let root = match call.rules.mapping {
        Mapping::Path => &call.rules.directory,
        _ => &call.route.settings().root,
    };
    let root = root.as_os_str().as_bytes();
    list.add("DOCUMENT_ROOT", root);
    if !located.program.as_os_str().is_empty() {
        list.add("SCRIPT_FILENAME", located.program.as_os_str().as_bytes());
    }
    if !located.info.is_empty() {
        list.vary("PATH_INFO", &located.info);
        let root = root.strip_suffix(b"/").unwrap_or(root);
        list.write("PATH_TRANSLATED", true, |value| {
            value.extend_from_slice(root);
            value.extend_from_slice(&located.info);
        });
    }
    let remote = client.address;
    match remote.ip() {
        Some(remote) => {
            let name =
                call.scripts.ctx.shared.reverse_dns.as_ref().and_then(|dns| dns.name(remote));
            list.write("REMOTE_HOST", true, |value| match &name {
                Some(name) => value.extend_from_slice(name.as_bytes()),
                None => address::push(remote, value),
            });
            list.write("REMOTE_ADDR", true, |value| address::push(remote, value));
        }
        // RFC 3875 §4.1.8 wants an address; a Unix socket has none.
        None => list.add("REMOTE_ADDR", UNIX),
    }
    // The port belongs to the connection: to a proxy if the address does not.
    if let Some(ends) = incoming.ends
        && remote == Peer::of(ends.remote)
    {
        list.vary("REMOTE_PORT", digits.format(ends.remote.port()));
    }
    if let Some(user) = call.checked.and_then(RequestContext::user) {
        if let Some(scheme) = auth_type(call) {
            list.add("AUTH_TYPE", scheme);
        }
        list.vary("REMOTE_USER", user);
    }
    if let Some(length) = length {
        list.vary("CONTENT_LENGTH", digits.format(length));
    }
    if let Some(content_type) = request.field(FieldName::ContentType) {
        list.vary("CONTENT_TYPE", content_type);
    }
    match call.error {
        // PHP's interpreter runs only if a server sets this.
        None => list.add("REDIRECT_STATUS", "200"),
        Some(status) => add_redirect(&mut list, call, status),
    }
    let forwarded = ForwardedFields::of(call, client);
    list.add_fields(&request, |name| forwarded.treatment(name));
    if let Some(checked) = call.checked {
        // No field of a client becomes one of these variables.
        for (name, value) in checked.request_fields().iter() {
            list.vary(variable(name), value);
        }
    }
    if incoming.tls.as_ref().is_some_and(|tls| tls.early) {
        // RFC 8470 §5.1.
        list.replace("HTTP_EARLY_DATA", "1", true);
    }
    let (id, parent) =
        (incoming.script_context.id(), request_id::traceparent(&request, &incoming.script_context));
    list.vary("HTTP_X_REQUEST_ID", id);
    list.vary("HTTP_TRACEPARENT", &parent);
    list.vary("TRACEPARENT", &parent);
    for (name, value) in &call.rules.env {
        list.replace(name, value, false);
    }
    for (name, value) in &call.env {
        list.replace(name, value, true);
    }
    list.drop_invalid();
    list
}

/// Returns the scheme by which the user was authenticated (RFC 3875 §4.1.1). With forward authentication it is the
/// scheme of the request's Authorization field; without such a field, as with a session's cookie, there is none.
fn auth_type(call: &Call<'_>) -> Option<String> {
    match call.checked?.scheme()? {
        Scheme::Basic => Some("Basic".into()),
        Scheme::Bearer => Some("Bearer".into()),
        Scheme::Forward => {
            let request = call.request;
            let value = request.field(FieldName::Authorization)?;
            let scheme = value.split(|&byte| byte == b' ').next().filter(|name| is_token(name))?;
            Some(String::from_utf8_lossy(scheme).into_owned())
        }
    }
}

/// Returns the name of the variable with a field (RFC 3875 §4.1.18).
fn variable(name: &[u8]) -> Vec<u8> {
    let letters = name.iter().map(|&byte| if byte == b'-' { b'_' } else { byte });
    b"HTTP_".iter().copied().chain(letters.map(|byte| byte.to_ascii_uppercase())).collect()
}

/// Returns the length that the request states or implies; `None` without a body.
pub(super) fn stated_length(request: &Request<'_>, length: BodyLength) -> Option<u64> {
    match length {
        BodyLength::Known(length) => Some(length),
        BodyLength::Chunked => None,
        BodyLength::None => request.has(FieldName::ContentLength).then_some(0),
    }
}

/// Returns the query for a script: the request's, or that of a `try` list.
pub(super) fn query<'a>(call: &'a Call<'_>, located: &'a ResolvedScript) -> Option<&'a [u8]> {
    located.query.as_deref().or(call.query)
}

/// The path and query of the target, also of one in absolute form (RFC 9112 §3.2.2). Internal redirects do not change
/// it.
fn request_uri(call: &Call<'_>, value: &mut Vec<u8>) {
    value.extend_from_slice(call.raw_path);
    if let Some(query) = target_query(&call.request) {
        value.push(b'?');
        value.extend_from_slice(query);
    }
}

/// Returns the query of the target, which internal redirects do not change.
fn target_query<'a>(request: &Request<'a>) -> Option<&'a [u8]> {
    match target::parse(request.method(), request.target()) {
        Ok(Target::Origin { query, .. } | Target::Absolute { query, .. }) => query,
        _ => None,
    }
}

fn server_name(request: &Request<'_>, incoming: &Incoming, value: &mut Vec<u8>) {
    let name = request.field(FieldName::Host).and_then(host::parse).map(|host| host.name);
    match name.filter(|name| !name.is_empty()) {
        Some(name) => value.extend_from_slice(name),
        None => match incoming.ends.map(|ends| ends.local.ip().to_canonical()) {
            Some(address @ IpAddr::V6(_)) => {
                value.push(b'[');
                address::push(address, value);
                value.push(b']');
            }
            Some(address) => address::push(address, value),
            None => value.extend_from_slice(b"localhost"),
        },
    }
}

/// Returns the port of the listener; on a Unix socket, the one in the Host field.
fn server_port(request: &Request<'_>, incoming: &Incoming) -> u16 {
    let default = if incoming.encrypted { 443 } else { 80 };
    let named = || request.field(FieldName::Host).and_then(host::parse).and_then(|host| host.port);
    incoming.ends.map_or_else(|| named().unwrap_or(default), |ends| ends.local.port())
}

/// Adds what an error page gets about the request that failed.
fn add_redirect(list: &mut Variables, call: &Call<'_>, status: u16) {
    list.vary("REDIRECT_STATUS", itoa::Buffer::new().format(status));
    let mut path = Vec::new();
    // It was decoded before.
    if path::decode_opaque(call.raw_path, &mut path).is_ok() {
        list.vary("REDIRECT_URL", path::with_slashes(&path));
    }
    let request = call.request;
    if let Some(query) = target_query(&request) {
        list.vary("REDIRECT_QUERY_STRING", query);
    }
}

/// Adds the variables of TLS, with the names that Apache's mod_ssl uses.
fn add_tls(list: &mut Variables, tls: &TlsInfo) {
    list.add("SSL_PROTOCOL", tls.protocol);
    list.add("SSL_CIPHER", tls.cipher);
    list.add("SSL_CLIENT_VERIFY", tls.verified());
    if let Some(client) = &tls.client {
        list.vary("SSL_CLIENT_S_DN", &client.subject);
        list.vary("SSL_CLIENT_I_DN", &client.issuer);
        list.vary("SSL_CLIENT_M_SERIAL", &client.serial);
    }
}
