//! `dunlin reload`, `dunlin upgrade`, `dunlin purge`, and what `dunlin maintenance` needs: commands to a running server, by its admin socket.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::Args;
use dunlin_client::Error;
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::configuration::admin_socket;
use crate::remote::Remote;

/// The longest wait for a response. An upgrade responds within the server's `upgrade_timeout`.
const PATIENCE: Duration = Duration::from_secs(120);
const PATIENCE_FOR_UPGRADE: Duration = Duration::from_secs(24 * 60 * 60);

/// Interval in which a file is compared with its content before.
const FOLLOW_INTERVAL: Duration = Duration::from_secs(1);

/// The server that is meant.
#[derive(Args)]
pub(crate) struct AdminArguments {
    /// The server's admin socket [default: the one that the configuration names]
    #[arg(long, value_name = "SOCKET")]
    admin: Option<PathBuf>,
    /// Configuration that names the socket [default: ./dunlin.toml or /etc/dunlin/dunlin.toml]
    #[arg(long, short, value_name = "FILE", conflicts_with = "admin")]
    config: Option<PathBuf>,
}

/// The options of a reload.
#[derive(Args)]
pub(crate) struct ReloadArguments {
    #[command(flatten)]
    server: AdminArguments,
    /// Replace all workers of applications, not only those whose code has changed
    #[arg(long)]
    workers: bool,
    /// Reload whenever the file of --config changes, until SIGTERM or SIGINT
    #[arg(long, requires = "config", conflicts_with = "workers")]
    follow: bool,
}

/// The responses that are purged.
#[derive(Args)]
pub(crate) struct PurgeArguments {
    /// Path of the responses, for every query; a final `*` for all paths that begin like this
    #[arg(value_name = "PATH", required_unless_present = "tag")]
    path: Option<String>,
    /// Responses with this tag in `Cache-Tag` or `Surrogate-Key`
    #[arg(long, value_name = "TAG", conflicts_with = "path")]
    tag: Option<String>,
    /// Only responses of the site with this name
    #[arg(long, value_name = "NAME")]
    site: Option<String>,
    #[command(flatten)]
    server: AdminArguments,
}

/// Removes responses from the server's cache, and prints the number of URLs that had some.
pub(crate) fn purge(arguments: &PurgeArguments) -> ExitCode {
    let PurgeArguments { path, tag, site, server } = arguments;
    let mut target = "/purge?".to_owned();
    for (name, value) in [("path", path), ("tag", tag), ("site", site)] {
        if let Some(value) = value {
            target.push_str(&format!("{name}={}&", encoded(value)));
        }
    }
    run(&target, server)
}

/// Returns a value in a query.
pub(crate) fn encoded(value: &str) -> String {
    let encode = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'-' | b'.' | b'_' | b'~' => {
            char::from(byte).to_string()
        }
        byte => format!("%{byte:02X}"),
    };
    value.bytes().map(encode).collect()
}

/// Reloads the server's configuration, and prints the result.
pub(crate) fn reload(arguments: &ReloadArguments) -> ExitCode {
    if arguments.follow
        && let Some(file) = &arguments.server.config
    {
        return follow(&arguments.server, file);
    }
    run(if arguments.workers { "/reload?workers" } else { "/reload" }, &arguments.server)
}

/// Reloads the server whenever the content of `file` changes. A change that the server rejects is reported once, and a server
/// that does not respond is tried again.
fn follow(arguments: &AdminArguments, file: &Path) -> ExitCode {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        if let Err(error) = signal_hook::flag::register(signal, Arc::clone(&stop)) {
            eprintln!("dunlin: receiving signals: {error}");
            return ExitCode::FAILURE;
        }
    }
    let (mut known, mut last_error) = (std::fs::read(file).ok(), String::new());
    while !stop.load(Ordering::Relaxed) {
        std::thread::sleep(FOLLOW_INTERVAL);
        // A file that is being replaced is missing for a moment.
        let Ok(content) = std::fs::read(file) else { continue };
        if known.as_ref() == Some(&content) {
            continue;
        }
        let error = match arguments.socket().and_then(|socket| command(&socket, "/reload")) {
            Ok((is_done, body)) => {
                known = Some(content);
                if is_done {
                    print!("{body}");
                    String::new()
                } else {
                    body
                }
            }
            Err(error) => error + "\n",
        };
        if !error.is_empty() && error != last_error {
            eprint!("dunlin: {error}");
        }
        last_error = error;
    }
    ExitCode::SUCCESS
}

/// Sends the command at `path` to the server and prints the result.
pub(crate) fn run(path: &str, arguments: &AdminArguments) -> ExitCode {
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

impl AdminArguments {
    fn socket(&self) -> Result<PathBuf, String> {
        match &self.admin {
            Some(socket) => Ok(socket.clone()),
            None => admin_socket(self.config.as_deref()),
        }
    }
}

/// Sends the command at `path` to the server at `socket`. Returns whether it succeeded, and the message of the server.
///
/// # Errors
/// If the server does not respond.
fn command(socket: &Path, path: &str) -> Result<(bool, String), String> {
    let explain = |error: Error| {
        let hint = match error.io_kind() {
            Some(io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => {
                "; no server runs there"
            }
            Some(io::ErrorKind::PermissionDenied) => "; only the server's own user may use it",
            _ => "",
        };
        format!("{error}{hint}")
    };
    let limit = if path == "/upgrade" { PATIENCE_FOR_UPGRADE } else { PATIENCE };
    let response = Remote::at_socket(socket)?.with_limit(limit).post(path).map_err(explain)?;
    let is_done = response.status() == 200;
    Ok((is_done, response.text().map_err(explain)?))
}
