//! Settings of the whole server, with every default filled in.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::access_log::AccessLog;
use super::allowed_paths::AllowedPaths;
use super::file;
use super::file::{CongestionControl, ConnectionUse as Persistence};
use super::forwarded_field::ForwardedField;
use super::network::Network;
use super::object_root::ObjectRoot;
use super::spanned::Span;

/// Settings of the whole server.
#[derive(Debug)]
pub struct Server {
    /// Worker threads.
    pub threads: usize,
    /// The time for which an idle worker polls its sockets before it sleeps; zero if it sleeps at once.
    pub busy_poll: Duration,
    /// The access log; `None` if there is none.
    pub access_log: Option<AccessLog>,
    /// The user to switch to.
    pub user: Option<String>,
    /// Positions of `user` and `group` in the file.
    pub identity_places: [Span; 2],
    /// The group to switch to.
    pub group: Option<String>,
    /// The chroot, as it is named from outside.
    pub chroot: Option<PathBuf>,
    /// Resource limits of the process.
    pub limits: ResourceLimits,
    /// Prevent started programs from gaining privileges.
    pub no_new_privs: bool,
    /// Files that may be used in addition to those that other keys name; `None` for all.
    pub landlock: Option<AllowedPaths>,
    /// Allowed system calls.
    pub calls: Calls,
    /// File of the process ID.
    pub pid_file: Option<PathBuf>,
    /// Unix socket for commands.
    pub admin: Option<PathBuf>,
    /// Level, format and target of the error log.
    pub error_log: ErrorLog,
    /// Maximum number of connections; `None` to derive it from the descriptor limit.
    pub connections: Option<usize>,
    /// Number of connections above which an idle connection is closed for a new one; `None` for 90 % of the maximum.
    pub evict_idle_above: Option<usize>,
    /// Maximum number of connections of one address; `None` for no limit.
    pub connections_per_address: Option<usize>,
    /// Time in which the server reports that it stops, and serves.
    pub drain: Duration,
    /// Time that responses in progress may take when the server stops.
    pub stop_timeout: Duration,
    /// Timeout of the start of an upgrade's new process.
    pub upgrade_timeout: Duration,
    /// Bytes of request bodies in temporary files; `None` for the default.
    pub spool_size: Option<u64>,
    /// Bytes in memory of requests and responses on their way.
    pub memory: u64,
    /// Files have the statuses of nginx.
    pub nginx_statuses: bool,
    /// Per cent of a worker's time for compression.
    pub compress_share: usize,
    /// Send the field `Server`.
    pub server_field: bool,
    /// Directory of the files that are kept over restarts.
    pub state: PathBuf,
    /// The bucket and prefix in which servers share accounts and certificates of ACME.
    pub acme_storage: Option<Arc<ObjectRoot>>,
    /// Networks of proxies that are trusted to name the client.
    pub trusted_proxies: Vec<Network>,
    /// The field in which trusted proxies name the client.
    pub forwarded_field: ForwardedField,
    /// Name servers for upstreams of proxies; those of the system if there are none.
    pub resolver: Vec<SocketAddr>,
    /// Settings of HTTP/1.
    pub http1: Http1,
    /// Settings of HTTP/3.
    pub http3: Http3Settings,
    /// Limits of the file cache and of the response cache.
    pub cache: Cache,
    /// Export of traces; `None` if there is none.
    pub traces: Option<Traces>,
    /// Query keys whose values are redacted; `None` for those whose names are those of credentials.
    pub redact_query: Option<Vec<String>>,
    /// Lookup of client names for the log; `None` if it is off.
    pub reverse_dns: Option<ReverseDns>,
}

/// Allowed system calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Calls {
    /// All system calls.
    Any,
    /// All but those that neither servers nor scripts use: scripts inherit the filter.
    Harmless,
    /// Only those that the server itself needs. It starts no programs.
    Needed,
}

/// Resource limits of the process; `None` for the limit at start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceLimits {
    /// Open descriptors.
    pub open_files: Option<u64>,
    /// Size of core dumps in bytes.
    pub core: Option<u64>,
    /// Processes and threads of its user.
    pub processes: Option<u64>,
    /// Address space in bytes.
    pub memory: Option<u64>,
}

/// Export of traces.
#[derive(Debug, Clone, PartialEq)]
pub struct Traces {
    /// The URL of the collector.
    pub endpoint: String,
    /// Trusted authorities of the collector's certificate; those of the system if `None`.
    pub authority: Option<PathBuf>,
    /// Fraction of requests that are traced, from 0 to 1.
    pub sample: f64,
    /// The name of the service.
    pub service: String,
}

/// Level, format and target of the error log.
#[derive(Debug, Clone)]
pub struct ErrorLog {
    /// The least severe level that is logged.
    pub level: file::LogLevel,
    /// Format of messages; the journal has its own.
    pub format: file::LogFormat,
    /// Destination.
    pub target: ErrorLogTarget,
}

/// Destination of the error log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ErrorLogTarget {
    /// Standard error.
    Stderr,
    /// A file.
    File(PathBuf),
    /// The system's journal.
    Journald,
}

/// Settings of HTTP/1 connections.
#[derive(Debug)]
pub struct Http1 {
    /// Reuse of connections.
    pub connection: Persistence,
    /// Maximum wait for the next request.
    pub idle_timeout: Duration,
    /// Maximum time for a head to arrive.
    pub head_timeout: Duration,
    /// Maximum pause within a body.
    pub body_timeout: Duration,
    /// Minimum average rate of a body in bytes per second.
    pub body_rate: u64,
    /// Maximum time without progress of a response.
    pub send_timeout: Duration,
    /// Maximum size of a head in bytes.
    pub head_size: usize,
    /// Maximum size of a request-target in bytes.
    pub target_size: usize,
    /// Maximum number of fields in a head.
    pub fields: usize,
    /// Maximum number of requests per connection; 0 for no limit.
    pub requests: u64,
    /// LF alone ends a line of a head.
    pub bare_lf: bool,
}

/// Settings of HTTP/3 connections.
#[derive(Debug)]
pub struct Http3Settings {
    /// The algorithm of congestion control.
    pub congestion: CongestionControl,
    /// Directory of records in the format qlog; `None` if there are none.
    pub qlog: Option<PathBuf>,
}

/// Limits of the file cache and of the response cache.
#[derive(Debug)]
pub struct Cache {
    /// Bytes of all files and responses.
    pub size: usize,
    /// The directory that keeps responses over restarts; `None` if none does.
    pub disk: Option<CacheDirectory>,
    /// Bytes of the versions of files that are kept as dictionaries.
    pub dictionaries: u64,
    /// Maximum size of a file whose content is cached.
    pub file: u64,
    /// Number of files, and of URLs with responses.
    pub entries: usize,
    /// Number of open descriptors.
    pub descriptors: usize,
    /// Time after which a file is compared with the disk, even if changes are notified.
    pub revalidate: Duration,
    /// Use change notification.
    pub notify: bool,
}

/// The directory of cached responses and objects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheDirectory {
    /// The path of the directory.
    pub path: PathBuf,
    /// Bytes of all files.
    pub size: u64,
}

/// Reverse DNS of client addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReverseDns {
    /// The resolver; `None` for the system's.
    pub resolver: Option<SocketAddr>,
    /// Timeout of a lookup.
    pub timeout: Duration,
    /// Maximum number of cached names.
    pub entries: usize,
    /// Lifetime of a cached name.
    pub ttl: Duration,
    /// Maximum of concurrent lookups.
    pub concurrent: usize,
}
