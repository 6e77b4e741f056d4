//! `dunlin reload`, `dunlin upgrade`: commands to a running server, by its admin socket.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
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
    let answer = arguments.socket().and_then(|socket| ask(&socket, "POST", path));
    match answer {
        Ok(Answer { status: 200, body }) => {
            print!("{body}");
            ExitCode::SUCCESS
        }
        Ok(Answer { body, .. }) => {
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

/// What a server answered.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: String,
}

/// One request to the server at `socket`.
///
/// # Errors
/// When there is no answer.
pub(crate) fn ask(socket: &Path, method: &str, path: &str) -> Result<Answer, String> {
    let explain = |error: io::Error| {
        let hint = match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => "; no server runs there",
            io::ErrorKind::PermissionDenied => "; only the server's own user may use it",
            _ => "",
        };
        format!("{}: {error}{hint}", socket.display())
    };
    let mut stream = UnixStream::connect(socket).map_err(explain)?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(explain)?;
    let request = format!("{method} {path} HTTP/1.1\r\nHost: admin\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).map_err(explain)?;
    let mut text = Vec::new();
    stream.read_to_end(&mut text).map_err(explain)?;
    let text = String::from_utf8_lossy(&text);
    let malformed = || format!("{}: that is no answer of a server", socket.display());
    let (head, body) = text.split_once("\r\n\r\n").ok_or_else(malformed)?;
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    Ok(Answer { status: status.ok_or_else(malformed)?, body: body.to_owned() })
}
