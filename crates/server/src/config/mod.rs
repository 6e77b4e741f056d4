//! The configuration: one TOML file, its types, its errors, its schema.
//!
//! [`mod@file`] is the file as it is written; [`Config`] is what the server works with: checked, with
//! every default filled in, immutable.

mod at;
mod check;
mod check_rules;
mod confinement;
mod diff;
mod error;
mod explain;
mod fields;
pub mod file;
mod foreign;
mod forms;
mod handler;
mod jail;
mod limits;
mod merge;
mod overlaps;
mod pattern;
mod read;
mod redirect;
mod respond;
mod route_table;
mod script;
mod settings;
mod sites;
mod sources;
mod startup;
mod template;
#[cfg(test)]
mod tests;
mod tls;
mod tries;
mod units;
mod users;
mod vocabulary;
mod warnings;

use std::collections::HashSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::checks::{ForwardedField, Network, UserFile};
use crate::server::Findings;
pub(crate) use check::descriptor_limit;
pub(crate) use check_rules::CheckRules;
pub use confinement::Places;
pub use diff::diff;
pub use error::Problem;
use error::Source;
pub(crate) use error::nearest;
pub(crate) use explain::explain_settings;
use file::At;
pub use file::{
    AcmeChallenge, BodyHandling, ConnectionUse as Persistence, EtagKind, Interface, ScriptKind,
    Symlinks, TlsVersion,
};
pub use handler::{Handler, Status};
pub(crate) use jail::Jail;
pub(crate) use merge::Origins;
pub use redirect::Redirect;
pub use respond::Respond;
pub(crate) use route_table::RouteTable;
pub use script::{Address, Language, Local, Mapping, Remote, Script, Workers};
pub use settings::{CacheRules, Records, Settings};
pub use sites::{Site, Sites};
pub(crate) use sources::original;
pub use sources::{SourceRule, Sources};
pub use startup::{Confinement, StartupSettings};
pub use template::Template;
pub(crate) use template::push_query;
pub use tls::{Acme, ClientCertificates, Tls};
pub use tries::{Candidate, TryPath, TryStep};
pub use units::{Rate, Size, Span};
pub use users::Owner;

/// A configuration that was read and checked.
#[derive(Debug)]
pub struct Config {
    /// What concerns the whole server.
    pub server: Server,
    /// Addresses to listen on.
    pub listen: Vec<Listen>,
    /// How many `[[listen]]` tables they come from.
    pub listener_count: usize,
    /// What is served.
    pub sites: Sites,
    directories: Vec<Directory>,
    /// What will surprise, as far as the file alone shows it.
    warnings: Vec<Problem>,
    /// Where the file is; empty when there is none.
    path: PathBuf,
    users: Vec<UsersFile>,
    authorities: Vec<Authority>,
    /// The file; empty when there is none.
    text: Box<str>,
    /// A configuration in the directory that is served without it.
    unused: Option<PathBuf>,
    /// What the command line says instead of the file.
    overrides: Overrides,
}

/// A file of users and passwords.
#[derive(Debug)]
struct UsersFile {
    path: PathBuf,
    /// Where it is named, without words.
    problem: Problem,
}

/// A file of trusted authorities.
#[derive(Debug)]
struct Authority {
    path: PathBuf,
    /// The table that names it.
    table: &'static str,
    /// Where it is named, without words.
    problem: Problem,
}

/// A directory that has to be there.
#[derive(Debug)]
struct Directory {
    /// The key that names it.
    key: &'static str,
    path: PathBuf,
    /// Where it is named, without words.
    problem: Problem,
}

/// What concerns the whole server.
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
    /// What the process may use at most.
    pub limits: Limits,
    /// Whether no privileges can be gained by what is started.
    pub no_new_privs: bool,
    /// The files that may be used besides those that are named elsewhere; `None` for all.
    pub landlock: Option<Places>,
    /// Which calls of the system are not refused.
    pub calls: Calls,
    /// Where the number of the process stands.
    pub pid_file: Option<PathBuf>,
    /// The Unix socket at which it takes commands.
    pub admin: Option<PathBuf>,
    /// What the error log tells, and where it goes.
    pub error_log: ErrorLog,
    /// The most connections at once; `None` to derive it from the descriptor limit.
    pub connections: Option<usize>,
    /// From how many on idle ones give way; `None` for 90 % of the most.
    pub connections_soft: Option<usize>,
    /// The most of one address; `None` for no limit.
    pub connections_per_address: Option<usize>,
    /// How long answers under way may take when the server stops.
    pub stop_timeout: Duration,
    /// How long the new process of an upgrade may take until it serves.
    pub upgrade_timeout: Duration,
    /// Bytes of request bodies in temporary files; `None` for the default.
    pub spool_size: Option<u64>,
    /// Whether responses carry `Server`.
    pub server_field: bool,
    /// Directory of what has to outlive the server.
    pub state: PathBuf,
    /// Proxies that are believed what they say of the client.
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
    /// All but those that neither the server nor a script has a use for: scripts inherit what is refused.
    Harmless,
    /// Those that the server needs, which starts no programs.
    Needed,
}

/// What the process may use at most; `None` for what it was started with.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
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

/// What the error log tells, and where it goes.
#[derive(Debug, Clone)]
pub struct ErrorLog {
    /// The least severe level that is told.
    pub level: file::LogLevel,
    /// How a message is written; the journal has a form of its own.
    pub format: file::LogFormat,
    /// Where it goes.
    pub place: ErrorLogPlace,
}

/// Where the error log goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ErrorLogPlace {
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
#[derive(Debug, Clone, PartialEq, Eq)]
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
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listen {
    /// The address.
    pub address: Address,
    /// Permissions of a Unix socket.
    pub mode: u32,
    /// Connections that wait to be accepted.
    pub backlog: i32,
    /// Whether it speaks TLS.
    pub tls: bool,
    /// Whether HTTP/2 is spoken with clients that begin with it.
    pub http2: bool,
    /// Whether what comes there are commands to the server rather than requests for its sites.
    pub admin: bool,
    /// Whether connections begin with the PROXY protocol.
    pub proxy_protocol: bool,
}

/// What the command line says instead of the file.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Overrides {
    /// Addresses; those of the file when empty.
    pub listen: Vec<String>,
    /// Worker threads.
    pub threads: Option<usize>,
    /// A path, `-` or `off`.
    pub access_log: Option<String>,
    /// Certificate and key: every listener speaks TLS, with them where a site has none of its own.
    pub certificate: Option<(PathBuf, PathBuf)>,
}

impl Overrides {
    /// The same wherever it is read: the command line's paths are relative to where it was typed.
    #[must_use]
    pub fn absolute(mut self) -> Self {
        let absolute = |path: &str| match std::path::absolute(path) {
            Ok(path) => path.display().to_string(),
            Err(_) => path.to_owned(),
        };
        for address in &mut self.listen {
            if let Some(path) = address.strip_prefix("unix:") {
                *address = format!("unix:{}", absolute(path));
            }
        }
        if let Some(path) =
            self.access_log.as_mut().filter(|path| !["-", "off"].contains(&&***path))
        {
            *path = absolute(path);
        }
        self
    }

    /// Whether they say something of a key of `[server]`.
    fn has(&self, key: &str) -> bool {
        match key.split('.').next() {
            Some("threads") => self.threads.is_some(),
            Some("access_log") => self.access_log.is_some(),
            _ => false,
        }
    }

    /// Puts them in the place of what the file says.
    fn apply(&self, file: &mut file::File) -> Result<(), Vec<Problem>> {
        let unusable = |address: &&String| check::parse_address(address).is_empty();
        let problems: Vec<_> = self
            .listen
            .iter()
            .filter(unusable)
            .map(|address| Problem::of_option("--listen", &check::not_an_address(address)))
            .chain(self.threads.filter(|threads| !(1..=1024).contains(threads)).map(|threads| {
                let what = format!("{threads} is not between 1 and 1024");
                Problem::of_option("--threads", &what)
            }))
            .collect();
        if !problems.is_empty() {
            return Err(problems);
        }
        if !self.listen.is_empty() {
            let listen = |address: &String| file::Listen {
                address: At::nowhere(address.clone()),
                mode: None,
                backlog: None,
                tls: None,
                http2: None,
                proxy_protocol: None,
            };
            file.listen = self.listen.iter().map(listen).collect();
        }
        if let Some((certificate, key)) = &self.certificate {
            for listen in &mut file.listen {
                listen.tls = Some(At::nowhere(true));
            }
            for site in &mut file.site {
                let table = || At::nowhere(file::TlsTable::of(certificate, key));
                site.value.tls.get_or_insert_with(table);
            }
        }
        if let Some(threads) = self.threads {
            file.server.threads = Some(At::nowhere(threads));
        }
        if let Some(path) = &self.access_log {
            let format = file.server.access_log.take().and_then(|log| log.value.0.format);
            let table = file::AccessLogTable { path: At::nowhere(path.into()), format };
            file.server.access_log = Some(At::nowhere(file::AccessLog(table)));
        }
        Ok(())
    }
}

impl Config {
    /// Reads and checks the file at `path`; the files that it names are left to [`crate::verify`].
    ///
    /// # Errors
    /// Every problem that could be found, each with its place.
    pub fn load(path: &Path, overrides: &Overrides) -> Result<Self, Vec<Problem>> {
        Self::parse(&read(path)?, path, overrides)
    }

    /// Whether there is a file at `path`, as it is called from where the server was started.
    pub fn is_there(path: &Path) -> bool {
        jail::reach(path).is_ok_and(|path| path.is_file())
    }

    /// Reads and checks the file at `path` and the files that it names, for a server that reloads its configuration.
    ///
    /// # Errors
    /// Every problem that could be found, each with its place.
    pub fn reload(path: &Path, overrides: &Overrides) -> Result<Self, Vec<Problem>> {
        let inside = Jail::entered().is_some();
        let config = Self::parse_for(&read(path)?, path, overrides, inside)?;
        let findings = crate::verify(&config, None);
        if !findings.errors.is_empty() {
            return Err(findings.errors);
        }
        for warning in findings.warnings {
            tracing::warn!("{warning}");
        }
        Ok(config)
    }

    /// The same for a process that is going to serve by it: where the file names a directory that becomes
    /// all the files there are, paths mean what they will mean inside, and [`crate::verify`] is to be called there.
    ///
    /// # Errors
    /// Every problem that could be found, each with its place.
    pub fn load_to_serve(path: &Path, overrides: &Overrides) -> Result<Self, Vec<Problem>> {
        Self::parse_for(&read(path)?, path, overrides, true)
    }

    /// Checks `text`, the content of the file at `path`; relative paths in it are relative to
    /// that file. Nothing is looked up on the disk.
    ///
    /// # Errors
    /// Every problem that could be found, each with its place.
    pub fn parse(text: &str, path: &Path, overrides: &Overrides) -> Result<Self, Vec<Problem>> {
        Self::parse_for(text, path, overrides, Jail::entered().is_some())
    }

    /// `inside`: paths are to mean what they do inside the directory that the file names, if any.
    fn parse_for(
        text: &str,
        path: &Path,
        overrides: &Overrides,
        inside: bool,
    ) -> Result<Self, Vec<Problem>> {
        let source = Source { path, text };
        let mut file = read::read(&source).map_err(Problem::sorted)?;
        let overrides = overrides.clone().absolute();
        overrides.apply(&mut file)?;
        let config = check::check(file, &source, inside).map_err(Problem::sorted)?;
        Ok(Self { overrides, ..config })
    }

    /// The configuration that serves `directory` without any file: listings and compression on,
    /// the access log on standard output.
    ///
    /// # Errors
    /// When the directory is not one.
    pub fn for_directory(directory: &Path, overrides: &Overrides) -> Result<Self, Vec<Problem>> {
        let mut file = file::File::default();
        file.listen.push(file::Listen::default());
        file.server.access_log = Some(At::nowhere(file::AccessLog::to("-")));
        let route = file::Route { listing: Some(At::nowhere(true)), ..Default::default() };
        let root = Some(At::nowhere(directory.to_owned()));
        file.site.push(At::nowhere(file::Site { root, route: vec![route], ..Default::default() }));
        let overrides = overrides.clone().absolute();
        overrides.apply(&mut file)?;
        let source = Source { path: Path::new(""), text: "" };
        let config = check::check(file, &source, false)?;
        // Before a user is there to report anything else to.
        let findings = crate::verify(&config, None);
        if !findings.errors.is_empty() {
            return Err(findings.errors);
        }
        let directory = std::path::absolute(directory).unwrap_or_else(|_| directory.to_owned());
        let unused = Some(directory.join("dunlin.toml"));
        Ok(Self { overrides, unused, ..config })
    }

    /// Checks that each root, and the folder of the access log, is a directory that can be read, that the
    /// certificates and users' files can be used, and that there are the user and group. `is_check`: a folder that a
    /// service manager makes for the server may be missing.
    pub(crate) fn verify_files(&self, is_check: bool, findings: &mut Findings) {
        for directory in &self.directories {
            match directory.problem() {
                None => {}
                Some(what) if is_check && directory.is_made_by_manager() => {
                    let advice = "; systemd makes it where the unit has RuntimeDirectory=, LogsDirectory= or \
                                  StateDirectory=, else make it before the start";
                    findings.warnings.push(directory.problem.saying(format!("{what}{advice}")));
                }
                Some(what) => findings.errors.push(directory.problem.saying(what)),
            }
        }
        let problems = &mut findings.errors;
        for tls in self.sites.iter().filter_map(|site| site.tls.as_ref()) {
            if let Err(what) = crate::tls::examine(tls) {
                problems.push(tls.problem.saying(what));
            }
        }
        self.users.iter().for_each(|file| file.verify(problems));
        for Authority { path, table, problem } in &self.authorities {
            if let Err(what) = crate::tls::client_config(Some(path)) {
                problems.push(problem.saying(format!("{table}: {what}")));
            }
        }
        let Server { user, group, .. } = &self.server;
        // Inside, nobody may be known by name; who it is was decided before.
        if Jail::entered().is_none()
            && let Err(what) = crate::server::check_identity(user.as_deref(), group.as_deref())
        {
            problems.push(Problem::of_file(&self.path, &what));
        }
    }

    /// Files that are never sent: the configuration, users' files and private keys.
    pub(crate) fn protected_files(&self) -> Vec<PathBuf> {
        let mut files: Vec<PathBuf> = self.users.iter().map(|file| file.path.clone()).collect();
        if let Some(path) = self.path() {
            files.extend(jail::reach(path).ok().and_then(|path| std::path::absolute(path).ok()));
        }
        files.extend(self.unused.clone());
        for tls in self.sites.iter().filter_map(|site| site.tls.as_ref()) {
            files.extend(tls.certificates.iter().map(|(_, key)| key.clone()));
            if let Some(acme) = &tls.acme {
                files.push(acme.account());
                files.extend(acme.external.iter().map(|external| external.key.clone()));
            }
        }
        files.sort();
        files.dedup();
        files
    }

    /// What to know of the certificates that it names: a line for each.
    pub fn certificates(&self) -> Vec<String> {
        let sites = self.sites.iter().filter_map(|site| site.tls.as_ref());
        sites.flat_map(|tls| crate::tls::examine(tls).unwrap_or_else(|error| vec![error])).collect()
    }

    /// Why a server that may make only those calls cannot have this configuration, whatever else is right
    /// about it; `None` when it can.
    pub(crate) fn refused_after(&self, calls: Calls) -> Option<&'static str> {
        let gone = calls == Calls::Needed && self.sites.start_programs();
        gone.then_some(
            "scripts are new, and the server has given up the calls that they may need (seccomp); restart it",
        )
    }

    /// The first script that is to belong to another user or group than the server: what to call it.
    pub(crate) fn script_of_another_user(&self) -> Option<String> {
        let mut scripts = self.sites.iter().flat_map(|site| site.scripts_started_here());
        scripts.find_map(|(name, script)| script.has_owner().then_some(name))
    }

    /// Whether scripts of any route stay and are reached by sockets that the server makes.
    pub(crate) fn needs_sockets(&self) -> bool {
        let mut scripts = self.sites.iter().flat_map(|site| site.scripts_started_here());
        scripts.any(|(_, script)| !script.kind.value.is_cgi())
    }

    /// Whether any route runs scripts.
    pub(crate) fn has_scripts(&self) -> bool {
        self.sites.iter().any(|site| site.scripts().next().is_some())
    }

    /// Whether somebody can ask for what requests are counted by.
    pub(crate) fn is_counting(&self) -> bool {
        self.server.admin.is_some() || self.sites.iter().any(|site| site.shows_status())
    }

    /// The numbers of the sites whose tables are the same in `before`, so that what the server knows of their files and
    /// scripts remains valid.
    pub(crate) fn unchanged_sites(&self, before: &Self) -> HashSet<usize> {
        let (Ok(now), Ok(then)) = (self.text.parse(), before.text.parse()) else {
            return HashSet::new();
        };
        let (now, then): (toml::Table, toml::Table) = (now, then);
        // The content of cached responses depends on these, too.
        let server = |table: &toml::Table, key| table.get("server")?.get(key).cloned();
        if ["cache", "server_field"].iter().any(|key| server(&now, key) != server(&then, key)) {
            return HashSet::new();
        }
        let site = |table: &toml::Table, index| table.get("site")?.get(index).cloned();
        let is_same = |&index: &usize| {
            site(&now, index).is_some_and(|table| Some(table) == site(&then, index))
        };
        (0..self.sites.iter().len().min(before.sites.iter().len())).filter(is_same).collect()
    }

    /// Where its file is; `None` when there is none.
    pub fn path(&self) -> Option<&Path> {
        (!self.path.as_os_str().is_empty()).then_some(&*self.path)
    }

    /// Where its file is, whole and as it is called from outside; `None` when there is none.
    pub(crate) fn whole_path(&self) -> Option<PathBuf> {
        let path = self.path()?;
        Some(match Jail::entered() {
            Some(jail) => jail.whole(path),
            None => std::path::absolute(path).unwrap_or_else(|_| path.into()),
        })
    }

    /// The text of its file; empty when there is none.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The directory that becomes all the files there are, if any.
    pub(crate) fn jail(&self) -> Option<Jail> {
        self.server.chroot.as_deref().map(Jail::new)
    }

    /// What the command line says instead of the file.
    pub fn overrides(&self) -> &Overrides {
        &self.overrides
    }

    /// The JSON Schema of the file.
    pub fn schema() -> String {
        serde_json::to_string_pretty(&Self::schema_value()).unwrap_or_default()
    }

    fn schema_value() -> serde_json::Value {
        let mut schema = schemars::schema_for!(file::File).to_value();
        if let Some(schema) = schema.as_object_mut() {
            schema.insert("$id".into(), "urn:dunlin:configuration".into());
            schema.insert("title".into(), "Dunlin configuration".into());
        }
        schema
    }
}

/// The file's text, wherever this process is.
fn read(path: &Path) -> Result<String, Vec<Problem>> {
    let text = jail::reach(path)
        .and_then(|path| std::fs::read_to_string(path).map_err(|error| error.to_string()));
    text.map_err(|what| vec![Problem::of_file(path, &what)])
}

impl UsersFile {
    /// Reports what is wrong with the file.
    fn verify(&self, problems: &mut Vec<Problem>) {
        let path = self.path.display();
        let report = |what: String| self.problem.saying(format!("auth: {path}{what}"));
        match UserFile::default().refresh(&self.path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                problems
                    .push(report(format!(": {error}; make it with `dunlin passwd {path} NAME`")));
            }
            Err(error) => problems.push(report(format!(": {error}"))),
            Ok(lines) => {
                problems
                    .extend(lines.iter().map(|(line, what)| report(format!(":{line}: {what}"))));
            }
        }
    }
}

impl Directory {
    /// What is wrong with a file that has to be a program.
    fn program_problem(&self) -> Option<String> {
        use std::os::unix::fs::PermissionsExt;
        let what = match std::fs::metadata(&self.path) {
            Err(error) => error.to_string(),
            Ok(facts) if facts.is_dir() => "it is a directory; `directory` names one".into(),
            Ok(facts) if facts.permissions().mode() & 0o111 == 0 => {
                "it is not executable (chmod +x)".into()
            }
            Ok(_) => return None,
        };
        Some(format!("script: file {}: {what}", self.path.display()))
    }

    /// What is wrong with it.
    fn problem(&self) -> Option<String> {
        let error = match self.key {
            // A file will do.
            "landlock" => std::fs::metadata(&self.path).err()?,
            "file" => return self.program_problem(),
            _ => std::fs::read_dir(&self.path).err()?,
        };
        let missing = error.kind() == std::io::ErrorKind::NotFound;
        let advice = match error.kind() {
            std::io::ErrorKind::NotADirectory if self.key == "directory" => {
                "; `file` names a single program"
            }
            _ if self.key == "root" => "",
            std::io::ErrorKind::NotFound if self.is_made_by_manager() => "",
            std::io::ErrorKind::NotFound => "; check that the directory exists",
            // A log may be written where nothing may be read.
            std::io::ErrorKind::PermissionDenied => return None,
            _ => "",
        };
        // A socket's folder may be one that only the server's user can list.
        if SOCKETS.contains(&self.key) && !missing {
            return None;
        }
        Some(format!("{} {}: {error}{advice}", self.key, self.path.display()))
    }

    /// Whether service managers usually make it when they start the server.
    fn is_made_by_manager(&self) -> bool {
        let keys = ["access_log", "error_log", "pid_file"];
        let made = ["/run", "/var/run", "/var/log", "/var/lib", "/var/cache"];
        (keys.contains(&self.key) || SOCKETS.contains(&self.key))
            && made.iter().any(|folder| self.path.starts_with(folder))
            && !self.path.exists()
    }
}

/// The keys by which the folders of Unix sockets are named.
const SOCKETS: [&str; 2] = ["admin", "address"];
