//! Printing to standard output, whose reader may leave early, as `head` does.
//!
//! The command then ends without a message, as other Unix tools do. The standard library's macros of the same names
//! panic instead.

use std::fmt::Arguments;
use std::io::{self, ErrorKind, Write};

/// The exit status that a shell reports for a program that SIGPIPE has ended.
const BROKEN_PIPE: i32 = 128 + 13;

macro_rules! print {
    ($($argument:tt)*) => { $crate::output::print(format_args!($($argument)*)) };
}

macro_rules! println {
    ($($argument:tt)*) => {
        $crate::output::print(format_args!("{}\n", format_args!($($argument)*)))
    };
}

/// Writes to standard output. An error ends the process, since its output is its purpose.
pub(crate) fn print(text: Arguments<'_>) {
    let Err(error) = io::stdout().lock().write_fmt(text) else { return };
    if error.kind() == ErrorKind::BrokenPipe {
        std::process::exit(BROKEN_PIPE);
    }
    eprintln!("dunlin: standard output: {error}");
    std::process::exit(1);
}

/// Writes to standard output and ignores errors, for a process that has other work.
pub(crate) fn print_if_read(text: Arguments<'_>) {
    let _ = io::stdout().lock().write_fmt(text);
}
