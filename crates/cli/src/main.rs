//! `dunlin`: one binary, one file per subcommand.

#[macro_use(eprint, eprintln)]
extern crate dunlin_load;
#[macro_use]
mod output;

mod admin;
mod check;
mod color;
mod compare;
mod compile;
mod completions;
mod configuration;
mod convert;
mod init;
mod launch;
mod load;
mod logging;
mod maintenance;
mod man;
mod passwd;
mod remote;
mod self_signed;
mod serve;
mod top;
mod usage;
mod watch;
mod watched;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};

/// A request to a script takes about fifty allocations. The C library's allocator is slow for those above a kilobyte.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The command line.
#[derive(Parser)]
#[command(name = "dunlin", version, about = ABOUT, after_help = EXAMPLES, propagate_version = true)]
struct CommandLine {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serve a directory, or the sites of a configuration
    Serve(serve::ServeArguments),
    /// Write a configuration for the contents of a directory: files, PHP, Python, Node.js, CGI
    Init(init::InitArguments),
    /// Check a configuration, or explain its settings for a URL
    Check(check::CheckArguments),
    /// Convert the configuration of another server, with a report of what is lost
    Convert(convert::ConvertArguments),
    /// Reload the configuration of a running server, and replace script workers whose code has changed
    Reload(admin::ReloadArguments),
    /// Replace a running server with a new process of the program
    Upgrade(admin::AdminArguments),
    /// Remove responses from the cache of a running server
    Purge(admin::PurgeArguments),
    /// Close sites of a running server for maintenance, or open them again
    Maintenance(maintenance::MaintenanceArguments),
    /// Send load to a server and measure its responses
    Load(Box<load::LoadArguments>),
    /// Compare servers and write a report
    Compare(Box<compare::CompareArguments>),
    /// Show the requests of a running server as they happen
    Watch(watch::WatchArguments),
    /// Show the figures of a running server
    Top(top::TopArguments),
    /// Compile WebAssembly components into the cache of a server
    Compile(compile::CompileArguments),
    /// Set, remove or check passwords for basic authentication
    Passwd(passwd::PasswdArguments),
    /// Print the completions of a shell
    Completions(completions::CompletionsArguments),
    /// Print or write the manual pages
    Man(man::ManArguments),
    /// Print the version
    Version,
    /// Start a script; internal
    #[command(name = dunlin_script::LAUNCH, hide = true)]
    Launch(launch::LaunchArguments),
    /// Remove sockets when the server has ended; internal
    #[command(name = dunlin_server::REMOVE_SOCKETS, hide = true)]
    RemoveSockets {
        /// The files.
        paths: Vec<std::path::PathBuf>,
    },
}

const ABOUT: &str =
    "Web server for files, scripts and applications, and load generator that verifies responses";

const EXAMPLES: &str = "\
Examples:
  dunlin serve public                         serve the directory `public` at http://127.0.0.1:8080/
  dunlin init                                 write a dunlin.toml for the current directory
  dunlin serve                                serve the sites of dunlin.toml
  dunlin check --explain /docs/               show the settings of a path and their origin
  dunlin convert nginx nginx.conf             convert a configuration of nginx
  dunlin top                                  show rates, latencies and errors, every second
  dunlin watch 'status>=500'                  show failing requests as they happen
  dunlin load -c 20 http://127.0.0.1:8080/    measure a server
  dunlin compare wasd-files --quick           compare servers, with a report

Exit status: 0 success, 1 failure, 2 usage error, 4 losses of a conversion.";

/// Returns the command line without internal commands, for documents about it.
fn documented() -> clap::Command {
    let complete = CommandLine::command();
    let commands = complete.get_subcommands().filter(|command| !command.is_hide_set()).cloned();
    clap::Command::new("dunlin")
        .version(env!("CARGO_PKG_VERSION"))
        .propagate_version(true)
        .about(ABOUT)
        .after_help(EXAMPLES)
        .subcommand_required(true)
        .subcommands(commands)
}

/// Returns the options of `dunlin serve`, if the command line has that command and no mistake. Parsing all commands takes a
/// seventh of the time until the server responds.
fn serve_alone(words: &[OsString]) -> Option<serve::ServeArguments> {
    let (name, options) = words.split_first()?;
    if name != "serve" {
        return None;
    }
    let command =
        serve::ServeArguments::augment_args(clap::Command::new("serve").no_binary_name(true));
    serve::ServeArguments::from_arg_matches(&command.try_get_matches_from(options).ok()?).ok()
}

fn main() -> ExitCode {
    let words: Vec<_> = std::env::args_os().skip(1).collect();
    if let Some(arguments) = serve_alone(&words) {
        return serve::run(&arguments);
    }
    let arguments =
        CommandLine::try_parse().unwrap_or_else(|error| usage::improve(error, &words).exit());
    match arguments.command {
        Command::Serve(arguments) => serve::run(&arguments),
        Command::Init(arguments) => init::run(&arguments),
        Command::Check(arguments) => check::run(&arguments),
        Command::Convert(arguments) => convert::run(&arguments),
        Command::Reload(arguments) => admin::reload(&arguments),
        Command::Upgrade(arguments) => admin::run("/upgrade", &arguments),
        Command::Purge(arguments) => admin::purge(&arguments),
        Command::Maintenance(arguments) => maintenance::run(&arguments),
        Command::Load(arguments) => load::run(&arguments),
        Command::Compare(arguments) => compare::run(&arguments),
        Command::Watch(arguments) => watch::run(&arguments),
        Command::Top(arguments) => top::run(&arguments),
        Command::Launch(arguments) => launch::run(arguments),
        Command::RemoveSockets { paths } => {
            dunlin_server::remove_sockets(&paths);
            ExitCode::SUCCESS
        }
        Command::Compile(arguments) => compile::run(&arguments),
        Command::Passwd(arguments) => passwd::run(&arguments),
        Command::Completions(arguments) => completions::run(&arguments),
        Command::Man(arguments) => man::run(&arguments),
        Command::Version => {
            println!("dunlin {}", env!("CARGO_PKG_VERSION"));
            ExitCode::SUCCESS
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn serve_is_parsed_alone_unless_the_command_line_has_a_mistake_or_an_option_for_help() {
        let alone = |line: &str| {
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            let complete =
                CommandLine::try_parse_from(std::iter::once("dunlin".into()).chain(words.clone()));
            (serve_alone(&words), complete)
        };
        for line in
            ["serve", "serve public --listen :8000", "serve -c a.toml --threads 2 -l :80 -l :81"]
        {
            let (Some(alone), Ok(CommandLine { command: Command::Serve(complete) })) = alone(line)
            else {
                panic!("{line}");
            };
            assert_eq!(alone, complete, "{line}");
        }
        for line in
            ["serve --help", "serve -h", "serve --version", "serve --port 1", "serve a -c b", "top"]
        {
            assert!(alone(line).0.is_none(), "{line}");
        }
    }
}
