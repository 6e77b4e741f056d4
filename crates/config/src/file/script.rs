//! Programs that produce responses.

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;

use super::{OneOrMany, OneOrManySchema, Spanned};
use crate::units::{DurationValue, Size};

/// When a script gets the body of a request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum BodyHandling {
    /// When all of it has been received.
    #[default]
    Buffer,
    /// As it arrives.
    Stream,
}

/// Programs that make the response.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(
    deny_unknown_fields,
    expecting = "a table such as { kind = \"cgi\", directory = \"cgi-bin\" }"
)]
pub struct ScriptTable {
    /// How they are run. `cgi`: a process for each request, as in RFC 3875. `warm`: the same,
    /// without the cost of starting each. `fastcgi`: workers that stay, started from `command` or
    /// reached at `connect`. `scgi`, `uwsgi`: by these protocols, at `connect`. `wsgi`, `asgi`, `psgi`: a
    /// Python or Perl application in processes of the server's. `cgiplus`: programs that stay and read one
    /// request after the other. `rte`: scripts that an interpreter which stays runs.
    pub kind: Spanned<ScriptKind>,
    /// Directory of the scripts: what the pattern's `*` matches is looked for in it, and what
    /// follows the script's own name is its PATH_INFO. With `wsgi`, `asgi` and `psgi`, the application's
    /// directory.
    pub directory: Option<Spanned<PathBuf>>,
    /// With `cgi`, `warm` and `cgiplus`: the one program for all of the route's paths. What stands before the
    /// pattern's last slash is its SCRIPT_NAME, the rest its PATH_INFO. It may be a symlink.
    pub file: Option<Spanned<PathBuf>>,
    /// Directory beneath which the whole path names a script, as it names a file beneath a site's
    /// root. With neither it nor `directory`, one program handles all paths. With `cgi` and `warm`, the
    /// route's or site's root when `extensions` stand alone.
    pub root: Option<Spanned<PathBuf>>,
    /// Extensions of scripts' names beneath `root` or `directory`. `["php"]` when absent; with
    /// `rte`, `["py"]` or `["pl"]`; with `cgi` and `warm`, `["cgi"]` beneath a `root`, and every executable file
    /// beneath a `directory`.
    pub extensions: Option<Spanned<Vec<Spanned<String>>>>,
    /// The program of a worker and its arguments; it listens on its standard input.
    pub command: Option<Spanned<Vec<Spanned<String>>>>,
    /// Workers elsewhere, one or a list: `unix:/run/app.sock`, `127.0.0.1:9000`.
    #[schemars(with = "Option<OneOrManySchema>")]
    pub connect: Option<Spanned<OneOrMany<String>>>,
    /// The application: `module:callable`, or `module:factory()` for a function that makes it, which may have
    /// literals as arguments (`app:create_app("production", debug=False)`); with `psgi` a file, such as `app.psgi`.
    pub application: Option<Spanned<String>>,
    /// The interpreter that loads the application, such as that of a virtual environment, or that
    /// runs the scripts of kind `rte`, Python or Perl. `python3` when absent; with `psgi`, `perl`.
    pub interpreter: Option<Spanned<String>>,
    /// Requests that one process of a `wsgi` application works on at once. 1 when absent.
    pub threads: Option<Spanned<usize>>,
    /// Most processes at once, with `cgiplus` of each program; with `connect`, most requests. 32 when absent, 4 for workers that
    /// are started here.
    pub processes: Option<Spanned<usize>>,
    /// Workers that are not ended for want of requests. 1 when absent; with `asgi`, `processes`; with
    /// `cgiplus`, 0.
    pub min_processes: Option<Spanned<usize>>,
    /// How long a worker beyond `min_processes` goes without a request before it is ended. `1m`
    /// when absent.
    pub retire_idle: Option<Spanned<DurationValue>>,
    /// Requests after which a worker is replaced; never when absent.
    pub requests: Option<Spanned<usize>>,
    /// Age at which a worker is replaced; never when absent.
    pub max_age: Option<Spanned<DurationValue>>,
    /// Resident memory at which a worker is replaced; never when absent.
    pub max_resident: Option<Spanned<Size>>,
    /// Pause before a worker that has died is replaced; it doubles with each in a row that dies
    /// before its first response, up to `30s`. `100ms` when absent.
    pub backoff: Option<Spanned<DurationValue>>,
    /// Longest wait for a connection to a worker elsewhere. `5s` when absent.
    pub connect_timeout: Option<Spanned<DurationValue>>,
    /// How long a worker elsewhere that could not be reached is left alone while there are others.
    /// `10s` when absent.
    pub cool_down: Option<Spanned<DurationValue>>,
    /// Whether connections to workers elsewhere stay open. Each then holds one of them, so that
    /// there must be at least `processes`. False when absent.
    pub keep_alive: Option<Spanned<bool>>,
    /// Most requests that wait for a process; the next one gets 503. 1024 when absent.
    pub queue: Option<usize>,
    /// Longest wait for a process; 503 after it. `30s` when absent.
    pub queue_timeout: Option<Spanned<DurationValue>>,
    /// Longest run of a script, however busy it is; no limit when absent.
    pub timeout: Option<Spanned<DurationValue>>,
    /// Longest wait for the end of the response's header once the request has been sent;
    /// the other two alone hold when absent.
    pub first_byte_timeout: Option<Spanned<DurationValue>>,
    /// Longest time in which a script neither reads nor writes before its response is complete; no
    /// limit when 0. `60s` when absent.
    pub idle_timeout: Option<DurationValue>,
    /// Variables of the environment, besides those that describe the request.
    pub env: Option<BTreeMap<Spanned<String>, Spanned<String>>>,
    /// Directories of which a script may name a file by `X-Sendfile`, to be sent instead of its own
    /// body: one or a list. A script that names another file gets 502.
    #[schemars(with = "Option<OneOrManySchema>")]
    pub sendfile_root: Option<Spanned<OneOrMany<String>>>,
    /// Where a request's number comes from, which scripts get as HTTP_X_REQUEST_ID and the logs have:
    /// `make`, a new one for each; `accept`, the client's X-Request-Id where it sends one. `make` when absent.
    pub request_id: Option<RequestId>,
    /// Whether responses have X-Request-Id. False when absent.
    pub send_request_id: Option<bool>,
    /// Whether the page of a failed script shows why, and what the script wrote to its standard error: for
    /// those who write it, never for the public. False when absent.
    pub show_errors: Option<bool>,
    /// Whether Authorization is handed to scripts. False when absent.
    pub authorization: Option<bool>,
    /// The user that processes run as, by name or number, with the groups that it is in; it takes a server that
    /// root has started and that stays root. The server's own when absent.
    pub user: Option<Spanned<String>>,
    /// The group that processes run as, by name or number; it takes the same. The user's when absent.
    pub group: Option<Spanned<String>>,
    /// Added to the priority number of the server's processes, from -20 to 19: the higher, the
    /// less a script gets of a busy processor. 0 when absent.
    pub nice: Option<Spanned<i32>>,
    /// Most address space of a process (RLIMIT_AS); the server's own limit when absent.
    pub memory: Option<Spanned<Size>>,
    /// Most processor time of a process (RLIMIT_CPU), in whole seconds; the server's own limit
    /// when absent.
    pub cpu: Option<Spanned<DurationValue>>,
    /// With `warm`: modules that Python and Perl load once, before requests come.
    pub preload: Option<Spanned<Vec<String>>>,
}

impl ScriptTable {
    /// Whether its processes are to belong to another user or group than the server.
    pub fn has_owner(&self) -> bool {
        self.user.is_some() || self.group.is_some()
    }

    /// The script that stands for a directory, where scripts are known by their extensions.
    pub fn index(&self) -> Option<String> {
        let kind = self.kind.value;
        let is_plain = kind.is_cgi() && !self.is_by_extension();
        if is_plain || kind.is_by_streams() || self.directory.is_none() && self.root.is_none() {
            return None;
        }
        let first = self.extensions.as_ref().and_then(|names| names.first());
        let usual = if kind.is_cgi() { "cgi" } else { "php" };
        let extension = first.map_or(usual, |name| name.trim_start_matches('.'));
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

/// How the processes of a kind get their requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interface {
    /// A new process for each request, by its environment and standard input (CGI).
    Process,
    /// A socket that carries one request at a time.
    Socket,
    /// A pipe for variables and a pipe for bodies, one request at a time (CGIplus).
    Streams,
    /// An application server of Dunlin's, which takes many requests at once on one connection.
    Application,
}

impl ScriptKind {
    /// How the processes of this kind get their requests.
    pub fn interface(self) -> Interface {
        match self {
            Self::Cgi | Self::Warm => Interface::Process,
            Self::FastCgi | Self::Scgi | Self::Uwsgi => Interface::Socket,
            Self::Cgiplus | Self::Rte => Interface::Streams,
            Self::Wsgi | Self::Asgi | Self::Psgi => Interface::Application,
        }
    }

    /// Whether the interface leaves the transfer coding of responses to the server (PEP 3333, ASGI), so that a
    /// `Transfer-Encoding` field of a response is dropped.
    pub fn leaves_coding_to_server(self) -> bool {
        matches!(self, Self::Wsgi | Self::Asgi)
    }

    /// Whether a host of the server's loads an application.
    pub fn has_host(self) -> bool {
        self.interface() == Interface::Application
    }

    /// Whether scripts are CGI programs, each in a process of its own.
    pub fn is_cgi(self) -> bool {
        self.interface() == Interface::Process
    }

    /// Whether workers read requests from streams of their own.
    pub fn is_by_streams(self) -> bool {
        self.interface() == Interface::Streams
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
