//! `dunlin completions`: completion of commands and options in a shell.

use std::process::ExitCode;

use clap::{Args, ValueEnum};
use clap_complete::Shell;

/// Print the completions of a shell: commands, options and their values.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CompletionsArguments {
    /// Shell
    #[arg(value_enum, value_name = "SHELL")]
    shell: Kind,
}

#[derive(Clone, Copy, ValueEnum)]
enum Kind {
    Bash,
    Zsh,
    Fish,
}

const EXAMPLES: &str = "\
Examples:
  dunlin completions bash > ~/.local/share/bash-completion/completions/dunlin
  dunlin completions zsh > /usr/local/share/zsh/site-functions/_dunlin
  dunlin completions fish > ~/.config/fish/completions/dunlin.fish";

pub(crate) fn run(arguments: &CompletionsArguments) -> ExitCode {
    let shell = match arguments.shell {
        Kind::Bash => Shell::Bash,
        Kind::Zsh => Shell::Zsh,
        Kind::Fish => Shell::Fish,
    };
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut crate::documented(), "dunlin", &mut script);
    print!("{}", String::from_utf8_lossy(&script));
    ExitCode::SUCCESS
}
