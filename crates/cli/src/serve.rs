//! `dunlin serve`

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use dunlin_config::{Config, ErrorLogTarget, Overrides, Problem};
use dunlin_server::{Origin, Server, Takeover};

use crate::convert::{OtherServer, OtherSource};
use crate::output::print_if_read;
use crate::watched::admin_socket;
use crate::{init, logging, self_signed};

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
    /// Serve a configuration of nginx: it is converted in memory, what is lost is logged, and changes are followed
    #[arg(long, value_name = "FILE", conflicts_with_all = ["directory", "config"])]
    nginx: Option<PathBuf>,
    /// With --nginx: base of relative paths, as with `nginx -p`
    #[arg(long, value_name = "DIR", requires = "nginx")]
    prefix: Option<PathBuf>,
    /// Serve a configuration of Apache in the same way, including .htaccess files in its document roots
    #[arg(long, value_name = "FILE", conflicts_with_all = ["directory", "config", "nginx"])]
    apache: Option<PathBuf>,
    /// Serve a Caddyfile in the same way
    #[arg(long, value_name = "FILE", conflicts_with_all = ["directory", "config", "nginx", "apache"])]
    caddy: Option<PathBuf>,
    /// Address to listen on, instead of those in the configuration; can be repeated
    #[arg(long, short, value_name = "ADDR")]
    listen: Vec<String>,
    /// Worker threads [default: one per core]
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
  dunlin serve --nginx /etc/nginx/nginx.conf serve a configuration of nginx
  dunlin serve --apache /etc/apache2/apache2.conf  serve a configuration of Apache
  dunlin serve --caddy /etc/caddy/Caddyfile  serve a Caddyfile
  dunlin serve --tls-self-signed             use HTTPS with a self-signed certificate

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
    let is_plain = source.config.is_none() && source.other.is_none();
    let proposal = is_plain.then(|| init::proposal(&source.directory)).flatten();
    if let Some(other) = &source.other {
        other.follow(|| {
            let own = rustix::process::getpid();
            if let Err(error) = rustix::process::kill_process(own, rustix::process::Signal::HUP) {
                tracing::warn!("the changed configuration is not read: {error}");
            }
        });
    }
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
    if let Some(proposal) = proposal {
        print_if_read(format_args!("{proposal}\n"));
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
            "figures:  dunlin top --admin {socket}\nrequests: dunlin watch --admin {socket}\n"
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
    let mut losses = Vec::new();
    let config = match (&source.config, &source.other) {
        (Some(file), _) => Config::load_to_serve(file, &source.overrides).map_err(lines)?,
        (None, Some(other)) => {
            let (config, lost) = other.read(&source.overrides).map_err(lines)?;
            losses = lost;
            config
        }
        (None, None) => {
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
    log_losses(&losses);
    Server::start(config, confined, Box::new(source), takeover)
        .map_err(|error| vec![error.to_string()])
}

/// Logs what a configuration of another server loses.
fn log_losses(losses: &[String]) {
    for loss in losses {
        tracing::warn!("{loss}");
    }
}

/// The name of the default configuration in a directory.
pub(crate) const CONFIGURATION: &str = "dunlin.toml";

/// Returns a message if `path` is a configuration rather than a directory. Other errors are reported when it is opened.
fn not_a_directory(path: &Path) -> Option<String> {
    let metadata = match path.metadata() {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Some(format!("there is no directory {}", path.display()));
        }
        Err(_) => return None,
    };
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
    other: Option<OtherSource>,
    directory: PathBuf,
    overrides: Overrides,
}

fn source(
    arguments: &ServeArguments,
    certificate: Option<&(PathBuf, PathBuf)>,
    takes_over: bool,
) -> Source {
    let other = other_source(arguments);
    let own = Path::new(CONFIGURATION);
    let config = match (&arguments.config, &arguments.directory) {
        _ if other.is_some() => None,
        (None, None) => Config::exists(own).then(|| own.to_owned()),
        (config, _) => config.clone(),
    };
    let folder = other.as_ref().and_then(|other| other.file.parent().map(Path::to_owned));
    let directory = arguments.directory.clone().or(folder).unwrap_or_else(|| PathBuf::from("."));
    let admin = match config {
        Some(_) => None,
        None => admin_socket(&directory, &arguments.listen, takes_over),
    };
    Source {
        config,
        other,
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

/// Returns the configuration of another server that is served.
fn other_source(arguments: &ServeArguments) -> Option<OtherSource> {
    let of = |server: OtherServer, file: &Option<PathBuf>, folder: &Option<PathBuf>| {
        file.clone().map(|file| OtherSource { server, file, folder: folder.clone() })
    };
    of(OtherServer::Nginx, &arguments.nginx, &arguments.prefix)
        .or_else(|| of(OtherServer::Apache, &arguments.apache, &None))
        .or_else(|| of(OtherServer::Caddy, &arguments.caddy, &None))
}

impl Origin for Source {
    fn read(&self) -> Result<Config, Vec<Problem>> {
        match (&self.config, &self.other) {
            (Some(file), _) => dunlin_server::reload(file, &self.overrides),
            (None, Some(other)) => {
                let (config, losses) = other.read(&self.overrides)?;
                let findings = dunlin_server::verify(&config, None);
                if !findings.errors.is_empty() {
                    return Err(findings.errors);
                }
                log_losses(&losses);
                Ok(config)
            }
            (None, None) => dunlin_server::load_directory(&self.directory, &self.overrides),
        }
    }

    fn applied(&self, config: &Config) {
        logging::apply(&config.server.error_log);
    }
}
