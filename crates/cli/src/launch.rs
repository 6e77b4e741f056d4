//! `dunlin launch-script`: what the server starts in a script's stead where a process has to have less than
//! the server before it begins. It is not for people.

use std::ffi::OsString;
use std::process::ExitCode;

/// Words that the server gives.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<OsString>,
}

/// As shells say that a program could not be run.
const NOT_RUN: u8 = 126;
const NOT_FOUND: u8 = 127;

pub(crate) fn run(arguments: Arguments) -> ExitCode {
    let error = dunlin_server::launch(arguments.words.into_iter());
    eprintln!("it was not run: {error}");
    let missing = error.kind() == std::io::ErrorKind::NotFound;
    ExitCode::from(if missing { NOT_FOUND } else { NOT_RUN })
}
