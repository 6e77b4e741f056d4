//! `dunlin launch-script`: an internal command. The server starts it in place of a script to drop privileges before the script
//! begins.

use std::ffi::OsString;
use std::process::ExitCode;

/// Arguments that the server passes.
#[derive(clap::Args)]
pub(crate) struct LaunchArguments {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<OsString>,
}

/// The exit status of shells for a program that cannot be run.
const NOT_RUN: u8 = 126;
const NOT_FOUND: u8 = 127;

pub(crate) fn run(arguments: LaunchArguments) -> ExitCode {
    let error = dunlin_script::launch(arguments.words.into_iter());
    eprintln!("it was not run: {error}");
    let missing = error.kind() == std::io::ErrorKind::NotFound;
    ExitCode::from(if missing { NOT_FOUND } else { NOT_RUN })
}
