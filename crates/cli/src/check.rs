//! `dunlin check`

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use dunlin_config::{Config, Confinement, Overrides, Problem, StartupSettings, diff};
use dunlin_server::explain;
use serde::Deserialize;

use crate::configuration::{self, admin_socket};
use crate::remote::{Remote, expect_ok};

/// The arguments of `dunlin check`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
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
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
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
    let before = match arguments.before(&file) {
        Ok(before) => before,
        Err(error) => {
            eprintln!("dunlin: {error}");
            return ExitCode::FAILURE;
        }
    };
    // The running server's command line remains in effect after a reload.
    let overrides =
        before.as_ref().map(|(before, _)| before.overrides().clone()).unwrap_or_default();
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
    if let Some((before, startup)) = before {
        let lines = diff(&before, &config, &startup);
        if lines.is_empty() {
            println!("nothing would change");
        }
        lines.iter().for_each(|line| println!("{line}"));
        return ExitCode::SUCCESS;
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

impl Arguments {
    /// The configuration to compare `file` with, if requested, and the settings that are fixed since the start.
    fn before(&self, file: &Path) -> Result<Option<(Config, StartupSettings)>, String> {
        let Some(old) = &self.diff else { return Ok(None) };
        let parse = |text: &str, path: &Path, overrides: &Overrides| {
            Config::parse(text, path, overrides).map_err(|problems| {
                let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
                format!("the configuration to compare with is invalid:\n{}", lines.join("\n"))
            })
        };
        if let Some(old) = old {
            let text = std::fs::read_to_string(old)
                .map_err(|error| format!("{}: {error}", old.display()))?;
            let before = parse(&text, old, &Overrides::default())?;
            let startup = StartupSettings::of(&before);
            return Ok(Some((before, startup)));
        }
        let socket = match &self.admin {
            Some(socket) => socket.clone(),
            None => admin_socket(Some(file))?,
        };
        let running = Running::fetch(&socket)?;
        let path = running.file.ok_or("the running server uses no configuration file")?;
        let before = parse(&running.text, &path, &running.overrides)?;
        let startup = match (&running.started_with, running.startup) {
            (Some(text), Some(confinement)) => {
                let started = parse(text, &path, &running.overrides)?;
                StartupSettings::of(&started).with_confinement(confinement)
            }
            _ => StartupSettings::of(&before),
        };
        Ok(Some((before, startup)))
    }
}

/// The configuration of a running server, as it reports it.
#[derive(Deserialize)]
struct Running {
    file: Option<PathBuf>,
    text: String,
    #[serde(default)]
    overrides: Overrides,
    /// The configuration that it was started with.
    started_with: Option<String>,
    #[serde(rename = "in_force")]
    startup: Option<Confinement>,
}

impl Running {
    fn fetch(socket: &Path) -> Result<Self, String> {
        let server = Remote::at_socket(socket)?;
        let text = expect_ok(server.get("/config"))?.text().map_err(|error| error.to_string())?;
        serde_json::from_str(&text)
            .map_err(|error| format!("the server's response is malformed: {error}"))
    }
}

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

/// Number of listeners in the file. An address such as `:8080` takes two sockets.
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
