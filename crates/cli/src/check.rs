//! `dunlin check`

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use dunlin_server::config::{Config, Overrides, explain};

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
    /// Print the JSON Schema of the configuration, for editors
    #[arg(long, conflicts_with_all = ["config", "explain"])]
    schema: bool,
}

const EXAMPLES: &str = "\
Examples:
  dunlin check                                          the file that is there
  dunlin check -c site.toml --explain http://a.example/docs/
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
    let config = match Config::load(&file, &Overrides::default()) {
        Ok(config) => config,
        Err(problems) => {
            for problem in problems {
                eprintln!("{problem}");
            }
            return ExitCode::FAILURE;
        }
    };
    match &arguments.explain {
        None => {
            let counts = [
                count(config.listen.len(), "listener"),
                count(config.sites.iter().count(), "site"),
                count(config.sites.iter().map(|site| site.route_count()).sum(), "route"),
            ];
            println!("{} is fine: {}", file.display(), counts.join(", "));
            for line in config.confinement() {
                println!("{line}");
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
