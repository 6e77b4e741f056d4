//! Settings by path.

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;

use super::checks::{Auth, AuthSchema, RateLimits, RateLimitsSchema, ThrottleTable};
use super::files::{
    Codings, CodingsSchema, EtagKind, RecordRules, RecordsSchema, RouteCache, RouteCacheSchema,
    Symlinks,
};
use super::proxy::{ProxySchema, ProxyTable};
use super::script::{BodyHandling, ScriptTable};
use super::tls::{Hsts, HstsSchema, RedirectHttps, RedirectHttpsSchema, TlsTable};
use super::when::WhenTable;
use super::{OneOrMany, OneOrManySchema, Spanned};
use crate::units::{DurationValue, Size, SizeLimit};

macro_rules! route {
    ($(#[$root_meta:meta])* root: $root:ty, $($(#[$meta:meta])* $name:ident: $type:ty,)*) => {
        /// Settings for the paths that match a pattern. The most specific pattern wins, setting by
        /// setting; the order in the file does not matter.
        #[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields, default)]
        pub struct Route {
            /// A path, or a pattern with one `*`: `/a/*`, `*.css`; or a list of them.
            #[schemars(with = "Option<OneOrManySchema>")]
            pub path: Option<Spanned<OneOrMany<String>>>,
            /// A regular expression in place of `path`: `"^/user/(?<name>[a-z]+)$"`. It is more specific than patterns with a
            /// `*`, and less than a path without. Of those that match, only the first in the file applies. Its groups are
            /// placeholders: `{1}`, `{name}`.
            pub regex: Option<Spanned<String>>,
            /// Conditions besides the path, all of which must hold. Of routes with the same path, one with conditions is more
            /// specific than one without, then one with more of them, then the earlier one in the file.
            pub when: Option<Spanned<WhenTable>>,
            $(#[$root_meta])* pub root: Option<Spanned<$root>>,
            $($(#[$meta])* pub $name: Option<Spanned<$type>>,)*
        }

        impl Route {
            /// Takes over every setting of `specific`, and reports the key of each.
            pub fn overlay(&mut self, specific: &Self, mut report: impl FnMut(&'static str)) {
                if let Some(value) = &specific.root {
                    self.root = Some(value.clone());
                    report("root");
                }
                $(if let Some(value) = &specific.$name {
                    self.$name = Some(value.clone());
                    report(stringify!($name));
                })*
            }

            /// Position of the setting `key`; `None` when it is not set.
            pub fn place(&self, key: &str) -> Option<&std::ops::Range<usize>> {
                if key == "root" {
                    return self.root.as_ref().and_then(|value| value.span.as_ref());
                }
                $(if stringify!($name).trim_start_matches("r#") == key {
                    return self.$name.as_ref().and_then(|value| value.span.as_ref());
                })*
                None
            }
        }

        /// A site: what is served for some hosts. It can have every key of a route: for all its paths.
        #[derive(Debug, Default, Deserialize, JsonSchema)]
        #[schemars(rename = "Site")]
        #[serde(deny_unknown_fields, default)]
        pub struct SiteTable {
            /// Host names, each exact or with `*.` in front. Default: the site serves every other host.
            #[schemars(with = "Option<OneOrManySchema>")]
            pub host: Option<Spanned<OneOrMany<String>>>,
            /// Directory of the files, or a URL in object storage, such as `s3://bucket/prefix` (also `gs://`, `az://`,
            /// `https://`); a route can name another.
            pub root: Option<Spanned<PathBuf>>,
            /// Certificates, for listeners with TLS.
            pub tls: Option<Spanned<TlsTable>>,
            /// Settings by path.
            pub route: Vec<Route>,
            $($(#[$meta])* pub $name: Option<Spanned<$type>>,)*
        }

        impl SiteTable {
            /// Takes the settings for all paths; `None` if there are none.
            pub fn take_settings(&mut self) -> Option<Route> {
                let has_any = $(self.$name.is_some() ||)* false;
                has_any.then(|| Route { $($name: self.$name.take(),)* ..Route::default() })
            }
        }
    };
}

route! {
    /// Directory of the files, or a URL in object storage, instead of the site's. It ends an inherited `proxy`, `redirect`,
    /// `respond` or `script`.
    root: PathBuf,
    /// Files that are sent for their directory. Default: `["index.html"]`, after `index.php` if a `script` has a
    /// `root` or a `directory` of PHP files.
    index: Vec<Spanned<String>>,
    /// Paths that are looked for in turn, with `{path}` for the request's path and `{rest}` for what the `*` of the
    /// pattern matched; a last `=404` is a status, and a last `=proxy` the `proxy` of the route. The last path is routed again, so that a script can respond to
    /// it; it may have a query: `"/index.php?q={path}&{query}"`. A single-page application has `["{path}",
    /// "/index.html"]`.
    r#try: Vec<Spanned<String>>,
    /// `true` lists a directory without index file. Default: false.
    listing: bool,
    /// `true` sends the source of files that another route of the site runs as scripts. Default: false; such files
    /// get 404.
    serve_source: bool,
    /// Redirects the client: a path or URL, or a table with the status.
    #[schemars(with = "Option<RedirectSchema>")]
    redirect: RedirectTable,
    /// Sends a fixed response.
    respond: RespondTable,
    /// Path and query by whose routes the request is served instead, with the placeholders of `try` and groups of `regex`:
    /// `"/index.php?page={1}"`. Each value is encoded for its place. Without a `?` the query of the request is kept. The client sees the URL that it
    /// has requested. More than ten in turn are an error (500).
    rewrite: String,
    /// Generates responses by programs.
    script: ScriptTable,
    /// Forwards requests to other HTTP servers: a URL, a list of URLs, or a table.
    #[schemars(with = "Option<ProxySchema>")]
    proxy: ProxyTable,
    /// Publishes the state of the server: a page with `status.json`, `metrics` (Prometheus), `events` and `watch`
    /// beside it, for a pattern that ends with `*`, such as `/status/*`. A table, `{ fleet = "_http._tcp.web.example.com" }`, adds the
    /// page `fleet/`, which adds up the servers that SRV records name. Default: false.
    #[schemars(with = "Option<RouteStatusSchema>")]
    status: RouteStatus,
    /// `true` responds with 200 while the server serves and with 503 while it drains (`drain` in `[server]`), for
    /// balancers and Kubernetes. Default: false.
    readiness: bool,
    /// `true` adds `Server-Timing` to responses, with the phases of the request. Default: false.
    server_timing: bool,
    /// `Link` values of a 103 (Early Hints) response that precedes the response of a script, so that clients can
    /// fetch what it will need: `["</style.css>; rel=preload; as=style"]`. HTTP/1.0 clients do not get it.
    early_hints: Vec<Spanned<String>>,
    /// `true` restricts paths to redirects by `X-Accel-Redirect` of scripts and upstreams, by the last path of `try`, and by
    /// `auth`; clients get 404. Default: false.
    internal: bool,
    /// Response headers (fields) to set, besides those of more general routes.
    set_fields: BTreeMap<Spanned<String>, Spanned<String>>,
    /// Response headers (fields) to remove, also if a more general route sets them.
    remove_fields: Vec<Spanned<String>>,
    /// Value of Cache-Control. A route that sets it or `expires` inherits neither.
    cache_control: String,
    /// Time for which clients may cache a file: sets Expires, and max-age unless `cache_control` is set.
    expires: DurationValue,
    /// Charset of text; empty for none. Default: `utf-8`.
    charset: String,
    /// Media types by file name extension, besides those of more general routes.
    types: BTreeMap<Spanned<String>, Spanned<String>>,
    /// `true` sends `X-Content-Type-Options: nosniff`. Default: true.
    nosniff: bool,
    /// Content codings in which files are compressed, in order of preference; `true` for all, `false` for none.
    /// Default: true.
    #[schemars(with = "Option<CodingsSchema>")]
    compress: Codings,
    /// Size up to which a file is compressed. Default: `8MiB`.
    compress_size: Size,
    /// Content codings whose siblings (`.zst`, `.br`, `.gz`) are sent. Default: true.
    #[schemars(with = "Option<CodingsSchema>")]
    precompressed: Codings,
    /// `true` caches files; a table can have responses of proxies and scripts cached, too. Default: true.
    #[schemars(with = "Option<RouteCacheSchema>")]
    cache: RouteCache,
    /// `true` sends files that are too large for the cache without copying (sendfile), at half the cost. If
    /// such a file is written in place while it is sent, the response mixes two versions: use it only where files
    /// are replaced. Default: false.
    sendfile: bool,
    /// Source of entity tags: `stat` (the file's metadata), `sha256` (its content), or `off`. Default: `stat`.
    etag: EtagKind,
    /// Format of record files: `variable` or `vfc`, or a table.
    #[schemars(with = "Option<RecordsSchema>")]
    records: RecordRules,
    /// Symlinks that are followed: `beneath` for those that stay beneath the root, `follow` for all, `deny` for
    /// none. Default: `beneath`.
    symlinks: Symlinks,
    /// `true` sends files whose names begin with a dot. Default: false.
    hidden: bool,
    /// Pages for error statuses, by path within the site, besides those of more general routes.
    error_pages: BTreeMap<Spanned<String>, Spanned<String>>,
    /// `true` writes requests to the access log. Default: true.
    access_log: bool,
    /// Networks whose clients are allowed: `192.0.2.0/24`, `::1`. Of `allow` and `deny`, the smallest network that
    /// contains the address decides; with `allow`, all other addresses are rejected.
    allow: Vec<Spanned<String>>,
    /// Networks whose clients are rejected (403).
    deny: Vec<Spanned<String>>,
    /// Makes browsers use HTTPS only (`Strict-Transport-Security`, RFC 6797): the time for which it is in force,
    /// such as `365d`, or a table. It is sent over TLS only.
    #[schemars(with = "Option<HstsSchema>")]
    hsts: Hsts,
    /// Redirects requests without TLS to the same URL with https (308): true for port 443, or the port. Challenges
    /// of ACME are not redirected.
    #[schemars(with = "Option<RedirectHttpsSchema>")]
    redirect_https: RedirectHttps,
    /// Authenticates clients: `{ basic = "USERS" }` or `{ forward = "URL" }`; `false` ends inherited
    /// authentication.
    #[schemars(with = "Option<AuthSchema>")]
    auth: Auth,
    /// Allowed methods; others get 405. `GET` includes `HEAD`. Default: all that the handler of the route
    /// implements.
    methods: Vec<Spanned<String>>,
    /// Rate limits: one, or a list that a request must satisfy completely. Further requests get 429.
    #[schemars(with = "Option<RateLimitsSchema>")]
    limit: RateLimits,
    /// Limits of concurrent requests and of bandwidth. The table replaces that of a more general route completely.
    throttle: ThrottleTable,
    /// Maximum size of a request body, or `"unlimited"`, as is 0. Default: `1MiB`.
    body_size: SizeLimit,
    /// When a script gets the request body: `buffer` receives it completely before the request takes one of the
    /// script's `processes`, so that slow uploads do not occupy them; `stream` passes it on as it arrives. Default:
    /// `buffer`.
    body: BodyHandling,
    /// Maximum number of ranges of one request; 0 disables ranges. Default: 16.
    ranges: usize,
}

/// The target of a redirect.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct RedirectTable {
    /// A path or URL with `{path}`, `{query}` (joined by `?` or `&`), `{host}`, `{rest}` for what the `*` of the pattern
    /// matched, and `{target}` for the path with its query. Each value is encoded for its place.
    pub to: Spanned<String>,
    /// 301, 302, 303, 307 or 308. Default: 302.
    pub status: Option<Spanned<u16>>,
}

#[derive(JsonSchema)]
#[schemars(rename = "Redirect", untagged)]
#[expect(dead_code, reason = "only its schema is used")]
pub(super) enum RedirectSchema {
    To(String),
    Table(RedirectTable),
}

/// The state of the server and of others.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RouteStatusTable {
    /// Name whose SRV records have the servers that are added up, such as `_http._tcp.web.example.com`. Each of them has a status
    /// route that allows the address of this server.
    pub fleet: Spanned<String>,
    /// Path of the status route of these servers. Default: that of this route.
    pub path: Option<Spanned<String>>,
}

/// The state of the server, in either form.
#[derive(Debug, Clone)]
pub enum RouteStatus {
    /// Published or not.
    Switch(bool),
    /// Published, and that of other servers.
    Table(RouteStatusTable),
}

#[derive(JsonSchema)]
#[schemars(rename = "RouteStatus", untagged)]
#[expect(dead_code, reason = "only its schema is used")]
pub(super) enum RouteStatusSchema {
    Switch(bool),
    Table(RouteStatusTable),
}

/// A fixed response.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a table such as { status = 200, body = \"...\" }")]
pub struct RespondTable {
    /// Status. Default: 200.
    pub status: Option<Spanned<u16>>,
    /// Body. Default: empty.
    pub body: Option<Spanned<String>>,
    /// Media type. Default: `text/plain; charset=utf-8`.
    pub content_type: Option<Spanned<String>>,
}
