//! `dunlin compile`

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use dunlin_config::{Config, Overrides};

use crate::configuration;

/// The arguments of `dunlin compile`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CompileArguments {
    /// WebAssembly components
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// The server's state directory [default: `state` of the configuration]
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// Configuration file [default: ./dunlin.toml or /etc/dunlin/dunlin.toml]
    #[arg(long, short, value_name = "FILE", conflicts_with = "state")]
    config: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  dunlin compile app.wasm                     compile a component before the server starts
  dunlin compile --state /var/lib/dunlin app.wasm

The server itself runs this command for components that are not in its cache.
Compiled code is stored in `components` in the state directory, where only the server's user can write.
The process limits its memory to 4 GB and its CPU time to 10 minutes.";

/// The directory of the state without a configuration.
const STATE: &str = "/var/lib/dunlin";

/// Compiles components.
pub(crate) fn run(arguments: &CompileArguments) -> ExitCode {
    let state = match state(arguments) {
        Ok(state) => state,
        Err(problems) => {
            eprintln!("{problems}");
            return ExitCode::FAILURE;
        }
    };
    for file in &arguments.files {
        match dunlin_server::compile_component(&state, file) {
            Ok(true) => println!("{}: compiled", file.display()),
            Ok(false) => println!("{}: was compiled before", file.display()),
            Err(why) => {
                eprintln!("dunlin: {why}");
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}

/// Returns the directory of state.
fn state(arguments: &CompileArguments) -> Result<PathBuf, String> {
    if let Some(state) = &arguments.state {
        return Ok(state.clone());
    }
    let Some(file) = arguments.config.clone().or_else(configuration::default_file) else {
        return Ok(STATE.into());
    };
    let config = Config::load(&file, &Overrides::default()).map_err(|problems| {
        let lines: Vec<_> = problems.iter().map(ToString::to_string).collect();
        lines.join("\n")
    })?;
    Ok(config.server.state.clone())
}
