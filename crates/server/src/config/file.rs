//! The file as it is written. Each key is described here once; the reader, the schema and the
//! book take it from here.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::path::PathBuf;

use dunlin_http::semantics::Coding;
use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor};
use toml::Spanned;

use super::units::{Rate, Size, Span};

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
    pub threads: Option<usize>,
    /// Where the access log goes: a path, `-` for standard output, `off`, or a table with a
    /// format. Off when absent.
    #[schemars(with = "Option<AccessLogSchema>")]
    pub access_log: Option<AccessLog>,
    /// What the error log tells; it goes to standard error.
    pub error_log: ErrorLog,
    /// The most connections at once, over all loops; past it newcomers wait in the backlog. Half
    /// of the descriptor limit when absent.
    pub connections: Option<usize>,
    /// How long answers under way may take when the server stops. `30s` when absent.
    pub stop_timeout: Option<Span>,
    /// Whether responses carry `Server: dunlin`. True when absent.
    pub server_field: Option<bool>,
    /// Settings of HTTP/1 connections.
    pub http1: Http1,
    /// Bounds of the file cache.
    pub cache: Cache,
    /// Look up the names of clients for the log; not done when the table is absent.
    pub reverse_dns: Option<ReverseDns>,
}

/// Where the access log goes.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AccessLogTable {
    /// A path, or `-` for standard output.
    pub path: PathBuf,
    /// `common`, `combined`, `json`, or a text with placeholders. `combined` when absent.
    pub format: Option<String>,
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
        Self(AccessLogTable { path: path.into(), format: None })
    }
}

/// What the error log tells.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ErrorLog {
    /// The least severe level that is told. `info` when absent.
    pub level: LogLevel,
    /// How a message is written. `text` when absent.
    pub format: LogFormat,
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
    pub idle_timeout: Option<Span>,
    /// Longest time from the first byte of a request to the end of its head. `10s` when absent.
    pub head_timeout: Option<Span>,
    /// Longest pause while a body arrives. `30s` when absent.
    pub body_timeout: Option<Span>,
    /// Least average rate of a body that takes longer than `body_timeout`. `500B/s` when absent.
    pub body_rate: Option<Rate>,
    /// Longest time in which a client takes nothing of a response. `30s` when absent.
    pub send_timeout: Option<Span>,
    /// Largest request head. `32KiB` when absent, at most `65535`.
    pub head_size: Option<Size>,
    /// Longest request-target. `8KiB` when absent.
    pub target_size: Option<Size>,
    /// Most fields of a request. 100 when absent, at most 254.
    pub fields: Option<usize>,
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

/// How the names of clients are found.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ReverseDns {
    /// Address and port of a resolver; the system's when absent.
    pub resolver: Option<std::net::SocketAddr>,
    /// Longest wait for an answer. `2s` when absent.
    pub timeout: Option<Span>,
    /// Names that are remembered. 10000 when absent.
    pub entries: Option<usize>,
    /// How long a name is remembered. `1h` when absent.
    pub ttl: Option<Span>,
    /// Look-ups under way at once. 64 when absent.
    pub concurrent: Option<usize>,
}

/// An address to listen on.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Listen {
    /// `127.0.0.1:8080`, `[::1]:8080`, or `:8080` for every address of the machine.
    #[schemars(with = "String")]
    pub address: Spanned<String>,
    /// Connections that wait to be accepted. 4096 when absent.
    pub backlog: Option<u16>,
}

impl Default for Listen {
    fn default() -> Self {
        Self { address: at_start("127.0.0.1:8080".to_owned()), backlog: None }
    }
}

/// What is served for some hosts.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Site {
    /// Names, each exact or with `*.` in front; the site for every other host when absent.
    #[schemars(with = "Option<OneOrManySchema>")]
    pub host: Option<Spanned<OneOrMany<String>>>,
    /// Directory of the files; a route may name another.
    #[schemars(with = "Option<PathBuf>")]
    pub root: Option<Spanned<PathBuf>>,
    /// Settings by path.
    pub route: Vec<Route>,
}

macro_rules! route {
    ($($(#[$meta:meta])* $name:ident: $type:ty,)*) => {
        /// Settings for the paths that match a pattern. The most specific pattern wins, setting by
        /// setting; the order in the file does not matter.
        #[derive(Debug, Clone, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields)]
        pub struct Route {
            /// A path, or a pattern with one `*`: `/a/*`, `*.css`.
            #[schemars(with = "String")]
            pub path: Spanned<String>,
            $($(#[$meta])* #[serde(default)] pub $name: Option<$type>,)*
        }

        impl Default for Route {
            fn default() -> Self {
                Self { path: at_start("/*".to_owned()), $($name: None,)* }
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
        }
    };
}

route! {
    /// Directory of the files, instead of the site's.
    root: PathBuf,
    /// Files that stand for their directory. `["index.html"]` when absent.
    index: Vec<String>,
    /// What to look for in turn: paths with `{path}` for the request's, a last `=404` for a
    /// status. A single-page application has `["{path}", "/index.html"]`.
    r#try: Vec<String>,
    /// Whether a directory without index file is listed. False when absent.
    listing: bool,
    /// Send the client elsewhere.
    redirect: RedirectTable,
    /// Answer with a fixed text.
    respond: RespondTable,
    /// Response fields to set.
    set_fields: BTreeMap<String, String>,
    /// Response fields to remove.
    remove_fields: Vec<String>,
    /// Value of Cache-Control.
    cache_control: String,
    /// How long clients may keep a file: sets Expires, and max-age unless `cache_control` is set.
    expires: Span,
    /// Charset of text; none is stated when empty. `utf-8` when absent.
    charset: String,
    /// Media types by file name extension.
    types: BTreeMap<String, String>,
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
    /// Pages for error statuses, by path within the site.
    error_pages: BTreeMap<String, String>,
    /// Whether requests are written to the access log. True when absent.
    access_log: bool,
    /// Largest request body. `1MiB` when absent.
    body_size: Size,
    /// Most ranges of one request; 0 switches ranges off. 16 when absent.
    ranges: usize,
}

/// Where to send the client.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RedirectTable {
    /// A path or URL; `{path}`, `{query}` (with its question mark), `{host}`, and `{rest}` for what
    /// the pattern's `*` matched.
    pub to: String,
    /// 301, 302, 303, 307 or 308. 302 when absent.
    pub status: Option<u16>,
}

/// A fixed answer.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RespondTable {
    /// 200 when absent.
    pub status: Option<u16>,
    /// The body; empty when absent.
    pub body: Option<String>,
    /// `text/plain; charset=utf-8` when absent.
    pub content_type: Option<String>,
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

/// How records are laid out.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RecordsTable {
    /// `variable` or `vfc`.
    pub format: RecordFormat,
    /// Bytes of the control header of a `vfc` record. 2 when absent.
    pub control: Option<u16>,
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
pub struct OneOrMany<T>(pub Vec<T>);

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
enum CodingName {
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

/// A value that stands at the start of a file that does not exist.
pub(super) fn at_start<T>(value: T) -> Spanned<T> {
    Spanned::new(0..0, value)
}

/// A value that has more than one form; each form has its own error texts, which an untagged enum
/// would lose.
trait Forms: Sized {
    const EXPECTED: &'static str;

    fn from_str<E: Error>(text: &str) -> Result<Self, E> {
        Err(E::invalid_type(serde::de::Unexpected::Str(text), &Self::EXPECTED))
    }

    fn from_bool<E: Error>(value: bool) -> Result<Self, E> {
        Err(E::invalid_type(serde::de::Unexpected::Bool(value), &Self::EXPECTED))
    }

    fn from_map<'de, A: MapAccess<'de>>(_: A) -> Result<Self, A::Error> {
        Err(A::Error::invalid_type(serde::de::Unexpected::Map, &Self::EXPECTED))
    }

    fn from_seq<'de, A: SeqAccess<'de>>(_: A) -> Result<Self, A::Error> {
        Err(A::Error::invalid_type(serde::de::Unexpected::Seq, &Self::EXPECTED))
    }

    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(FormsVisitor(PhantomData))
    }
}

struct FormsVisitor<T>(PhantomData<T>);

impl<'de, T: Forms> Visitor<'de> for FormsVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(T::EXPECTED)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        T::from_str(text)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<T, E> {
        T::from_bool(value)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
        T::from_map(map)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<T, A::Error> {
        T::from_seq(list)
    }
}

macro_rules! deserialize_forms {
    ($($type:ty),*) => {
        $(impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                Self::read(deserializer)
            }
        })*
    };
}

deserialize_forms!(AccessLog, RouteCache, RecordRules, Codings, OneOrMany<String>);

impl Forms for AccessLog {
    const EXPECTED: &'static str = "a path, `off` or a table";

    fn from_str<E: Error>(text: &str) -> Result<Self, E> {
        Ok(Self::to(text))
    }

    fn from_map<'de, A: MapAccess<'de>>(map: A) -> Result<Self, A::Error> {
        AccessLogTable::deserialize(MapAccessDeserializer::new(map)).map(Self)
    }
}

impl Forms for RouteCache {
    const EXPECTED: &'static str = "true, false or a table";

    fn from_bool<E: Error>(value: bool) -> Result<Self, E> {
        Ok(Self::Switch(value))
    }

    fn from_map<'de, A: MapAccess<'de>>(map: A) -> Result<Self, A::Error> {
        RouteCacheTable::deserialize(MapAccessDeserializer::new(map)).map(Self::Table)
    }
}

impl Forms for RecordRules {
    const EXPECTED: &'static str = "`variable`, `vfc` or a table";

    fn from_str<E: Error>(text: &str) -> Result<Self, E> {
        let format = RecordFormat::deserialize(serde::de::value::StrDeserializer::new(text))?;
        Ok(Self(RecordsTable { format, control: None, write: None }))
    }

    fn from_map<'de, A: MapAccess<'de>>(map: A) -> Result<Self, A::Error> {
        RecordsTable::deserialize(MapAccessDeserializer::new(map)).map(Self)
    }
}

impl Forms for Codings {
    const EXPECTED: &'static str = "true, false or a list such as [\"zstd\", \"br\", \"gzip\"]";

    fn from_bool<E: Error>(value: bool) -> Result<Self, E> {
        Ok(Self(if value { vec![Coding::Zstd, Coding::Brotli, Coding::Gzip] } else { vec![] }))
    }

    fn from_seq<'de, A: SeqAccess<'de>>(mut list: A) -> Result<Self, A::Error> {
        let mut codings = Vec::new();
        while let Some(name) = list.next_element::<CodingName>()? {
            codings.push(name.into());
        }
        Ok(Self(codings))
    }
}

impl Forms for OneOrMany<String> {
    const EXPECTED: &'static str = "a text or a list of texts";

    fn from_str<E: Error>(text: &str) -> Result<Self, E> {
        Ok(Self(vec![text.to_owned()]))
    }

    fn from_seq<'de, A: SeqAccess<'de>>(mut list: A) -> Result<Self, A::Error> {
        let mut values = Vec::new();
        while let Some(value) = list.next_element()? {
            values.push(value);
        }
        Ok(Self(values))
    }
}
