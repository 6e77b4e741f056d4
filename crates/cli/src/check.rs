//! `dunlin check`

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use dunlin_config::{Config, Overrides, Problem, StartupSettings, diff};
use dunlin_server::explain;
use serde::Deserialize;

use crate::configuration::{self, admin_socket};
use crate::remote::{Remote, expect_ok};

/// The arguments of `dunlin check`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CheckArguments {
    /// Configuration file [default: ./dunlin.toml or /etc/dunlin/dunlin.toml]
    #[arg(long, short, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Show the site, the routes and the origin of each setting for this URL or path
    #[arg(long, value_name = "URL")]
    explain: Option<String>,
    /// Show what a reload would change, compared with the running server or with the file OLD
    #[arg(long, value_name = "OLD", conflicts_with = "explain")]
    diff: Option<Option<PathBuf>>,
    /// Admin socket of the running server [default: the one in the configuration]
    #[arg(long, value_name = "SOCKET", requires = "diff")]
    admin: Option<PathBuf>,
    /// Print the JSON Schema of configurations, for editors
    #[arg(long, conflicts_with_all = ["config", "explain", "diff", "all", "strict"])]
    schema: bool,
    /// With --explain: show default settings, too
    #[arg(long, requires = "explain")]
    all: bool,
    /// Fail on warnings
    #[arg(long, conflicts_with_all = ["explain", "diff"])]
    strict: bool,
}

const EXAMPLES: &str = "\
Examples:
  dunlin check                                check ./dunlin.toml, or /etc/dunlin/dunlin.toml
  dunlin check -c site.toml --explain http://a.example/docs/
  dunlin check -c new.toml --diff             show what `dunlin reload` would change with this file
  dunlin check -c new.toml --diff old.toml    show the same between two files
  dunlin check --schema > dunlin.schema.json

Each problem is one line: FILE:LINE:COLUMN: what is wrong. Warnings do not change the exit status without --strict.
Editors find the schema by the line `#:schema dunlin.schema.json` at the beginning of the file (Taplo).";

/// Checks, explains, or prints the schema.
pub(crate) fn run(arguments: &CheckArguments) -> ExitCode {
    if arguments.schema {
        println!("{:#}", Config::schema());
        return ExitCode::SUCCESS;
    }
    let Some(file) = arguments.config.clone().or_else(configuration::default_file) else {
        eprintln!(
            "dunlin: there is no ./dunlin.toml and no /etc/dunlin/dunlin.toml; name a file with --config"
        );
        return ExitCode::FAILURE;
    };
    let compared = match arguments.compared(&file) {
        Ok(compared) => compared,
        Err(error) => {
            eprintln!("dunlin: {error}");
            return ExitCode::FAILURE;
        }
    };
    // The running server's command line remains in effect after a reload.
    let overrides = compared.as_ref().map(Compared::overrides).unwrap_or_default();
    let config = match Config::load(&file, &overrides) {
        Ok(config) => config,
        Err(problems) => {
            report(&problems);
            return ExitCode::FAILURE;
        }
    };
    let mut findings = dunlin_server::verify(&config, None);
    report(&findings.errors);
    if !findings.errors.is_empty() {
        report_warnings(&findings.warnings);
        return ExitCode::FAILURE;
    }
    if let Some(compared) = compared {
        return match compared.differences(&config) {
            Ok(lines) => {
                if lines.is_empty() {
                    println!("nothing would change");
                }
                lines.iter().for_each(|line| println!("{line}"));
                ExitCode::SUCCESS
            }
            Err(error) => {
                eprintln!("dunlin: {error}");
                ExitCode::FAILURE
            }
        };
    }
    match &arguments.explain {
        None => {
            findings.warnings.extend(dunlin_server::unresolved_names(&config));
            report_warnings(&findings.warnings);
            if arguments.strict && !findings.warnings.is_empty() {
                return ExitCode::FAILURE;
            }
            let counts = [
                listeners(&config),
                count(config.sites.iter().count(), "site"),
                count(config.sites.iter().map(|site| site.route_count()).sum(), "route"),
            ];
            println!("{} is fine: {}", file.display(), counts.join(", "));
            for line in config.confinement() {
                println!("{line}");
            }
            for what in dunlin_server::hindrances(&config) {
                println!("this user cannot start it: {what}");
            }
            if let Some(warning) = dunlin_net::temp_files::warning() {
                println!("warning: {warning}");
            }
            for line in dunlin_server::certificates(&config) {
                println!("{line}");
            }
            for line in dunlin_server::http3_notes(&config) {
                println!("{line}");
            }
            for (program, reason) in dunlin_script::cold_programs(&config) {
                println!("{} runs as plain CGI: {reason}", program.display());
            }
            ExitCode::SUCCESS
        }
        Some(url) => match explain(&config, &file, url, arguments.all) {
            Ok(text) => {
                print!("{text}");
                ExitCode::SUCCESS
            }
            Err(error) => {
                eprintln!("dunlin: {error}");
                ExitCode::from(2)
            }
        },
    }
}

impl CheckArguments {
    /// Returns what to compare `file` with, if requested.
    fn compared(&self, file: &Path) -> Result<Option<Compared>, String> {
        let Some(old) = &self.diff else { return Ok(None) };
        if let Some(old) = old {
            let text = std::fs::read_to_string(old)
                .map_err(|error| format!("{}: {error}", old.display()))?;
            let before = Config::parse(&text, old, &Overrides::default());
            return before.map(Box::new).map(Compared::File).map(Some).map_err(|problems| {
                let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
                format!("the configuration to compare with is invalid:\n{}", lines.join("\n"))
            });
        }
        let socket = match &self.admin {
            Some(socket) => socket.clone(),
            None => admin_socket(Some(file))?,
        };
        Running::fetch(&socket).map(Box::new).map(Compared::Server).map(Some)
    }
}

/// The configuration that another one is compared with.
enum Compared {
    File(Box<Config>),
    Server(Box<Running>),
}

impl Compared {
    /// Returns the settings of the command line, which are in force with both configurations.
    fn overrides(&self) -> Overrides {
        match self {
            Self::File(before) => before.overrides().clone(),
            Self::Server(running) => running.overrides.clone(),
        }
    }

    /// Returns what a reload to `after` would change, a line each.
    fn differences(&self, after: &Config) -> Result<Vec<String>, String> {
        match self {
            Self::File(before) => Ok(diff(before, after, &StartupSettings::of(before))),
            Self::Server(running) => running.differences(after),
        }
    }
}

/// A running server, as it reports itself.
struct Running {
    server: Remote,
    overrides: Overrides,
}

impl Running {
    fn fetch(socket: &Path) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Report {
            file: Option<PathBuf>,
            #[serde(default)]
            overrides: Overrides,
        }
        let server = Remote::at_socket(socket)?;
        let text = expect_ok(server.get("/config"))?.text().map_err(|error| error.to_string())?;
        let Report { file, overrides } = serde_json::from_str(&text)
            .map_err(|error| format!("the server's response is malformed: {error}"))?;
        file.ok_or("the running server uses no configuration file")?;
        Ok(Self { server, overrides })
    }

    /// Returns the server compares, since its secrets stay within it.
    fn differences(&self, after: &Config) -> Result<Vec<String>, String> {
        let body = serde_json::json!({ "file": after.whole_path(), "text": after.text() });
        let body = body.to_string();
        loop {
            let response = self.server.post_json("/config/diff", body.clone());
            if matches!(&response, Ok(response) if response.status() == 429) {
                std::thread::sleep(PAUSE);
                continue;
            }
            let text = expect_ok(response)?.text().map_err(|error| error.to_string())?;
            return Ok(text.lines().map(str::to_owned).collect());
        }
    }
}

/// Time until the next attempt, if the server has just compared another configuration.
const PAUSE: Duration = Duration::from_millis(100);

fn report(problems: &[Problem]) {
    for problem in problems {
        eprintln!("{problem}");
    }
}

fn report_warnings(warnings: &[Problem]) {
    for warning in warnings {
        eprintln!("{}", warning.as_warning());
    }
}

/// Returns the number of listeners in the file. An address such as `:8080` takes two sockets.
fn listeners(config: &Config) -> String {
    let sockets = config.listen.iter().filter(|listen| !listen.admin).count();
    let listeners = count(config.listener_count, "listener");
    match sockets == config.listener_count {
        true => listeners,
        false => format!("{listeners} ({})", count(sockets, "socket")),
    }
}

fn count(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}
