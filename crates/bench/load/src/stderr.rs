//! Messages on standard error.
//!
//! Standard error may be closed, which is no reason to panic: the macros here ignore write errors, where those of the
//! standard library with the same names panic.

use std::fmt::Arguments;
use std::io::{self, Write};

/// Prints to standard error and ignores errors.
#[macro_export]
macro_rules! eprint {
    ($($argument:tt)*) => { $crate::stderr::write(format_args!($($argument)*)) };
}

/// Prints a line to standard error and ignores errors.
#[macro_export]
macro_rules! eprintln {
    ($($argument:tt)*) => {
        $crate::stderr::write(format_args!("{}\n", format_args!($($argument)*)))
    };
}

/// Writes to standard error and ignores errors.
pub fn write(text: Arguments<'_>) {
    let _ = io::stderr().lock().write_fmt(text);
}
