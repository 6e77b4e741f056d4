//! The table `proxy` of a route.

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;

use super::{OneOrMany, Spanned};
use crate::units::DurationValue;

/// Forwards requests to other HTTP servers, the upstreams.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct ProxyTable {
    /// The upstreams, one or a list: `http://HOST:PORT`, `https://HOST:PORT`, or `unix:PATH` for a server at a Unix
    /// socket.
    #[schemars(with = "super::OneOrManySchema")]
    pub to: Spanned<OneOrMany<String>>,
    /// Prefix that is removed from the path of requests, such as `/app`. Upstreams get it as `X-Forwarded-Prefix`.
    /// Default: none.
    pub strip: Option<Spanned<String>>,
    /// Host that upstreams get: `preserve` for the client's, `upstream` for the host and port of the upstream's URL.
    /// Default: `preserve`.
    pub host: Option<ProxyHost>,
    /// Request fields to set, after those of the client and of the server: `{ "X-Source" = "edge" }`. An empty value
    /// removes the field.
    pub set_request_fields: Option<BTreeMap<Spanned<String>, Spanned<String>>>,
    /// Maximum number of connections to each upstream that are in use, in all workers together. Further requests
    /// wait. Default: 1024.
    pub connections: Option<Spanned<usize>>,
    /// Maximum number of requests that wait for a connection; further ones get 503. Default: 1024.
    pub queue: Option<usize>,
    /// Maximum wait for a connection while all are in use; 503 after it. Default: `30s`.
    pub queue_timeout: Option<Spanned<DurationValue>>,
    /// Maximum number of idle connections that each worker keeps open to each upstream; 0 for a new connection for
    /// each request. Default: 32.
    pub idle_connections: Option<usize>,
    /// Time after which an idle connection is closed. Default: `30s`.
    pub keep_alive: Option<Spanned<DurationValue>>,
    /// Maximum time for connecting to an upstream, with its TLS handshake; 504 after it. Default: `5s`.
    pub connect_timeout: Option<Spanned<DurationValue>>,
    /// Maximum time from the end of the request to the head of the response; 504 after it. 0 for no limit. Default:
    /// `60s`.
    pub first_byte_timeout: Option<DurationValue>,
    /// Maximum time in which an upstream neither reads nor writes while a body is sent. The response is aborted after
    /// it. 0 for no limit. Default: `60s`.
    pub idle_timeout: Option<DurationValue>,
    /// File with the certificates of the authorities that upstreams with TLS must have their certificates from.
    /// Default: the authorities that the system trusts.
    pub authority: Option<Spanned<PathBuf>>,
}

/// The host that upstreams get.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ProxyHost {
    /// That of the client's request.
    Preserve,
    /// That of the upstream's URL.
    Upstream,
}

#[derive(JsonSchema)]
#[schemars(rename = "Proxy", untagged)]
#[expect(dead_code, reason = "only its schema is used")]
pub(super) enum ProxySchema {
    To(String),
    Many(Vec<String>),
    Table(Box<ProxyTable>),
}

impl ProxyTable {
    /// The table with this `to` alone.
    pub(crate) fn to(upstreams: Vec<Spanned<String>>) -> Self {
        Self {
            to: Spanned::detached(OneOrMany(upstreams)),
            strip: None,
            host: None,
            set_request_fields: None,
            connections: None,
            queue: None,
            queue_timeout: None,
            idle_connections: None,
            keep_alive: None,
            connect_timeout: None,
            first_byte_timeout: None,
            idle_timeout: None,
            authority: None,
        }
    }
}
