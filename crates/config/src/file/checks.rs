//! Authentication, request rates and throttles.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;

use super::Spanned;
use super::jwt::JwtTable;
use crate::units::{DurationValue, Frequency, Rate};

/// The number of requests that may come in a time.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RateLimitTable {
    /// Number of requests per second, minute, hour or day: `10/s`, `100/m`, `1000/h`, `5000/d`.
    pub requests: Spanned<Frequency>,
    /// Number of requests that are allowed at once; further ones are allowed at the limit's rate. Default: the
    /// number in `requests`.
    pub burst: Option<Spanned<u32>>,
    /// Groups in which requests are counted: by `address` (IPv6: network of /64), `user`, `route` (all together), or
    /// `header:NAME` for the value of a header. Requests without user or without that header count by address. Default:
    /// `address`.
    pub by: Option<Spanned<String>>,
    /// `true` adds `RateLimit` headers with the remaining requests to every response, not only to rejections. This makes
    /// cached responses slower. Default: false.
    pub send_headers: Option<bool>,
    /// `true` counts requests beyond the limit without rejecting them. Default: false.
    pub dry_run: Option<bool>,
    /// Status of requests that are rejected, from 400 to 599. Default: 429.
    pub status: Option<Spanned<u16>>,
    /// `true` counts the requests of all servers with the same `[shared]` store together. Default: false, each server
    /// counts separately.
    pub shared: Option<Spanned<bool>>,
}

/// One limit or several.
#[derive(Debug, Clone, PartialEq)]
pub struct RateLimits(pub Vec<RateLimitTable>);

#[derive(JsonSchema)]
#[schemars(rename = "RateLimits", untagged)]
#[expect(dead_code, reason = "only its schema is used")]
pub(super) enum RateLimitsSchema {
    One(RateLimitTable),
    Many(Vec<RateLimitTable>),
}

/// Concurrent requests and bandwidth of responses.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(
    deny_unknown_fields,
    expecting = "a table such as { bandwidth = \"400KB/s\", max_concurrent = 10 }"
)]
pub struct ThrottleTable {
    /// Rate at which the bodies of all responses of the route are sent together: `400KB/s`. Clients share it
    /// equally. Default: no limit.
    pub bandwidth: Option<Spanned<Rate>>,
    /// Rate at which bodies are sent on one connection. Default: no limit.
    pub per_connection: Option<Spanned<Rate>>,
    /// Minimum share of `bandwidth`: a request whose share would be less is rejected with 503. Default: none.
    pub minimum: Option<Spanned<Rate>>,
    /// Number of requests that run at once; others wait in the queue. Default: no limit.
    pub max_concurrent: Option<Spanned<usize>>,
    /// Number of requests that can wait; further ones are rejected with 503. Default: 100.
    pub queue: Option<Spanned<usize>>,
    /// Time in the queue after which a request runs although `max_concurrent` requests run, if fewer than
    /// `burst_concurrent` do. Default: none.
    pub burst_after: Option<Spanned<DurationValue>>,
    /// Number of requests that run at once if some have waited for `burst_after`.
    pub burst_concurrent: Option<Spanned<usize>>,
    /// Time in the queue after which a request is rejected with 503. Default: `30s`.
    pub queue_timeout: Option<Spanned<DurationValue>>,
    /// Number of requests of one client that run at once; a client's share of the queue is in proportion to its
    /// share of `max_concurrent`. Default: no limit.
    pub max_per_client: Option<Spanned<usize>>,
    /// Assignment of requests to clients: by `address` (IPv6: network of /64) or by `user`. Default: `address`.
    pub client_by: Option<Spanned<ClientBy>>,
    /// `true` counts requests beyond the limits without delaying or rejecting them. Default: false.
    pub dry_run: Option<bool>,
    /// Status of requests that are rejected, from 400 to 599. Default: 503.
    pub status: Option<Spanned<u16>>,
}

/// The assignment of requests to clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ClientBy {
    /// An address, or of IPv6 a network of /64.
    Address,
    /// A user; requests without user count by address.
    User,
}

/// Authentication of a route.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AuthTable {
    /// File of users and password hashes, as `dunlin passwd` and Apache's htpasswd write it: argon2id, bcrypt,
    /// SHA-crypt and Apache's MD5. Changes take effect within a second.
    pub basic: Option<Spanned<PathBuf>>,
    /// `true` accepts what nginx accepts in that file, too: clear text after `{PLAIN}`, `{SHA}`, `{SSHA}`, MD5 and DES of
    /// crypt. Lines that cannot be read are then warnings, and the other users can log in. Default: false; such lines are errors.
    pub weak_hashes: Option<Spanned<bool>>,
    /// Text that the browser shows when it requests the password. Default: `Restricted`; none with `jwt`.
    pub realm: Option<Spanned<String>>,
    /// Number of wrong passwords from one address within a minute, after which its requests get 429. Default: 10.
    pub attempts: Option<Spanned<usize>>,
    /// Endpoint that decides: a path of the same site, `http://host:port/path`, `https://host:port/path` or
    /// `unix:/socket:/path`. It gets a GET request with `forward_fields` of the client and `X-Forwarded-Method`,
    /// `-Uri`, `-Host`, `-For` and `-Proto`; 2xx allows the request, every other response below 500 goes to the
    /// client.
    pub forward: Option<Spanned<String>>,
    /// Header of that response that names the user. A client's header with that name is not passed to scripts. Default:
    /// `Remote-User`.
    pub user_field: Option<Spanned<String>>,
    /// Headers of the client's request that the endpoint gets. Default: `Accept`, `Accept-Language`, `Authorization`,
    /// `Cookie`, `Origin`, `Referer`, `User-Agent` and `X-Requested-With`.
    pub forward_fields: Option<Spanned<Vec<Spanned<String>>>>,
    /// File in PEM form with the authorities that sign the certificate of an https endpoint. Default: the system's.
    pub forward_authority: Option<Spanned<PathBuf>>,
    /// Maximum wait for its response. Default: `5s`.
    pub timeout: Option<Spanned<DurationValue>>,
    /// Headers of its 2xx response to add to the request for scripts and upstreams, such as `["Remote-Groups"]`. Clients
    /// cannot set them on any route of the site. Default: none.
    pub copy_to_request: Option<Spanned<Vec<Spanned<String>>>>,
    /// Headers of its 2xx response to send to the client, in place of others of that name; `Set-Cookie` is added. Default:
    /// none.
    pub copy_to_response: Option<Spanned<Vec<Spanned<String>>>>,
    /// JSON Web Tokens that requests must have (RFC 7519, RFC 6750). Their subject is the user.
    pub jwt: Option<Spanned<JwtTable>>,
}

impl AuthTable {
    /// The field of the endpoint's response that names the user.
    pub fn user_field(&self) -> &str {
        self.user_field.as_ref().map_or("Remote-User", |at| &at.value)
    }
}

/// Authentication of a route, or none.
#[derive(Debug, Clone, PartialEq)]
pub enum Auth {
    /// None.
    Off,
    /// As in the table.
    Table(Box<AuthTable>),
}

#[derive(JsonSchema)]
#[schemars(rename = "Auth", untagged)]
#[expect(dead_code, reason = "only its schema is used")]
pub(super) enum AuthSchema {
    Switch(bool),
    Table(Box<AuthTable>),
}
