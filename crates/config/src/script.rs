//! The settings of scripts, with every default filled in.

mod component;
pub(crate) mod keys;
mod read;
mod request_env;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::address::Address;
use super::file::{ScriptKind, ScriptTable};
use super::pattern::Pattern;
use super::secrets;
use super::spanned::Spanned;
use super::users::Owner;

pub use self::component::{Component, Directory, Outbound};
pub(crate) use self::read::{read, worker_address};
pub use self::request_env::RequestEnv;

/// The scripts of a route, for every kind.
#[derive(Debug, Clone, PartialEq)]
pub struct Script {
    /// Number of the pool, unique in the process. It is 0 in a configuration: the server allocates it, and keeps it
    /// over a reload that does not change the script.
    pub id: usize,
    /// Name in the log as long as no script is known.
    pub label: Arc<str>,
    /// The kind of the scripts.
    pub kind: ScriptKind,
    /// The mapping from paths to scripts.
    pub mapping: Mapping,
    /// Directory of the scripts or of the application, or the only script; empty if there is none.
    pub directory: PathBuf,
    /// File name extensions of scripts; if empty, every executable file is a script.
    pub extensions: Vec<String>,
    /// The processes that run scripts.
    pub workers: Workers,
    /// Maximum of processes, or of concurrent requests.
    pub processes: usize,
    /// Maximum of requests that wait for a process.
    pub queue: usize,
    /// Maximum wait for a process.
    pub queue_timeout: Duration,
    /// Maximum run time; `None` for no limit.
    pub timeout: Option<Duration>,
    /// Maximum wait for the response's header.
    pub first_byte_timeout: Option<Duration>,
    /// Maximum time without reading or writing; `None` for no limit.
    pub idle_timeout: Option<Duration>,
    /// Environment variables.
    pub env: Vec<(String, String)>,
    /// Variables whose values follow from the request.
    pub request_env: Vec<RequestEnv>,
    /// Pass `Authorization` to scripts.
    pub authorization: bool,
    /// Accept the client's `X-Request-Id`.
    pub accept_request_id: bool,
    /// Send `X-Request-Id` with responses.
    pub send_request_id: bool,
    /// Error pages replace error responses of scripts.
    pub intercepts_errors: bool,
    /// Show standard error of scripts on error pages.
    pub show_errors: bool,
    /// User and groups of the processes; those of the server if absent.
    pub owner: Option<Owner>,
    /// Increment of the nice value.
    pub nice: i32,
    /// Maximum address space in bytes.
    pub memory: Option<u64>,
    /// Maximum processor time in seconds.
    pub cpu: Option<u64>,
    /// Maximum size of a WebSocket message of a client in bytes.
    pub message_size: u64,
    /// Maximum time without a byte of a WebSocket; `None` for no limit.
    pub tunnel_timeout: Option<Duration>,
    /// Modules that fork servers of Python and Perl load.
    pub preload: Vec<String>,
    pattern: Pattern,
    /// The application sees the path before the `*`, too.
    keeps_mount: bool,
}

/// The mapping from a path to a script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mapping {
    /// The pattern's `*` matches the path of a file beneath the directory.
    Rest,
    /// The whole path is that of a file beneath the directory.
    Path,
    /// One application handles all paths of the route.
    Application,
    /// One program, a file that the configuration names, handles all paths of the route.
    Program,
}

impl ScriptTable {
    /// Returns how a path names a script.
    pub(super) fn mapping(&self) -> Mapping {
        match (&self.directory, &self.root) {
            _ if self.kind.has_host() => Mapping::Application,
            _ if self.file.is_some() => Mapping::Program,
            (Some(_), _) => Mapping::Rest,
            (None, Some(_)) => Mapping::Path,
            (None, None) => Mapping::Application,
        }
    }

    /// Gives scripts that are recognized by their extensions the directory of an `alias`, if they name none.
    pub(super) fn stand_in(&mut self, alias: &Spanned<PathBuf>) {
        let is_unnamed = self.directory.is_none() && self.root.is_none() && self.file.is_none();
        let takes_files = self.is_by_extension() || self.kind.is_cgi();
        if is_unnamed && takes_files {
            self.directory = Some(alias.clone());
        }
    }

    /// Returns `true` if scripts are recognized by their extensions.
    pub(super) fn is_by_extension(&self) -> bool {
        match self.kind.value {
            kind if kind.is_cgi() => self.extensions.is_some() || self.root.is_some(),
            kind => kind != ScriptKind::Cgiplus && !kind.has_host() && !kind.is_component(),
        }
    }
}

/// The processes that run scripts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Workers {
    /// A process is started for each request.
    Each,
    /// Persistent processes that the server starts.
    Local(Local),
    /// Processes that the server does not start.
    Remote(Remote),
    /// No process: instances of WebAssembly components in the workers of the server.
    Component(Component),
}

/// Language of the interpreter of a run-time environment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Language {
    /// Python 3.
    Python,
    /// Perl 5.
    Perl,
}

impl Language {
    /// Finds the language by the name of the interpreter, with or without directory and version. Python is the default;
    /// `None` if the interpreter is unknown.
    pub fn of(interpreter: Option<&str>) -> Option<Self> {
        let Some(interpreter) = interpreter else { return Some(Self::Python) };
        let name = interpreter.rsplit('/').next().unwrap_or_default();
        match name {
            name if name.starts_with("python") => Some(Self::Python),
            name if name.starts_with("perl") => Some(Self::Perl),
            _ => None,
        }
    }
}

/// Persistent processes that the server starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Local {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// The application to serve; empty if the command names it.
    pub application: String,
    /// Concurrent requests per process.
    pub threads: usize,
    /// Processes that are kept while idle.
    pub min_processes: usize,
    /// Idle time after which a process is ended.
    pub retire_idle: Duration,
    /// Requests after which a process is replaced.
    pub requests: Option<u64>,
    /// Age at which a process is replaced.
    pub max_age: Option<Duration>,
    /// Bytes of resident memory at which a process is replaced.
    pub max_resident: Option<u64>,
    /// Pause before a process that has died is replaced.
    pub backoff: Duration,
}

/// The address of processes that the server does not start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WorkerAddress {
    /// A socket.
    Socket(Address),
    /// Those that the Domain Name System has for a name.
    Name {
        /// The name, such as `php` or `_fastcgi._tcp.example.com`.
        name: String,
        /// The port at each address of the name; `None` if SRV records name the processes.
        port: Option<u16>,
    },
}

impl fmt::Display for WorkerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Socket(address) => address.fmt(f),
            Self::Name { name, port: Some(port) } => write!(f, "{name}:{port}"),
            Self::Name { name, port: None } => write!(f, "srv://{name}"),
        }
    }
}

/// Processes that the server does not start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remote {
    /// The addresses on which they listen.
    pub addresses: Vec<WorkerAddress>,
    /// Maximum wait for a connection.
    pub connect_timeout: Duration,
    /// Time for which an unreachable address is not tried.
    pub cool_down: Duration,
    /// Keep connections open.
    pub keep_alive: bool,
}

impl Script {
    /// Returns the part of `path` that names a script beneath the directory: the text that the `*` matches, including
    /// the path segment in which it begins; or the whole path. Without leading slash.
    pub fn rest<'p>(&self, path: &'p [u8]) -> &'p [u8] {
        let mount = if self.mapping == Mapping::Path { 1 } else { self.mount() };
        path.get(mount..).unwrap_or_default()
    }

    /// Returns the length of the path before the part that the `*` matches, including the slash.
    fn mount(&self) -> usize {
        memchr::memrchr(b'/', self.pattern.prefix()).map_or(1, |slash| slash + 1)
    }

    /// Splits `path` into the prefix of the route's only program, without a slash at its end, and the rest.
    pub fn split<'p>(&self, path: &'p [u8]) -> (&'p [u8], &'p [u8]) {
        if self.mapping == Mapping::Program && self.pattern.is_literal() {
            return path.split_at(path.len());
        }
        if self.keeps_mount {
            return path.split_at(0);
        }
        let end = (self.mount() - 1).min(path.len());
        path.split_at(end)
    }

    /// Returns the settings of components, if the kind is that.
    pub fn component(&self) -> Option<&Component> {
        match &self.workers {
            Workers::Component(component) => Some(component),
            _ => None,
        }
    }

    /// Returns `true` if the extension of the name is that of a script.
    pub fn is_script(&self, name: &[u8]) -> bool {
        has_extension(&self.extensions, name)
    }
}

/// Returns `true` if a file name has one of the extensions, in any case.
pub(super) fn has_extension(extensions: &[String], name: &[u8]) -> bool {
    extensions.iter().any(|extension| {
        let dot = name.len().checked_sub(extension.len() + 1);
        dot.is_some_and(|dot| {
            name[dot] == b'.' && name[dot + 1..].eq_ignore_ascii_case(extension.as_bytes())
        })
    })
}

/// Returns the label of an application in the log.
fn application(workers: &Workers) -> String {
    match workers {
        Workers::Local(local) if !local.application.is_empty() => local.application.clone(),
        Workers::Local(local) => secrets::command(&local.command),
        Workers::Remote(remote) => {
            remote.addresses.first().map_or_else(String::new, ToString::to_string)
        }
        Workers::Each | Workers::Component(_) => String::new(),
    }
}
