//! The configuration: one TOML file, its types, its errors, its schema.
//!
//! [`mod@file`] is the file as it is written; [`Config`] is what the server works with: checked, with
//! every default filled in, immutable.

mod check;
mod error;
mod explain;
pub mod file;
mod pattern;
mod settings;
mod sites;
mod template;
mod units;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub(crate) use check::descriptor_limit;
pub use error::Problem;
pub use explain::explain;
pub use file::{ConnectionUse as Persistence, EtagKind, Symlinks};
pub use settings::{CacheRules, Records, Redirect, Respond, Settings, TryStep};
pub use sites::{Site, Sites};
pub use template::Template;
pub use units::{Rate, Size, Span};

/// A configuration that was read and checked.
#[derive(Debug)]
pub struct Config {
    /// What concerns the whole server.
    pub server: Server,
    /// Addresses to listen on.
    pub listen: Vec<Listen>,
    /// What is served.
    pub sites: Sites,
}

/// What concerns the whole server.
#[derive(Debug)]
pub struct Server {
    /// Event loops.
    pub threads: usize,
    /// Where the access log goes; `None` when there is none.
    pub access_log: Option<AccessLog>,
    /// What the error log tells, on standard error.
    pub error_log: file::ErrorLog,
    /// The most connections at once; `None` to derive it from the descriptor limit.
    pub connections: Option<usize>,
    /// How long answers under way may take when the server stops.
    pub stop_timeout: Duration,
    /// Whether responses carry `Server`.
    pub server_field: bool,
    /// The HTTP/1 engine's settings.
    pub http1: Http1,
    /// The file cache's bounds.
    pub cache: Cache,
    /// Names of clients for the log; `None` when they are not looked up.
    pub reverse_dns: Option<ReverseDns>,
}

/// Where the access log goes.
#[derive(Debug, Clone)]
pub struct AccessLog {
    /// A path, or `-` for standard output.
    pub path: PathBuf,
    /// `common`, `combined`, `json` or a template.
    pub format: String,
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
#[derive(Debug, Clone)]
pub struct ReverseDns {
    /// The resolver; `None` for the system's.
    pub resolver: Option<SocketAddr>,
    /// Longest wait for an answer.
    pub timeout: Duration,
    /// Names that are remembered.
    pub entries: usize,
    /// How long a name is remembered.
    pub ttl: Duration,
    /// Look-ups under way at once.
    pub concurrent: usize,
}

/// An address to listen on.
#[derive(Debug, Clone)]
pub struct Listen {
    /// The address.
    pub address: SocketAddr,
    /// Connections that wait to be accepted.
    pub backlog: i32,
}

/// What the command line says instead of the file.
#[derive(Debug, Default)]
pub struct Overrides {
    /// Addresses; those of the file when empty.
    pub listen: Vec<String>,
    /// Event loops.
    pub threads: Option<usize>,
    /// A path, `-` or `off`.
    pub access_log: Option<String>,
}

impl Overrides {
    fn apply(&self, file: &mut file::File) {
        if !self.listen.is_empty() {
            let listen = |address: &String| file::Listen {
                address: file::at_start(address.clone()),
                backlog: None,
            };
            file.listen = self.listen.iter().map(listen).collect();
        }
        file.server.threads = self.threads.or(file.server.threads);
        if let Some(path) = &self.access_log {
            let format = file.server.access_log.take().and_then(|log| log.0.format);
            // The command line's paths are relative to where it was typed.
            let path = match path.as_str() {
                "-" | "off" => PathBuf::from(path),
                path => std::path::absolute(path).unwrap_or_else(|_| path.into()),
            };
            file.server.access_log = Some(file::AccessLog(file::AccessLogTable { path, format }));
        }
    }
}

impl Config {
    /// Reads and checks the file at `path`.
    ///
    /// # Errors
    /// Every problem that could be found, each with its place.
    pub fn load(path: &Path, overrides: &Overrides) -> Result<Self, Vec<Problem>> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| vec![Problem::of_file(path, &error.to_string())])?;
        Self::parse(&text, path, overrides)
    }

    /// Checks `text`, the content of the file at `path`; relative paths in it are relative to
    /// that file.
    ///
    /// # Errors
    /// Every problem that could be found, each with its place.
    pub fn parse(text: &str, path: &Path, overrides: &Overrides) -> Result<Self, Vec<Problem>> {
        let mut file =
            toml::from_str(text).map_err(|error| vec![Problem::from_toml(path, text, &error)])?;
        overrides.apply(&mut file);
        check::check(file, text, path)
    }

    /// The configuration that serves `directory` without any file: listings and compression on,
    /// the access log on standard output.
    ///
    /// # Errors
    /// When the directory is not one.
    pub fn for_directory(directory: &Path, overrides: &Overrides) -> Result<Self, Vec<Problem>> {
        let mut file = file::File::default();
        file.listen.push(file::Listen::default());
        file.server.access_log = Some(file::AccessLog::to("-"));
        overrides.apply(&mut file);
        let route = file::Route { listing: Some(true), ..Default::default() };
        let root = Some(file::at_start(directory.to_owned()));
        file.site.push(file::Site { host: None, root, route: vec![route] });
        check::check(file, "", Path::new(""))
    }

    /// The JSON Schema of the file.
    pub fn schema() -> String {
        let schema = schemars::schema_for!(file::File);
        serde_json::to_string_pretty(&schema).unwrap_or_default()
    }
}
