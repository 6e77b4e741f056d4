//! State that several servers share.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;

use super::{OneOrMany, OneOrManySchema, Spanned};
use crate::units::DurationValue;

/// The store of the state that several servers share: Valkey or Redis. It needs a build with the feature `fleet`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a table such as { url = \"redis://127.0.0.1:6379\" }")]
pub struct SharedTable {
    /// Address of the store: `redis://host:6379`, with TLS `rediss://host:6379`, with credentials
    /// `rediss://user:password@host:6379/0`, or `redis+unix:///run/redis.sock`. A list of the sentinels with `sentinel`, of
    /// nodes with `cluster`.
    #[schemars(with = "OneOrManySchema")]
    pub url: Spanned<OneOrMany<String>>,
    /// Name of the group that the sentinels at `url` watch; its current master is the store. Default: `url` is the store.
    pub sentinel: Option<Spanned<String>>,
    /// `true` if `url` names nodes of a cluster. Default: false.
    pub cluster: Option<bool>,
    /// File of the authorities that sign the certificate of a store with `rediss://`. Default: those that the system
    /// trusts.
    pub authority: Option<Spanned<PathBuf>>,
    /// Prefix of all keys in the store. Servers with the same prefix share their state. Default: `dunlin`.
    pub prefix: Option<Spanned<String>>,
    /// Maximum wait for a response of the store. No request waits for it. Default: `1s`.
    pub timeout: Option<Spanned<DurationValue>>,
}
