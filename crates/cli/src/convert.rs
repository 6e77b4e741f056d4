//! `dunlin convert`

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use clap::{Args, Subcommand};
use dunlin_config::{Config, Overrides, Problem};
use dunlin_convert::{Conversion, SourceError, Verdict};

/// The arguments of `dunlin convert`.
#[derive(Args)]
pub(crate) struct ConvertArguments {
    #[command(subcommand)]
    from: From,
}

#[derive(Subcommand)]
enum From {
    /// Convert a configuration of nginx
    Nginx(NginxArguments),
    /// Convert virtual hosts or a .htaccess file of Apache
    Apache(ApacheArguments),
    /// Convert a Caddyfile
    Caddy(CaddyArguments),
}

#[derive(Args)]
#[command(after_help = EXAMPLES)]
struct NginxArguments {
    /// The configuration, such as /etc/nginx/nginx.conf, or a file of sites-available
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Directory to which relative paths are relative, as with `nginx -p`
    #[arg(long, value_name = "DIR")]
    prefix: Option<PathBuf>,
}

#[derive(Args)]
#[command(after_help = APACHE_EXAMPLES)]
struct ApacheArguments {
    /// The configuration: /etc/apache2/apache2.conf, a file of sites-available, or a .htaccess file
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Document root of a .htaccess file [default: its directory]
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
}

const APACHE_EXAMPLES: &str = "\
Examples:
  dunlin convert apache /etc/apache2/apache2.conf > dunlin.toml
  dunlin convert apache /srv/www/.htaccess > dunlin.toml
  dunlin serve --apache /etc/apache2/apache2.conf      serve the same without a file

The .htaccess files of document roots are read where `AllowOverride` permits them. The configuration is written to
standard output, and the report to standard error, one line for each directive: FILE:LINE: carried, not needed here, or
lost. Exit status: 0 nothing is lost, 4 something is lost, 1 the file cannot be read or is not in the syntax of Apache.";

#[derive(Args)]
#[command(after_help = CADDY_EXAMPLES)]
struct CaddyArguments {
    /// The configuration, such as /etc/caddy/Caddyfile
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// File that is written with the users of `basic_auth`; without it, what needs a password is rejected
    #[arg(long, value_name = "FILE")]
    users: Option<PathBuf>,
}

const CADDY_EXAMPLES: &str = "\
Examples:
  dunlin convert caddy /etc/caddy/Caddyfile > dunlin.toml
  dunlin convert caddy Caddyfile --users /etc/dunlin/users > dunlin.toml
  dunlin serve --caddy /etc/caddy/Caddyfile      serve the same without a file

The configuration is written to standard output, and the report to standard error, one line for each directive:
FILE:LINE: carried, not needed here, or lost. Exit status: 0 nothing is lost, 4 something is lost, 1 a file cannot be read
or written, or is no Caddyfile.";

const EXAMPLES: &str = "\
Examples:
  dunlin convert nginx /etc/nginx/nginx.conf > dunlin.toml
  dunlin convert nginx /etc/nginx/nginx.conf 2>&1 >/dev/null | grep lost
  dunlin serve --nginx /etc/nginx/nginx.conf      serve the same without a file

The configuration is written to standard output, and the report to standard error, one line for each directive:
FILE:LINE: carried, not needed here, or lost. Exit status: 0 nothing is lost, 4 something is lost, 1 the file
cannot be read or is not in the syntax of nginx.";

/// The exit status of a conversion with losses.
const LOSSES: u8 = 4;

/// Converts a configuration.
pub(crate) fn run(arguments: &ConvertArguments) -> ExitCode {
    let source = match &arguments.from {
        From::Nginx(NginxArguments { file, prefix }) => {
            OtherSource { server: OtherServer::Nginx, file: file.clone(), folder: prefix.clone() }
        }
        From::Apache(ApacheArguments { file, root }) => {
            OtherSource { server: OtherServer::Apache, file: file.clone(), folder: root.clone() }
        }
        From::Caddy(CaddyArguments { file, users }) => {
            let users = users
                .as_ref()
                .map(|users| std::path::absolute(users).unwrap_or_else(|_| users.clone()));
            OtherSource { server: OtherServer::Caddy, file: file.clone(), folder: users }
        }
    };
    let conversion = match source.convert() {
        Ok(conversion) => conversion,
        Err(error) => {
            eprintln!("dunlin: {error}");
            return ExitCode::FAILURE;
        }
    };
    if let (false, Some(file)) = (conversion.users.is_empty(), &source.folder)
        && let Err(error) = write_users(file, &conversion.users)
    {
        eprintln!("dunlin: {}: {error}", file.display());
        return ExitCode::FAILURE;
    }
    for finding in conversion.report.findings() {
        eprintln!("{finding}");
    }
    let of = |wanted: fn(&Verdict) -> bool| {
        conversion.report.findings().filter(|finding| wanted(&finding.verdict)).count()
    };
    let carried = of(|verdict| matches!(verdict, Verdict::Carried(_)));
    let not_needed = of(|verdict| matches!(verdict, Verdict::NotNeeded(_)));
    let lost = conversion.report.losses().count();
    eprintln!("{carried} carried, {not_needed} not needed here, {lost} lost");
    print!("{}", conversion.toml);
    if conversion.is_empty && lost == 0 {
        eprintln!("there is no server in it: add a [[site]], or what includes this file");
        return ExitCode::SUCCESS;
    }
    if let Err(problems) = conversion.config(Path::new("dunlin.toml"), &Overrides::default()) {
        for problem in problems {
            eprintln!("dunlin: to be corrected by hand: {problem}");
        }
        return ExitCode::from(LOSSES);
    }
    if lost > 0 { ExitCode::from(LOSSES) } else { ExitCode::SUCCESS }
}

/// Writes users with the hashes of their passwords, which only the user of this process can read.
fn write_users(file: &Path, users: &[(String, String)]) -> std::io::Result<()> {
    let mut options = std::fs::OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(file)?;
    users.iter().try_for_each(|(name, hash)| writeln!(file, "{name}:{hash}"))
}

/// Another server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OtherServer {
    Nginx,
    Apache,
    Caddy,
}

/// A configuration of another server.
#[derive(Clone)]
pub(crate) struct OtherSource {
    pub(crate) server: OtherServer,
    pub(crate) file: PathBuf,
    /// With nginx, the directory to which relative paths are relative; with Apache, the document root of a `.htaccess` file; with
    /// Caddy, the file of users.
    pub(crate) folder: Option<PathBuf>,
}

impl OtherSource {
    fn convert(&self) -> Result<Conversion, SourceError> {
        match self.server {
            OtherServer::Nginx => dunlin_convert::nginx(&self.file, self.folder.as_deref()),
            OtherServer::Apache => dunlin_convert::apache(&self.file, self.folder.as_deref()),
            OtherServer::Caddy => dunlin_convert::caddy(&self.file, self.folder.as_deref()),
        }
    }

    /// Reads the configuration. The lines are what it loses.
    ///
    /// # Errors
    /// All problems that were found.
    pub(crate) fn read(
        &self,
        overrides: &Overrides,
    ) -> Result<(Config, Vec<String>), Vec<Problem>> {
        let wrong = |error: SourceError| vec![Problem::of_file(Path::new(""), &error.to_string())];
        let mut conversion = self.convert().map_err(wrong)?;
        let mut config = conversion.config(&self.file, overrides)?;
        // What one location lacks does not end the others.
        for _ in 0..PROBLEMS {
            let errors = dunlin_server::verify(&config, None).errors;
            if errors.is_empty() || !conversion.avoid(&errors, &self.file) {
                break;
            }
            config = conversion.config(&self.file, overrides)?;
        }
        Ok((config, conversion.report.losses().map(ToString::to_string).collect()))
    }

    /// Calls `reload` whenever a file of the configuration changes, until the process ends.
    pub(crate) fn follow(&self, reload: impl Fn() + Send + 'static) {
        let source = self.clone();
        let follow = move || {
            let mut files = source.files(Vec::new());
            let mut known = state(&files);
            loop {
                std::thread::sleep(FOLLOW_INTERVAL);
                let now = state(&files);
                if now == known {
                    continue;
                }
                // Of a directory, only the files that the configuration includes matter.
                let states = now.iter().zip(&known);
                let is_changed = files
                    .iter()
                    .zip(states)
                    .any(|(file, (now, before))| now != before && !file.is_dir());
                let all = source.files(files.clone());
                if is_changed || all != files {
                    reload();
                }
                files = all;
                known = state(&files);
            }
        };
        if let Err(error) = std::thread::Builder::new().name("source-files".into()).spawn(follow) {
            tracing::warn!("changes of {} need a reload: {error}", self.file.display());
        }
    }

    /// Returns the files of the configuration with their directories, to which others may be added; those `before` if it cannot
    /// be read.
    fn files(&self, before: Vec<PathBuf>) -> Vec<PathBuf> {
        let Ok(conversion) = self.convert() else { return before };
        let folder = |file: &PathBuf| file.parent().map(Path::to_owned);
        let mut folders: Vec<PathBuf> = conversion.files.iter().filter_map(folder).collect();
        folders.sort();
        folders.dedup();
        conversion.files.into_iter().chain(folders).collect()
    }
}

/// Returns the time of change and the size of each file.
fn state(files: &[PathBuf]) -> Vec<(Option<SystemTime>, u64)> {
    let of = |file: &PathBuf| {
        let metadata = file.metadata().ok();
        let time = metadata.as_ref().and_then(|metadata| metadata.modified().ok());
        (time, metadata.map_or(0, |metadata| metadata.len()))
    };
    files.iter().map(of).collect()
}

/// Most problems with files that are avoided.
const PROBLEMS: usize = 50;

/// Time between two looks at the files.
const FOLLOW_INTERVAL: Duration = Duration::from_secs(2);
