//! The variables that describe a request to a script (RFC 3875 §4).

use std::cell::Cell;
use std::ffi::{OsStr, OsString};
use std::net::IpAddr;
use std::ops::Range;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use dunlin_http::semantics::target::{self, Target};
use dunlin_http::semantics::{Method, host, is_token, path};
use dunlin_http::{BodyLength, FieldName, Request};

use super::Call;
use super::lookup::Located;
use super::request_id;
use crate::config::{ForwardedField, Mapping, is_forwarding};
use crate::exchange::{Client, Incoming, Scheme};
use crate::telemetry::ip;
use crate::tls::TlsInfo;
use crate::transport::{Peer, UNIX};

/// `PATH` for scripts if the server itself has none.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// How a request's field becomes a variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Field {
    /// It does not.
    Omitted,
    /// Its value is the same in most requests.
    Steady,
    Varies,
}

/// What decides which of a request's fields scripts get.
struct Passed<'a> {
    client: Client,
    authorization: bool,
    forwarded_field: &'a ForwardedField,
    user_fields: &'a [String],
}

impl<'a> Passed<'a> {
    fn of(call: &'a Call, client: Client) -> Self {
        Self {
            client,
            authorization: call.rules.authorization,
            forwarded_field: &call.ctx.shared.config.server.forwarded_field,
            user_fields: &call.matched.site.user_fields,
        }
    }

    /// Whether only a trusted proxy or the server may set a field of this name, and neither has. The name is in lower
    /// case.
    fn is_spoofed(&self, name: &[u8]) -> bool {
        let is_of_proxies = self.forwarded_field.covers(name);
        let is_set_by_server = self.client.is_subrequest;
        let is_set_by_proxy = self.client.via_proxy && is_of_proxies;
        if self.user_fields.iter().any(|user| user.as_bytes() == name) {
            return true;
        }
        (is_of_proxies || is_forwarding(name)) && !is_set_by_server && !is_set_by_proxy
    }
}

impl Field {
    /// Classifies a field by its name in lower case.
    fn of(name: &[u8], passed: &Passed<'_>) -> Self {
        match name {
            // They describe the connection (RFC 9110 §7.6.1) or have a variable of their own. `Proxy` would become
            // HTTP_PROXY, which many programs obey.
            b"connection"
            | b"content-length"
            | b"content-type"
            | b"expect"
            | b"keep-alive"
            | b"proxy"
            | b"proxy-authorization"
            | b"proxy-connection"
            | b"te"
            | b"trailer"
            | b"transfer-encoding"
            | b"upgrade" => Self::Omitted,
            // The server sets its own values.
            b"traceparent" | b"x-request-id" => Self::Omitted,
            b"authorization" if !passed.authorization => Self::Omitted,
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
            | b"user-agent" => Self::Steady,
            _ if passed.is_spoofed(name) => Self::Omitted,
            _ => Self::Varies,
        }
    }
}

/// The variables of a request. `length` is that of the body as the script reads it.
pub(super) fn variables(
    call: &Call,
    incoming: &Incoming,
    located: &Located,
    length: Option<u64>,
) -> Variables {
    let request = call.request.as_request();
    let matched = &call.matched;
    let mut list = Variables::default();
    list.add("GATEWAY_INTERFACE", "CGI/1.1");
    list.add("SERVER_SOFTWARE", concat!("dunlin/", env!("CARGO_PKG_VERSION")));
    list.write("SERVER_NAME", false, |value| server_name(&request, incoming, value));
    let mut digits = itoa::Buffer::new();
    list.add("SERVER_PORT", digits.format(server_port(&request, incoming)));
    if let Some(ends) = incoming.ends {
        list.write("SERVER_ADDR", false, |value| ip(ends.local.ip(), value));
    }
    list.add("SERVER_PROTOCOL", request.version().as_str());
    list.add("REQUEST_METHOD", request.method_text());
    let client = call.client(incoming);
    list.add("REQUEST_SCHEME", if client.encrypted { "https" } else { "http" });
    if client.encrypted {
        list.add("HTTPS", "on");
    }
    if let Some(tls) = &incoming.tls {
        list.encryption(tls);
    }
    list.write("REQUEST_URI", true, |value| request_uri(call, value));
    list.vary("QUERY_STRING", query(call, located).unwrap_or_default());
    list.add("SCRIPT_NAME", &located.name);
    let root = match call.rules.mapping {
        Mapping::Path => &call.rules.directory,
        _ => &matched.settings.root,
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
            let name = call.ctx.shared.reverse_dns.as_ref().and_then(|dns| dns.name(remote));
            list.write("REMOTE_HOST", true, |value| match &name {
                Some(name) => value.extend_from_slice(name.as_bytes()),
                None => ip(remote, value),
            });
            list.write("REMOTE_ADDR", true, |value| ip(remote, value));
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
    if let Some(user) = call.context.as_ref().and_then(|context| context.user()) {
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
    match matched.via.error {
        // PHP's interpreter runs only if a server sets this.
        None => list.add("REDIRECT_STATUS", "200"),
        Some(status) => list.redirected(call, status),
    }
    list.fields(&request, &Passed::of(call, client));
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
    list.drop_invalid();
    list
}

/// `PATH` for scripts.
pub(crate) fn path() -> OsString {
    std::env::var_os("PATH").unwrap_or_else(|| PATH.into())
}

/// The scheme by which the user was authenticated (RFC 3875 §4.1.1). With forward authentication it is the
/// scheme of the request's Authorization field; without such a field, as with a session's cookie, there is none.
fn auth_type(call: &Call) -> Option<String> {
    match call.context.as_ref()?.scheme()? {
        Scheme::Basic => Some("Basic".into()),
        Scheme::Forward => {
            let request = call.request.as_request();
            let value = request.field(FieldName::Authorization)?;
            let scheme = value.split(|&byte| byte == b' ').next().filter(|name| is_token(name))?;
            Some(String::from_utf8_lossy(scheme).into_owned())
        }
    }
}

/// The length that the request states or implies; `None` without a body.
pub(super) fn stated_length(request: &Request<'_>, length: BodyLength) -> Option<u64> {
    match length {
        BodyLength::Known(length) => Some(length),
        BodyLength::Chunked => None,
        BodyLength::None => request.has(FieldName::ContentLength).then_some(0),
    }
}

/// The words of a query without `=`, which a search form sends (RFC 3875 §4.4). None if the script or its interpreter
/// could take one for an option.
pub(super) fn arguments(request: &Request<'_>, query: Option<&[u8]>) -> Vec<OsString> {
    let Some(query) = query.filter(|query| !query.is_empty() && !query.contains(&b'=')) else {
        return Vec::new();
    };
    if !matches!(request.method(), Method::Get | Method::Head) {
        return Vec::new();
    }
    let words = query.split(|&byte| byte == b'+').map(decode);
    let words: Option<Vec<OsString>> = words.collect();
    words
        .filter(|words| !words.iter().any(|word| word.as_bytes().starts_with(b"-")))
        .unwrap_or_default()
}

fn decode(word: &[u8]) -> Option<OsString> {
    let mut at = 0;
    let mut decoded = Vec::with_capacity(word.len());
    while let Some(&byte) = word.get(at) {
        if byte == b'%' {
            let digits = std::str::from_utf8(word.get(at + 1..at + 3)?).ok()?;
            let plain = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
            decoded.push(u8::from_str_radix(digits, 16).ok().filter(|byte| plain && *byte != 0)?);
            at += 3;
        } else {
            decoded.push(byte);
            at += 1;
        }
    }
    Some(OsString::from_vec(decoded))
}

/// The query for a script: the request's, or that of a `try` list.
pub(super) fn query<'a>(call: &'a Call, located: &'a Located) -> Option<&'a [u8]> {
    located.query.as_deref().or(call.matched.query.as_deref())
}

/// The path and query of the target, also of one in absolute form (RFC 9112 §3.2.2). Internal redirects do not change
/// it.
fn request_uri(call: &Call, value: &mut Vec<u8>) {
    value.extend_from_slice(&call.matched.raw_path);
    if let Some(query) = target_query(&call.request.as_request()) {
        value.push(b'?');
        value.extend_from_slice(query);
    }
}

/// The query of the target, which internal redirects do not change.
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
                ip(address, value);
                value.push(b']');
            }
            Some(address) => ip(address, value),
            None => value.extend_from_slice(b"localhost"),
        },
    }
}

/// The port of the listener; on a Unix socket, the one in the Host field.
fn server_port(request: &Request<'_>, incoming: &Incoming) -> u16 {
    let default = if incoming.encrypted { 443 } else { 80 };
    let named = || request.field(FieldName::Host).and_then(host::parse).and_then(|host| host.port);
    incoming.ends.map_or_else(|| named().unwrap_or(default), |ends| ends.local.port())
}

/// Variables in one buffer.
#[derive(Debug)]
pub(super) struct Variables {
    /// A line for each, `NAME=value`.
    bytes: Vec<u8>,
    entries: Vec<Entry>,
    /// The buffer holds exactly the entries, in their order.
    is_exact: bool,
}

#[derive(Debug)]
struct Entry {
    name: Range<usize>,
    value: Range<usize>,
    /// The value is likely to differ in the next request.
    varies: bool,
}

thread_local! {
    /// The buffers of earlier variables, for reuse.
    static SPARE: Cell<Option<(Vec<u8>, Vec<Entry>)>> = const { Cell::new(None) };
}

/// Size of the largest buffer that is kept.
const KEPT: usize = 64 * 1024;

impl Default for Variables {
    fn default() -> Self {
        let (bytes, entries) = SPARE.take().unwrap_or_default();
        Self { bytes, entries, is_exact: true }
    }
}

impl Drop for Variables {
    fn drop(&mut self) {
        if self.bytes.capacity() <= KEPT {
            self.bytes.clear();
            self.entries.clear();
            SPARE.set(Some((std::mem::take(&mut self.bytes), std::mem::take(&mut self.entries))));
        }
    }
}

impl Variables {
    /// Adds what an error page gets about the request that failed.
    fn redirected(&mut self, call: &Call, status: u16) {
        self.vary("REDIRECT_STATUS", itoa::Buffer::new().format(status));
        let mut path = Vec::new();
        // It was decoded before.
        if path::decode(&call.matched.raw_path, &mut path).is_ok() {
            self.vary("REDIRECT_URL", &path);
        }
        let request = call.request.as_request();
        if let Some(query) = target_query(&request) {
            self.vary("REDIRECT_QUERY_STRING", query);
        }
    }

    /// All names and values.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.entries.iter().map(|entry| self.of(entry))
    }

    /// The variables whose values are likely to differ in the next request (`vary`), or the others.
    pub(super) fn which(&self, vary: bool) -> impl Iterator<Item = (&[u8], &[u8])> {
        let entries = self.entries.iter().filter(move |entry| entry.varies == vary);
        entries.map(|entry| self.of(entry))
    }

    fn of(&self, entry: &Entry) -> (&[u8], &[u8]) {
        (&self.bytes[entry.name.clone()], &self.bytes[entry.value.clone()])
    }

    /// The variables as lines, `NAME=value`; `None` if the buffer holds anything else, or a value contains a line
    /// break.
    pub(super) fn lines(&self) -> Option<&[u8]> {
        let ends = memchr::memchr_iter(b'\n', &self.bytes).count();
        let is_plain = self.is_exact && ends == self.entries.len();
        (is_plain && memchr::memchr(b'\r', &self.bytes).is_none()).then_some(&self.bytes)
    }

    /// The variables for the environment of a process.
    pub(super) fn as_texts(&self) -> impl Iterator<Item = (&OsStr, &OsStr)> {
        self.iter().map(|(name, value)| (OsStr::from_bytes(name), OsStr::from_bytes(value)))
    }

    /// The value of a variable.
    pub(super) fn value(&self, name: &str) -> Option<&OsStr> {
        self.as_texts().find(|(known, _)| *known == name).map(|(_, value)| value)
    }

    /// Adds `PATH` unless it is set.
    pub(super) fn add_path(&mut self) {
        if self.value("PATH").is_none() {
            self.add("PATH", path().as_bytes());
        }
    }

    /// Adds a variable whose value is likely to be the same in the next request.
    fn add(&mut self, name: impl AsRef<[u8]>, value: impl AsRef<[u8]>) {
        self.enter(name.as_ref(), value.as_ref(), false);
    }

    /// Adds a variable whose value is likely to differ in the next request.
    fn vary(&mut self, name: impl AsRef<[u8]>, value: impl AsRef<[u8]>) {
        self.enter(name.as_ref(), value.as_ref(), true);
    }

    fn enter(&mut self, name: &[u8], value: &[u8], varies: bool) {
        self.write(name, varies, |bytes| bytes.extend_from_slice(value));
    }

    /// Adds a variable whose value `write` appends.
    fn write(&mut self, name: impl AsRef<[u8]>, varies: bool, write: impl FnOnce(&mut Vec<u8>)) {
        let name = self.push(name.as_ref());
        self.bytes.push(b'=');
        let start = self.bytes.len();
        write(&mut self.bytes);
        let value = start..self.bytes.len();
        self.bytes.push(b'\n');
        self.entries.push(Entry { name, value, varies });
    }

    /// Drops values with a NUL, which the system refuses. No value of a request holds one, as the engine rejects it.
    fn drop_invalid(&mut self) {
        if memchr::memchr(0, &self.bytes).is_none() {
            return;
        }
        let bytes = &self.bytes;
        self.entries.retain(|entry| !bytes[entry.value.clone()].contains(&0));
        self.is_exact = false;
    }

    /// Adds the variables of TLS, with the names that Apache's mod_ssl uses.
    fn encryption(&mut self, tls: &TlsInfo) {
        self.add("SSL_PROTOCOL", tls.protocol);
        self.add("SSL_CIPHER", tls.cipher);
        self.add("SSL_CLIENT_VERIFY", tls.verified());
        if let Some(client) = &tls.client {
            self.vary("SSL_CLIENT_S_DN", &client.subject);
            self.vary("SSL_CLIENT_I_DN", &client.issuer);
            self.vary("SSL_CLIENT_M_SERIAL", &client.serial);
        }
    }

    /// Adds a variable, or replaces the one of this name.
    fn replace(&mut self, name: &str, value: &str, varies: bool) {
        let (bytes, before) = (&self.bytes, self.entries.len());
        self.entries.retain(|entry| bytes[entry.name.clone()] != *name.as_bytes());
        self.is_exact &= self.entries.len() == before;
        self.enter(name.as_bytes(), value.as_bytes(), varies);
    }

    fn push(&mut self, bytes: &[u8]) -> Range<usize> {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        start..self.bytes.len()
    }

    /// Adds the request's fields (RFC 3875 §4.1.18).
    fn fields(&mut self, request: &Request<'_>, passed: &Passed<'_>) {
        let first = self.entries.len();
        for (name, value) in request.fields() {
            // With `_`, two fields would become the same variable, and a proxy may check only one of them.
            if !name.iter().all(|&b| b.is_ascii_alphanumeric() || b == b'-') {
                continue;
            }
            let start = self.bytes.len();
            self.bytes.extend_from_slice(b"HTTP_");
            self.bytes.extend_from_slice(name);
            let variable = start..self.bytes.len();
            let name = &mut self.bytes[start + b"HTTP_".len()..];
            name.make_ascii_lowercase();
            let field = Field::of(name, passed);
            if field == Field::Omitted {
                self.bytes.truncate(start);
                continue;
            }
            let is_cookie = name == b"cookie";
            for byte in name {
                *byte = if *byte == b'-' { b'_' } else { byte.to_ascii_uppercase() };
            }
            let earlier = self.entries[first..]
                .iter()
                .position(|other| self.bytes[other.name.clone()] == self.bytes[variable.clone()]);
            match earlier {
                Some(at) => {
                    let separator: &[u8] = if is_cookie { b"; " } else { b", " };
                    let before = &self.bytes[self.entries[first + at].value.clone()];
                    let joined = [before, separator, value].concat();
                    self.entries[first + at].value = self.push(&joined);
                    self.is_exact = false;
                }
                None => {
                    self.bytes.push(b'=');
                    let value = self.push(value);
                    self.bytes.push(b'\n');
                    let varies = field == Field::Varies;
                    self.entries.push(Entry { name: variable, value, varies });
                }
            }
        }
    }
}
