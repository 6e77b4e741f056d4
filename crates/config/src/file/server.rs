//! Settings of the whole server.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;

use super::Spanned;
use super::log::{AccessLog, AccessLogSchema, ErrorLog};
use crate::units::{DurationValue, Rate, Size};

/// Settings of the whole server.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Server {
    /// Worker threads; one for each processor when absent.
    pub threads: Option<Spanned<usize>>,
    /// Where the access log goes: a path, `-` for standard output, `off`, or a table with a
    /// format. Off when absent.
    #[schemars(with = "Option<AccessLogSchema>")]
    pub access_log: Option<Spanned<AccessLog>>,
    /// Path of a Unix socket at which the server takes commands and reports its state (`dunlin
    /// reload`, `dunlin upgrade`, `dunlin watch`, `dunlin top`); only its own user can reach it. None
    /// when absent.
    pub admin: Option<Spanned<PathBuf>>,
    /// User that the server becomes when its sockets, logs and certificates are open. The one that starts
    /// it when absent.
    pub user: Option<Spanned<String>>,
    /// Group that it becomes, instead of the user's own.
    pub group: Option<Spanned<String>>,
    /// Directory that becomes all the files there are to the server and its scripts (`chroot`). Everything
    /// that the configuration names has to be in it, and is named as from outside; `user` has to be
    /// set. None when absent.
    pub chroot: Option<Spanned<PathBuf>>,
    /// Resource limits of the server's process and of each of its scripts (`setrlimit`).
    pub limits: Limits,
    /// Whether the server and its scripts can never gain privileges by what they start (`sudo` and the
    /// like). True with `landlock` or `seccomp`, else false when absent.
    pub no_new_privs: Option<Spanned<bool>>,
    /// Files that the server and its scripts may use at all, besides those that the configuration names
    /// and those of the system; all others are out of reach (Landlock). Every file when absent.
    pub landlock: Option<Landlock>,
    /// Whether system calls are blocked: for a server that starts no scripts all but those that it
    /// needs, else to both those that a web site has no use for (mount, ptrace, kernel modules, ...). False when
    /// absent.
    pub seccomp: Option<Spanned<bool>>,
    /// File with the process ID of the server while it runs. None when absent.
    pub pid_file: Option<Spanned<PathBuf>>,
    /// Level, format and target of the error log.
    pub error_log: ErrorLog,
    /// Maximum number of connections of all workers; new ones beyond it wait in the backlog. Half
    /// of the descriptor limit when absent.
    pub connections: Option<Spanned<usize>>,
    /// From this number of connections on, each new one has another one closed: one that is idle, or that has not sent a
    /// complete request. 90 % of `connections` when absent.
    pub evict_idle_above: Option<Spanned<usize>>,
    /// Maximum number of connections of one address, or of one IPv6 network of /64; further ones are closed at
    /// once. When absent, only those without a complete request are limited, to half of `connections`.
    pub connections_per_address: Option<Spanned<usize>>,
    /// Time that responses in progress may take when the server stops. `30s` when absent.
    pub stop_timeout: Option<DurationValue>,
    /// How long the new process of an upgrade may take until it serves; one that takes longer is ended, and
    /// the old one goes on. `30s` when absent.
    pub upgrade_timeout: Option<Spanned<DurationValue>>,
    /// Most bytes of request bodies in temporary files at once; uploads beyond it are rejected with 503. Four times the
    /// largest `body_size`, and at least `1GiB`, when absent.
    pub spool_size: Option<Size>,
    /// Whether responses carry `Server: dunlin`. True when absent.
    pub server_field: Option<bool>,
    /// Directory in which the server keeps what has to outlive it: accounts and certificates of ACME.
    /// `/var/lib/dunlin` when absent.
    pub state: Option<Spanned<PathBuf>>,
    /// Networks of proxies that are trusted to name the client of a request, by `forwarded_field`. None
    /// when absent.
    pub trusted_proxies: Option<Vec<Spanned<String>>>,
    /// The one field by which the trusted proxies name the client: `X-Forwarded-For` (with
    /// `X-Forwarded-Proto`), `Forwarded`, or one that holds an address, such as `X-Real-IP` or
    /// `CF-Connecting-IP`. All other forwarding fields are ignored and not passed to scripts.
    /// `X-Forwarded-For` when absent.
    pub forwarded_field: Option<Spanned<String>>,
    /// Settings of HTTP/1 connections.
    pub http1: Http1,
    /// Bounds of the file cache.
    pub cache: Cache,
    /// Send traces of requests to a collector; none are made when absent.
    pub traces: Option<Spanned<Traces>>,
    /// Query keys whose values are kept out of logs and traces, instead of the usual ones (`token`,
    /// `password`, `signature` and their like).
    pub redact_query: Option<Vec<Spanned<String>>>,
    /// Look up the names of clients for the log; not done when the table is absent.
    pub reverse_dns: Option<ReverseDns>,
}

/// Resource limits of the server's process and of each of its scripts.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Open descriptors: connections, files, pipes. All that the system allows when absent.
    pub open_files: Option<Spanned<usize>>,
    /// Size of what is left of a process that crashes; `0` for nothing. As it was started when absent.
    pub core: Option<Size>,
    /// Processes and threads of the server's user, however they were started; root is exempt. As it
    /// was started when absent.
    pub processes: Option<Spanned<usize>>,
    /// Address space of each process; scripts may have less (`memory` of a script). As it was started when
    /// absent.
    pub memory: Option<Spanned<Size>>,
}

/// Files besides those that the configuration names: each a file, or a directory with all that is
/// beneath it.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Landlock {
    /// What may be read.
    pub read: Vec<Spanned<PathBuf>>,
    /// What may be written, made and removed.
    pub write: Vec<Spanned<PathBuf>>,
    /// Programs that may be run, and what they read.
    pub execute: Vec<Spanned<PathBuf>>,
}

/// Settings of HTTP/1 connections.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Http1 {
    /// How a connection is used. `pipelined` when absent.
    pub connection: ConnectionUse,
    /// Longest wait for the next request. `75s` when absent.
    pub idle_timeout: Option<Spanned<DurationValue>>,
    /// Longest time from the first byte of a request to the end of its head. `10s` when absent.
    pub head_timeout: Option<Spanned<DurationValue>>,
    /// Longest pause while a body arrives. `30s` when absent.
    pub body_timeout: Option<Spanned<DurationValue>>,
    /// Least average rate of a body that takes longer than `body_timeout`. `500B/s` when absent.
    pub body_rate: Option<Rate>,
    /// Longest time in which a client takes nothing of a response. `30s` when absent.
    pub send_timeout: Option<Spanned<DurationValue>>,
    /// Largest request head. `32KiB` when absent, at most `65535`.
    pub head_size: Option<Spanned<Size>>,
    /// Longest request-target. `8KiB` when absent, at most `head_size`.
    pub target_size: Option<Spanned<Size>>,
    /// Most fields of a request. 100 when absent, at most 254.
    pub fields: Option<Spanned<usize>>,
    /// Most requests of one connection; no limit when absent or 0.
    pub requests: Option<u64>,
}

/// How a connection is used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ConnectionUse {
    /// One request, as in HTTP/1.0.
    Close,
    /// Requests one after the other, each response in a write of its own.
    Persistent,
    /// The responses to all requests that have arrived in one write.
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
    pub revalidate: Option<DurationValue>,
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
    pub endpoint: Spanned<String>,
    /// File of the authorities by whom the certificate of a collector by https has to be signed. Those that
    /// the system trusts when absent.
    pub authority: Option<Spanned<PathBuf>>,
    /// Share of the requests that are traced, from 0 to 1, where the client has not decided in
    /// `traceparent`. 1 when absent.
    pub sample: Option<Spanned<f64>>,
    /// The name of the service in traces. `dunlin` when absent.
    pub service: Option<String>,
}

/// How the names of clients are found.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ReverseDns {
    /// Address and port of a resolver; the system's when absent.
    pub resolver: Option<std::net::SocketAddr>,
    /// Maximum wait for a response. `2s` when absent.
    pub timeout: Option<Spanned<DurationValue>>,
    /// Names that are remembered. 10000 when absent.
    pub entries: Option<usize>,
    /// How long a name is remembered. `1h` when absent.
    pub ttl: Option<Spanned<DurationValue>>,
    /// Look-ups under way at once. 64 when absent.
    pub concurrent: Option<Spanned<usize>>,
}
