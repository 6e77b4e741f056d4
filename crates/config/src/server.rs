//! Settings of the whole server, with every default filled in.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::allowed_paths::AllowedPaths;
use super::file;
use super::file::ConnectionUse as Persistence;
use super::forwarded_field::ForwardedField;
use super::log_format::AccessLogFormat;
use super::network::Network;

/// Query keys whose values are redacted by default.
pub const REDACTED_QUERY_KEYS: [&str; 19] = [
    "access_token",
    "api_key",
    "apikey",
    "auth",
    "awsaccesskeyid",
    "client_secret",
    "id_token",
    "passwd",
    "password",
    "pwd",
    "refresh_token",
    "secret",
    "session",
    "sig",
    "signature",
    "token",
    "x-amz-security-token",
    "x-amz-signature",
    "x-goog-signature",
];

/// Settings of the whole server.
#[derive(Debug)]
pub struct Server {
    /// Worker threads.
    pub threads: usize,
    /// Where the access log goes; `None` when there is none.
    pub access_log: Option<AccessLog>,
    /// The user that it becomes.
    pub user: Option<String>,
    /// The group that it becomes.
    pub group: Option<String>,
    /// The directory that becomes all the files there are, as it is called from outside.
    pub chroot: Option<PathBuf>,
    /// Resource limits of the process.
    pub limits: ResourceLimits,
    /// Whether no privileges can be gained by what is started.
    pub no_new_privs: bool,
    /// The files that may be used besides those that are named elsewhere; `None` for all.
    pub landlock: Option<AllowedPaths>,
    /// Allowed system calls.
    pub calls: Calls,
    /// Where the number of the process stands.
    pub pid_file: Option<PathBuf>,
    /// The Unix socket at which it takes commands.
    pub admin: Option<PathBuf>,
    /// Level, format and target of the error log.
    pub error_log: ErrorLog,
    /// Maximum number of connections; `None` to derive it from the descriptor limit.
    pub connections: Option<usize>,
    /// Number of connections from which on a new one closes an idle one; `None` for 90 % of the maximum.
    pub evict_idle_above: Option<usize>,
    /// Maximum number of connections of one address; `None` for no limit.
    pub connections_per_address: Option<usize>,
    /// Time that responses in progress may take when the server stops.
    pub stop_timeout: Duration,
    /// How long the new process of an upgrade may take until it serves.
    pub upgrade_timeout: Duration,
    /// Bytes of request bodies in temporary files; `None` for the default.
    pub spool_size: Option<u64>,
    /// Whether responses carry `Server`.
    pub server_field: bool,
    /// Directory of what has to outlive the server.
    pub state: PathBuf,
    /// Networks of proxies that are trusted to name the client.
    pub trusted_proxies: Vec<Network>,
    /// The field by which they name the client.
    pub forwarded_field: ForwardedField,
    /// The HTTP/1 engine's settings.
    pub http1: Http1,
    /// The file cache's bounds.
    pub cache: Cache,
    /// Where traces go; `None` when there are none.
    pub traces: Option<Traces>,
    /// Query keys whose values are not recorded.
    pub redact_query: Vec<String>,
    /// Names of clients for the log; `None` when they are not looked up.
    pub reverse_dns: Option<ReverseDns>,
}

/// Which calls of the system the server may make.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Calls {
    /// All of them.
    Any,
    /// All but those that neither the server nor a script uses: scripts inherit the restriction.
    Harmless,
    /// Those that the server needs, which starts no programs.
    Needed,
}

/// Resource limits of the process; `None` for the limit at start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceLimits {
    /// Open descriptors.
    pub open_files: Option<u64>,
    /// Bytes of what is left of a process that crashes.
    pub core: Option<u64>,
    /// Processes and threads of its user.
    pub processes: Option<u64>,
    /// Bytes of address space.
    pub memory: Option<u64>,
}

/// Where traces of requests go.
#[derive(Debug, Clone, PartialEq)]
pub struct Traces {
    /// The URL of the collector.
    pub endpoint: String,
    /// By whom its certificate has to be signed; `None` for those that the system trusts.
    pub authority: Option<PathBuf>,
    /// The share of requests that are traced, from 0 to 1.
    pub sample: f64,
    /// The name of the service.
    pub service: String,
}

/// Level, format and target of the error log.
#[derive(Debug, Clone)]
pub struct ErrorLog {
    /// The least severe level that is logged.
    pub level: file::LogLevel,
    /// How a message is written; the journal has a form of its own.
    pub format: file::LogFormat,
    /// Where it goes.
    pub target: ErrorLogTarget,
}

/// Where the error log goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ErrorLogTarget {
    /// To standard error.
    Stderr,
    /// To a file.
    File(PathBuf),
    /// To the system's journal.
    Journald,
}

/// Where the access log goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessLog {
    /// A path, or `-` for standard output.
    pub path: PathBuf,
    /// The format of a line.
    pub format: AccessLogFormat,
}

/// Settings of HTTP/1 connections.
#[derive(Debug)]
pub struct Http1 {
    /// How a connection is used.
    pub connection: Persistence,
    /// Longest wait for the next request.
    pub idle_timeout: Duration,
    /// Longest time for a head to arrive.
    pub head_timeout: Duration,
    /// Longest pause within a body.
    pub body_timeout: Duration,
    /// Least average rate of a body, in bytes a second.
    pub body_rate: u64,
    /// Longest time in which a client takes nothing of a response.
    pub send_timeout: Duration,
    /// Bytes of a head.
    pub head_size: usize,
    /// Bytes of a request-target.
    pub target_size: usize,
    /// Fields of a head.
    pub fields: usize,
    /// Requests of one connection; 0 for no limit.
    pub requests: u64,
}

/// Bounds of the file cache.
#[derive(Debug)]
pub struct Cache {
    /// Bytes in all.
    pub size: usize,
    /// Bytes of the largest file that is held whole.
    pub file: u64,
    /// Files.
    pub entries: usize,
    /// Open descriptors.
    pub descriptors: usize,
    /// How long a file is used without asking the disk, notification or not.
    pub revalidate: Duration,
    /// Whether changes are notified.
    pub notify: bool,
}

/// How names of clients are found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReverseDns {
    /// The resolver; `None` for the system's.
    pub resolver: Option<SocketAddr>,
    /// Maximum wait for a response.
    pub timeout: Duration,
    /// Names that are remembered.
    pub entries: usize,
    /// How long a name is remembered.
    pub ttl: Duration,
    /// Look-ups under way at once.
    pub concurrent: usize,
}
