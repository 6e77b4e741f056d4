//! `dunlin init`

mod find;
mod write;

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;

use self::find::{Application, Found};
use crate::serve::CONFIGURATION;

/// The arguments of `dunlin init`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct InitArguments {
    /// Directory of the site or application
    #[arg(value_name = "DIR", default_value = ".")]
    directory: PathBuf,
}

const EXAMPLES: &str = "\
Examples:
  dunlin init                  write dunlin.toml for the current directory
  dunlin init /srv/shop        write /srv/shop/dunlin.toml

It finds static files, PHP, Django, Flask, FastAPI and other WSGI, ASGI and PSGI applications, Node.js, and a directory cgi-bin.
An existing file is never changed.";

/// Writes a configuration for what the directory holds.
pub(crate) fn run(arguments: &InitArguments) -> ExitCode {
    match write(&arguments.directory) {
        Ok(text) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("dunlin: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Returns what to print.
fn write(directory: &Path) -> Result<String, String> {
    if !directory.is_dir() {
        return Err(format!("there is no directory {}", directory.display()));
    }
    let path = directory.join(CONFIGURATION);
    let file = path.strip_prefix(".").unwrap_or(&path).display().to_string();
    let found = Found::in_directory(directory);
    let text = write::configuration(&found);
    let mut output =
        OpenOptions::new().write(true).create_new(true).open(&path).map_err(|error| match error
            .kind()
        {
            ErrorKind::AlreadyExists => {
                format!("{file} already exists and was not changed; `dunlin check` checks it")
            }
            _ => format!("{file}: {error}"),
        })?;
    output.write_all(text.as_bytes()).map_err(|error| format!("{file}: {error}"))?;
    let config = if directory == Path::new(".") { String::new() } else { format!(" -c {file}") };
    let mut lines = format!("{file} serves {}\n", found.describe());
    for note in found.notes() {
        lines += &format!("note: {note}\n");
    }
    lines += &format!(
        "`dunlin check{config}` checks it, `dunlin serve{config}` serves it at http://{}/\n",
        write::ADDRESS
    );
    Ok(lines)
}

/// Returns a line about an application in a directory that is served as files alone; `None` if it has none.
pub(crate) fn proposal(directory: &Path) -> Option<String> {
    if directory.join(CONFIGURATION).exists() {
        return None;
    }
    let found = Found::in_directory(directory);
    let what = match &found.application {
        Application::Files if !found.has_cgi => return None,
        Application::Files => "the programs in cgi-bin".to_owned(),
        application => application.to_string(),
    };
    let argument = if directory == Path::new(".") {
        String::new()
    } else {
        format!(" {}", directory.display())
    };
    Some(format!(
        "only files are served, not {what}; `dunlin init{argument}` writes a configuration for it"
    ))
}
