//! Settings by path.

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;

use super::access::{AccessTable, Cors, CorsSchema, SignedTable};
use super::checks::{Auth, AuthSchema, AuthTable, RateLimits, RateLimitsSchema, ThrottleTable};
use super::dav::{RouteDav, RouteDavSchema};
use super::error_page::{ErrorPageSchema, ErrorPageTable};
use super::files::{
    Codings, CodingsSchema, EtagKind, ListingFormat, RecordRules, RecordsSchema, RouteCache,
    RouteCacheSchema, RouteDictionary, RouteDictionarySchema, Symlinks, UnacceptedCoding,
};
use super::log::{RouteLogSchema, RouteLogValue, StatusSchema};
use super::proxy::{ProxySchema, ProxyTable};
use super::script::{BodyHandling, ScriptTable};
use super::tls::{Hsts, HstsSchema, RedirectHttps, RedirectHttpsSchema, TlsTable};
use super::transforms::{RouteSsi, RouteSsiSchema, Substitutions, SubstitutionsSchema};
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
            /// Further conditions, all of which must hold. Of routes with the same path, one with conditions is more
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
            /// Host names, each exact, with `*.` in front, or with `.*` at the end, which is for every domain: `app.*`. `"*"` after them
            /// is for every other host, too. Default: the site serves every other host.
            #[schemars(with = "Option<OneOrManySchema>")]
            pub host: Option<Spanned<OneOrMany<String>>>,
            /// Names or addresses of the listeners on which the site is served. If two sites have the same host, the one
            /// that lists the listener serves it. Default: all.
            #[schemars(with = "Option<OneOrManySchema>")]
            pub listen: Option<Spanned<OneOrMany<String>>>,
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
    /// Directory for the part of the path that `*` matches, in place of `root`: with `path = "/pma/*"`, `/pma/a.css` is
    /// `a.css` in this directory. Also for scripts among files. For a path without `*`, it is a file.
    alias: PathBuf,
    /// Files to send for a directory. Default: `["index.html"]`, after `index.php` if a `script` has a `root` or a
    /// `directory` of PHP files.
    index: Vec<Spanned<String>>,
    /// Paths to look for in turn, with `{path}` for the request's path and `{rest}` for what the `*` of the pattern
    /// matched; a last `=404` is a status, and a last `=proxy` the `proxy` of the route. `=directory` ends the list for
    /// directories. The last path is routed again, so that a script can respond to it; it may have a query:
    /// `"/index.php?q={path}&{query}"`, in which `{raw_query}` leaves what is around it as it is. For a single-page
    /// application: `["{path}", "/index.html"]`.
    r#try: Vec<Spanned<String>>,
    /// `true` lists a directory without index file. Default: false.
    listing: bool,
    /// Format of listings: `auto` for a page with pages, order and filter, or JSON for clients that prefer it; or those of
    /// nginx's `autoindex_format`, for programs that read them: `nginx` for HTML, `nginx-json`, `nginx-jsonp`, `nginx-xml`. These
    /// have no names that begin with a dot. Default: `auto`.
    listing_format: ListingFormat,
    /// `true` sends the source of files that another route of the site runs as scripts. Default: false; such files
    /// get 404.
    serve_source: bool,
    /// Redirects the client: a path or URL, or a table with the status.
    #[schemars(with = "Option<RedirectSchema>")]
    redirect: RedirectTable,
    /// Sends a fixed response.
    respond: RespondTable,
    /// Path and query to serve the request as, with the placeholders of `try` and groups of `regex`:
    /// `"/index.php?page={1}"`. Each value is encoded for its place. Without a `?` the query of the request is kept. The
    /// client's URL does not change. More than ten rewrites in a row give 500.
    rewrite: String,
    /// Generates responses with programs.
    script: ScriptTable,
    /// Forwards requests to other HTTP servers: a URL, a list of URLs, or a table.
    #[schemars(with = "Option<ProxySchema>")]
    proxy: ProxyTable,
    /// Publishes the state of the server: a page with `status.json`, `metrics` (Prometheus), `events` and `watch`
    /// beside it, for a pattern that ends with `*`, such as `/status/*`. A table, `{ fleet = "_http._tcp.web.example.com" }`, adds the
    /// page `fleet/`, which adds up the servers that SRV records name; `{ format = "nginx" }` responds with the text of nginx's
    /// `stub_status`, to any path. Default: false.
    #[schemars(with = "Option<RouteStatusSchema>")]
    status: RouteStatus,
    /// `true` responds with 200 while the server serves and with 503 while it drains (`drain` in `[server]`), for
    /// balancers and Kubernetes. Default: false.
    readiness: bool,
    /// `true` closes the connection without a response, over HTTP/2 the stream; the log has status 444. Default: false.
    close: bool,
    /// `true` adds `Server-Timing` to responses, with the phases of the request. Default: false.
    server_timing: bool,
    /// `Link` values of a 103 (Early Hints) response that precedes the response of a script, so that clients can
    /// fetch what it will need: `["</style.css>; rel=preload; as=style"]`. HTTP/1.0 clients do not get it.
    early_hints: Vec<Spanned<String>>,
    /// `true` permits only internal redirects to the route: `X-Accel-Redirect` of scripts and upstreams, the last path of
    /// `try`, and `auth`; clients get 404. Default: false.
    internal: bool,
    /// Response headers (fields) to set, besides those of more general routes: values, or tables with conditions, such as
    /// `{ value = "no-store", status = [404], absent = true }`. Values can have the placeholders of a map's `from`, and
    /// those of the response, such as `{status}`, `{upstream}`, `{cache}`, `{response.NAME}`; a header whose value would be
    /// empty is not set. Names in `Vary` are added to those of the server.
    #[schemars(with = "Option<BTreeMap<String, SetFieldSchema>>")]
    set_fields: BTreeMap<Spanned<String>, Spanned<SetField>>,
    /// Response headers (fields) to remove, even if a more general route sets them.
    remove_fields: Vec<Spanned<String>>,
    /// Text to replace in the bodies of responses, ignoring the case of ASCII letters: `{ "http:" = "https:" }`, or a list
    /// of tables with `once` and `types`. Without these, all occurrences in `text/html` are replaced.
    #[schemars(with = "Option<SubstitutionsSchema>")]
    substitute: Substitutions,
    /// `true` runs server-side includes (`<!--#include virtual="/menu.html" -->`) in responses with the type `text/html`, as
    /// nginx, Apache and lighttpd do. Default: false.
    #[schemars(with = "Option<RouteSsiSchema>")]
    ssi: RouteSsi,
    /// Value of Cache-Control. A response of a script or an upstream gets it if it has neither Cache-Control nor Expires,
    /// and sets no cookie. A route that sets it or `expires` inherits neither.
    cache_control: String,
    /// Time for which clients may cache a response: sets Expires, and max-age unless `cache_control` is set. For scripts and
    /// upstreams as `cache_control`.
    expires: DurationValue,
    /// Charset of text; empty for none. Default: `utf-8`.
    charset: String,
    /// Media types by file name extension, besides those of more general routes.
    types: BTreeMap<Spanned<String>, Spanned<String>>,
    /// `true` sends `X-Content-Type-Options: nosniff`. Default: true.
    nosniff: bool,
    /// Content codings in which files and responses of scripts and upstreams are compressed, in order of preference; `true` for all,
    /// `false` for none. Default: true.
    #[schemars(with = "Option<CodingsSchema>")]
    compress: Codings,
    /// `true` compresses event streams (`text/event-stream`), each event by itself. Default: false.
    compress_events: bool,
    /// Names of response headers: a response of a script or an upstream with one of them is not compressed, such as
    /// `["Set-Cookie"]` for pages with secrets. Default: none.
    compress_unless: Vec<Spanned<String>>,
    /// A random number of bytes up to this size, at most 32KiB, is added to each response of a script or an upstream that is
    /// compressed for one client, which makes it harder to infer secrets from its length. Default: 0.
    compress_padding: Size,
    /// A response of a script or an upstream with `Content-Encoding` that the `Accept-Encoding` of the client excludes: `decode`
    /// decodes it, `reject` sends 406, `pass` sends it as it is. Default: `decode`.
    unaccepted_coding: UnacceptedCoding,
    /// Size of the content up to which such a response is decoded; a longer one is cut off. Default: `1GiB`.
    decode_size: Size,
    /// Size up to which a file is compressed. Default: `8MiB`.
    compress_size: Size,
    /// Content codings whose siblings (`.zst`, `.br`, `.gz`) are sent. Default: true.
    #[schemars(with = "Option<CodingsSchema>")]
    precompressed: Codings,
    /// `true` keeps the versions of files with a lifetime (`cache_control`, `expires`), and sends a client that has an old version the
    /// difference to the new one (RFC 9842), over TLS and unless the route restricts access. A table, such as
    /// `{ match = "/blog/*" }`, also makes a dictionary for the pages of a `script` or a `proxy`. Default: true.
    #[schemars(with = "Option<RouteDictionarySchema>")]
    dictionary: RouteDictionary,
    /// `true` caches files; a table can also enable caching of responses of proxies and scripts. Default: true.
    #[schemars(with = "Option<RouteCacheSchema>")]
    cache: RouteCache,
    /// `true` sends files that are too large for the cache without copying (sendfile), at half the cost. If
    /// such a file is written in place while it is sent, the response mixes two versions: use it only where files
    /// are replaced. Default: false.
    sendfile: bool,
    /// Source of entity tags: `stat` (the file's metadata), `sha256` (its content), or `off`. Default: `stat`.
    etag: EtagKind,
    /// `true` permits clients to change files by WebDAV (RFC 4918, classes 1 and 2); a table restricts how. Everyone who
    /// may access the route may change its files: protect it with `auth`. Default: false.
    #[schemars(with = "Option<RouteDavSchema>")]
    dav: RouteDav,
    /// Format of record files: `variable` or `vfc`, or a table.
    #[schemars(with = "Option<RecordsSchema>")]
    records: RecordRules,
    /// Symlinks that are followed: `beneath` for those that stay beneath the root, `follow` for all, `deny` for
    /// none. Default: `beneath`; a route with `dav` follows none.
    symlinks: Symlinks,
    /// `true` sends files whose names begin with a dot. Default: false.
    hidden: bool,
    /// Pages for error statuses, besides those of more general routes: paths within the site, or tables such as
    /// `{ to = "/fallback{path}", status = "page" }`.
    #[schemars(with = "Option<BTreeMap<String, ErrorPageSchema>>")]
    error_pages: BTreeMap<Spanned<String>, Spanned<ErrorPageTable>>,
    /// The access log: `true` for that of the server, `false` for none, or another one, as a path or a table. Default: true.
    #[schemars(with = "Option<RouteLogSchema>")]
    access_log: RouteLogValue,
    /// Networks whose clients are allowed: `192.0.2.0/24`, `::1`. Of `allow` and `deny`, the smallest network that
    /// contains the address decides; with `allow`, all other addresses are rejected.
    allow: Vec<Spanned<String>>,
    /// Networks whose clients are rejected (403).
    deny: Vec<Spanned<String>>,
    /// Makes browsers use only HTTPS (`Strict-Transport-Security`, RFC 6797) for this time, such as `365d`, or a table. It
    /// is sent only over TLS.
    #[schemars(with = "Option<HstsSchema>")]
    hsts: Hsts,
    /// Redirects requests without TLS to the same URL with https (308): true for port 443, or the port. ACME challenges are
    /// not redirected.
    #[schemars(with = "Option<RedirectHttpsSchema>")]
    redirect_https: RedirectHttps,
    /// Authenticates clients: `{ basic = "USERS" }`, `{ forward = "URL" }` or `{ jwt = { jwks = "URL" } }`; `false` ends
    /// inherited authentication.
    #[schemars(with = "Option<AuthSchema>")]
    auth: Auth,
    /// Access conditions of which one must hold, in addition to `allow`, `deny` and `auth` of the route: `[{ allow =
    /// ["10.0.0.0/8"] }, { auth = { basic = "USERS" } }]`. An empty list ends inherited conditions.
    any: Vec<Spanned<AccessTable>>,
    /// Permits scripts on pages of other origins (CORS): `true` for every origin, without credentials, or a table.
    /// Preflights get 204 before `auth`. CORS headers from scripts and upstreams are replaced. Default: false.
    #[schemars(with = "Option<CorsSchema>")]
    cors: Cors,
    /// Accepts only signed links; others get 403, expired ones 410.
    signed: SignedTable,
    /// Allowed methods; others get 405. `GET` includes `HEAD`. Default: all that the handler of the route
    /// implements.
    methods: Vec<Spanned<String>>,
    /// Rate limits: one, or a list, all of which apply. Further requests get 429.
    #[schemars(with = "Option<RateLimitsSchema>")]
    limit: RateLimits,
    /// Limits of concurrent requests and of bandwidth. The table replaces that of a more general route completely.
    throttle: ThrottleTable,
    /// Maximum size of a request body; `"unlimited"` or 0 for no limit. Default: `1MiB`.
    body_size: SizeLimit,
    /// When a script gets the request body: `buffer` receives it completely before the request takes one of the
    /// script's `processes`, so that slow uploads do not occupy them; `stream` passes it on as it arrives. Default:
    /// `buffer`.
    body: BodyHandling,
    /// Maximum number of ranges of one request; 0 disables ranges. Default: 16.
    ranges: usize,
}

impl Route {
    /// Returns its tables of authentication: `auth`, and those of `any`.
    pub fn auth_tables(&self) -> impl Iterator<Item = &AuthTable> {
        let any = self.any.iter().flat_map(|list| &list.value);
        let all = self.auth.iter().chain(any.filter_map(|one| one.value.auth.as_ref()));
        all.filter_map(|at| match &at.value {
            Auth::Table(table) => Some(&**table),
            Auth::Off => None,
        })
    }

    /// Returns the same, to complete them.
    pub fn auth_tables_mut(&mut self) -> impl Iterator<Item = &mut AuthTable> {
        let any = self.any.iter_mut().flat_map(|list| &mut list.value);
        let all = self.auth.iter_mut().chain(any.filter_map(|one| one.value.auth.as_mut()));
        all.filter_map(|at| match &mut at.value {
            Auth::Table(table) => Some(&mut **table),
            Auth::Off => None,
        })
    }
}

/// A response field that a route sets.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, remote = "Self")]
#[schemars(rename = "SetFieldTable")]
pub struct SetField {
    /// The value.
    pub value: String,
    /// The statuses of the responses that get it: numbers, or classes such as `"2xx"`. Default: all.
    #[serde(default)]
    #[schemars(with = "Option<Vec<StatusSchema>>")]
    pub status: Option<Vec<Spanned<StatusRange>>>,
    /// `true` sets it only in responses that do not have it. Default: false.
    #[serde(default)]
    pub absent: bool,
}

/// A status, or a class of statuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StatusRange {
    /// The first.
    pub first: u16,
    /// The last.
    pub last: u16,
}

#[derive(JsonSchema)]
#[schemars(rename = "SetField", untagged)]
#[expect(dead_code, reason = "only its schema is used")]
pub(super) enum SetFieldSchema {
    Value(String),
    Table(SetField),
}

/// The target of a redirect.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct RedirectTable {
    /// A path or URL with `{path}`, `{query}` (joined by `?` or `&`), `{host}`, `{rest}` for what the `*` of the pattern
    /// matched, `{target}` for the path with its query, and other values of the request: `{scheme}`, `{method}`,
    /// `{client}`, `{header.NAME}`, `{cookie.NAME}`, `{query.NAME}`, `{map.NAME}`. Each is encoded for its place. If it
    /// begins with a map that is empty for a request, the response is 404.
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
    pub fleet: Option<Spanned<String>>,
    /// Path of the status route of these servers. Default: that of this route.
    pub path: Option<Spanned<String>>,
    /// `nginx` responds to each path of the route with the text of nginx's `stub_status`, for tools that read it, and publishes
    /// nothing else. Default: the page, JSON, metrics and the live view.
    pub format: Option<Spanned<String>>,
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
    /// Body with placeholders, in place of `body`: those of a map's `from`, `{rest}` and groups of `regex`. Values are escaped in HTML, XML and
    /// JSON.
    pub template: Option<Spanned<String>>,
    /// Body in Base64, in place of `body`: for images and other binary content.
    pub base64: Option<Spanned<String>>,
    /// Media type. Default: `text/plain; charset=utf-8`.
    pub content_type: Option<Spanned<String>>,
    /// Methods of requests that get this response; others get 405. Default: all.
    pub methods: Option<Spanned<Vec<String>>>,
}
