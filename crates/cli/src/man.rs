//! `dunlin man`: the manual pages, made from the definitions of the command line and of the configuration.

mod command;
mod configuration;
mod text;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;

/// Print the manual page of dunlin, or write all manual pages.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ManArguments {
    /// Directory to write the pages of all commands and of dunlin.toml to, in its subdirectories `man1` and `man5`
    #[arg(value_name = "DIR")]
    directory: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  dunlin man | man -l -                show the page of dunlin
  dunlin man /usr/local/share/man      install all pages; then `man dunlin-serve`, `man dunlin.toml`";

/// A manual page.
struct Page {
    name: String,
    section: char,
    text: String,
}

/// The text at the foot of each page.
const SOURCE: &str = concat!("Dunlin ", env!("CARGO_PKG_VERSION"));

pub(crate) fn run(arguments: &ManArguments) -> ExitCode {
    let mut program = crate::documented().disable_help_subcommand(true);
    program.build();
    let Some(directory) = &arguments.directory else {
        print!("{}", command::page(&program).text);
        return ExitCode::SUCCESS;
    };
    let commands = std::iter::once(&program).chain(program.get_subcommands());
    let pages: Vec<_> = commands.map(command::page).chain([configuration::page()]).collect();
    for page in &pages {
        if let Err((path, error)) = page.write(directory) {
            eprintln!("dunlin: {}: {error}", path.display());
            return ExitCode::FAILURE;
        }
    }
    println!("wrote {} pages to {}", pages.len(), directory.display());
    ExitCode::SUCCESS
}

impl Page {
    fn write(&self, directory: &Path) -> Result<(), (PathBuf, std::io::Error)> {
        let folder = directory.join(format!("man{}", self.section));
        fs::create_dir_all(&folder).map_err(|error| (folder.clone(), error))?;
        let file = folder.join(format!("{}.{}", self.name, self.section));
        fs::write(&file, &self.text).map_err(|error| (file, error))
    }
}
