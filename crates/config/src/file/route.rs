//! Settings by path.

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;

use super::Spanned;
use super::checks::{Auth, AuthSchema, RateLimits, RateLimitsSchema, ThrottleTable};
use super::files::{
    Codings, CodingsSchema, EtagKind, RecordRules, RecordsSchema, RouteCache, RouteCacheSchema,
    Symlinks,
};
use super::script::{BodyHandling, ScriptTable};
use super::tls::{Hsts, HstsSchema, RedirectHttps, RedirectHttpsSchema};
use crate::units::{DurationValue, Size};

macro_rules! route {
    ($($(#[$meta:meta])* $name:ident: $type:ty,)*) => {
        /// Settings for the paths that match a pattern. The most specific pattern wins, setting by
        /// setting; the order in the file does not matter.
        #[derive(Debug, Clone, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields)]
        pub struct Route {
            /// A path, or a pattern with one `*`: `/a/*`, `*.css`.
            pub path: Spanned<String>,
            $($(#[$meta])* #[serde(default)] pub $name: Option<Spanned<$type>>,)*
        }

        impl Default for Route {
            fn default() -> Self {
                Self { path: Spanned::detached("/*".to_owned()), $($name: None,)* }
            }
        }

        impl Route {
            /// Takes over every setting of `specific`, and reports the key of each.
            pub fn overlay(&mut self, specific: &Self, mut tell: impl FnMut(&'static str)) {
                $(if let Some(value) = &specific.$name {
                    self.$name = Some(value.clone());
                    tell(stringify!($name));
                })*
            }

            /// Position of the setting `key`; `None` when it is not set.
            pub fn place(&self, key: &str) -> Option<&std::ops::Range<usize>> {
                $(if stringify!($name).trim_start_matches("r#") == key {
                    return self.$name.as_ref().and_then(|value| value.span.as_ref());
                })*
                None
            }
        }
    };
}

route! {
    /// Directory of the files, instead of the site's. It ends a more general route's `redirect`,
    /// `respond` or `script`.
    root: PathBuf,
    /// Files that are sent for their directory. `["index.html"]` when absent; before it `index.php`
    /// where a `script` has a `root` or a `directory` of such.
    index: Vec<Spanned<String>>,
    /// What to look for in turn: paths with `{path}` for the request's and `{rest}` for what the pattern's `*`
    /// matched, a last `=404` for a status. The last path is routed again, so that a route for it runs it when it
    /// is a script; a query may follow: `"/index.php?q={path}&{query}"`. A single-page application has
    /// `["{path}", "/index.html"]`.
    r#try: Vec<Spanned<String>>,
    /// Whether a directory without index file is listed. False when absent.
    listing: bool,
    /// Whether files that another route of the site runs as scripts are sent as text. False when absent: such
    /// files are not found (404).
    serve_source: bool,
    /// Send the client elsewhere: a path or URL, or a table with the status.
    #[schemars(with = "Option<RedirectSchema>")]
    redirect: RedirectTable,
    /// Respond with a fixed text.
    respond: RespondTable,
    /// Run programs that make the response.
    script: ScriptTable,
    /// Show what the server is doing: a page with `status.json`, `metrics` (Prometheus), `events`
    /// and `watch` beside it, where the pattern's `*` names them, as in `/status/*`. False when
    /// absent.
    status: bool,
    /// Whether responses of scripts have `Server-Timing`. False when absent.
    server_timing: bool,
    /// `Link` values that are sent by a 103 (Early Hints) before the response of a script, so that clients can
    /// fetch what that response will need: `["</style.css>; rel=preload; as=style"]`. HTTP/1.0 clients never get it.
    early_hints: Vec<Spanned<String>>,
    /// Whether paths are only for scripts that name them by `X-Accel-Redirect`, and for `auth`; clients get
    /// 404. False when absent.
    internal: bool,
    /// Response fields to set. More general routes' fields stay unless they are set or removed
    /// again.
    set_fields: BTreeMap<Spanned<String>, Spanned<String>>,
    /// Response fields to remove, also when a more general route sets them.
    remove_fields: Vec<Spanned<String>>,
    /// Value of Cache-Control. It and `expires` hold together: a more general route's are not mixed
    /// in.
    cache_control: String,
    /// How long clients may keep a file: sets Expires, and max-age unless `cache_control` is set.
    expires: DurationValue,
    /// Charset of text; none is stated when empty. `utf-8` when absent.
    charset: String,
    /// Media types by file name extension, besides those of more general routes.
    types: BTreeMap<Spanned<String>, Spanned<String>>,
    /// Whether `X-Content-Type-Options: nosniff` is sent. True when absent.
    nosniff: bool,
    /// Codings made on the fly, in order of preference; `true` for all. True when absent.
    #[schemars(with = "Option<CodingsSchema>")]
    compress: Codings,
    /// Largest file that is compressed on the fly. `8MiB` when absent.
    compress_size: Size,
    /// Codings of which siblings (`.zst`, `.br`, `.gz`) are served. True when absent.
    #[schemars(with = "Option<CodingsSchema>")]
    precompressed: Codings,
    /// Whether files are kept in the cache, or with which limit. True when absent.
    #[schemars(with = "Option<RouteCacheSchema>")]
    cache: RouteCache,
    /// Whether files too large for the cache are sent without copying (sendfile). It costs half
    /// as much; a file that is written to in place while it is sent then reaches the client mixed.
    /// Safe where files are only ever replaced. False when absent.
    sendfile: bool,
    /// What entity tags are made from: `stat` for metadata of the file, `sha256` for its content, or `off`. `stat` when
    /// absent.
    etag: EtagKind,
    /// Files are made of records: `variable` or `vfc`.
    #[schemars(with = "Option<RecordsSchema>")]
    records: RecordRules,
    /// Which symlinks are followed: `beneath` for those that stay beneath the root, `follow` for all, `deny` for none.
    /// `beneath` when absent.
    symlinks: Symlinks,
    /// Whether names that begin with a dot are served. False when absent.
    hidden: bool,
    /// Pages for error statuses, by path within the site, besides those of more general routes.
    error_pages: BTreeMap<Spanned<String>, Spanned<String>>,
    /// Whether requests are written to the access log. True when absent.
    access_log: bool,
    /// Networks whose clients are allowed: `192.0.2.0/24`, `::1`. The smallest network that an address is
    /// in decides between `allow` and `deny`; all others are rejected when there is an `allow`.
    allow: Vec<Spanned<String>>,
    /// Networks whose clients are rejected (403).
    deny: Vec<Spanned<String>>,
    /// Makes browsers use TLS only from now on (`Strict-Transport-Security`, RFC 6797): how long they
    /// remember it, such as `365d`, or a table. It is said over TLS only.
    #[schemars(with = "Option<HstsSchema>")]
    hsts: Hsts,
    /// Sends requests without TLS to the same address by https (308): true for port 443, or the port.
    /// Challenges of ACME are not redirected.
    #[schemars(with = "Option<RedirectHttpsSchema>")]
    redirect_https: RedirectHttps,
    /// Authenticate clients: `{ basic = "USERS" }` or `{ forward = "URL" }`; `false` ends the authentication of a
    /// more general route.
    #[schemars(with = "Option<AuthSchema>")]
    auth: Auth,
    /// Methods that are allowed; others get 405. `GET` brings `HEAD` with it. Whatever
    /// the route's handler knows when absent.
    methods: Vec<Spanned<String>>,
    /// How many requests a client may make in a time: one limit, or a list of which each has to be kept.
    /// Further requests get 429.
    #[schemars(with = "Option<RateLimitsSchema>")]
    limit: RateLimits,
    /// Concurrent requests and bandwidth of responses. What holds is one route's: a more
    /// general route's throttle is not mixed in.
    throttle: ThrottleTable,
    /// Largest request body. `1MiB` when absent.
    body_size: Size,
    /// When a script gets the request body: `buffer` receives all of it before the request takes one of the script's
    /// `processes`, so that slow uploads do not occupy them; `stream` hands it over as it arrives. `buffer` when absent.
    body: BodyHandling,
    /// Maximum number of ranges of one request; 0 switches ranges off. 16 when absent.
    ranges: usize,
}

/// Where to send the client.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct RedirectTable {
    /// A path or URL; `{path}`, `{query}` (with its question mark), `{host}`, and `{rest}` for what
    /// the pattern's `*` matched.
    pub to: Spanned<String>,
    /// 301, 302, 303, 307 or 308. 302 when absent.
    pub status: Option<Spanned<u16>>,
}

#[derive(JsonSchema)]
#[schemars(rename = "Redirect", untagged)]
#[expect(dead_code, reason = "only its schema is used")]
pub(super) enum RedirectSchema {
    To(String),
    Table(RedirectTable),
}

/// A fixed response.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a table such as { status = 200, body = \"...\" }")]
pub struct RespondTable {
    /// 200 when absent.
    pub status: Option<Spanned<u16>>,
    /// The body; empty when absent.
    pub body: Option<Spanned<String>>,
    /// `text/plain; charset=utf-8` when absent.
    pub content_type: Option<Spanned<String>>,
}
