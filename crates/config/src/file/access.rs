//! Access beyond authentication: alternatives, other origins, and signed links.

use schemars::JsonSchema;
use serde::Deserialize;

use super::checks::{Auth, AuthSchema};
use super::{OneOrMany, OneOrManySchema, Secret, Spanned};
use crate::units::DurationValue;

/// Conditions of access. All of them must hold.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(
    deny_unknown_fields,
    expecting = "a table such as { allow = [\"192.0.2.0/24\"] } or { auth = { basic = \"USERS\" } }"
)]
pub struct AccessTable {
    /// Networks, as in the key `allow` of a route.
    pub allow: Option<Spanned<Vec<Spanned<String>>>>,
    /// Networks, as in the key `deny` of a route.
    pub deny: Option<Spanned<Vec<Spanned<String>>>>,
    /// Authentication, as in the key `auth` of a route.
    #[schemars(with = "Option<AuthSchema>")]
    pub auth: Option<Spanned<Auth>>,
}

/// Access of scripts of other origins.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CorsTable {
    /// Origins whose scripts may read responses: `"https://app.example.com"`, `"https://*.example.com"`,
    /// `"http://localhost:*"`, or a list. Default: `"*"`, every origin.
    #[schemars(with = "Option<OneOrManySchema>")]
    pub origins: Option<Spanned<OneOrMany<String>>>,
    /// Methods that scripts may use. Default: the route's `methods`, or else `GET`, `HEAD` and `POST`.
    pub methods: Option<Spanned<Vec<Spanned<String>>>>,
    /// Request headers (fields) that scripts may set, besides those that are always allowed; `["*"]` for all but
    /// `Authorization`. Default: none.
    pub headers: Option<Spanned<Vec<Spanned<String>>>>,
    /// Response headers (fields) that scripts may read, besides those that are always readable; `["*"]` for all. Default: none.
    pub expose: Option<Spanned<Vec<Spanned<String>>>>,
    /// `true` permits scripts to send cookies and credentials, from listed `origins`. Default: false.
    pub credentials: Option<Spanned<bool>>,
    /// Time for which browsers may keep the response to a preflight. Default: that of the browser, 5 seconds.
    pub max_age: Option<Spanned<DurationValue>>,
}

/// Access of scripts of other origins, in either form.
#[derive(Debug, Clone, PartialEq)]
pub enum Cors {
    /// Allowed for every origin, or not at all.
    Switch(bool),
    /// As in the table.
    Table(Box<CorsTable>),
}

#[derive(JsonSchema)]
#[schemars(rename = "Cors", untagged)]
#[expect(dead_code, reason = "only its schema is used")]
pub(super) enum CorsSchema {
    Switch(bool),
    Table(Box<CorsTable>),
}

/// Links that are valid with a signature only.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(
    deny_unknown_fields,
    expecting = "a table such as { secret = \"{file./etc/dunlin/links.key}\", expires = \"expires\" }"
)]
pub struct SignedTable {
    /// The secret with which links are signed: `"{file.PATH}"` keeps it out of this file.
    pub secret: Spanned<Secret>,
    /// `hmac-sha256`, or `md5` for the links of nginx's `secure_link_md5`. Default: `hmac-sha256`.
    pub algorithm: Option<Spanned<LinkAlgorithm>>,
    /// Query parameter with the signature, in base64url without padding. Default: `signature`.
    pub signature: Option<Spanned<String>>,
    /// Query parameter with the time until which the link is valid, in seconds since 1970. Expired links get 410. Default:
    /// links do not expire.
    pub expires: Option<Spanned<String>>,
    /// The signed text, with `{path}` (decoded, without the query), `{expires}`, `{client}` (its address), `{host}`, and
    /// for `md5` `{secret}`. Default: `"{expires} {path}"` with `expires`, or else `"{path}"`.
    pub text: Option<Spanned<String>>,
}

impl SignedTable {
    /// The parameter of the query that has the signature.
    pub fn signature_name(&self) -> &str {
        self.signature.as_ref().map_or("signature", |name| &name.value)
    }
}

/// How links are signed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
pub enum LinkAlgorithm {
    /// HMAC with SHA-256 (RFC 2104).
    #[default]
    #[serde(rename = "hmac-sha256")]
    HmacSha256,
    /// The MD5 hash of a text with the secret.
    #[serde(rename = "md5")]
    Md5,
}
