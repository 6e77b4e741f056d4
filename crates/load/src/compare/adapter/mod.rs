//! How each server is set up, started and asked for its version: one file each.

mod apache2;
mod caddy;
mod dunlin;
mod floor;
mod h2o;
mod lighttpd;
mod merecat;
mod mini_httpd;
mod nginx;

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::scenario::{Script, Variant};

/// A server that can be compared.
pub struct Adapter {
    /// What it is called, in `--servers` and in tables.
    pub name: &'static str,
    /// Its program.
    program: fn() -> PathBuf,
    /// Options that make it tell its version.
    version: &'static [&'static str],
    /// Why it cannot be set up like that.
    pub lacks: fn(&Variant) -> Option<&'static str>,
    /// Writes its configuration and says how to start it.
    pub launch: fn(&Site<'_>) -> io::Result<Launch>,
}

/// What a server is to serve, and where.
pub struct Site<'a> {
    /// The program.
    pub program: PathBuf,
    /// The files.
    pub root: &'a Path,
    /// A folder for its own use.
    pub folder: &'a Path,
    /// The port, on 127.0.0.1.
    pub port: u16,
    /// How it is to be set up.
    pub variant: &'a Variant,
    /// Certificate and key, for TLS.
    pub certificate: Option<(&'a Path, &'a Path)>,
    /// The resolver, for look-ups of names.
    pub resolver: Option<SocketAddr>,
}

/// How to start a server.
pub struct Launch {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Variables beside those of this process.
    pub environment: Vec<(String, String)>,
    /// Its configuration.
    pub configuration: String,
}

/// All of them; the floor is a bare responder, the least that answering can cost.
pub const ALL: [&Adapter; 9] = [
    &dunlin::ADAPTER,
    &nginx::ADAPTER,
    &apache2::ADAPTER,
    &h2o::ADAPTER,
    &lighttpd::ADAPTER,
    &caddy::ADAPTER,
    &merecat::ADAPTER,
    &mini_httpd::ADAPTER,
    &floor::ADAPTER,
];

impl Adapter {
    /// Where its program is; `None` when it is not installed.
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

    /// What it calls itself, in one line.
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
    /// Writes `text` into a file of the server's folder and gives its path.
    fn write(&self, name: &str, text: &str) -> io::Result<String> {
        let file = self.folder.join(name);
        fs::write(&file, text)?;
        Ok(file.display().to_string())
    }

    /// The FastCGI program, and the socket at which it is reached.
    fn fastcgi(&self) -> (String, String) {
        let program = self.root.join("cgi-bin/hello.fcgi");
        (program.display().to_string(), self.folder.join("fastcgi.sock").display().to_string())
    }

    /// Has the FastCGI program started before the server, as its child.
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

/// What nobody but Dunlin has.
fn lacks_ours(variant: &Variant) -> Option<&'static str> {
    if variant.records {
        return Some("it does not convert record files");
    }
    if variant.dns {
        return Some("its resolver cannot be chosen");
    }
    None
}
