//! The command line, the environment and the standard streams of a worker, by kind.

use std::ffi::OsString;
use std::fs::Permissions;
use std::io;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::super::app_server::files;
use super::super::cgiplus::library;
use super::super::cgiplus::streams::Streams;
use super::super::process::WorkerStart;
use super::super::search_path::search_path;
use super::connection::PooledConnection;
use super::settings::PoolSettings;
use dunlin_config::{Interface, Language, Local, ScriptKind};

/// A worker that is ready to be started, and the server's ends of its streams.
pub(super) struct Started {
    pub(super) start: WorkerStart,
    pub(super) connection: Option<PooledConnection>,
}

/// Variables of a worker's environment.
type Environment = Vec<(OsString, OsString)>;

/// Creates the socket or the FIFO of a worker at `socket`, and returns the command that starts the worker.
pub(super) fn prepare(pool: &PoolSettings, socket: &Path) -> io::Result<Started> {
    match pool.rules.kind.interface() {
        Interface::Socket | Interface::Application => with_socket(pool, socket),
        Interface::Streams => with_streams(pool, socket),
        Interface::Process | Interface::Component => {
            Err(io::Error::other("a script of this kind has no workers"))
        }
    }
}

/// Returns a worker that accepts connections from a socket, which is its standard input.
fn with_socket(pool: &PoolSettings, socket: &Path) -> io::Result<Started> {
    let listener = UnixListener::bind(socket)?;
    open_directory(pool)?;
    std::fs::set_permissions(socket, Permissions::from_mode(0o600))?;
    let rules = &pool.rules;
    let mut environment = vec![("PATH".into(), search_path())];
    if rules.kind == ScriptKind::FastCgi {
        // PHP's own variables: one request at a time, and as many as its worker is given.
        let requests = pool.local.requests.unwrap_or(0).to_string();
        environment.push(("PHP_FCGI_CHILDREN".into(), "0".into()));
        environment.push(("PHP_FCGI_MAX_REQUESTS".into(), requests.into()));
    }
    if rules.kind == ScriptKind::Psgi {
        // As plackup sets it: frameworks such as Mojolicious recognize a PSGI server by it.
        environment.push(("PLACK_ENV".into(), "deployment".into()));
    }
    set_configured(&mut environment, pool);
    let (program, arguments) =
        pool.local.command.split_first().ok_or_else(|| io::Error::other("there is no command"))?;
    let arguments = match rules.kind.interface() {
        Interface::Application => application_arguments(pool)?,
        _ => arguments.iter().map(Into::into).collect(),
    };
    let directory = match rules.directory.as_os_str().is_empty() {
        true => "/".into(),
        false => rules.directory.clone(),
    };
    let start = WorkerStart {
        program: program.into(),
        directory,
        arguments,
        environment,
        stdin: listener.into(),
        stdout: None,
        rules: Arc::clone(rules),
    };
    Ok(Started { start, connection: None })
}

/// Returns the arguments by which an interpreter runs the application server.
fn application_arguments(pool: &PoolSettings) -> io::Result<Vec<OsString>> {
    let server = files::files(pool.rules.kind);
    for (name, content) in server.libraries {
        provide(pool, name, content)?;
    }
    let program = provide(pool, server.program.0, server.program.1)?;
    let Local { application, threads, .. } = &pool.local;
    Ok(vec![program.into(), application.into(), threads.to_string().into()])
}

/// Returns a worker that reads its requests from streams.
fn with_streams(pool: &PoolSettings, path: &Path) -> io::Result<Started> {
    let (streams, ends) = Streams::new(path)?;
    open_directory(pool)?;
    let rules = &pool.rules;
    if let Some(owner) = &rules.owner {
        chown(path, owner.user, Some(owner.group))?;
    }
    let mut environment = vec![("PATH".into(), search_path())];
    set_configured(&mut environment, pool);
    if rules.kind == ScriptKind::Cgiplus {
        library::add_to(&mut environment, &client_libraries(pool)?);
    }
    for (name, value) in streams.environment(path) {
        set(&mut environment, name, value);
    }
    let (program, arguments, directory) = match rules.kind {
        ScriptKind::Cgiplus => {
            let directory = pool.program.parent().unwrap_or(Path::new("/"));
            (pool.program.to_path_buf(), Vec::new(), directory.to_owned())
        }
        _ => {
            let interpreter = pool.local.command.first().map(String::as_str);
            let (name, text) = match Language::of(interpreter) {
                Some(Language::Perl) => ("rte-host.pl", library::PERL),
                _ => ("rte-host.py", library::PYTHON),
            };
            provide(pool, files::LOADING.0, files::LOADING.1)?;
            let program = provide(pool, name, text.as_bytes())?;
            let interpreter = interpreter.unwrap_or("python3").into();
            (interpreter, vec![program.into()], rules.directory.clone())
        }
    };
    let start = WorkerStart {
        program,
        directory,
        arguments,
        environment,
        stdin: ends.stdin,
        stdout: Some(ends.stdout),
        rules: Arc::clone(rules),
    };
    Ok(Started { start, connection: Some(PooledConnection::streams(streams)) })
}

/// Sets the variables of `env` in the configuration.
fn set_configured(environment: &mut Environment, pool: &PoolSettings) {
    for (name, value) in &pool.rules.env {
        set(environment, name, value.as_ref());
    }
}

fn set(environment: &mut Environment, name: &str, value: &std::ffi::OsStr) {
    environment.retain(|(other, _)| other != name);
    environment.push((name.into(), value.into()));
}

/// Returns a file of the server's own beside the sockets, which is written for the first worker that needs it.
fn provide(pool: &PoolSettings, name: &str, content: &[u8]) -> io::Result<PathBuf> {
    let path = pool.directory.join(name);
    if !path.exists() {
        std::fs::write(&path, content).inspect_err(|_| {
            // A part of it must not be taken for the whole.
            let _ = std::fs::remove_file(&path);
        })?;
    }
    Ok(path)
}

/// Returns the folder of the client libraries for CGIplus.
fn client_libraries(pool: &PoolSettings) -> io::Result<PathBuf> {
    let folder = pool.directory.join(library::FOLDER);
    std::fs::create_dir_all(&folder)?;
    for (name, text) in library::LIBRARIES {
        provide(pool, &format!("{}/{name}", library::FOLDER), text.as_bytes())?;
    }
    Ok(folder)
}

/// Lets a worker that runs as another user reach its own files in the directory. Other users cannot list the directory or connect to a
/// socket in it.
fn open_directory(pool: &PoolSettings) -> io::Result<()> {
    if pool.rules.owner.is_some() {
        std::fs::set_permissions(&pool.directory, Permissions::from_mode(0o711))?;
    }
    Ok(())
}
