//! The settings of scripts, with every default filled in.

mod read;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::address::Address;
use super::file::{ScriptKind, ScriptTable};
use super::pattern::Pattern;
use super::users::Owner;

pub(crate) use self::read::read;

/// How the scripts of a route are run. One vocabulary for every kind.
#[derive(Debug, Clone, PartialEq)]
pub struct Script {
    /// The number of its pool, which no other script of the process has or had. It is 0 in a configuration: the server
    /// allocates it, and keeps it over a reload that does not change the script.
    pub id: usize,
    /// What stands for them in the log before one is known.
    pub label: Arc<str>,
    /// How they are run.
    pub kind: ScriptKind,
    /// Which script a path names.
    pub mapping: Mapping,
    /// Directory of the scripts or of the application, or the one program; empty when there is none.
    pub directory: PathBuf,
    /// Extensions of scripts' names; empty when every executable file is one.
    pub extensions: Vec<String>,
    /// The processes that make the responses.
    pub workers: Workers,
    /// Most processes, or requests under way, at once.
    pub processes: usize,
    /// Most requests that wait for a process.
    pub queue: usize,
    /// Longest wait for a process.
    pub queue_timeout: Duration,
    /// Longest run; `None` for no limit.
    pub timeout: Option<Duration>,
    /// Maximum wait for the response's header.
    pub first_byte_timeout: Option<Duration>,
    /// Longest time without reading or writing; `None` for no limit.
    pub idle_timeout: Option<Duration>,
    /// Variables of the environment.
    pub env: Vec<(String, String)>,
    /// Whether Authorization is handed over.
    pub authorization: bool,
    /// Whether the client's X-Request-Id counts.
    pub accept_request_id: bool,
    /// Whether responses have X-Request-Id.
    pub send_request_id: bool,
    /// Whether error pages show what the script wrote to its standard error.
    pub show_errors: bool,
    /// Whom processes belong to; to whom the server does when absent.
    pub owner: Option<Owner>,
    /// Added to the server's priority number.
    pub nice: i32,
    /// Bytes of address space.
    pub memory: Option<u64>,
    /// Seconds of processor time.
    pub cpu: Option<u64>,
    /// Modules that fork servers of Python and Perl load.
    pub preload: Vec<String>,
    pattern: Pattern,
}

/// Which script a path names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mapping {
    /// The file beneath the directory that the pattern's `*` stands for.
    Rest,
    /// The file beneath the directory that the whole path names.
    Path,
    /// One program handles all of the route's paths.
    Application,
    /// The same, and the program is a file that the configuration names.
    Program,
}

impl ScriptTable {
    /// Which script a path names.
    pub(super) fn mapping(&self) -> Mapping {
        match (&self.directory, &self.root) {
            _ if self.kind.has_host() => Mapping::Application,
            _ if self.file.is_some() => Mapping::Program,
            (Some(_), _) => Mapping::Rest,
            (None, Some(_)) => Mapping::Path,
            (None, None) => Mapping::Application,
        }
    }

    /// Whether scripts are known by the extensions of their names.
    pub(super) fn is_by_extension(&self) -> bool {
        match self.kind.value {
            kind if kind.is_cgi() => self.extensions.is_some() || self.root.is_some(),
            kind => kind != ScriptKind::Cgiplus && !kind.has_host(),
        }
    }
}

/// The processes that make the responses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Workers {
    /// A process that is started for each request.
    Each,
    /// Processes that are started here and stay.
    Local(Local),
    /// Processes elsewhere.
    Remote(Remote),
}

/// What the interpreter of a run-time environment speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Language {
    /// Python 3.
    Python,
    /// Perl 5.
    Perl,
}

impl Language {
    /// By the name of the interpreter, with or without its folder and version; Python when there is
    /// none, `None` when it is neither.
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

/// Processes that are started here and stay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Local {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// The application that it serves; empty when the command knows.
    pub application: String,
    /// Requests that one process works on at once.
    pub threads: usize,
    /// Workers that are not ended for want of requests.
    pub min_processes: usize,
    /// How long a worker goes without a request before it is ended.
    pub retire_idle: Duration,
    /// Requests after which a worker is replaced.
    pub requests: Option<u64>,
    /// Age at which a worker is replaced.
    pub max_age: Option<Duration>,
    /// Bytes of resident memory at which a worker is replaced.
    pub max_resident: Option<u64>,
    /// Pause before a worker that has died is replaced.
    pub backoff: Duration,
}

/// Processes elsewhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remote {
    /// Where they listen.
    pub addresses: Vec<Address>,
    /// Longest wait for a connection.
    pub connect_timeout: Duration,
    /// How long one that could not be reached is left alone.
    pub cool_down: Duration,
    /// Whether connections stay open.
    pub keep_alive: bool,
}

impl Script {
    /// What of `path` names a script beneath the directory: what the `*` stands for, begun at the
    /// slash before it, without that slash; or the whole path without its first slash.
    pub fn rest<'p>(&self, path: &'p [u8]) -> &'p [u8] {
        let mount = if self.mapping == Mapping::Path { 1 } else { self.mount() };
        path.get(mount..).unwrap_or_default()
    }

    /// How much of a path stands before the part that the `*` names, the slash included.
    fn mount(&self) -> usize {
        memchr::memrchr(b'/', self.pattern.prefix()).map_or(1, |slash| slash + 1)
    }

    /// The prefix that the route's one program handles, without a slash at its end, and
    /// what of `path` is left for it.
    pub fn split<'p>(&self, path: &'p [u8]) -> (&'p [u8], &'p [u8]) {
        if self.mapping == Mapping::Program && self.pattern.is_literal() {
            return path.split_at(path.len());
        }
        let end = (self.mount() - 1).min(path.len());
        path.split_at(end)
    }

    /// Whether a file of that name is a script by its extension.
    pub fn is_script(&self, name: &[u8]) -> bool {
        has_extension(&self.extensions, name)
    }
}

/// Whether a file name has one of the extensions, in any case of letters.
pub(super) fn has_extension(extensions: &[String], name: &[u8]) -> bool {
    extensions.iter().any(|extension| {
        let dot = name.len().checked_sub(extension.len() + 1);
        dot.is_some_and(|dot| {
            name[dot] == b'.' && name[dot + 1..].eq_ignore_ascii_case(extension.as_bytes())
        })
    })
}

/// What stands for an application in the log.
fn application(workers: &Workers) -> String {
    match workers {
        Workers::Local(local) if !local.application.is_empty() => local.application.clone(),
        Workers::Local(local) => local.command.join(" "),
        Workers::Remote(remote) => {
            remote.addresses.first().map_or_else(String::new, ToString::to_string)
        }
        Workers::Each => String::new(),
    }
}
