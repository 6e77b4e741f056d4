//! Authentication, request rates and throttles.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;

use super::Spanned;
use crate::units::{DurationValue, Frequency, Rate};

/// How many requests may come in a time.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RateLimitTable {
    /// Number of requests in a second, minute, hour or day: `10/s`, `100/m`, `1000/h`, `5000/d`.
    pub requests: Spanned<Frequency>,
    /// Requests that are allowed at once; further ones are allowed at the limit's rate. The number in
    /// `requests` when absent.
    pub burst: Option<Spanned<u32>>,
    /// Which requests are counted together: those of an `address` (of IPv6 a network of /64), `user`, `route` (all
    /// of them), or `header:NAME` for those with the same value of a field. Requests without user or without that
    /// field count by address. `address` when absent.
    pub by: Option<Spanned<String>>,
    /// Whether every response has `RateLimit` fields with the remaining requests, and not only rejections. This
    /// makes responses from the cache slower. False when absent.
    pub send_headers: Option<bool>,
    /// Whether requests beyond the limit are only counted, not rejected. False when absent.
    pub dry_run: Option<bool>,
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
    /// equally. No limit when absent.
    pub bandwidth: Option<Spanned<Rate>>,
    /// Rate at which bodies are sent on one connection. No limit when absent.
    pub per_connection: Option<Spanned<Rate>>,
    /// A request whose share of `bandwidth` would be less is rejected with 503. No request is when absent.
    pub minimum: Option<Spanned<Rate>>,
    /// Requests that run at once; others wait in the queue. No limit when absent.
    pub max_concurrent: Option<Spanned<usize>>,
    /// Requests that may wait; further ones are rejected with 503. 100 when absent.
    pub queue: Option<Spanned<usize>>,
    /// Time in the queue after which a request runs although `max_concurrent` requests run, as long as fewer than
    /// `burst_concurrent` do. Without it, requests wait until one ends.
    pub burst_after: Option<Spanned<DurationValue>>,
    /// Requests that run at once when some have waited for `burst_after`.
    pub burst_concurrent: Option<Spanned<usize>>,
    /// Time in the queue after which a request is rejected with 503. `30s` when absent.
    pub queue_timeout: Option<Spanned<DurationValue>>,
    /// Requests of one client that run at once; a client's part of the queue is in proportion to its part of
    /// `max_concurrent`. No limit when absent.
    pub max_per_client: Option<Spanned<usize>>,
    /// How requests are assigned to clients: by `address` (IPv6: network of /64) or by `user`. `address` when absent.
    pub client_by: Option<Spanned<ShareBy>>,
    /// Whether requests beyond the limits are only counted, neither delayed nor rejected. False when absent.
    pub dry_run: Option<bool>,
}

/// How requests are assigned to clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ShareBy {
    /// An address, or of IPv6 a network of /64.
    Address,
    /// A user; requests without user count by address.
    User,
}

/// Authentication of a route.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AuthTable {
    /// File of users and hashed passwords as `dunlin passwd` and Apache's htpasswd write it: argon2id,
    /// bcrypt, SHA-crypt and Apache's MD5. Changes hold within a second.
    pub basic: Option<Spanned<PathBuf>>,
    /// Text that the browser shows when it requests the password. `Restricted` when absent.
    pub realm: Option<Spanned<String>>,
    /// Wrong passwords of one address within a minute, after which its requests get 429. 10 when
    /// absent.
    pub attempts: Option<Spanned<usize>>,
    /// Endpoint that decides instead: a path of the same site, `http://host:port/path`, `https://host:port/path` or
    /// `unix:/socket:/path`. It gets a GET request with `forward_fields` of the client and
    /// `X-Forwarded-Method`, `-Uri`, `-Host`, `-For` and `-Proto`; 2xx lets the request pass, every other
    /// response below 500 goes to the client.
    pub forward: Option<Spanned<String>>,
    /// Field of that response that names the user. Scripts do not get a field of that name from clients.
    /// `Remote-User` when absent.
    pub user_field: Option<Spanned<String>>,
    /// Fields of the client's request that the endpoint gets, instead of `Accept`, `Accept-Language`,
    /// `Authorization`, `Cookie`, `Origin`, `Referer`, `User-Agent` and `X-Requested-With`.
    pub forward_fields: Option<Spanned<Vec<Spanned<String>>>>,
    /// File in PEM form with the authorities by which the certificate of an https endpoint is judged; the system's when
    /// absent.
    pub forward_authority: Option<Spanned<PathBuf>>,
    /// Maximum wait for its response. `5s` when absent.
    pub timeout: Option<Spanned<DurationValue>>,
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
    /// As the table says.
    Table(Box<AuthTable>),
}

#[derive(JsonSchema)]
#[schemars(rename = "Auth", untagged)]
#[expect(dead_code, reason = "only its schema is used")]
pub(super) enum AuthSchema {
    Switch(bool),
    Table(Box<AuthTable>),
}
