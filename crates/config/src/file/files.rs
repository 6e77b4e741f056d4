//! Files: their search, their caches, and their responses.

use std::collections::BTreeMap;

use dunlin_http::semantics::ContentCoding;
use schemars::JsonSchema;
use serde::Deserialize;

use super::Spanned;
use crate::units::{DurationValue, Size};

/// The properties that entity tags are made from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum EtagKind {
    /// Inode, size and time of change.
    Stat,
    /// The content, by SHA-256; it is also sent as Repr-Digest to clients that request it.
    Sha256,
    /// Nothing: there are none.
    Off,
}

/// The format of listings.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ListingFormat {
    /// A page, or JSON for clients that prefer it.
    #[default]
    Auto,
    /// The page of nginx.
    Nginx,
    /// The JSON of nginx.
    NginxJson,
    /// The JSON of nginx as an argument of the function that `callback` in the query names.
    NginxJsonp,
    /// The XML of nginx.
    NginxXml,
}

impl ListingFormat {
    /// Returns the name in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Nginx => "nginx",
            Self::NginxJson => "nginx-json",
            Self::NginxJsonp => "nginx-jsonp",
            Self::NginxXml => "nginx-xml",
        }
    }
}

/// What becomes of a coded response of a script or an upstream that the client does not accept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum UnacceptedCoding {
    /// It is decoded.
    #[default]
    Decode,
    /// The client gets 406 in its place.
    Reject,
    /// It is sent as it is.
    Pass,
}

/// The symlinks that are followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Symlinks {
    /// Those that stay beneath the root.
    Beneath,
    /// All.
    Follow,
    /// None.
    Deny,
}

/// The cache on a route.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RouteCacheTable {
    /// Size up to which a file is held completely, instead of that of the server.
    pub file: Option<Size>,
    /// `true` caches responses of the route's `proxy` or `script` by the rules of RFC 9111. Default: false.
    pub responses: Option<bool>,
    /// Size up to which a response is cached. Default: `1MiB`.
    pub response_size: Option<Size>,
    /// `true` caches responses with `Last-Modified` and without an explicit lifetime for a tenth of the time since
    /// they were modified, at most a day. Default: true.
    pub heuristic: Option<bool>,
    /// Lifetimes of responses without one (`Cache-Control` or `Expires`), by status, in place of heuristic ones: `{ "200" =
    /// "7d", "404" = "1m", any = "10s" }`. `any` is every other status.
    pub lifetime: Option<Spanned<BTreeMap<Spanned<String>, DurationValue>>>,
    /// `true` caches responses with `Set-Cookie`, for all clients. Default: false.
    pub set_cookie: Option<bool>,
}

/// The cache on a route, in either form.
#[derive(Debug, Clone)]
pub enum RouteCache {
    /// On or off.
    Switch(bool),
    /// On, with settings of its own.
    Table(RouteCacheTable),
}

/// The dictionary of pages on a route.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RouteDictionaryTable {
    /// Path of the pages for which browsers use the dictionary; `*` is any text: `/blog/*`.
    pub r#match: Spanned<String>,
    /// Headers: requests and responses with one of them are neither sampled nor compressed with the dictionary. Requests
    /// with `Cookie` or `Authorization` and responses with `Set-Cookie` are never sampled. Default: none.
    pub unless: Option<Vec<Spanned<String>>>,
    /// Time after which the dictionary may be replaced by a better one. Default: `1h`.
    pub rotate: Option<Spanned<DurationValue>>,
}

/// The dictionaries of a route, in either form.
#[derive(Debug, Clone)]
pub enum RouteDictionary {
    /// Of files: on or off.
    Switch(bool),
    /// Of files, and of the pages of an application.
    Table(RouteDictionaryTable),
}

/// The layout of records.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RecordsTable {
    /// `variable` or `vfc`.
    pub format: RecordFormatName,
    /// Size of the control header of a `vfc` record, in bytes. Default: 2.
    pub control: Option<Spanned<u16>>,
    /// `true` writes the converted form beside the source, as `NAME.stmlf`. Default: false.
    pub write: Option<bool>,
}

/// The layout of records, in either form.
#[derive(Debug, Clone)]
pub struct RecordRules(pub RecordsTable);

/// A record format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "RecordFormat")]
pub enum RecordFormatName {
    /// Each record has a length before it.
    Variable,
    /// Each record also has a control header.
    Vfc,
}

/// Codings: all, none, or those in a list.
#[derive(Debug, Clone)]
pub struct Codings(pub Vec<ContentCoding>);

#[derive(JsonSchema)]
#[schemars(rename = "RouteCache", untagged)]
#[expect(dead_code, reason = "only its schema is used")]
pub(super) enum RouteCacheSchema {
    Switch(bool),
    Table(RouteCacheTable),
}

#[derive(JsonSchema)]
#[schemars(rename = "RouteDictionary", untagged)]
#[expect(dead_code, reason = "only its schema is used")]
pub(super) enum RouteDictionarySchema {
    Switch(bool),
    Table(RouteDictionaryTable),
}

#[derive(JsonSchema)]
#[schemars(rename = "Records", untagged)]
#[expect(dead_code, reason = "only its schema is used")]
pub(super) enum RecordsSchema {
    Format(RecordFormatName),
    Table(RecordsTable),
}

#[derive(JsonSchema)]
#[schemars(rename = "Codings", untagged)]
#[expect(dead_code, reason = "only its schema is used")]
pub(super) enum CodingsSchema {
    Switch(bool),
    List(Vec<CodingName>),
}

/// A content coding.
#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum CodingName {
    Zstd,
    Br,
    Gzip,
}

impl From<CodingName> for ContentCoding {
    fn from(name: CodingName) -> Self {
        match name {
            CodingName::Zstd => Self::Zstd,
            CodingName::Br => Self::Brotli,
            CodingName::Gzip => Self::Gzip,
        }
    }
}
