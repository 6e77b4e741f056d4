//! Progress and errors on standard error, which may have no reader: that is no reason to panic, as the standard library's
//! macros of the same names do.

use std::fmt::Arguments;
use std::io::{self, Write};

macro_rules! eprint {
    ($($argument:tt)*) => { $crate::report::write(format_args!($($argument)*)) };
}

macro_rules! eprintln {
    ($($argument:tt)*) => {
        $crate::report::write(format_args!("{}\n", format_args!($($argument)*)))
    };
}

/// Writes to standard error, if it can be written to.
pub(crate) fn write(text: Arguments<'_>) {
    let _ = io::stderr().lock().write_fmt(text);
}
