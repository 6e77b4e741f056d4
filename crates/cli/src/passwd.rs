//! `dunlin passwd`: password files for basic authentication.

use std::io::{self, BufRead, IsTerminal};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use dunlin_server::password::{self, Algorithm, Hash, Users};

/// Set the password of a user in a file for `auth = { basic = "FILE" }`.
///
/// The password is prompted for twice, or read from standard input if that is not a terminal. Other servers can read the file,
/// which has the format of Apache's htpasswd.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct PasswdArguments {
    /// Password file; created if it does not exist
    file: PathBuf,
    /// Name of the user
    user: String,
    /// Hash algorithm: `argon2id` (the strongest; not supported by Apache and nginx), `bcrypt` or `sha512` (SHA-512 as in
    /// /etc/shadow; by nginx and Apache through the system's crypt)
    #[arg(long, value_enum, default_value_t, value_name = "NAME", hide_possible_values = true)]
    algorithm: Kind,
    /// Remove the user
    #[arg(long, conflicts_with_all = ["verify", "algorithm"])]
    delete: bool,
    /// Check the password, and change nothing
    #[arg(long, conflicts_with = "algorithm")]
    verify: bool,
}

#[derive(Clone, Copy, Default, ValueEnum)]
enum Kind {
    #[default]
    Argon2id,
    Bcrypt,
    Sha512,
}

const EXAMPLES: &str = "\
Examples:
  dunlin passwd users ann                      prompt for ann's password and set it
  printf %s secret | dunlin passwd users ann   read it from a program
  dunlin passwd --delete users ann             remove ann

The server applies a changed file within a second.";

pub(crate) fn run(arguments: &PasswdArguments) -> ExitCode {
    match change(arguments) {
        Ok(message) => {
            println!("{message}");
            ExitCode::SUCCESS
        }
        Err(what) => {
            eprintln!("dunlin: {what}");
            ExitCode::FAILURE
        }
    }
}

fn change(arguments: &PasswdArguments) -> Result<String, String> {
    let PasswdArguments { file, user, .. } = arguments;
    let explain = |error: io::Error| format!("{}: {error}", file.display());
    if user.is_empty() || user.contains(':') || user.chars().any(char::is_control) {
        return Err(format!(
            "{user:?} is not a user name: it is empty, or contains `:` or a control character"
        ));
    }
    if arguments.delete {
        return match password::remove(file, user).map_err(explain)? {
            true => Ok(format!("removed {user}")),
            false => Err(format!("{} has no user {user}", file.display())),
        };
    }
    if arguments.verify {
        let (users, _) = Users::parse(&std::fs::read_to_string(file).map_err(explain)?);
        return match users.verify(user, prompt("Password: ")?.as_bytes()) {
            true => Ok(format!("it is the password of {user}")),
            false => Err(format!("it is not the password of {user}, or there is no such user")),
        };
    }
    let word = prompt("New password: ")?;
    if io::stdin().is_terminal() && prompt("The same again: ")? != word {
        return Err("the two are not the same; nothing was changed".into());
    }
    let algorithm = match arguments.algorithm {
        Kind::Argon2id => Algorithm::Argon2id,
        Kind::Bcrypt => Algorithm::Bcrypt,
        Kind::Sha512 => Algorithm::Sha512,
    };
    let hash = Hash::of(word.as_bytes(), algorithm)?;
    password::set(file, user, &hash).map_err(explain)?;
    Ok(format!("set the password of {user}"))
}

/// Prompts for a password. Without a terminal, the first line of standard input is the password.
fn prompt(text: &str) -> Result<String, String> {
    if io::stdin().is_terminal() {
        return rpassword::prompt_password(text).map_err(|error| error.to_string());
    }
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line).map_err(|error| format!("standard input: {error}"))?;
    Ok(line.trim_end_matches(['\r', '\n']).to_owned())
}
