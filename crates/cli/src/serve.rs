//! `dunlin serve`

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use dunlin_server::config::{Config, Overrides, Problem};
use dunlin_server::{Origin, Server};

use crate::{logging, self_signed};

/// What `dunlin serve` is told.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// Directory to serve; the current one when neither it nor a configuration is given
    #[arg(value_name = "DIR", conflicts_with = "config")]
    directory: Option<PathBuf>,
    /// Configuration to serve by
    #[arg(long, short, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Address to listen on, instead of those of the configuration; may be given more than once
    #[arg(long, short, value_name = "ADDR")]
    listen: Vec<String>,
    /// Event loops; one for each processor when absent
    #[arg(long, short, value_name = "N")]
    threads: Option<usize>,
    /// Access log: a path, `-` for standard output, or `off`
    #[arg(long, value_name = "FILE|-|off")]
    access_log: Option<String>,
    /// Speak TLS with a certificate for localhost that is made for this user, for development
    #[arg(long)]
    tls_self_signed: bool,
}

const EXAMPLES: &str = "\
Examples:
  dunlin serve                               the current directory, at http://127.0.0.1:8080/
  dunlin serve public --listen :8000         on every address of this machine
  dunlin serve -c dunlin.toml --threads 2    by a configuration, with two loops
  dunlin serve --tls-self-signed             at https://127.0.0.1:8080/, with a certificate of its own

SIGTERM and SIGINT finish what is under way and stop; a second one stops at once.
SIGHUP reads the configuration anew (as `dunlin reload`); SIGUSR1 reopens the access log.";

/// Serves until told to stop.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    let certificate = match arguments.tls_self_signed.then(self_signed::files).transpose() {
        Ok(certificate) => certificate,
        Err(error) => {
            eprintln!("dunlin: {error}");
            return ExitCode::FAILURE;
        }
    };
    let source = source(arguments, certificate.as_ref());
    let config = match source.read() {
        Ok(config) => config,
        Err(problems) => {
            for problem in problems {
                eprintln!("dunlin: {problem}");
            }
            return ExitCode::FAILURE;
        }
    };
    logging::start(&config.server.error_log);
    let server = match Server::start(config, Box::new(source)) {
        Ok(server) => server,
        Err(error) => {
            eprintln!("dunlin: {error}");
            return ExitCode::FAILURE;
        }
    };
    for url in server.urls() {
        println!("{url}");
    }
    if let Some((certificate, _)) = &certificate {
        println!(
            "the certificate is {0}; trust it in a browser's settings, or for curl with --cacert {0}",
            certificate.display()
        );
    }
    server.run_until_signal();
    ExitCode::SUCCESS
}

/// Where the configuration comes from.
struct Source {
    config: Option<PathBuf>,
    directory: PathBuf,
    overrides: Overrides,
}

fn source(arguments: &Arguments, certificate: Option<&(PathBuf, PathBuf)>) -> Source {
    Source {
        config: arguments.config.clone(),
        directory: arguments.directory.clone().unwrap_or_else(|| PathBuf::from(".")),
        overrides: Overrides {
            listen: arguments.listen.clone(),
            threads: arguments.threads,
            access_log: arguments.access_log.clone(),
            certificate: certificate.cloned(),
        },
    }
}

impl Origin for Source {
    fn read(&self) -> Result<Config, Vec<Problem>> {
        match &self.config {
            Some(file) => Config::load(file, &self.overrides),
            None => Config::for_directory(&self.directory, &self.overrides),
        }
    }

    fn adopted(&self, config: &Config) {
        logging::follow(&config.server.error_log);
    }
}
