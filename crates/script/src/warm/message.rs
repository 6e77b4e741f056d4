//! The message that requests a process from a fork server; `scripting/warm/preload.c` reads it.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use super::super::process::Start;

/// Encodes the directory, the number of arguments, the arguments and the variables, each terminated by NUL. `first`
/// are the arguments in front of those of the request.
pub(super) fn encode(start: &Start, first: &[OsString]) -> Vec<u8> {
    let mut message = Vec::with_capacity(2048);
    let mut add = |parts: &[&[u8]]| {
        for part in parts {
            message.extend_from_slice(part);
        }
        message.push(0);
    };
    add(&[start.directory.as_os_str().as_bytes()]);
    let count = first.len() + start.arguments.len();
    add(&[itoa::Buffer::new().format(count).as_bytes()]);
    for argument in first.iter().chain(&start.arguments) {
        add(&[argument.as_bytes()]);
    }
    for (name, value) in start.environment.iter() {
        add(&[name, b"=", value]);
    }
    message
}
