//! Encodes a request's variables for a worker.

use crate::failure::Failure;
use crate::variables::Variables;

/// Record mode: a line with `!`, a line for each variable, an empty line. CR and LF, which only a path can hold,
/// become spaces.
pub(super) fn records(variables: &Variables) -> Vec<u8> {
    let mut output = Vec::with_capacity(2048);
    output.extend_from_slice(b"!\n");
    match variables.lines() {
        Some(lines) => output.extend_from_slice(lines),
        None => variables.iter().for_each(|(name, value)| {
            output.extend_from_slice(name);
            output.push(b'=');
            let plain = |&byte: &u8| if matches!(byte, b'\r' | b'\n') { b' ' } else { byte };
            output.extend(value.iter().map(plain));
            output.push(b'\n');
        }),
    }
    output.push(b'\n');
    output
}

/// Struct mode: a line with `!!` and the number of bytes that follow; each variable with its length before it and a
/// NUL at its end; a length of 0.
///
/// # Errors
/// [`Failure::TooLarge`] when a variable is longer than its length field can express, 64 KiB less one byte.
pub(super) fn structs(variables: &Variables) -> Result<Vec<u8>, Failure> {
    let mut entries = Vec::with_capacity(2048);
    for (name, value) in variables.iter() {
        let length = name.len() + value.len() + 2;
        let length = u16::try_from(length).map_err(|_| Failure::TooLarge)?;
        entries.extend_from_slice(&length.to_le_bytes());
        entries.extend_from_slice(name);
        entries.push(b'=');
        entries.extend_from_slice(value);
        entries.push(0);
    }
    entries.extend_from_slice(&[0, 0]);
    let mut output = format!("!!{}\n", entries.len()).into_bytes();
    output.append(&mut entries);
    Ok(output)
}

/// Returns the reply to a callout; `None` if it wants none.
pub(super) fn reply_to(callout: &[u8]) -> Option<&'static [u8]> {
    let wants_reply = !matches!(callout.first(), Some(b'!' | b'#'));
    wants_reply.then_some(b"400 unknown callout\n")
}

/// Returns `true` if a callout requests struct mode.
pub(super) fn requests_struct_mode(callout: &[u8]) -> bool {
    let (name, mode) = match callout.iter().position(|&byte| byte == b':') {
        Some(at) => (&callout[..at], callout[at + 1..].trim_ascii()),
        None => (callout, &callout[..0]),
    };
    name.eq_ignore_ascii_case(b"!CGIPLUS") && mode.eq_ignore_ascii_case(b"struct")
}
