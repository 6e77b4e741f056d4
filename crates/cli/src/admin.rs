//! `dunlin reload`, `dunlin upgrade`: commands to a running server, by its admin socket.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use dunlin_server::client::Client;
use dunlin_server::config::{Config, Overrides};

use crate::check::default_file;

/// Longest wait for an answer: a server that hands over waits for another to be ready.
const PATIENCE: Duration = Duration::from_secs(120);

/// Which server is meant.
#[derive(Args)]
pub(crate) struct Arguments {
    /// The server's admin socket; the one that the configuration names when absent
    #[arg(long, value_name = "SOCKET")]
    admin: Option<PathBuf>,
    /// Configuration that names the socket; ./dunlin.toml or /etc/dunlin/dunlin.toml when absent
    #[arg(long, short, value_name = "FILE", conflicts_with = "admin")]
    config: Option<PathBuf>,
}

/// Gives the command at `path` and prints what came of it.
pub(crate) fn run(path: &str, arguments: &Arguments) -> ExitCode {
    match arguments.socket().and_then(|socket| command(&socket, path)) {
        Ok((true, body)) => {
            print!("{body}");
            ExitCode::SUCCESS
        }
        Ok((false, body)) => {
            eprint!("dunlin: {body}");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("dunlin: {error}");
            ExitCode::FAILURE
        }
    }
}

impl Arguments {
    fn socket(&self) -> Result<PathBuf, String> {
        match &self.admin {
            Some(socket) => Ok(socket.clone()),
            None => socket_of(self.config.as_deref()),
        }
    }
}

/// The admin socket that a configuration names.
///
/// # Errors
/// Why it is not known.
pub(crate) fn socket_of(config: Option<&Path>) -> Result<PathBuf, String> {
    let file = config.map(Path::to_owned).or_else(default_file).ok_or(
        "there is no ./dunlin.toml and no /etc/dunlin/dunlin.toml; name the server's socket with --admin",
    )?;
    let text =
        std::fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))?;
    // A file that is wrong elsewhere still says where the server is.
    let config = Config::parse(&text, &file, &Overrides::default()).map_err(|problems| {
        let first = problems.first().map_or_else(String::new, ToString::to_string);
        format!("{first}; name the server's socket with --admin")
    })?;
    config.server.admin.ok_or_else(|| {
        let what =
            "has no admin socket; write admin = \"PATH\" into [server], or name one with --admin";
        format!("{} {what}", file.display())
    })
}

/// Gives the command at `path` to the server at `socket`: whether it was done, and what the server says.
///
/// # Errors
/// When there is no answer.
fn command(socket: &Path, path: &str) -> Result<(bool, String), String> {
    let explain = |error: io::Error| {
        let hint = match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => "; no server runs there",
            io::ErrorKind::PermissionDenied => "; only the server's own user may use it",
            _ => "",
        };
        format!("{error}{hint}")
    };
    let client = Client::new(&socket.display().to_string())?.with_timeout(Some(PATIENCE));
    let answer = client.post(path, "text/plain", b"").map_err(explain)?;
    let is_done = answer.status == 200;
    Ok((is_done, answer.text().map_err(explain)?))
}
