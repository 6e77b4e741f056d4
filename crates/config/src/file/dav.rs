//! WebDAV.

use schemars::JsonSchema;
use serde::Deserialize;

use super::Spanned;
use crate::units::DurationValue;

/// WebDAV on a route.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DavTable {
    /// Methods that clients may use besides GET, HEAD, OPTIONS and PROPFIND. Default: `["PUT", "DELETE", "MKCOL", "COPY", "MOVE",
    /// "PROPPATCH", "LOCK", "UNLOCK"]`.
    pub methods: Option<Vec<Spanned<String>>>,
    /// `true` allows PROPFIND with `Depth: infinity`, for all files beneath a directory at once. Default: false; such a request gets
    /// 403, and clients read one directory after the other.
    pub infinity: bool,
    /// Maximum number of files in the response to a PROPFIND. Default: 100000.
    pub entries: Option<Spanned<usize>>,
    /// Maximum number of locks in the whole server; beyond it, this route responds with 503. Default: 10000.
    pub locks: Option<Spanned<usize>>,
    /// Maximum time of a lock that is not refreshed. Default: `1h`.
    pub lock_timeout: Option<Spanned<DurationValue>>,
}

/// WebDAV on a route, in either form.
#[derive(Debug, Clone)]
pub enum RouteDav {
    /// On or off.
    Switch(bool),
    /// On, with settings of its own.
    Table(DavTable),
}

#[derive(JsonSchema)]
#[schemars(rename = "Dav", untagged)]
#[expect(dead_code, reason = "only its schema is used")]
pub(super) enum RouteDavSchema {
    Switch(bool),
    Table(DavTable),
}
