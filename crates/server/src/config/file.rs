//! The file as it is written. Each key is described here once; the reader, the schema and the
//! book take it from here.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use dunlin_http::semantics::Coding;
use schemars::JsonSchema;
use serde::Deserialize;

pub use super::at::At;
use super::units::{Frequency, Rate, Size, Span};
use crate::gate::{RateLimit, Throttle};

/// A Dunlin configuration.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct File {
    /// What concerns the whole server.
    pub server: Server,
    /// Addresses to listen on.
    pub listen: Vec<Listen>,
    /// What is served, by host.
    pub site: Vec<Site>,
}

/// What concerns the whole server.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Server {
    /// Event loops; one for each processor when absent.
    pub threads: Option<At<usize>>,
    /// Where the access log goes: a path, `-` for standard output, `off`, or a table with a
    /// format. Off when absent.
    #[schemars(with = "Option<AccessLogSchema>")]
    pub access_log: Option<At<AccessLog>>,
    /// Path of a Unix socket at which the server takes commands and tells of itself (`dunlin
    /// reload`, `dunlin upgrade`, `dunlin watch`, `dunlin top`); only its own user can reach it. None
    /// when absent.
    pub admin: Option<At<PathBuf>>,
    /// User that the server becomes when its sockets, logs and certificates are open. The one that starts
    /// it when absent.
    pub user: Option<At<String>>,
    /// Group that it becomes, instead of the user's own.
    pub group: Option<At<String>>,
    /// Directory that becomes all the files there are to the server and its scripts (`chroot`). Everything
    /// that the configuration names has to be in it, and is named as from outside; `user` has to be
    /// set. None when absent.
    pub chroot: Option<At<PathBuf>>,
    /// What the server's process, and each of its scripts, may use at most (`setrlimit`).
    pub limits: Limits,
    /// Whether the server and its scripts can never gain privileges by what they start (`sudo` and the
    /// like). True with `landlock` or `seccomp`, else false when absent.
    pub no_new_privs: Option<At<bool>>,
    /// Files that the server and its scripts may use at all, besides those that the configuration names
    /// and those of the system; all others are out of reach (Landlock). Every file when absent.
    pub landlock: Option<Landlock>,
    /// Whether calls of the system are refused: to a server that starts no scripts all but those that it
    /// needs, else to both those that a web site has no use for (mount, ptrace, kernel modules, ...). False when
    /// absent.
    pub seccomp: Option<At<bool>>,
    /// File in which the number of the server's process stands while it runs. None when absent.
    pub pid_file: Option<At<PathBuf>>,
    /// What the error log tells, and where it goes.
    pub error_log: ErrorLog,
    /// The most connections at once, over all loops; past it newcomers wait in the backlog. Half
    /// of the descriptor limit when absent.
    pub connections: Option<At<usize>>,
    /// From so many connections on, each newcomer has the one closed that has been idle for longest.
    /// 90 % of `connections` when absent.
    pub connections_soft: Option<At<usize>>,
    /// The most connections of one address, or of one IPv6 network of /64; further ones are closed at
    /// once. No limit when absent.
    pub connections_per_address: Option<At<usize>>,
    /// How long answers under way may take when the server stops. `30s` when absent.
    pub stop_timeout: Option<Span>,
    /// Whether responses carry `Server: dunlin`. True when absent.
    pub server_field: Option<bool>,
    /// Directory in which the server keeps what has to outlive it: accounts and certificates of ACME.
    /// `/var/lib/dunlin` when absent.
    pub state: Option<At<PathBuf>>,
    /// Networks of proxies that are believed what `Forwarded` or `X-Forwarded-For` and
    /// `X-Forwarded-Proto` say of the client. None when absent.
    pub trusted_proxies: Option<Vec<At<String>>>,
    /// Settings of HTTP/1 connections.
    pub http1: Http1,
    /// Bounds of the file cache.
    pub cache: Cache,
    /// Send traces of requests to a collector; none are made when absent.
    pub traces: Option<At<Traces>>,
    /// Query keys whose values are kept out of logs and traces, instead of the usual ones (`token`,
    /// `password`, `signature` and their like).
    pub redact_query: Option<Vec<At<String>>>,
    /// Look up the names of clients for the log; not done when the table is absent.
    pub reverse_dns: Option<ReverseDns>,
}

/// What the server's process, and each of its scripts, may use at most.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Open descriptors: connections, files, pipes. All that the system allows when absent.
    pub open_files: Option<At<usize>>,
    /// Size of what is left of a process that crashes; `0` for nothing. As it was started when absent.
    pub core: Option<Size>,
    /// Processes and threads of the server's user, whoever has started them; root is not bound by it. As it
    /// was started when absent.
    pub processes: Option<At<usize>>,
    /// Address space of each process; scripts may have less (`memory` of a script). As it was started when
    /// absent.
    pub memory: Option<At<Size>>,
}

/// Files besides those that the configuration names: each a file, or a directory with all that is
/// beneath it.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Landlock {
    /// What may be read.
    pub read: Vec<At<PathBuf>>,
    /// What may be written, made and removed.
    pub write: Vec<At<PathBuf>>,
    /// Programs that may be run, and what they read.
    pub execute: Vec<At<PathBuf>>,
}

/// Where the access log goes.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AccessLogTable {
    /// A path, `-` for standard output, or `off`.
    pub path: At<PathBuf>,
    /// `common`, `combined`, `json`, or a text with placeholders. `combined` when absent.
    pub format: Option<At<String>>,
}

/// Where the access log goes, in either form.
#[derive(Debug, Clone)]
pub struct AccessLog(pub AccessLogTable);

#[derive(JsonSchema)]
#[schemars(rename = "AccessLog", untagged)]
#[expect(dead_code, reason = "only its schema is used")]
enum AccessLogSchema {
    Path(String),
    Table(AccessLogTable),
}

impl AccessLog {
    /// The log at `path` in the default format.
    pub(super) fn to(path: &str) -> Self {
        Self(AccessLogTable { path: At::nowhere(path.into()), format: None })
    }
}

/// What the error log tells, and where it goes.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ErrorLog {
    /// The least severe level that is told. `info` when absent.
    pub level: LogLevel,
    /// How a message is written. `text` when absent.
    pub format: LogFormat,
    /// A path, `-` for standard error, or `journald` for the system's journal. `-` when absent.
    #[schemars(with = "Option<String>")]
    pub path: Option<At<PathBuf>>,
}

/// How severe a message is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "the usual levels")]
pub enum LogLevel {
    Error,
    Warn,
    #[default]
    Info,
    Debug,
    Trace,
}

/// How a message is written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// Settings of HTTP/1 connections.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Http1 {
    /// How a connection is used. `pipelined` when absent.
    pub connection: ConnectionUse,
    /// Longest wait for the next request. `75s` when absent.
    pub idle_timeout: Option<At<Span>>,
    /// Longest time from the first byte of a request to the end of its head. `10s` when absent.
    pub head_timeout: Option<At<Span>>,
    /// Longest pause while a body arrives. `30s` when absent.
    pub body_timeout: Option<At<Span>>,
    /// Least average rate of a body that takes longer than `body_timeout`. `500B/s` when absent.
    pub body_rate: Option<Rate>,
    /// Longest time in which a client takes nothing of a response. `30s` when absent.
    pub send_timeout: Option<At<Span>>,
    /// Largest request head. `32KiB` when absent, at most `65535`.
    pub head_size: Option<At<Size>>,
    /// Longest request-target. `8KiB` when absent, at most `head_size`.
    pub target_size: Option<At<Size>>,
    /// Most fields of a request. 100 when absent, at most 254.
    pub fields: Option<At<usize>>,
    /// Most requests of one connection; no limit when absent or 0.
    pub requests: Option<u64>,
}

/// How a connection is used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ConnectionUse {
    /// One request, as in HTTP/1.0.
    Close,
    /// Requests one after the other, each answered by a write of its own.
    Persistent,
    /// All that has arrived is answered in one write.
    #[default]
    Pipelined,
}

/// Bounds of the file cache.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Cache {
    /// Memory for content. `128MiB` when absent.
    pub size: Option<Size>,
    /// Largest file that is held whole; larger ones are kept as open descriptors. `256KB` when
    /// absent.
    pub file: Option<Size>,
    /// Most files. 50000 when absent.
    pub entries: Option<usize>,
    /// Most descriptors that are kept open. A quarter of the descriptor limit when absent.
    pub descriptors: Option<usize>,
    /// How long a file is used without asking the disk, even when changes are notified. `5s` when
    /// absent.
    pub revalidate: Option<Span>,
    /// Whether changes are notified (inotify). True when absent.
    pub notify: Option<bool>,
}

/// Where traces of requests go.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(
    deny_unknown_fields,
    expecting = "a table such as { endpoint = \"http://127.0.0.1:4318/v1/traces\", sample = 0.01 }"
)]
pub struct Traces {
    /// URL of the collector's OTLP receiver, such as `http://127.0.0.1:4318/v1/traces`, or with `https://`.
    pub endpoint: At<String>,
    /// File of the authorities by whom the certificate of a collector by https has to be signed. Those that
    /// the system trusts when absent.
    pub authority: Option<At<PathBuf>>,
    /// Share of the requests that are traced, from 0 to 1, where the client has not decided in
    /// `traceparent`. 1 when absent.
    pub sample: Option<At<f64>>,
    /// The name of the service in traces. `dunlin` when absent.
    pub service: Option<String>,
}

/// How the names of clients are found.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ReverseDns {
    /// Address and port of a resolver; the system's when absent.
    pub resolver: Option<std::net::SocketAddr>,
    /// Longest wait for an answer. `2s` when absent.
    pub timeout: Option<At<Span>>,
    /// Names that are remembered. 10000 when absent.
    pub entries: Option<usize>,
    /// How long a name is remembered. `1h` when absent.
    pub ttl: Option<At<Span>>,
    /// Look-ups under way at once. 64 when absent.
    pub concurrent: Option<At<usize>>,
}

/// An address to listen on.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Listen {
    /// `127.0.0.1:8080`, `[::1]:8080`, `:8080` for every address of the machine, or
    /// `unix:/run/site.sock` for a socket in the file system.
    pub address: At<String>,
    /// Permissions of a Unix socket, as octal digits: who may write to it may connect. `0660` when
    /// absent.
    pub mode: Option<At<String>>,
    /// Connections that wait to be accepted. 4096 when absent.
    pub backlog: Option<u16>,
    /// Whether it speaks TLS, with the certificates of the sites. False when absent.
    pub tls: Option<At<bool>>,
    /// Whether HTTP/2 is spoken: with TLS when it is agreed upon, in the clear with clients that begin
    /// with it (prior knowledge). True when absent.
    pub http2: Option<bool>,
    /// Whether each connection begins with the PROXY protocol's line or header (version 1 or 2), which
    /// tells of the client behind a proxy. Others are refused, as are those from outside
    /// `trusted_proxies` when there are such. False when absent.
    pub proxy_protocol: Option<bool>,
}

impl Default for Listen {
    fn default() -> Self {
        let address = At::nowhere("127.0.0.1:8080".to_owned());
        Self { address, mode: None, backlog: None, tls: None, http2: None, proxy_protocol: None }
    }
}

/// What is served for some hosts.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Site {
    /// Names, each exact or with `*.` in front; the site for every other host when absent.
    #[schemars(with = "Option<OneOrManySchema>")]
    pub host: Option<At<OneOrMany<String>>>,
    /// Directory of the files; a route may name another.
    pub root: Option<At<PathBuf>>,
    /// Its certificates, for listeners with TLS.
    pub tls: Option<At<TlsTable>>,
    /// Settings by path.
    pub route: Vec<Route>,
}

/// The certificates of a site. Files that change are taken over without a restart.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(
    deny_unknown_fields,
    expecting = "a table such as { certificate = \"cert.pem\", key = \"key.pem\" }"
)]
pub struct TlsTable {
    /// Files in PEM form with the certificate and those that lead to its authority; several for keys
    /// of several kinds, the preferred first.
    #[schemars(with = "Option<OneOrManySchema>")]
    pub certificate: Option<At<OneOrMany<String>>>,
    /// Files in PEM form with the keys, in the same order.
    #[schemars(with = "Option<OneOrManySchema>")]
    pub key: Option<At<OneOrMany<String>>>,
    /// Where the certificate is obtained, and renewed before it ends, instead of `certificate` and `key`:
    /// by ACME (RFC 8555), for every name in `host`.
    pub acme: Option<At<AcmeTable>>,
    /// Whether clients that come again may ask with their first message (0-RTT): only safe methods without a
    /// body are answered before the end of the handshake, others get 425. Sessions are then kept in memory,
    /// each for one use. False when absent.
    pub early_data: Option<At<bool>>,
    /// File with an OCSP response in DER form, which is handed to clients.
    pub ocsp: Option<At<PathBuf>>,
    /// The cipher suites that may be used, the preferred first, by OpenSSL's or IANA's names:
    /// `TLS_AES_128_GCM_SHA256`, `ECDHE-ECDSA-AES128-GCM-SHA256`. All that rustls holds for safe, in the client's
    /// order, when absent.
    pub ciphers: Option<At<Vec<At<String>>>>,
    /// Oldest version that is spoken. `1.2` when absent.
    #[serde(default)]
    pub min_version: TlsVersion,
    /// File in PEM form with the authorities of clients' certificates; clients are not asked for one
    /// when absent.
    pub client_authority: Option<At<PathBuf>>,
    /// Whether a client without certificate is refused. True when absent.
    pub client_required: Option<At<bool>>,
    /// File in PEM form with lists of certificates of clients that were revoked.
    pub client_revoked: Option<At<PathBuf>>,
}

impl TlsTable {
    /// With one certificate.
    pub(super) fn of(certificate: &std::path::Path, key: &std::path::Path) -> Self {
        let one = |path: &std::path::Path| {
            At::nowhere(OneOrMany(vec![At::nowhere(path.display().to_string())]))
        };
        Self {
            certificate: Some(one(certificate)),
            key: Some(one(key)),
            acme: None,
            ocsp: None,
            early_data: None,
            ciphers: None,
            min_version: TlsVersion::default(),
            client_authority: None,
            client_required: None,
            client_revoked: None,
        }
    }
}

/// How a certificate is obtained by ACME (RFC 8555).
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(
    deny_unknown_fields,
    default,
    expecting = "a table such as { contact = \"admin@example.com\" }"
)]
pub struct AcmeTable {
    /// Address of mail that the authority may write to; none when absent.
    pub contact: Option<At<String>>,
    /// The authority's directory. Let's Encrypt's, `https://acme-v02.api.letsencrypt.org/directory`, when
    /// absent. Its terms of service have to be those that you agree to.
    pub directory: Option<At<String>>,
    /// File in PEM form with the authorities by which the directory's own certificate is judged; the
    /// system's when absent.
    pub authority: Option<At<PathBuf>>,
    /// How it is proven that the names are this server's: `tls-alpn-01` on a listener with TLS (the
    /// authority comes to port 443), `http-01` on one without (port 80). When absent, whichever listeners
    /// there are for, in turn when one fails.
    pub challenge: Option<At<AcmeChallenge>>,
    /// By what an authority knows you that gives accounts to its customers only (external account binding, RFC 8555
    /// §7.3.4): `{ id = "...", key = FILE }`, with the key's file in base64url, as the authority shows it.
    pub external_account: Option<ExternalAccountTable>,
}

/// An account that an authority knows by other means (RFC 8555 §7.3.4).
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a table such as { id = \"kid-1\", key = \"eab.key\" }")]
pub struct ExternalAccountTable {
    /// The key's identifier.
    pub id: At<String>,
    /// File with the key, in base64url.
    pub key: At<PathBuf>,
}

/// How it is proven to an authority that a name is this server's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
pub enum AcmeChallenge {
    /// A handshake of TLS for the name (RFC 8737).
    #[serde(rename = "tls-alpn-01")]
    TlsAlpn01,
    /// A file below `/.well-known/acme-challenge/` (RFC 8555 §8.3).
    #[serde(rename = "http-01")]
    Http01,
}

/// What browsers remember (RFC 6797 §6.1).
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HstsTable {
    /// How long they remember it.
    pub age: Span,
    /// Whether it holds for all names below the host's, too. False when absent.
    #[serde(default)]
    pub subdomains: bool,
    /// Whether it may go into the lists that browsers come with. False when absent.
    #[serde(default)]
    pub preload: bool,
}

/// What browsers remember, in either form.
#[derive(Debug, Clone)]
pub struct Hsts(pub HstsTable);

#[derive(JsonSchema)]
#[schemars(rename = "Hsts", untagged)]
#[expect(dead_code, reason = "only its schema is used")]
enum HstsSchema {
    Age(Span),
    Table(HstsTable),
}

/// The port of https to which requests are sent; `None` when they are not.
#[derive(Debug, Clone, Copy)]
pub struct RedirectHttps(pub Option<u16>);

#[derive(JsonSchema)]
#[schemars(rename = "RedirectHttps", untagged)]
#[expect(dead_code, reason = "only its schema is used")]
enum RedirectHttpsSchema {
    Switch(bool),
    Port(u16),
}

/// A version of TLS.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[expect(missing_docs, reason = "the versions")]
pub enum TlsVersion {
    #[default]
    #[serde(rename = "1.2")]
    Tls12,
    #[serde(rename = "1.3")]
    Tls13,
}

macro_rules! route {
    ($($(#[$meta:meta])* $name:ident: $type:ty,)*) => {
        /// Settings for the paths that match a pattern. The most specific pattern wins, setting by
        /// setting; the order in the file does not matter.
        #[derive(Debug, Clone, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields)]
        pub struct Route {
            /// A path, or a pattern with one `*`: `/a/*`, `*.css`.
            pub path: At<String>,
            $($(#[$meta])* #[serde(default)] pub $name: Option<At<$type>>,)*
        }

        impl Default for Route {
            fn default() -> Self {
                Self { path: At::nowhere("/*".to_owned()), $($name: None,)* }
            }
        }

        impl Route {
            /// Takes over every setting that `specific` has, and tells of each.
            pub(super) fn overlay(&mut self, specific: &Self, mut tell: impl FnMut(&'static str)) {
                $(if let Some(value) = &specific.$name {
                    self.$name = Some(value.clone());
                    tell(stringify!($name));
                })*
            }

            /// Where the setting `key` stands; `None` when it is not set.
            pub(super) fn place(&self, key: &str) -> Option<&std::ops::Range<usize>> {
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
    /// Files that stand for their directory. `["index.html"]` when absent; before it `index.php`
    /// where a `script` has a `root` or a `directory` of such.
    index: Vec<At<String>>,
    /// What to look for in turn: paths with `{path}` for the request's, a last `=404` for a
    /// status. A single-page application has `["{path}", "/index.html"]`.
    r#try: Vec<At<String>>,
    /// Whether a directory without index file is listed. False when absent.
    listing: bool,
    /// Send the client elsewhere.
    redirect: RedirectTable,
    /// Answer with a fixed text.
    respond: RespondTable,
    /// Run programs that make the answer.
    script: ScriptTable,
    /// Show what the server is doing: a page with `status.json`, `metrics` (Prometheus), `events`
    /// and `watch` beside it, where the pattern's `*` names them, as in `/status/*`. False when
    /// absent.
    status: bool,
    /// Whether answers of scripts tell in `Server-Timing` where the time went. False when absent.
    server_timing: bool,
    /// `Link` values that are sent by a 103 (Early Hints) before a script has answered, so that clients can
    /// fetch what its answer will need: `["</style.css>; rel=preload; as=style"]`. To HTTP/1.0 never.
    early_hints: Vec<At<String>>,
    /// Whether paths are only for scripts that name them by `X-Accel-Redirect`, and for `auth`; clients get
    /// 404. False when absent.
    internal: bool,
    /// Response fields to set. More general routes' fields stay unless they are set or removed
    /// again.
    set_fields: BTreeMap<At<String>, At<String>>,
    /// Response fields to remove, also when a more general route sets them.
    remove_fields: Vec<At<String>>,
    /// Value of Cache-Control. It and `expires` hold together: a more general route's are not mixed
    /// in.
    cache_control: String,
    /// How long clients may keep a file: sets Expires, and max-age unless `cache_control` is set.
    expires: Span,
    /// Charset of text; none is stated when empty. `utf-8` when absent.
    charset: String,
    /// Media types by file name extension, besides those of more general routes.
    types: BTreeMap<At<String>, At<String>>,
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
    /// What entity tags are made from. `stat` when absent.
    etag: EtagKind,
    /// Files are made of records: `variable` or `vfc`.
    #[schemars(with = "Option<RecordsSchema>")]
    records: RecordRules,
    /// Which symlinks are followed. `beneath` when absent.
    symlinks: Symlinks,
    /// Whether names that begin with a dot are served. False when absent.
    hidden: bool,
    /// Pages for error statuses, by path within the site, besides those of more general routes.
    error_pages: BTreeMap<At<String>, At<String>>,
    /// Whether requests are written to the access log. True when absent.
    access_log: bool,
    /// Networks whose clients may ask: `192.0.2.0/24`, `::1`. The smallest network that an address is
    /// in decides between `allow` and `deny`; all others are refused when there is an `allow`.
    allow: Vec<At<String>>,
    /// Networks whose clients are refused (403).
    deny: Vec<At<String>>,
    /// Tells browsers to come by TLS only from now on (`Strict-Transport-Security`, RFC 6797): how long they
    /// remember it, such as `365d`, or a table. It is said over TLS only.
    #[schemars(with = "Option<HstsSchema>")]
    hsts: Hsts,
    /// Sends requests without TLS to the same address by https (308): true for port 443, or the port.
    /// Challenges of ACME are answered all the same.
    #[schemars(with = "Option<RedirectHttpsSchema>")]
    redirect_https: RedirectHttps,
    /// Find out who asks: `{ basic = "USERS" }` or `{ forward = "URL" }`; `false` ends what a more
    /// general route says.
    #[schemars(with = "Option<AuthSchema>")]
    auth: Auth,
    /// Methods that are allowed; others are answered with 405. `GET` brings `HEAD` with it. Whatever
    /// the route's handler knows when absent.
    methods: Vec<At<String>>,
    /// How many requests a client may make in a time: one limit, or a list of which each has to be kept.
    /// A request beyond it is answered with 429.
    #[schemars(with = "Option<RateLimitsSchema>")]
    limit: RateLimits,
    /// How many requests run at once, and how fast answers are sent. What holds is one route's: a more
    /// general route's throttle is not mixed in.
    throttle: ThrottleTable,
    /// Largest request body. `1MiB` when absent.
    body_size: Size,
    /// Most ranges of one request; 0 switches ranges off. 16 when absent.
    ranges: usize,
}

/// How many requests may come in a time.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RateLimitTable {
    /// So many in a second, minute, hour or day: `10/s`, `100/m`, `1000/h`, `5000/d`.
    pub requests: At<Frequency>,
    /// Requests that may come at once, after which they may at the limit's pace. As many as `requests`
    /// says, when absent.
    pub burst: Option<At<u32>>,
    /// Whose requests are counted together: `address` (of IPv6 a network of /64), `user`, `route` (all
    /// of them), or `header:NAME` for those with the same value of a field. Who has no user or no such
    /// field counts by address. `address` when absent.
    pub by: Option<At<String>>,
    /// Whether every answer says in `RateLimit` fields what is left, and not only refusals. It costs
    /// cached files some of their speed. False when absent.
    pub tell: Option<bool>,
    /// Whether nothing is refused, only counted. False when absent.
    pub dry_run: Option<bool>,
    /// What all settings that are made of this table share.
    #[serde(skip)]
    pub(crate) made: Made<RateLimit>,
}

/// One limit or several.
#[derive(Debug, Clone)]
pub struct RateLimits(pub Vec<RateLimitTable>);

#[derive(JsonSchema)]
#[schemars(rename = "RateLimits", untagged)]
#[expect(dead_code, reason = "only its schema is used")]
enum RateLimitsSchema {
    One(RateLimitTable),
    Many(Vec<RateLimitTable>),
}

/// How many requests run at once, and how fast answers are sent.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ThrottleTable {
    /// Rate at which the bodies of all answers of the route are sent together: `400KB/s`. It is shared
    /// equally among those who take it. No limit when absent.
    pub bandwidth: Option<At<Rate>>,
    /// Rate at which bodies are sent on one connection. No limit when absent.
    pub per_connection: Option<At<Rate>>,
    /// A request whose share of `bandwidth` would be less is refused with 503. None is when absent.
    pub minimum: Option<At<Rate>>,
    /// Requests that run at once; others wait for their turn. No limit when absent.
    pub concurrent: Option<At<usize>>,
    /// Requests that may wait; further ones are refused with 503. 100 when absent.
    pub queue: Option<At<usize>>,
    /// How long a request waits before it runs anyway, as long as fewer than `most` run. It goes on to
    /// wait for its turn when absent.
    pub wait: Option<At<Span>>,
    /// Requests at once when some have waited for `wait`.
    pub most: Option<At<usize>>,
    /// How long a request waits before it is refused with 503. `30s` when absent.
    pub refuse_after: Option<At<Span>>,
    /// Requests of one client that run at once; a client's part of the queue is as large as its part of
    /// `concurrent`. No limit when absent.
    pub share: Option<At<usize>>,
    /// Who is one client: `address` (of IPv6 a network of /64) or `user`. `address` when absent.
    pub per: Option<At<ShareBy>>,
    /// Whether nothing is held up or refused, only counted. False when absent.
    pub dry_run: Option<bool>,
    /// What all settings that are made of this table share.
    #[serde(skip)]
    pub(crate) made: Made<Throttle>,
}

/// Who is one client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ShareBy {
    /// An address, or of IPv6 a network of /64.
    Address,
    /// A user; who has none counts by address.
    User,
}

/// What is made once of a table, however many settings it is part of.
#[derive(Debug)]
pub(crate) struct Made<T>(Arc<OnceLock<Arc<T>>>);

impl<T> Made<T> {
    /// What was made, by `make` when nothing was.
    pub(super) fn get_or_make(&self, make: impl FnOnce() -> T) -> Arc<T> {
        Arc::clone(self.0.get_or_init(|| Arc::new(make())))
    }

    pub(super) fn get(&self) -> Option<&Arc<T>> {
        self.0.get()
    }
}

/// Tables are the same that say the same.
impl<T> PartialEq for Made<T> {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl<T> Default for Made<T> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<T> Clone for Made<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

/// Where to send the client.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RedirectTable {
    /// A path or URL; `{path}`, `{query}` (with its question mark), `{host}`, and `{rest}` for what
    /// the pattern's `*` matched.
    pub to: At<String>,
    /// 301, 302, 303, 307 or 308. 302 when absent.
    pub status: Option<At<u16>>,
}

/// A fixed answer.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RespondTable {
    /// 200 when absent.
    pub status: Option<At<u16>>,
    /// The body; empty when absent.
    pub body: Option<At<String>>,
    /// `text/plain; charset=utf-8` when absent.
    pub content_type: Option<At<String>>,
}

/// Programs that make the answer.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ScriptTable {
    /// What tells it from those of other routes, by what it says and where it holds.
    #[serde(skip)]
    pub(super) id: usize,
    /// How they are run. `cgi`: a process for each request, as RFC 3875 says. `warm`: the same,
    /// without the cost of starting each. `fastcgi`: workers that stay, started from `command` or
    /// reached at `connect`. `scgi`, `uwsgi`: by these protocols, at `connect`. `wsgi`, `asgi`, `psgi`: a
    /// Python or Perl application in processes of the server's. `cgiplus`: programs that stay and read one
    /// request after the other. `rte`: scripts that an interpreter which stays runs.
    pub kind: At<ScriptKind>,
    /// Directory of the scripts: what the pattern's `*` matches is looked for in it, and what
    /// follows the script's own name is its PATH_INFO. With `wsgi`, `asgi` and `psgi`, the application's
    /// directory.
    pub directory: Option<At<PathBuf>>,
    /// Directory beneath which the whole path names a script, as it names a file beneath a site's
    /// root. With neither it nor `directory`, one program answers all paths.
    pub root: Option<At<PathBuf>>,
    /// Extensions of scripts' names beneath `root` or `directory`. `["php"]` when absent; with
    /// `rte`, `["py"]` or `["pl"]`.
    pub extensions: Option<At<Vec<At<String>>>>,
    /// The program of a worker and its arguments; it listens on its standard input.
    pub command: Option<At<Vec<At<String>>>>,
    /// Workers elsewhere: `unix:/run/app.sock`, `127.0.0.1:9000`.
    pub connect: Option<At<Vec<At<String>>>>,
    /// The application: `module:callable`; with `psgi` a file, such as `app.psgi`.
    pub application: Option<At<String>>,
    /// The interpreter that loads the application, such as that of a virtual environment, or that
    /// runs the scripts of kind `rte`, Python or Perl. `python3` when absent; with `psgi`, `perl`.
    pub interpreter: Option<At<String>>,
    /// Requests that one process of a `wsgi` application works on at once. 1 when absent.
    pub threads: Option<At<usize>>,
    /// Most processes at once, with `cgiplus` of each program; with `connect`, most requests. 32 when absent, 4 for workers that
    /// are started here.
    pub processes: Option<At<usize>>,
    /// Workers that are not ended for want of requests. 1 when absent; with `asgi`, `processes`; with
    /// `cgiplus`, 0.
    pub min_processes: Option<At<usize>>,
    /// How long a worker beyond `min_processes` goes without a request before it is ended. `1m`
    /// when absent.
    pub retire_idle: Option<At<Span>>,
    /// Requests after which a worker is replaced; never when absent.
    pub requests: Option<At<usize>>,
    /// Age at which a worker is replaced; never when absent.
    pub max_age: Option<At<Span>>,
    /// Resident memory at which a worker is replaced; never when absent.
    pub max_resident: Option<At<Size>>,
    /// Pause before a worker that has died is replaced; it doubles with each in a row that dies
    /// before it has answered, up to `30s`. `100ms` when absent.
    pub backoff: Option<At<Span>>,
    /// Longest wait for a connection to a worker elsewhere. `5s` when absent.
    pub connect_timeout: Option<At<Span>>,
    /// How long a worker elsewhere that could not be reached is left alone while there are others.
    /// `10s` when absent.
    pub cool_down: Option<At<Span>>,
    /// Whether connections to workers elsewhere stay open. Each then holds one of them, so that
    /// there must be at least `processes`. False when absent.
    pub keep_alive: Option<At<bool>>,
    /// Most requests that wait for a process; the next one gets 503. 1024 when absent.
    pub queue: Option<usize>,
    /// Longest wait for a process; 503 after it. `30s` when absent.
    pub queue_timeout: Option<At<Span>>,
    /// Longest run of a script, however busy it is; no limit when absent.
    pub timeout: Option<At<Span>>,
    /// Longest wait for the end of the answer's header once the request has been handed over;
    /// the other two alone hold when absent.
    pub first_byte_timeout: Option<At<Span>>,
    /// Longest time in which a script neither reads nor writes before its answer is complete; no
    /// limit when 0. `60s` when absent.
    pub idle_timeout: Option<Span>,
    /// Variables of the environment, besides those that describe the request.
    pub env: Option<BTreeMap<At<String>, At<String>>>,
    /// Directories of which a script may name a file by `X-Sendfile`, to be sent instead of its own
    /// body: one or a list. A script that names another file is refused with 502.
    #[schemars(with = "Option<OneOrManySchema>")]
    pub sendfile_root: Option<At<OneOrMany<String>>>,
    /// Where a request's number comes from, which scripts get as HTTP_X_REQUEST_ID and the logs have:
    /// `make`, a new one for each; `accept`, the client's X-Request-Id where it sends one. `make` when absent.
    pub request_id: Option<RequestId>,
    /// Whether answers tell the number in X-Request-Id. False when absent.
    pub tell_request_id: Option<bool>,
    /// Whether the page of a failed script shows why, and what the script wrote to its standard error: for
    /// those who write it, never for the public. False when absent.
    pub show_errors: Option<bool>,
    /// Whether Authorization is handed to scripts. False when absent.
    pub authorization: Option<bool>,
    /// The user that processes run as, by name or number, with the groups that it is in; it takes a server that
    /// root has started and that stays root. The server's own when absent.
    pub user: Option<At<String>>,
    /// The group that processes run as, by name or number; it takes the same. The user's when absent.
    pub group: Option<At<String>>,
    /// Added to the priority number of the server's processes, from -20 to 19: the higher, the
    /// less a script gets of a busy processor. 0 when absent.
    pub nice: Option<At<i32>>,
    /// Most address space of a process (RLIMIT_AS); the server's own limit when absent.
    pub memory: Option<At<Size>>,
    /// Most processor time of a process (RLIMIT_CPU), in whole seconds; the server's own limit
    /// when absent.
    pub cpu: Option<At<Span>>,
    /// With `warm`: modules that Python and Perl load once, before requests come.
    pub preload: Option<At<Vec<String>>>,
}

impl ScriptTable {
    /// Whether its processes are to belong to another user or group than the server.
    pub(super) fn has_owner(&self) -> bool {
        self.user.is_some() || self.group.is_some()
    }

    /// The script that stands for a directory, where scripts are known by their extensions.
    pub(super) fn index(&self) -> Option<String> {
        let kind = self.kind.value;
        if kind.is_cgi() || kind.is_by_streams() || self.directory.is_none() && self.root.is_none()
        {
            return None;
        }
        let first = self.extensions.as_ref().and_then(|names| names.first());
        let extension = first.map_or("php", |name| name.trim_start_matches('.'));
        (!self.kind.value.has_host()).then(|| format!("index.{extension}"))
    }
}

/// Where the number of a request comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RequestId {
    /// It is made here.
    Make,
    /// The client may bring it.
    Accept,
}

/// How scripts are run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ScriptKind {
    /// A process for each request (RFC 3875).
    Cgi,
    /// A process for each request, made by a host that has done before what is the same for
    /// all.
    Warm,
    /// Workers that stay, by the FastCGI protocol.
    FastCgi,
    /// Workers elsewhere, by the SCGI protocol.
    Scgi,
    /// Workers elsewhere, by uWSGI's protocol.
    Uwsgi,
    /// A Python application (PEP 3333).
    Wsgi,
    /// An asynchronous Python application.
    Asgi,
    /// A Perl application (PSGI).
    Psgi,
    /// Programs that stay, which read requests from streams of their own (CGIplus).
    Cgiplus,
    /// Scripts that an interpreter which stays runs (the run-time environment).
    Rte,
}

impl ScriptKind {
    /// Whether a host of the server's loads an application.
    pub fn has_host(self) -> bool {
        matches!(self, Self::Wsgi | Self::Asgi | Self::Psgi)
    }

    /// Whether scripts are CGI programs, each in a process of its own.
    pub fn is_cgi(self) -> bool {
        matches!(self, Self::Cgi | Self::Warm)
    }

    /// Whether workers read requests from streams of their own.
    pub fn is_by_streams(self) -> bool {
        matches!(self, Self::Cgiplus | Self::Rte)
    }

    /// The word in the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Cgi => "cgi",
            Self::Warm => "warm",
            Self::FastCgi => "fastcgi",
            Self::Scgi => "scgi",
            Self::Uwsgi => "uwsgi",
            Self::Wsgi => "wsgi",
            Self::Asgi => "asgi",
            Self::Psgi => "psgi",
            Self::Cgiplus => "cgiplus",
            Self::Rte => "rte",
        }
    }
}

/// What entity tags are made from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum EtagKind {
    /// Inode, size and time of change.
    Stat,
    /// The content, by SHA-256; it is also sent as Repr-Digest to those who ask.
    Sha256,
    /// Nothing: there are none.
    Off,
}

/// Which symlinks are followed.
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

/// The limits of the cache on a route.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RouteCacheTable {
    /// Largest file that is held whole, instead of the server's limit.
    pub file: Size,
}

/// The cache on a route, in either form.
#[derive(Debug, Clone)]
pub enum RouteCache {
    /// On or off.
    Switch(bool),
    /// On, with a limit of its own.
    Table(RouteCacheTable),
}

/// How a route finds out who asks.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AuthTable {
    /// File of users and hashed passwords as `dunlin passwd` and Apache's htpasswd write it: argon2id,
    /// bcrypt, SHA-crypt and Apache's MD5. Changes hold within a second.
    pub basic: Option<At<PathBuf>>,
    /// What the browser shows when it asks for the password. `Restricted` when absent.
    pub realm: Option<At<String>>,
    /// Wrong passwords of one address within a minute, after which it is answered with 429. 10 when
    /// absent.
    pub attempts: Option<At<usize>>,
    /// Who decides instead: a path of the same site, `http://host:port/path` or
    /// `unix:/socket:/path`. It is asked by GET with the request's fields and `X-Forwarded-Method`,
    /// `-Uri`, `-Host`, `-For` and `-Proto`; 2xx lets the request pass, every other answer below 500
    /// goes to the client.
    pub forward: Option<At<String>>,
    /// Field of that answer that names the user. `Remote-User` when absent.
    pub user_field: Option<At<String>>,
    /// Longest wait for that answer. `5s` when absent.
    pub timeout: Option<At<Span>>,
    // What was found out lately: of all routes that share this table.
    #[serde(skip)]
    #[schemars(skip)]
    pub(super) users: Arc<crate::gate::UserFile>,
    #[serde(skip)]
    #[schemars(skip)]
    pub(super) failures: Arc<crate::gate::Attempts>,
}

/// How a route finds out who asks, if it does.
#[derive(Debug, Clone)]
pub enum Auth {
    /// Not at all.
    Off,
    /// As the table says.
    Table(Box<AuthTable>),
}

#[derive(JsonSchema)]
#[schemars(rename = "Auth", untagged)]
#[expect(dead_code, reason = "only its schema is used")]
enum AuthSchema {
    Switch(bool),
    Table(Box<AuthTable>),
}

/// How records are laid out.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RecordsTable {
    /// `variable` or `vfc`.
    pub format: RecordFormat,
    /// Bytes of the control header of a `vfc` record. 2 when absent.
    pub control: Option<At<u16>>,
    /// Whether the converted form is written beside the source, as `NAME.stmlf`. False when
    /// absent.
    pub write: Option<bool>,
}

/// How records are laid out, in either form.
#[derive(Debug, Clone)]
pub struct RecordRules(pub RecordsTable);

/// A record format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RecordFormat {
    /// Each record has a length before it.
    Variable,
    /// Each record also has a control header.
    Vfc,
}

/// Codings: all, none, or those in a list.
#[derive(Debug, Clone)]
pub struct Codings(pub Vec<Coding>);

/// One value or a list of them.
#[derive(Debug, Clone)]
pub struct OneOrMany<T>(pub Vec<At<T>>);

#[derive(JsonSchema)]
#[schemars(rename = "OneOrMany", untagged)]
#[expect(dead_code, reason = "only its schema is used")]
enum OneOrManySchema {
    One(String),
    Many(Vec<String>),
}

#[derive(JsonSchema)]
#[schemars(rename = "RouteCache", untagged)]
#[expect(dead_code, reason = "only its schema is used")]
enum RouteCacheSchema {
    Switch(bool),
    Table(RouteCacheTable),
}

#[derive(JsonSchema)]
#[schemars(rename = "Records", untagged)]
#[expect(dead_code, reason = "only its schema is used")]
enum RecordsSchema {
    Format(RecordFormat),
    Table(RecordsTable),
}

#[derive(JsonSchema)]
#[schemars(rename = "Codings", untagged)]
#[expect(dead_code, reason = "only its schema is used")]
enum CodingsSchema {
    Switch(bool),
    List(Vec<CodingName>),
}

/// A content coding.
#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum CodingName {
    Zstd,
    Br,
    Gzip,
}

impl From<CodingName> for Coding {
    fn from(name: CodingName) -> Self {
        match name {
            CodingName::Zstd => Self::Zstd,
            CodingName::Br => Self::Brotli,
            CodingName::Gzip => Self::Gzip,
        }
    }
}
