//! Printing to a reader that may leave early, as `head` does: the command then ends without a message, as other
//! Unix tools do, where the standard library's macros of the same names panic.

use std::fmt::Arguments;
use std::io::{self, ErrorKind, Write};

/// What a shell reports of a program that SIGPIPE has ended.
const BROKEN_PIPE: i32 = 128 + 13;

macro_rules! print {
    ($($argument:tt)*) => { $crate::output::print(format_args!($($argument)*)) };
}

macro_rules! println {
    ($($argument:tt)*) => {
        $crate::output::print(format_args!("{}\n", format_args!($($argument)*)))
    };
}

macro_rules! eprint {
    ($($argument:tt)*) => { $crate::output::report(format_args!($($argument)*)) };
}

macro_rules! eprintln {
    ($($argument:tt)*) => {
        $crate::output::report(format_args!("{}\n", format_args!($($argument)*)))
    };
}

/// Writes to standard output. The process ends when that fails: the output is what it was started for.
pub(crate) fn print(text: Arguments<'_>) {
    let Err(error) = io::stdout().lock().write_fmt(text) else { return };
    if error.kind() == ErrorKind::BrokenPipe {
        std::process::exit(BROKEN_PIPE);
    }
    report(format_args!("dunlin: standard output: {error}\n"));
    std::process::exit(1);
}

/// Writes to standard output if it can be written to, for a process that has other work.
pub(crate) fn print_if_read(text: Arguments<'_>) {
    // Without a reader there is nobody to report that to.
    let _ = io::stdout().lock().write_fmt(text);
}

/// Writes to standard error. When that fails, the exit status has to do.
pub(crate) fn report(text: Arguments<'_>) {
    let _ = io::stderr().lock().write_fmt(text);
}
