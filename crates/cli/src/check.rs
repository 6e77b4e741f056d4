//! `dunlin check`

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use dunlin_server::client::Client;
use dunlin_server::config::{Config, Overrides, diff, explain};
use serde::Deserialize;

use crate::admin::socket_of;
use crate::remote::expect_ok;

/// What `dunlin check` is told.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// Configuration to check; ./dunlin.toml or /etc/dunlin/dunlin.toml when absent
    #[arg(long, short, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Tell which site and routes hold for this URL or path, and where each setting comes from
    #[arg(long, value_name = "URL")]
    explain: Option<String>,
    /// Tell what a reload would change: of the server that runs, or of one that went by the file OLD
    #[arg(long, value_name = "OLD", conflicts_with = "explain")]
    diff: Option<Option<PathBuf>>,
    /// The admin socket of the server that runs; the one that the configuration names when absent
    #[arg(long, value_name = "SOCKET", requires = "diff")]
    admin: Option<PathBuf>,
    /// Print the JSON Schema of the configuration, for editors
    #[arg(long, conflicts_with_all = ["config", "explain", "diff"])]
    schema: bool,
}

const EXAMPLES: &str = "\
Examples:
  dunlin check                                          the file that is there
  dunlin check -c site.toml --explain http://a.example/docs/
  dunlin check -c new.toml --diff                       what `dunlin reload` would change, were this the file
  dunlin check -c new.toml --diff old.toml              the same between two files
  dunlin check --schema > dunlin.schema.json

Each problem is one line: FILE:LINE:COLUMN: what is wrong.";

/// Checks, explains, or prints the schema.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    if arguments.schema {
        println!("{}", Config::schema());
        return ExitCode::SUCCESS;
    }
    let Some(file) = arguments.config.clone().or_else(default_file) else {
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
    // Whatever the command line of the server that runs says holds after a reload, too.
    let overrides = before.as_ref().map(|before| before.overrides().clone()).unwrap_or_default();
    let config = match Config::load(&file, &overrides) {
        Ok(config) => config,
        Err(problems) => {
            for problem in problems {
                eprintln!("{problem}");
            }
            return ExitCode::FAILURE;
        }
    };
    if let Some(before) = before {
        let lines = diff(&before, config);
        if lines.is_empty() {
            println!("nothing would change");
        }
        lines.iter().for_each(|line| println!("{line}"));
        return ExitCode::SUCCESS;
    }
    match &arguments.explain {
        None => {
            let counts = [
                // The admin socket is none of those that were asked for.
                count(config.listen.iter().filter(|listen| !listen.admin).count(), "listener"),
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
            for line in config.certificates() {
                println!("{line}");
            }
            for (program, reason) in dunlin_server::cold_programs(&config) {
                println!("{} runs as plain CGI: {reason}", program.display());
            }
            ExitCode::SUCCESS
        }
        Some(url) => match explain(&config, &file, url) {
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
    /// What `file` is to be compared with, when it is to be.
    fn before(&self, file: &Path) -> Result<Option<Config>, String> {
        let Some(old) = &self.diff else { return Ok(None) };
        let (path, text, overrides) = match old {
            Some(old) => {
                let text = std::fs::read_to_string(old)
                    .map_err(|error| format!("{}: {error}", old.display()))?;
                (old.clone(), text, Overrides::default())
            }
            None => {
                let socket = match &self.admin {
                    Some(socket) => socket.clone(),
                    None => socket_of(Some(file))?,
                };
                let running = Running::ask(&socket)?;
                let path = running.file.ok_or("the server that runs goes by no file")?;
                (path, running.text, running.overrides)
            }
        };
        Config::parse(&text, &path, &overrides).map(Some).map_err(|problems| {
            let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
            format!("what it is compared with is not understood:\n{}", lines.join("\n"))
        })
    }
}

/// What a server tells of its configuration.
#[derive(Deserialize)]
struct Running {
    file: Option<PathBuf>,
    text: String,
    #[serde(default)]
    overrides: Overrides,
}

impl Running {
    fn ask(socket: &Path) -> Result<Self, String> {
        let client = Client::new(&socket.display().to_string())?;
        let text = expect_ok(client.get("/config"))?.text().map_err(|error| error.to_string())?;
        serde_json::from_str(&text).map_err(|error| format!("the server's answer: {error}"))
    }
}

fn count(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// The file that is meant when none is named.
pub(crate) fn default_file() -> Option<PathBuf> {
    ["dunlin.toml", "/etc/dunlin/dunlin.toml"]
        .iter()
        .map(Path::new)
        .find(|file| file.exists())
        .map(Path::to_owned)
}
