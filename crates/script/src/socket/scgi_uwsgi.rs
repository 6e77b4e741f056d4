//! The heads of SCGI and of uWSGI's protocol. The body follows as it is, and the response is CGI's
//! up to the end of the connection.

use crate::failure::Failure;
use crate::variables::Variables;

/// The variables as a netstring, CONTENT_LENGTH first (SCGI: A Simple Common Gateway Interface
/// alternative, §3).
pub(super) fn scgi(variables: &Variables, length: Option<u64>, output: &mut Vec<u8>) {
    let mut head = Vec::with_capacity(2048);
    let mut add = |name: &[u8], value: &[u8]| {
        for part in [name, value] {
            head.extend_from_slice(part);
            head.push(0);
        }
    };
    add(b"CONTENT_LENGTH", length.unwrap_or(0).to_string().as_bytes());
    add(b"SCGI", b"1");
    for (name, value) in variables.iter().filter(|(name, _)| *name != b"CONTENT_LENGTH") {
        add(name, value);
    }
    output.extend_from_slice(format!("{}:", head.len()).as_bytes());
    output.extend_from_slice(&head);
    output.push(b',');
}

/// Returns the variables as a packet of uWSGI's protocol: modifiers 0 and 0, lengths in two bytes, the
/// lower one first.
///
/// # Errors
/// [`Failure::TooLarge`] when they do not fit, 64 KiB less one byte.
pub(super) fn uwsgi(variables: &Variables, output: &mut Vec<u8>) -> Result<(), Failure> {
    let start = output.len();
    output.extend_from_slice(&[0; 4]);
    for (name, value) in variables.iter() {
        for part in [name, value] {
            let length = u16::try_from(part.len()).map_err(|_| Failure::TooLarge)?;
            output.extend_from_slice(&length.to_le_bytes());
            output.extend_from_slice(part);
        }
    }
    let size = output.len() - start - 4;
    let size = u16::try_from(size).map_err(|_| Failure::TooLarge)?;
    output[start + 1..start + 3].copy_from_slice(&size.to_le_bytes());
    Ok(())
}
