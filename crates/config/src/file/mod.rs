//! The file as it is written. Each key is described here once; the reader, the schema and the
//! book take it from here.

mod access;
mod acme;
mod checks;
mod dav;
mod error_page;
mod files;
mod jwt;
mod log;
mod map;
mod proxy;
mod route;
mod script;
mod server;
mod shared;
mod store;
mod tls;
mod transforms;
mod when;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;

pub use self::access::*;
pub use self::acme::*;
pub use self::checks::*;
pub use self::dav::*;
pub use self::error_page::*;
pub use self::files::*;
pub use self::jwt::*;
pub use self::log::*;
pub use self::map::*;
pub use self::proxy::*;
pub use self::route::*;
pub use self::script::*;
pub use self::server::*;
pub use self::shared::*;
pub use self::store::*;
pub use self::tls::*;
pub use self::transforms::*;
pub use self::when::*;
pub use super::spanned::Spanned;

/// A Dunlin configuration.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct File {
    /// Further files, whose tables are added to this one: a path, or a list, with any number of `*` in names:
    /// `"conf.d/*.toml"`. Relative paths are relative to the folder of the file that includes it; paths in an included file
    /// are relative to that of the main file. A path without `*` must exist.
    #[schemars(with = "Option<OneOrManySchema>")]
    pub include: Option<Spanned<OneOrMany<String>>>,
    /// Settings of the whole server.
    pub server: ServerTable,
    /// Addresses to listen on. Default: `:80`, and `:443` with TLS if a site has `tls`; port 80 redirects requests for such a site to
    /// HTTPS then, unless it sets `redirect_https`.
    pub listen: Vec<ListenTable>,
    /// Services of roots in object storage.
    pub store: StoreTables,
    /// Values derived from requests, by name.
    pub map: BTreeMap<String, Spanned<MapTable>>,
    /// Sites, by host.
    pub site: Vec<Spanned<SiteTable>>,
    /// The store of the state that several servers share. Default: none.
    pub shared: Option<Spanned<SharedTable>>,
}

/// An address to listen on.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Listen")]
pub struct ListenTable {
    /// `127.0.0.1:8080`, `[::1]:8080`, `:8080` for all addresses of the machine, or `unix:/run/site.sock` for a
    /// Unix socket.
    pub address: Spanned<String>,
    /// Name by which sites choose the listener.
    pub name: Option<Spanned<String>>,
    /// Permissions of a Unix socket, as octal digits: users who can write to it can connect. Default: `0660`.
    pub mode: Option<Spanned<String>>,
    /// Length of the listen backlog. Default: 4096.
    pub backlog: Option<u16>,
    /// `true` uses TLS, with the certificates of the sites. Default: false.
    pub tls: Option<Spanned<bool>>,
    /// `true` permits HTTP/2: over TLS by ALPN, without TLS by prior knowledge. Default: true.
    pub http2: Option<bool>,
    /// HTTP/3 on the UDP port with the same number, announced to clients. `true`: the server does not start if the port
    /// cannot be opened. `false`: no HTTP/3. Default: with `tls`, HTTP/3 if the port can be opened.
    pub http3: Option<Spanned<bool>>,
    /// `true` requires a header of the PROXY protocol (version 1 or 2) at the start of each connection, which names the
    /// client behind a proxy. Other connections are closed, and so are connections from outside `trusted_proxies`,
    /// if there are any. Default: false.
    pub proxy_protocol: Option<bool>,
}

impl Default for ListenTable {
    fn default() -> Self {
        let address = Spanned::detached("127.0.0.1:8080".to_owned());
        Self {
            address,
            name: None,
            mode: None,
            backlog: None,
            tls: None,
            http2: None,
            http3: None,
            proxy_protocol: None,
        }
    }
}

/// One value or a list of them.
#[derive(Debug, Clone, PartialEq)]
pub struct OneOrMany<T>(pub Vec<Spanned<T>>);

#[derive(JsonSchema)]
#[schemars(rename = "OneOrMany", untagged)]
#[expect(dead_code, reason = "only its schema is used")]
pub(super) enum OneOrManySchema {
    One(String),
    Many(Vec<String>),
}
