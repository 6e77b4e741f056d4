//! The use of colours in output.

use std::io::IsTerminal;

/// Returns `true` if colours suit `output`: it is a terminal, and `NO_COLOR` (<https://no-color.org>) is absent or empty.
pub(crate) fn suits(output: &impl IsTerminal) -> bool {
    output.is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}
