//! Settings of the whole server.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;

use super::Spanned;
use super::log::{AccessLogForm, AccessLogSchema, ErrorLogTable};
use crate::units::{DurationValue, Rate, Size};

/// Settings of the whole server.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(rename = "Server")]
pub struct ServerTable {
    /// Number of worker threads. Default: one for each core.
    pub threads: Option<Spanned<usize>>,
    /// Time for which a worker that has no work polls its sockets before it sleeps, at most `1ms`. It does so only while
    /// its waits for work are shorter than that. Responses start sooner, at the price of CPU time. Default: 0, the worker
    /// sleeps at once.
    pub busy_poll: Option<Spanned<DurationValue>>,
    /// Access log: a path, `-` for standard output, `off`, or a table with a format. Default: off.
    #[schemars(with = "Option<AccessLogSchema>")]
    pub access_log: Option<Spanned<AccessLogForm>>,
    /// Path of a Unix socket for commands (`dunlin reload`, `dunlin upgrade`, `dunlin watch`, `dunlin top`) and the
    /// status; only the user of the server can open it. Default: none.
    pub admin: Option<Spanned<PathBuf>>,
    /// User that the server becomes after it has opened its sockets, logs and certificates. Default: the user who
    /// starts it.
    pub user: Option<Spanned<String>>,
    /// Group that the server becomes. Default: the user's own.
    pub group: Option<Spanned<String>>,
    /// Root directory of the server and its scripts (`chroot`). Every path in the configuration must be inside, and
    /// is written as seen from outside; requires `user`. Default: none.
    pub chroot: Option<Spanned<PathBuf>>,
    /// Resource limits of the server and of each of its scripts (`setrlimit`).
    pub limits: Limits,
    /// `true` prevents started programs from gaining privileges, as with `sudo`. Default: true with `landlock` or
    /// `seccomp`, otherwise false.
    pub no_new_privs: Option<Spanned<bool>>,
    /// Restricts the server and its scripts to the files that the configuration names, those of the system, and these
    /// (Landlock). Default: all files.
    pub landlock: Option<Landlock>,
    /// `true` filters system calls: if the server starts no scripts, only those that it needs are allowed;
    /// otherwise those that no web site needs are denied (mount, ptrace, kernel modules, ...). Default: false.
    pub seccomp: Option<Spanned<bool>>,
    /// File with the process ID of the server while it runs. Default: none.
    pub pid_file: Option<Spanned<PathBuf>>,
    /// Level, format and target of the error log.
    pub error_log: ErrorLogTable,
    /// Maximum number of connections of all workers; new ones beyond it wait in the listen backlog. Default: half
    /// of the descriptor limit.
    pub connections: Option<Spanned<usize>>,
    /// From this number of connections on, each new connection closes another one that is idle or has not sent a
    /// complete request. Default: 90 % of `connections`.
    pub evict_idle_above: Option<Spanned<usize>>,
    /// Maximum number of connections of one address, or of one IPv6 network of /64; further ones are closed at
    /// once. Default: no limit, but half of `connections` for those without a complete request.
    pub connections_per_address: Option<Spanned<usize>>,
    /// Time from the signal to stop until new connections are no longer accepted. During it, routes with `readiness`
    /// respond with 503, so that balancers send no more requests; all other routes are served as before. Default: `0s`.
    pub drain: Option<DurationValue>,
    /// Time in which responses in progress are completed when the server stops. Default: `30s`.
    pub stop_timeout: Option<DurationValue>,
    /// Time in which the new process of an upgrade must be ready; otherwise it is ended, and the old one continues.
    /// Default: `30s`.
    pub upgrade_timeout: Option<Spanned<DurationValue>>,
    /// Maximum size of all request bodies in temporary files together; uploads beyond it get 503. Default: four
    /// times the largest `body_size`, and at least `1GiB`.
    pub spool_size: Option<Size>,
    /// Memory that requests and responses in progress may hold, over all connections together. While they hold more, new
    /// requests get 503, unless they are for cached files. Default: a quarter of the memory of the machine or of the
    /// container, and at least `64MiB`.
    pub memory: Option<Spanned<Size>>,
    /// `true`: files have the statuses of nginx, and text no `charset` but that of its route. `OPTIONS` and unknown methods get 405, as does every method but `GET` and `HEAD`
    /// where the files come before a proxy. Redirects to directories are 301 for every method. A `try` list whose last path
    /// does not exist gives 500. Default: false, that is 204 with `Allow`, 501, the response of the proxy, 308 and 404.
    pub nginx_statuses: Option<bool>,
    /// Percentage of each worker's time that compression of responses of scripts and upstreams may take. Above half of it,
    /// further responses are compressed at the fastest level, and above it, they are sent uncompressed; one client gets two
    /// thirds of it. 100 is no limit. Default: 60.
    pub compress_share: Option<Spanned<usize>>,
    /// `true` adds `Server: dunlin` to responses. Default: true.
    pub server_field: Option<bool>,
    /// Directory for data that survives a restart: ACME accounts and certificates, compiled components. Default:
    /// `/var/lib/dunlin`.
    pub state: Option<Spanned<PathBuf>>,
    /// Bucket of an object store in which several servers share ACME accounts and certificates: `s3://bucket/prefix`, also
    /// `gs://` and `az://`. No root may contain the prefix. Default: none, or the store of `[shared]`.
    pub acme_storage: Option<Spanned<PathBuf>>,
    /// Addresses and ports of the name servers that resolve the names of upstreams of proxies, of workers, and of zones for `dns-01`:
    /// `["10.0.0.2:53"]`. Default: those of `/etc/resolv.conf`. `/etc/hosts` applies in both cases.
    pub resolver: Option<Vec<std::net::SocketAddr>>,
    /// Networks of proxies that are trusted to name the client of a request, in `forwarded_field`. Default: none.
    pub trusted_proxies: Option<Vec<Spanned<String>>>,
    /// Header in which trusted proxies name the client: `X-Forwarded-For` (with `X-Forwarded-Proto`), `Forwarded`, or one
    /// that contains an address, such as `X-Real-IP` or `CF-Connecting-IP`. All other forwarding headers are ignored and
    /// not passed to scripts. Default: `X-Forwarded-For`.
    pub forwarded_field: Option<Spanned<String>>,
    /// Sizes and timeouts of connections.
    pub http1: Http1Table,
    /// Settings of HTTP/3 connections.
    pub http3: Http3Table,
    /// Limits of the file cache and of the response cache.
    pub cache: CacheTable,
    /// Collector of traces. Default: no traces are sent.
    pub traces: Option<Spanned<TracesTable>>,
    /// Query keys whose values are removed from logs and traces, instead of the default ones (`token`, `password`,
    /// `signature` and similar).
    pub redact_query: Option<Vec<Spanned<String>>>,
    /// Resolves the names of clients for the log. Default: off.
    pub reverse_dns: Option<ReverseDnsTable>,
}

/// Resource limits of the server's process and of each of its scripts.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Open descriptors: connections, files, pipes. Default: the maximum that the system allows.
    pub open_files: Option<Spanned<usize>>,
    /// Size of the core file of a process that crashes; `0` for none. Default: unchanged.
    pub core: Option<Size>,
    /// Processes and threads of the server's user, however they were started; root is exempt. Default: unchanged.
    pub processes: Option<Spanned<usize>>,
    /// Address space of each process; `memory` of a script can be lower. Default: unchanged.
    pub memory: Option<Spanned<Size>>,
}

/// Files besides those that the configuration names: each a file, or a directory with all that is
/// beneath it.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Landlock {
    /// Files and directories that can be read.
    pub read: Vec<Spanned<PathBuf>>,
    /// Files and directories that can be written, created and removed.
    pub write: Vec<Spanned<PathBuf>>,
    /// Programs that can be run, and files that they read.
    pub execute: Vec<Spanned<PathBuf>>,
}

/// Settings of HTTP/1 connections.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(rename = "Http1")]
pub struct Http1Table {
    /// Use of a connection: `close`, `persistent` or `pipelined`. Default: `pipelined`.
    pub connection: ConnectionUse,
    /// Maximum wait for the next request. Default: `75s`.
    pub idle_timeout: Option<Spanned<DurationValue>>,
    /// Maximum time from the first byte of a request to the end of its head. Default: `10s`.
    pub head_timeout: Option<Spanned<DurationValue>>,
    /// Maximum pause while a body arrives. Default: `30s`.
    pub body_timeout: Option<Spanned<DurationValue>>,
    /// Minimum average rate of a body that takes longer than `body_timeout`. Default: `500B/s`.
    pub body_rate: Option<Rate>,
    /// Maximum time for which a client reads nothing of a response. Default: `30s`.
    pub send_timeout: Option<Spanned<DurationValue>>,
    /// Maximum size of a request head, up to `65535`. Default: `32KiB`.
    pub head_size: Option<Spanned<Size>>,
    /// Maximum size of a request-target, up to `head_size`. Default: `8KiB`.
    pub target_size: Option<Spanned<Size>>,
    /// Maximum number of headers of a request, up to 254. Default: 100.
    pub fields: Option<Spanned<usize>>,
    /// Maximum number of requests of one connection; 0 for no limit. Default: 0.
    pub requests: Option<u64>,
    /// Accept LF alone as the end of a line of a head, as old programs send it. Requests with such lines are rejected otherwise, since proxies read them
    /// differently. Default: false.
    pub bare_lf: bool,
}

/// The use of a connection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ConnectionUse {
    /// One request, as in HTTP/1.0.
    Close,
    /// Requests one after the other, each response in a separate write.
    Persistent,
    /// The responses to all requests that have arrived in one write.
    #[default]
    Pipelined,
}

/// Settings of HTTP/3 connections.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(rename = "Http3")]
pub struct Http3Table {
    /// Congestion control of what is sent: `cubic` (RFC 9438), `bbr`, which keeps its rate when packets are lost, or `system`: the one of the two that the system uses for TCP, CUBIC if it uses neither. Default: `system`.
    pub congestion: CongestionControl,
    /// Directory for records of connections in the format qlog, a file of at most 10 MB for each of the first 100
    /// connections since the start. The server creates it, for its user alone. Default: none.
    pub qlog: Option<Spanned<PathBuf>>,
}

/// An algorithm of congestion control.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum CongestionControl {
    /// The algorithm that the system uses for TCP, if it is one of the others; CUBIC otherwise.
    #[default]
    System,
    /// CUBIC (RFC 9438).
    Cubic,
    /// BBR, which estimates bandwidth and round-trip time instead of reacting to losses.
    Bbr,
}

/// Limits of the file cache and of the response cache.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(rename = "Cache")]
pub struct CacheTable {
    /// Memory for the content of files, and for responses on routes with `cache = { responses = true }`. Default: a sixteenth of the memory of the machine or container, but at least `32MiB` and at
    /// most `1GiB`.
    pub size: Option<Size>,
    /// Size up to which a file is held completely; larger ones are held as open descriptors. Default: `256KB`.
    pub file: Option<Size>,
    /// Directory in which responses, and objects of object stores, are kept, also over restarts. The server creates it, for its user alone, and owns what is in it.
    /// Default: none.
    pub directory: Option<Spanned<PathBuf>>,
    /// Maximum size of the files in `directory`. Default: `1GB`.
    pub disk: Option<Spanned<Size>>,
    /// Maximum size of the versions of files, and of the dictionaries for pages, that are kept (`dictionary` of routes), in `directory` besides `disk`, or
    /// in memory if there is none; 0 for none. Default: `256MB` in a directory, `32MB` in memory.
    pub dictionaries: Option<Size>,
    /// Maximum number of files, and of URLs with cached responses. Default: 50000.
    pub entries: Option<usize>,
    /// Maximum number of descriptors that stay open. Default: a quarter of the descriptor limit.
    pub descriptors: Option<usize>,
    /// Time for which a file is served without a comparison with the disk, even if the kernel reports changes.
    /// Default: `5s`.
    pub revalidate: Option<DurationValue>,
    /// `true` watches files for changes, which the kernel reports (inotify). Default: true.
    pub notify: Option<bool>,
}

/// The collector that traces of requests are sent to.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(
    deny_unknown_fields,
    expecting = "a table such as { endpoint = \"http://127.0.0.1:4318/v1/traces\", sample = 0.01 }"
)]
#[schemars(rename = "Traces")]
pub struct TracesTable {
    /// URL of the collector's OTLP receiver, such as `http://127.0.0.1:4318/v1/traces`, also with `https://`.
    pub endpoint: Spanned<String>,
    /// File of the authorities that sign the certificate of an https collector. Default: those that the system
    /// trusts.
    pub authority: Option<Spanned<PathBuf>>,
    /// Share of the requests that are traced, from 0 to 1, unless the client has decided by `traceparent`. Default:
    /// 1.
    pub sample: Option<Spanned<f64>>,
    /// Name of the service in traces. Default: `dunlin`.
    pub service: Option<String>,
}

/// Reverse lookups of the names of clients.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(rename = "ReverseDns")]
pub struct ReverseDnsTable {
    /// Address and port of the resolver. Default: the system's.
    pub resolver: Option<std::net::SocketAddr>,
    /// Maximum wait for a response. Default: `2s`.
    pub timeout: Option<Spanned<DurationValue>>,
    /// Maximum number of cached names. Default: 10000.
    pub entries: Option<usize>,
    /// Time for which a name is cached. Default: `1h`.
    pub ttl: Option<Spanned<DurationValue>>,
    /// Maximum number of concurrent look-ups. Default: 64.
    pub concurrent: Option<Spanned<usize>>,
}
