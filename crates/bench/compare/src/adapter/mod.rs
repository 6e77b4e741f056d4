//! Adapters: how each server is configured and started. One file for each server.

mod apache2;
mod baseline;
mod caddy;
mod dunlin;
mod h2o;
mod haproxy;
mod lighttpd;
mod merecat;
mod mini_httpd;
mod nginx;

use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::scenario::{Script, Variant, did_you_mean};

/// A server that can be compared.
pub struct Adapter {
    /// Name in `--servers` and in tables.
    pub name: &'static str,
    /// The program: an absolute path, or a name to look for in `PATH`.
    program: fn() -> PathBuf,
    /// The command that installs it, for users who lack it.
    pub install: &'static str,
    /// Options that print the version. Empty for programs of this package.
    version: &'static [&'static str],
    /// The reason why the server does not support a variant; `None` if it does.
    pub lacks: fn(&Variant) -> Option<&'static str>,
    /// Writes the configuration and returns the command that starts the server.
    pub launch: fn(&Site<'_>) -> io::Result<Launch>,
}

/// The files that a server has to serve, and its address.
pub struct Site<'a> {
    /// The program.
    pub program: PathBuf,
    /// The files.
    pub root: &'a Path,
    /// A directory of the server's own, for its configuration, logs and sockets.
    pub folder: &'a Path,
    /// The address to listen on.
    pub address: Ipv4Addr,
    /// The port.
    pub port: u16,
    /// Required features.
    pub variant: &'a Variant,
    /// Certificate and key, for TLS.
    pub certificate: Option<(&'a Path, &'a Path)>,
    /// The resolver, for reverse look-ups of client addresses.
    pub resolver: Option<SocketAddr>,
    /// The server to which a reverse proxy forwards all requests.
    pub upstream: Option<SocketAddr>,
}

/// The start of a server.
pub struct Launch {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Environment variables beside those of this process.
    pub environment: Vec<(String, String)>,
    /// The configuration, as recorded in the reports.
    pub configuration: String,
}

/// All adapters. The last one is the baseline: a bare responder, the lower bound of the cost of a response.
pub const ALL: [&Adapter; 10] = [
    &dunlin::ADAPTER,
    &nginx::ADAPTER,
    &apache2::ADAPTER,
    &h2o::ADAPTER,
    &lighttpd::ADAPTER,
    &caddy::ADAPTER,
    &haproxy::ADAPTER,
    &merecat::ADAPTER,
    &mini_httpd::ADAPTER,
    &baseline::ADAPTER,
];

/// Name of Dunlin's adapter.
pub(crate) const DUNLIN: &str = dunlin::ADAPTER.name;
/// Dunlin has components, which are a feature of its build.
pub(crate) const HAS_COMPONENTS: bool = cfg!(feature = "component");
/// Name of the baseline's adapter.
pub(crate) const BASELINE: &str = "baseline";
/// The file that the baseline serves, beneath the root.
pub(crate) const BASELINE_FILE: &str = ".baseline";

/// Returns the adapter with that name.
///
/// # Errors
/// No adapter has that name; the message contains a similar one, or all.
pub fn by_name(name: &str) -> Result<&'static Adapter, String> {
    ALL.iter().copied().find(|adapter| adapter.name == name).ok_or_else(|| {
        let names: Vec<&str> = ALL.iter().map(|adapter| adapter.name).collect();
        match did_you_mean(name, names.iter().copied()) {
            near if near.is_empty() => {
                format!("there is no server {name}; the known ones are {}", names.join(", "))
            }
            near => format!("there is no server {name}{near}"),
        }
    })
}

impl Adapter {
    /// Path of its program; `None` if it is not installed.
    #[must_use]
    pub fn find(&self) -> Option<PathBuf> {
        let program = (self.program)();
        if program.is_absolute() {
            return program.is_file().then_some(program);
        }
        let path = std::env::var_os("PATH").unwrap_or_default();
        let folders =
            std::env::split_paths(&path).chain(["/usr/sbin".into(), "/usr/local/sbin".into()]);
        folders.map(|folder| folder.join(&program)).find(|file| file.is_file())
    }

    /// Returns the first line that it prints as its version.
    #[must_use]
    pub fn version(&self, program: &Path) -> String {
        if self.version.is_empty() {
            return env!("CARGO_PKG_VERSION").to_owned();
        }
        let Ok(done) = Command::new(program).args(self.version).output() else {
            return String::new();
        };
        let text = [done.stdout, done.stderr].concat();
        let text = String::from_utf8_lossy(&text);
        text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default().to_owned()
    }
}

impl Site<'_> {
    /// Writes `text` to a file in the server's directory and returns its path.
    fn write(&self, name: &str, text: &str) -> io::Result<String> {
        let file = self.folder.join(name);
        fs::write(&file, text)?;
        Ok(file.display().to_string())
    }

    /// Returns the FastCGI program and its socket.
    fn fastcgi(&self) -> (String, String) {
        let program = self.programs("cgi-bin", "fcgi").into_iter().next().unwrap_or_default();
        (program.display().to_string(), self.folder.join("fastcgi.sock").display().to_string())
    }

    /// Returns the programs with this extension in a directory beneath the root.
    fn programs(&self, directory: &str, extension: &str) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.root.join(directory)).into_iter().flatten();
        let files = entries.filter_map(|entry| Some(entry.ok()?.path()));
        files.filter(|file| file.extension().is_some_and(|found| found == extension)).collect()
    }

    /// Returns a command that starts the FastCGI program before the server, for servers that do not start one.
    fn beside_fastcgi(&self, command: Vec<String>) -> Vec<String> {
        if self.variant.script != Some(Script::Fastcgi) {
            return command;
        }
        let (program, socket) = self.fastcgi();
        let start = "umask 0; \"$0\" \"$1\" & shift; exec \"$@\"".to_owned();
        ["sh".to_owned(), "-c".to_owned(), start, program, socket]
            .into_iter()
            .chain(command)
            .collect()
    }

    fn program(&self) -> String {
        self.program.display().to_string()
    }
}

/// Returns why a server other than Dunlin does not support a variant, for the features that only Dunlin has.
fn lacks_dunlin_features(variant: &Variant) -> Option<&'static str> {
    if variant.http3 {
        return Some("its adapter does not configure HTTP/3");
    }
    lacks_other_features(variant)
}

/// Returns the same for servers with HTTP/3.
fn lacks_other_features(variant: &Variant) -> Option<&'static str> {
    if variant.records {
        return Some("it does not convert record files");
    }
    if variant.dns {
        return Some("its resolver cannot be chosen");
    }
    if variant.phases {
        return Some("it does not report the phases of a request");
    }
    None
}

/// Returns the same for servers that are not compared as reverse proxies.
fn lacks_proxy(variant: &Variant) -> Option<&'static str> {
    if variant.proxy {
        return Some("its adapter does not configure a reverse proxy");
    }
    lacks_dunlin_features(variant)
}
