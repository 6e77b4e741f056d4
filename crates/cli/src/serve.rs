//! `dunlin serve`

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use dunlin_config::{Config, ErrorLogTarget, Overrides, Problem};
use dunlin_server::{Origin, Server, Takeover};

use crate::output::print_if_read;
use crate::watched::admin_socket;
use crate::{logging, self_signed};

/// The arguments of `dunlin serve`.
#[derive(Debug, PartialEq, Eq, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ServeArguments {
    /// Directory to serve. Without it and --config: ./dunlin.toml is used if it exists, else the current directory is
    /// served
    #[arg(value_name = "DIR", conflicts_with = "config")]
    directory: Option<PathBuf>,
    /// Configuration file
    #[arg(long, short, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Address to listen on, instead of those in the configuration; can be repeated
    #[arg(long, short, value_name = "ADDR")]
    listen: Vec<String>,
    /// Worker threads [default: one per processor]
    #[arg(long, short, value_name = "N")]
    threads: Option<usize>,
    /// Access log: a path, `-` for standard output, or `off`
    #[arg(long, value_name = "FILE|-|off")]
    access_log: Option<String>,
    /// Use TLS with a self-signed certificate for localhost, for development
    #[arg(long)]
    tls_self_signed: bool,
}

const EXAMPLES: &str = "\
Examples:
  dunlin serve                               use ./dunlin.toml, or else serve the current directory
  dunlin serve public --listen :8000         serve a directory on all addresses of this machine
  dunlin serve -c dunlin.toml --threads 2    use a configuration, with two workers
  dunlin serve --tls-self-signed             serve at https://127.0.0.1:8080/ with a self-signed certificate

SIGTERM and SIGINT stop the server after the requests in progress; a second one stops it at once.
SIGHUP reloads the configuration (as `dunlin reload`); SIGUSR2 starts a new process of the program
that takes over (as `dunlin upgrade`); SIGUSR1 reopens the access log and the error log.";

/// Serves until a signal stops the server.
pub(crate) fn run(arguments: &ServeArguments) -> ExitCode {
    let certificate = match arguments.tls_self_signed.then(self_signed::files).transpose() {
        Ok(certificate) => certificate,
        Err(error) => {
            eprintln!("dunlin: {error}");
            return ExitCode::FAILURE;
        }
    };
    let mut takeover = match Takeover::receive() {
        Ok(takeover) => takeover,
        Err(error) => {
            eprintln!("dunlin: taking over from the process before: {error}");
            return ExitCode::FAILURE;
        }
    };
    let fail = |takeover: Option<Takeover>, lines: &[String]| {
        for line in lines {
            eprintln!("dunlin: {line}");
        }
        if let Some(takeover) = takeover {
            takeover.failed(&lines.join("\n"));
        }
        ExitCode::FAILURE
    };
    if let Some(what) = arguments.directory.as_deref().and_then(not_a_directory) {
        return fail(takeover, &[what]);
    }
    let source = source(arguments, certificate.as_ref(), takeover.is_some());
    let admin = source.overrides.admin.clone();
    let found = arguments.config.is_none().then(|| source.config.clone()).flatten();
    let server = match start(source, takeover.as_mut()) {
        Ok(server) => server,
        Err(lines) => return fail(takeover, &lines),
    };
    // Errors are ignored: the server continues if standard output is closed.
    for url in server.urls() {
        print_if_read(format_args!("{url}\n"));
    }
    if let Some(file) = found {
        let what = "name a directory to serve it without this configuration";
        print_if_read(format_args!("configuration: {}; {what}\n", file.display()));
    }
    if let Some((certificate, _)) = &certificate {
        print_if_read(format_args!(
            "the certificate is {0}; trust it in a browser's settings, or for curl with --cacert {0}\n",
            certificate.display()
        ));
    }
    if let Some(socket) = admin {
        let socket = socket.display();
        print_if_read(format_args!(
            "watch it with `dunlin top --admin {socket}` or `dunlin watch --admin {socket}`\n"
        ));
    }
    server.log_start();
    server.run_until_signal(takeover);
    logging::finish();
    ExitCode::SUCCESS
}

/// Starts a server from the configuration. Errors are lines.
fn start(source: Source, takeover: Option<&mut Takeover>) -> Result<Server, Vec<String>> {
    let lines =
        |problems: Vec<Problem>| problems.iter().map(Problem::to_string).collect::<Vec<_>>();
    let config = match &source.config {
        Some(file) => Config::load_to_serve(file, &source.overrides).map_err(lines)?,
        None => {
            dunlin_server::load_directory(&source.directory, &source.overrides).map_err(lines)?
        }
    };
    let log = &config.server.error_log;
    let is_journal = log.target == ErrorLogTarget::Journald;
    // Connect to the journal before the process is confined; open files after that.
    if is_journal {
        logging::start(log).map_err(|error| vec![error])?;
    }
    let confined = dunlin_server::confine(&config).map_err(|error| vec![error.to_string()])?;
    let findings = dunlin_server::verify(&config, Some(&confined));
    if !findings.errors.is_empty() {
        return Err(lines(findings.errors));
    }
    if !is_journal {
        logging::start(log).map_err(|error| vec![error])?;
    }
    for warning in &findings.warnings {
        tracing::warn!("{warning}");
    }
    Server::start(config, confined, Box::new(source), takeover)
        .map_err(|error| vec![error.to_string()])
}

/// The default configuration in the current directory.
const CONFIGURATION: &str = "dunlin.toml";

/// Returns a message if `path` is a configuration rather than a directory. Other errors are reported when it is opened.
fn not_a_directory(path: &Path) -> Option<String> {
    let metadata = path.metadata().ok()?;
    let is_configuration = path.extension().is_some_and(|extension| extension == "toml");
    (metadata.is_file() && is_configuration).then(|| {
        format!(
            "{0} is a file; to use that configuration, write `dunlin serve -c {0}`",
            path.display()
        )
    })
}

/// Origin of the configuration.
struct Source {
    config: Option<PathBuf>,
    directory: PathBuf,
    overrides: Overrides,
}

fn source(
    arguments: &ServeArguments,
    certificate: Option<&(PathBuf, PathBuf)>,
    takes_over: bool,
) -> Source {
    let own = Path::new(CONFIGURATION);
    let config = match (&arguments.config, &arguments.directory) {
        (None, None) => Config::exists(own).then(|| own.to_owned()),
        (config, _) => config.clone(),
    };
    let directory = arguments.directory.clone().unwrap_or_else(|| PathBuf::from("."));
    let admin = match config {
        Some(_) => None,
        None => admin_socket(&directory, &arguments.listen, takes_over),
    };
    Source {
        config,
        directory,
        overrides: Overrides {
            listen: arguments.listen.clone(),
            threads: arguments.threads,
            access_log: arguments.access_log.clone(),
            certificate: certificate.cloned(),
            admin,
        },
    }
}

impl Origin for Source {
    fn read(&self) -> Result<Config, Vec<Problem>> {
        match &self.config {
            Some(file) => dunlin_server::reload(file, &self.overrides),
            None => dunlin_server::load_directory(&self.directory, &self.overrides),
        }
    }

    fn applied(&self, config: &Config) {
        logging::apply(&config.server.error_log);
    }
}
