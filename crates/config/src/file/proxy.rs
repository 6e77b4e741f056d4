//! The table `proxy` of a route.

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;

use super::{OneOrMany, OneOrManySchema, Spanned};
use crate::units::{DurationValue, Size};

/// Forwards requests to other HTTP servers, the upstreams.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct ProxyTable {
    /// The upstreams, one or a list: `http://HOST:PORT`, `https://HOST:PORT`, `h2c://HOST:PORT` and `h2://HOST:PORT` for
    /// HTTP/2 without and with TLS, `srv+http://NAME` (or `srv+https`, `srv+h2c`, `srv+h2`) for the servers in SRV records,
    /// `dns+http://NAME:PORT` for a server at each address of a name, or `unix:PATH` for a server on a Unix socket; in a
    /// list also tables `{ url = "...", weight = 2 }`. Default weight: 1. A path in the URLs, `http://HOST:PORT/base/`,
    /// replaces the text before the `*` of the route's pattern, or `strip`.
    #[schemars(with = "ProxyTargetsSchema")]
    pub to: Spanned<ProxyTargets>,
    /// Policy by which the upstream of a request is chosen: `least-loaded` (of two at random, the one with the shorter
    /// response time and fewer requests in progress), `least-connections`, `round-robin`, `hash:FIELD` (requests with the
    /// same value of that header have the same upstream) or `hash:address` (of the client). Default: `least-loaded`.
    pub balance: Option<Spanned<String>>,
    /// Keeps the requests of a client at one upstream by a cookie: its name, or a table such as `{ cookie = "upstream",
    /// same_site = "none" }`. Default: none.
    #[schemars(with = "Option<StickySchema>")]
    pub sticky: Option<Spanned<StickyTable>>,
    /// Time in which an upstream that is available again gets gradually more requests, up to its share. Not with `hash`,
    /// nor for requests with a `sticky` cookie. Default: `0s`.
    pub slow_start: Option<DurationValue>,
    /// When a request is sent to another upstream after a failure; `false` for never.
    #[schemars(with = "Option<RetrySchema>")]
    pub retry: Option<Retry>,
    /// When an upstream whose requests fail gets no further requests.
    pub eject: Option<EjectTable>,
    /// Checks the health of upstreams regularly: a table such as `{ path = "/health" }`. Default: no check.
    pub health: Option<HealthTable>,
    /// Prefix that is removed from the path of requests, such as `/app`. Upstreams get it as `X-Forwarded-Prefix`.
    /// Default: none.
    pub strip: Option<Spanned<String>>,
    /// `true` puts the prefix that was removed or replaced back into `Location`, `Content-Location` and the `Path` of cookies,
    /// where an upstream names its own paths, and removes its own host from `Location`. Default: true.
    pub rewrite_location: Option<bool>,
    /// Replacements in `Location`, `Content-Location` and `Refresh` of upstreams, in place of what `rewrite_location` does. The
    /// first one that matches holds: `[{ from = "http://backend:3000/", to = "/app/" }]`. `from` is the beginning of the
    /// value, or a regular expression after `~`, whose groups `to` can have: `{ from = "~^http://[^/]+/(.*)$", to = "/{1}" }`. `to`
    /// can have the placeholders of maps, too. An empty list replaces nothing. Default: none.
    pub replace_location: Option<Spanned<Vec<ReplacementTable>>>,
    /// Replacements of the attribute `Domain` of cookies of upstreams, of which the first one that matches holds. `from` is the
    /// domain, without regard to case and to a dot before it, or a regular expression after `~`. Default: none.
    pub replace_cookie_domain: Option<Spanned<Vec<ReplacementTable>>>,
    /// Replacements in the attribute `Path` of cookies, as those of `replace_location`. Default: none; see `rewrite_location`.
    pub replace_cookie_path: Option<Spanned<Vec<ReplacementTable>>>,
    /// Flags of cookies of upstreams, of which the first entry with the name of a cookie holds: `[{ cookie = "*", secure = true,
    /// same_site = "lax" }]`. Default: none; cookies keep their flags.
    pub cookie_flags: Option<Spanned<Vec<CookieFlagsTable>>>,
    /// Path that upstreams get instead of the request's, with the placeholders of `rewrite`: `"/v2/{rest}"`. Values from
    /// the request are encoded for their place. Without a `?` the query of the request is kept. Default: none.
    pub path: Option<Spanned<String>>,
    /// Host that upstreams get: `preserve` for the client's, `upstream` for the host and port of the upstream's URL, or another
    /// one, such as `backend.internal`, with the placeholders of `set_request_fields`: `{host}` is that of the client without its
    /// port. Default: `preserve`.
    pub host: Option<Spanned<String>>,
    /// Request headers to set, after those of the client and of the server: `{ "X-Source" = "edge" }`. A value can contain
    /// the placeholders of maps, such as `{client}` (its address), `{header.NAME}` and `{map.NAME}`, and `{port}`, `{user}`,
    /// `{early}` (`1` for early data of TLS) and `{request_id}`. `{path}` and `{target}` are encoded. An empty value removes the header.
    pub set_request_fields: Option<BTreeMap<Spanned<String>, Spanned<String>>>,
    /// Method of requests to upstreams, in place of that of the client, such as `POST`. Default: that of the client.
    pub method: Option<Spanned<String>>,
    /// Body that upstreams get in place of that of the client; an empty text for none. Default: that of the client.
    pub body: Option<String>,
    /// `false` passes on no headers of the client: upstreams get those of `set_request_fields` and of the server. Default: true.
    pub pass_fields: Option<bool>,
    /// `true` passes on the credentials that `auth = { basic = "…" }` has checked; all others always are. Default: false.
    pub authorization: Option<bool>,
    /// `true` passes on the `Server` header of upstreams in place of that of the server. Default: false.
    pub pass_server_field: Option<bool>,
    /// Collects bodies in memory, so that slow clients do not occupy upstreams: a table such as `{ response = "1MiB" }`.
    /// Default: request bodies with a `Content-Length` of up to `64KiB`, and no responses.
    pub buffer: Option<BufferTable>,
    /// Directories beneath which an upstream can name a file by `X-Sendfile`, which is sent instead of its body: one or a
    /// list. Any other file gives 502. Default: none.
    #[schemars(with = "Option<OneOrManySchema>")]
    pub sendfile_root: Option<Spanned<OneOrMany<String>>>,
    /// `true` replaces error responses of upstreams with `error_pages`, too, and not only those of the server. Default:
    /// false.
    pub intercept_errors: Option<bool>,
    /// Maximum number of connections to each upstream that are in use, in all workers together. Further requests
    /// wait. Default: 1024.
    pub connections: Option<Spanned<usize>>,
    /// Maximum number of connections to each upstream that have switched to another protocol, such as WebSocket, in all
    /// workers together; further ones get 503. Default: 16384.
    pub tunnels: Option<usize>,
    /// Maximum number of requests that wait for a connection; further ones get 503. Default: 1024.
    pub queue: Option<usize>,
    /// Maximum wait for a connection while all are in use; 503 after it. Default: `30s`.
    pub queue_timeout: Option<Spanned<DurationValue>>,
    /// Maximum number of idle connections that each worker keeps open to each upstream; 0 for a new connection for
    /// each request. A connection of HTTP/2 is shared by the requests of its time, and closes with the last of them if
    /// the number is 0. Default: 32.
    pub idle_connections: Option<usize>,
    /// Time after which an idle connection is closed. Default: `30s`.
    pub keep_alive: Option<Spanned<DurationValue>>,
    /// Maximum time for connecting to an upstream, with its TLS handshake, and over HTTP/2 for a stream that it permits; 504
    /// after it. Default: `5s`.
    pub connect_timeout: Option<Spanned<DurationValue>>,
    /// Maximum time from the end of the request to the head of the response; 504 after it. Interim responses do not extend
    /// it. 0 for no limit. Default: `60s`.
    pub first_byte_timeout: Option<DurationValue>,
    /// Maximum time in which an upstream neither reads nor writes while a body is sent. The response is aborted after
    /// it. 0 for no limit. Default: `60s`.
    pub idle_timeout: Option<DurationValue>,
    /// Maximum time without a byte in either direction after a connection has switched to another protocol, such as
    /// WebSocket. 0 for no limit. Default: `1h`.
    pub tunnel_timeout: Option<DurationValue>,
    /// File with the CA certificates that verify upstreams with TLS. Default: those that the system trusts.
    pub authority: Option<Spanned<PathBuf>>,
    /// `false` accepts every certificate of upstreams with TLS: an attacker between them and this server can read and
    /// change everything. Default: true.
    pub verify: Option<Spanned<bool>>,
    /// Name for the handshake (SNI) and the certificate of upstreams with TLS. Default: the host of each URL.
    pub server_name: Option<Spanned<String>>,
    /// Certificate that this server presents to upstreams with TLS: `{ certificate = "client.pem", key = "client.key" }`. A
    /// reload reads the files again. Default: none.
    pub client_certificate: Option<Spanned<ClientCertificateTable>>,
    /// Begins each connection with a header of the PROXY protocol, `v1` or `v2`, that has the address of the client. Each
    /// request then has a separate connection. Default: none.
    pub proxy_protocol: Option<ProxyProtocol>,
    /// Sends the verified certificate of the client to upstreams (RFC 9440): `leaf` in the header `Client-Cert`, `chain`
    /// with the certificates of its authorities, as the client sent them, in `Client-Cert-Chain`. Default: none.
    pub forward_client_certificate: Option<Spanned<ForwardCertificate>>,
}

/// A text that is replaced in a response of an upstream.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReplacementTable {
    /// Text with which the value begins, or a regular expression after `~`.
    pub from: Spanned<String>,
    /// Text that takes its place, or that of the whole value with a regular expression.
    pub to: Spanned<String>,
}

/// Flags of the cookies of an upstream.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CookieFlagsTable {
    /// Name of the cookie, a regular expression after `~`, or `*` for all.
    pub cookie: Spanned<String>,
    /// `true` adds `Secure`, `false` removes it. Default: as the upstream has it.
    pub secure: Option<bool>,
    /// `true` adds `HttpOnly`, `false` removes it. Default: as the upstream has it.
    pub http_only: Option<bool>,
    /// `strict`, `lax` or `none` sets `SameSite`, `off` removes it. Default: as the upstream has it.
    pub same_site: Option<SameSiteFlag>,
}

/// The attribute `SameSite` of the cookies of an upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SameSiteFlag {
    /// `SameSite=Strict`
    Strict,
    /// `SameSite=Lax`
    Lax,
    /// `SameSite=None`
    None,
    /// There is no such attribute.
    Off,
}

/// A version of the PROXY protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ProxyProtocol {
    /// A line of text.
    V1,
    /// A binary header.
    V2,
}

/// The part of a client's certificate that upstreams get.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ForwardCertificate {
    /// The certificate.
    Leaf,
    /// The certificate and those of its authorities.
    Chain,
}

/// A certificate of this server for upstreams.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(
    deny_unknown_fields,
    expecting = "a table such as { certificate = \"client.pem\", key = \"client.key\" }"
)]
pub struct ClientCertificateTable {
    /// File in PEM form with the certificate and the chain to its authority.
    pub certificate: Spanned<PathBuf>,
    /// File in PEM form with its key.
    pub key: Spanned<PathBuf>,
}

/// The upstreams of a proxy.
#[derive(Debug, Clone)]
pub struct ProxyTargets(pub Vec<ProxyTarget>);

/// An upstream.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct ProxyTarget {
    /// Address of the upstream.
    pub url: Spanned<String>,
    /// Share of the requests, relative to those of the others: 1 to 1000. Default: 1.
    pub weight: Option<Spanned<u32>>,
    /// `true` uses it only while none of the others is available. Default: false.
    #[serde(default)]
    pub backup: bool,
}

impl ProxyTarget {
    /// The upstream at `url`.
    pub(crate) fn at(url: String) -> Self {
        Self { url: Spanned::detached(url), weight: None, backup: false }
    }
}

#[derive(JsonSchema)]
#[schemars(rename = "ProxyTargets", untagged)]
#[expect(dead_code, reason = "only its schema is used")]
pub(super) enum ProxyTargetsSchema {
    One(String),
    Many(Vec<ProxyTargetSchema>),
}

#[derive(JsonSchema)]
#[schemars(rename = "ProxyTargetOrUrl", untagged)]
#[expect(dead_code, reason = "only its schema is used")]
pub(super) enum ProxyTargetSchema {
    Url(String),
    Table(ProxyTarget),
}

/// The cookie that names a client's upstream. It has `HttpOnly` and `Path=/`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct StickyTable {
    /// Name of the cookie.
    pub cookie: Spanned<String>,
    /// `SameSite`: `lax`, `strict`, or `none` for pages of other sites that embed this one, which needs HTTPS. Default: `lax`.
    pub same_site: Option<SameSite>,
    /// Time for which browsers keep it. Default: until they are closed.
    pub max_age: Option<Spanned<DurationValue>>,
    /// `true` adds `Secure`. Default: for clients with TLS.
    pub secure: Option<bool>,
    /// Secret of at least 16 bytes for the hash of the upstream's address, as from `openssl rand -hex 16`. Without it,
    /// clients can verify a guessed address. Servers with the same clients need the same secret. Default: none.
    pub secret: Option<Spanned<String>>,
}

/// Requests from other sites that have a cookie.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SameSite {
    /// Those that show another page.
    Lax,
    /// None.
    Strict,
    /// All.
    None,
}

impl StickyTable {
    /// The cookie with this name.
    pub(crate) fn named(cookie: String) -> Self {
        let cookie = Spanned::detached(cookie);
        Self { cookie, same_site: None, max_age: None, secure: None, secret: None }
    }
}

#[derive(JsonSchema)]
#[schemars(rename = "Sticky", untagged)]
#[expect(dead_code, reason = "only its schema is used")]
pub(super) enum StickySchema {
    Cookie(String),
    Table(StickyTable),
}

/// The conditions under which requests are sent again.
#[derive(Debug, Clone)]
pub enum Retry {
    /// Never.
    Off,
    /// As the table has it.
    Table(RetryTable),
}

/// When a request is sent to another upstream: if nothing of it was sent, or if its method is idempotent, its body is in memory, and
/// the response has not begun.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RetryTable {
    /// Maximum number of further attempts: 1 to 10. Default: 2.
    pub attempts: Option<Spanned<u32>>,
    /// Time after which an attempt without a response is abandoned and the request sent to another upstream. Default:
    /// `first_byte_timeout`, after which there is no other attempt.
    pub timeout: Option<Spanned<DurationValue>>,
    /// Maximum share of further attempts among all requests, in percent: 1 to 100. Default: 20.
    pub budget: Option<Spanned<u32>>,
    /// Statuses of responses after which another upstream gets the request, such as `[502, 503]`, if its method is idempotent. The
    /// last attempt has the response of its upstream, whatever the status is. Default: none.
    pub statuses: Option<Vec<Spanned<u16>>>,
}

#[derive(JsonSchema)]
#[schemars(rename = "Retry", untagged)]
#[expect(dead_code, reason = "only its schema is used")]
pub(super) enum RetrySchema {
    Off(bool),
    Table(RetryTable),
}

/// When an upstream whose requests fail gets no further requests for a while. Failures are attempts without a response and
/// responses with status 502, 503 or 504.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a table such as { failures = 3, time = \"10s\" }")]
pub struct EjectTable {
    /// Number of failures in a row after which an upstream is ejected; 0 for never. Default: 3.
    pub failures: Option<u32>,
    /// Time for which it is ejected, longer each time until a request succeeds, up to ten times. Default: `10s`.
    pub time: Option<Spanned<DurationValue>>,
    /// Maximum share of upstreams that are ejected at a time, in percent. Default: 50.
    pub share: Option<Spanned<u32>>,
}

/// The bodies that are collected in memory.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a table such as { response = \"1MiB\" }")]
pub struct BufferTable {
    /// Size up to which a request body, chunked or not, is received before the request takes an upstream. Larger ones are
    /// streamed. Default: `64KiB`, and chunked bodies are streamed.
    pub request: Option<Size>,
    /// Maximum part of a response body that is read from the upstream ahead of the client. Default: 0.
    pub response: Option<Size>,
    /// Maximum memory of all collected bodies together; further ones are streamed. Default: `256MiB`.
    pub total: Option<Size>,
}

/// A health check.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a table such as { path = \"/health\" }")]
pub struct HealthTable {
    /// Path that is requested, with its query.
    pub path: Spanned<String>,
    /// Time between two checks. Default: `10s`.
    pub interval: Option<Spanned<DurationValue>>,
    /// Maximum time of each part of a check: connecting, and waiting for the response. Default: `5s`.
    pub timeout: Option<Spanned<DurationValue>>,
    /// Status of a healthy upstream. Default: every status from 200 to 399.
    pub status: Option<Spanned<u16>>,
    /// Number of failed checks in a row after which an upstream gets no requests. Default: 2.
    pub failures: Option<Spanned<u32>>,
    /// Number of successful checks in a row after which it gets requests again. Default: 1.
    pub successes: Option<Spanned<u32>>,
}

#[derive(JsonSchema)]
#[schemars(rename = "Proxy", untagged)]
#[expect(dead_code, reason = "only its schema is used")]
pub(super) enum ProxySchema {
    To(String),
    Many(Vec<ProxyTargetSchema>),
    Table(Box<ProxyTable>),
}

impl ProxyTable {
    /// The table with this `to` alone.
    pub(crate) fn to(upstreams: ProxyTargets) -> Self {
        Self {
            to: Spanned::detached(upstreams),
            balance: None,
            sticky: None,
            slow_start: None,
            retry: None,
            eject: None,
            health: None,
            strip: None,
            path: None,
            rewrite_location: None,
            replace_location: None,
            method: None,
            body: None,
            pass_fields: None,
            replace_cookie_domain: None,
            replace_cookie_path: None,
            cookie_flags: None,
            host: None,
            set_request_fields: None,
            authorization: None,
            pass_server_field: None,
            buffer: None,
            sendfile_root: None,
            intercept_errors: None,
            connections: None,
            tunnels: None,
            queue: None,
            queue_timeout: None,
            idle_connections: None,
            keep_alive: None,
            connect_timeout: None,
            first_byte_timeout: None,
            idle_timeout: None,
            tunnel_timeout: None,
            authority: None,
            verify: None,
            server_name: None,
            client_certificate: None,
            proxy_protocol: None,
            forward_client_certificate: None,
        }
    }
}
