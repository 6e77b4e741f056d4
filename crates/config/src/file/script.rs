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

/// What an application gets of the path before the `*` of its route.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Mount {
    /// It is `SCRIPT_NAME`, and the rest is `PATH_INFO`.
    #[default]
    Strip,
    /// All of the path is `PATH_INFO`.
    Keep,
}

/// Programs that make the response.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(
    deny_unknown_fields,
    expecting = "a table such as { kind = \"cgi\", directory = \"cgi-bin\" }"
)]
pub struct ScriptTable {
    /// Interface of the scripts. `cgi`: a process for each request (RFC 3875). `warm`: the same, without the cost of
    /// starting one. `fastcgi`: persistent workers, started by `command` or reached at `connect`. `scgi`, `uwsgi`: workers
    /// at `connect`, by these protocols. `wsgi`, `asgi`, `psgi`: a Python or Perl application in processes of the server.
    /// `cgiplus`: persistent CGI programs. `rte`: scripts in a persistent interpreter. `component`: WebAssembly components
    /// within the server's process, in builds with the feature `component`.
    pub kind: Spanned<ScriptKind>,
    /// Directory of the scripts: the part of the path that the `*` of the pattern matches names the script, and
    /// what follows its name is PATH_INFO. With `component`: each file `NAME.wasm` in it responds at `NAME`. With
    /// `wsgi`, `asgi` and `psgi`: the directory of the application. Default for those: the directory of the
    /// configuration.
    pub directory: Option<Spanned<PathBuf>>,
    /// With `cgi`, `warm`, `cgiplus` and `component`: the one program for all paths of the route. The part of the
    /// path before the last slash of the pattern is SCRIPT_NAME, the rest PATH_INFO. It can be a symlink.
    pub file: Option<Spanned<PathBuf>>,
    /// Directory beneath which the whole path names a script. With `cgi` and `warm`, default: the root of the route
    /// or site, if `extensions` is set. With neither `root` nor `directory`, one program responds to all paths.
    pub root: Option<Spanned<PathBuf>>,
    /// Extensions of scripts beneath `root` or `directory`. Default: `["php"]`; with `rte`, `["py"]` or `["pl"]`;
    /// with `cgi` and `warm`, `["cgi"]` beneath a `root`, and every executable file beneath a `directory`.
    pub extensions: Option<Spanned<Vec<Spanned<String>>>>,
    /// Program of a worker and its arguments; it accepts connections on its standard input.
    pub command: Option<Spanned<Vec<Spanned<String>>>>,
    /// Workers of another program, one or a list: `unix:/run/app.sock`, `127.0.0.1:9000`; `php:9000` for one at each
    /// address of a name, and `srv://_fastcgi._tcp.example.com` for those in SRV records.
    #[schemars(with = "Option<OneOrManySchema>")]
    pub connect: Option<Spanned<OneOrMany<String>>>,
    /// Application: `module:callable`, or `module:factory()` with literals as arguments
    /// (`app:create_app("production", debug=False)`); with `psgi` a file, such as `app.psgi`.
    pub application: Option<Spanned<String>>,
    /// Interpreter of the application, such as that of a virtual environment, or of the scripts of kind `rte`.
    /// Default: `python3`; with `psgi`, `perl`.
    pub interpreter: Option<Spanned<String>>,
    /// Concurrent requests of one process of a `wsgi` application. Default: 1.
    pub threads: Option<Spanned<usize>>,
    /// The path that an application, or the program `file`, sees: with `"strip"`, `SCRIPT_NAME` is the path before the `*`
    /// of the route and `PATH_INFO` the rest; with `"keep"`, `PATH_INFO` is the whole path, for applications whose routes
    /// begin with it. Default: `"strip"`.
    pub mount: Option<Spanned<Mount>>,
    /// Maximum size of a WebSocket message that a client sends to an `asgi` application. Default: `16MB`.
    pub message_size: Option<Spanned<Size>>,
    /// Maximum time without a byte in either direction of a WebSocket of an `asgi` application; 0 for no limit.
    /// Default: `1h`.
    pub tunnel_timeout: Option<Spanned<DurationValue>>,
    /// Maximum number of processes, with `cgiplus` of each program; with `connect`, of requests. Default: 32; 4 for
    /// workers that the server starts.
    pub processes: Option<Spanned<usize>>,
    /// Number of workers that stay without requests. Default: 1; with `asgi`, `processes`; with `cgiplus`, 0.
    pub min_processes: Option<Spanned<usize>>,
    /// Time without a request after which a worker beyond `min_processes` is stopped. Default: `1m`.
    pub retire_idle: Option<Spanned<DurationValue>>,
    /// Number of requests after which a worker is replaced. Default: no limit.
    pub requests: Option<Spanned<usize>>,
    /// Age at which a worker is replaced. Default: no limit.
    pub max_age: Option<Spanned<DurationValue>>,
    /// Resident memory at which a worker is replaced. Default: no limit.
    pub max_resident: Option<Spanned<Size>>,
    /// Pause before a worker that has died is replaced; it doubles, up to `30s`, while workers die before their
    /// first response. Default: `100ms`.
    pub backoff: Option<Spanned<DurationValue>>,
    /// Maximum wait for a connection to a worker at `connect`. Default: `5s`.
    pub connect_timeout: Option<Spanned<DurationValue>>,
    /// Time for which a worker at `connect` that could not be reached is skipped while there are others. Default:
    /// `10s`.
    pub cool_down: Option<Spanned<DurationValue>>,
    /// `true` keeps connections to workers at `connect` open. Each then occupies one of them, so there must be at least
    /// `processes`. Default: false.
    pub keep_alive: Option<Spanned<bool>>,
    /// Maximum number of requests that wait for a process; further ones get 503. Default: 1024.
    pub queue: Option<Spanned<usize>>,
    /// Maximum wait for a process; 503 after it. Default: `30s`.
    pub queue_timeout: Option<Spanned<DurationValue>>,
    /// Maximum run time of a script. Default: no limit.
    pub timeout: Option<Spanned<DurationValue>>,
    /// Maximum time from the end of the request to the end of the response's header. Default: no limit.
    pub first_byte_timeout: Option<Spanned<DurationValue>>,
    /// Maximum time in which a script neither reads nor writes before its response is complete; 0 for no limit.
    /// Default: `60s`.
    pub idle_timeout: Option<Spanned<DurationValue>>,
    /// Environment variables, in addition to those of the request. With `cgi`, `fastcgi`, `scgi` and `uwsgi`, values may have the
    /// placeholders of a map's `from`: `{ HTTP_X_REAL_IP = "{client}" }`.
    pub env: Option<Spanned<BTreeMap<Spanned<String>, Spanned<String>>>>,
    /// Directories beneath which a script can name a file by `X-Sendfile`, which is sent instead of its body: one
    /// or a list. Any other file gives 502. Default: none.
    #[schemars(with = "Option<OneOrManySchema>")]
    pub sendfile_root: Option<Spanned<OneOrMany<String>>>,
    /// Source of the request ID, which scripts get as HTTP_X_REQUEST_ID and the logs contain: `make`, a new one for
    /// each request; `accept`, the client's X-Request-Id if there is one. Default: `make`.
    pub request_id: Option<Spanned<RequestId>>,
    /// `true` adds X-Request-Id to responses. Default: false.
    pub send_request_id: Option<Spanned<bool>>,
    /// `true` replaces error responses of scripts with `error_pages`, too, and not only those of the server. Default:
    /// false.
    pub intercept_errors: Option<Spanned<bool>>,
    /// `true` shows the reason and the standard error on the error page of a failed script: for development, never
    /// for a public server. Default: false.
    pub show_errors: Option<Spanned<bool>>,
    /// `true` passes the Authorization header to scripts. Default: false.
    pub authorization: Option<Spanned<bool>>,
    /// User of the processes, by name or number, with the groups of that user; the server must be started by root
    /// and stay root. Default: the server's.
    pub user: Option<Spanned<String>>,
    /// Group of the processes, by name or number, under the same condition. Default: the user's.
    pub group: Option<Spanned<String>>,
    /// Added to the nice value of the processes, from -20 to 19: a higher value gives a script less of a busy
    /// processor. Default: 0.
    pub nice: Option<Spanned<i32>>,
    /// Maximum address space of a process (RLIMIT_AS). Default: the server's limit. With `component`: maximum size
    /// of all memories of an instance, up to `4GB`. Default: `64MB`.
    pub memory: Option<Spanned<Size>>,
    /// Maximum CPU time of a process (RLIMIT_CPU), in whole seconds. Default: the server's limit. With `component`:
    /// maximum time for which a request runs on its worker; the response is 504 after it. Default: `1s`.
    pub cpu: Option<Spanned<DurationValue>>,
    /// With `component`: maximum time from the start of an instance to the end of its response; the response is 504
    /// after it. Default: `30s`.
    pub time: Option<Spanned<DurationValue>>,
    /// With `component`: maximum number of instances that run at the same time in a worker; further requests get
    /// 503. Default: 256.
    pub instances: Option<Spanned<usize>>,
    /// With `component`: number of requests that an instance handles, one after another. Its memory persists between
    /// requests. CGI programs handle one. Default: 1, a new instance for each request.
    pub reuse: Option<Spanned<usize>>,
    /// With `component`: time without a request after which an instance is dropped, if `reuse` keeps it. Default:
    /// `10s`.
    pub idle: Option<Spanned<DurationValue>>,
    /// With `component`: environment variables. Nothing is inherited from the server. Default: none.
    pub environment: Option<Spanned<BTreeMap<Spanned<String>, Spanned<String>>>>,
    /// With `component`: directories that a component can use, `{ path = "/srv/data", as = "/data", write = true }`.
    /// Default: none.
    pub files: Option<Spanned<Vec<ComponentFiles>>>,
    /// With `component`: hosts that a component can send HTTP requests to, as `example.com`, which stands for the
    /// default port of the scheme, or `example.com:8080`. Default: none.
    pub outbound: Option<Spanned<Vec<Spanned<String>>>>,
    /// With `component`: what happens to standard error, and to standard output of components that are not CGI
    /// programs. `log`: its lines are in the error log. `none`: they are dropped. Default: `log`.
    pub stderr: Option<Spanned<ComponentStderr>>,
    /// With `warm`: modules that Python and Perl load once, before requests arrive.
    pub preload: Option<Spanned<Vec<String>>>,
}

impl ScriptTable {
    /// Returns `true` if the processes are to belong to another user or group than the server.
    pub fn has_owner(&self) -> bool {
        self.user.is_some() || self.group.is_some()
    }

    /// The script that stands for a directory, where scripts are known by their extensions.
    pub fn index(&self) -> Option<String> {
        let kind = self.kind.value;
        let is_plain = kind.is_cgi() && !self.is_by_extension();
        let is_plain = is_plain || kind.is_by_streams() || kind.is_component();
        if is_plain || self.directory.is_none() && self.root.is_none() {
            return None;
        }
        let first = self.extensions.as_ref().and_then(|names| names.first());
        let usual = if kind.is_cgi() { "cgi" } else { "php" };
        let extension = first.map_or(usual, |name| name.trim_start_matches('.'));
        (!self.kind.value.has_host()).then(|| format!("index.{extension}"))
    }
}

/// A directory that a component can use.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ComponentFiles {
    /// The directory.
    pub path: Spanned<PathBuf>,
    /// Name of the directory in the component.
    #[serde(rename = "as")]
    pub name: Spanned<String>,
    /// `true` permits the component to write, create and remove files there. Default: false.
    pub write: Option<bool>,
}

/// The target of the standard error of components.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ComponentStderr {
    /// The error log gets the lines.
    #[default]
    Log,
    /// It is dropped.
    None,
}

/// The source of the number of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RequestId {
    /// It is made here.
    Make,
    /// The client may bring it.
    Accept,
}

/// The kind of scripts.
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
    /// WebAssembly components within the server's own process.
    Component,
}

/// The way in which scripts of a kind get their requests.
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
    /// Calls within the server's own process.
    Component,
}

impl ScriptKind {
    /// Returns the way in which scripts of this kind get their requests.
    pub fn interface(self) -> Interface {
        match self {
            Self::Cgi | Self::Warm => Interface::Process,
            Self::FastCgi | Self::Scgi | Self::Uwsgi => Interface::Socket,
            Self::Cgiplus | Self::Rte => Interface::Streams,
            Self::Wsgi | Self::Asgi | Self::Psgi => Interface::Application,
            Self::Component => Interface::Component,
        }
    }

    /// Returns `true` if the interface leaves the transfer coding of responses to the server (PEP 3333, ASGI), so that a
    /// `Transfer-Encoding` field of a response is dropped.
    pub fn leaves_coding_to_server(self) -> bool {
        matches!(self, Self::Wsgi | Self::Asgi)
    }

    /// Returns `true` if a host of the server's loads an application.
    pub fn has_host(self) -> bool {
        self.interface() == Interface::Application
    }

    /// Returns `true` if scripts are CGI programs, each in a process of its own.
    pub fn is_cgi(self) -> bool {
        self.interface() == Interface::Process
    }

    /// Returns `true` if scripts are WebAssembly components.
    pub fn is_component(self) -> bool {
        self == Self::Component
    }

    /// Returns `true` if workers read requests from streams of their own.
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
            Self::Component => "component",
        }
    }
}
