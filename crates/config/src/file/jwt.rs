//! JSON Web Tokens.

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;

use super::{OneOrMany, OneOrManySchema, Spanned};
use crate::units::DurationValue;

/// Tokens that requests must have.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(
    deny_unknown_fields,
    expecting = "a table such as { jwks = \"https://id.example.com/keys\", issuer = \"https://id.example.com\" }"
)]
pub struct JwtTable {
    /// File with the keys that sign tokens: a public key in PEM form, or a JSON Web Key Set (RFC 7517). Changes take effect
    /// within a second.
    pub key_file: Option<Spanned<PathBuf>>,
    /// URL of a JSON Web Key Set, which is fetched at the first request, every ten minutes, and for a token with an unknown
    /// key at most once a minute. If that fails, the previous keys stay in use.
    pub jwks: Option<Spanned<String>>,
    /// File in PEM form with the authorities that sign the certificate of `jwks`. Default: the system's.
    pub authority: Option<Spanned<PathBuf>>,
    /// Maximum wait for the response of `jwks`. Default: `5s`.
    pub timeout: Option<Spanned<DurationValue>>,
    /// Issuer (`iss`) of accepted tokens, or a list. Default: any.
    #[schemars(with = "Option<OneOrManySchema>")]
    pub issuer: Option<Spanned<OneOrMany<String>>>,
    /// Audience (`aud`) of accepted tokens, or a list. Default: any.
    #[schemars(with = "Option<OneOrManySchema>")]
    pub audience: Option<Spanned<OneOrMany<String>>>,
    /// Signature algorithms. A key is used only with those of its type. Default: all but `HS256`, `HS384` and `HS512`,
    /// which need a `key_file` with a symmetric key.
    pub algorithms: Option<Spanned<Vec<JwtAlgorithm>>>,
    /// Time by which clocks may differ, for `exp` and `nbf`. Default: `30s`.
    pub leeway: Option<Spanned<DurationValue>>,
    /// Claims that tokens must have. Default: `["exp"]`.
    pub required: Option<Spanned<Vec<Spanned<String>>>>,
    /// Cookie with the token, if the request has none in `Authorization: Bearer`. Default: none.
    pub cookie: Option<Spanned<String>>,
    /// Query parameter with the token, if it is nowhere else. Default: none.
    pub query: Option<Spanned<String>>,
    /// Request headers (fields) for scripts and upstreams, each with the claim whose value it gets: `{ X-Role = "role", X-Groups =
    /// "realm.groups" }`. Clients cannot set them on any route of the site.
    pub claims: Option<Spanned<BTreeMap<Spanned<String>, Spanned<String>>>>,
}

/// An algorithm of signatures (RFC 7518 §3, RFC 8037).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize, JsonSchema)]
#[expect(missing_docs, reason = "the names are those of the RFC")]
pub enum JwtAlgorithm {
    RS256,
    RS384,
    RS512,
    PS256,
    PS384,
    PS512,
    ES256,
    ES384,
    ES512,
    EdDSA,
    HS256,
    HS384,
    HS512,
}
