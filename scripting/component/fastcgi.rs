//! The operation as a FastCGI program, for `kind = "fastcgi"`: `rustc -O fastcgi.rs`. Standard input is the socket on which it
//! accepts connections, unless the path of another is the first argument; one process handles many requests, one after the other.

mod form;
mod operation;

use std::env;
use std::io::{self, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};

/// Types of records.
const BEGIN_REQUEST: u8 = 1;
const END_REQUEST: u8 = 3;
const STDIN: u8 = 5;
const STDOUT: u8 = 6;
/// The server keeps the connection.
const KEEP_CONNECTION: u8 = 1;

fn main() -> io::Result<()> {
    let listener = match env::args_os().nth(1) {
        Some(path) => UnixListener::bind(path)?,
        None => UnixListener::from(io::stdin().as_fd().try_clone_to_owned()?),
    };
    for connection in listener.incoming() {
        // The server may close a connection at any time.
        let _ = serve(&connection?);
    }
    Ok(())
}

/// Handles the requests of a connection.
fn serve(connection: &UnixStream) -> io::Result<()> {
    let (mut input, mut output) = (BufReader::new(connection), connection);
    let (mut body, mut content, mut is_kept) = (Vec::new(), Vec::new(), false);
    loop {
        let mut header = [0; 8];
        input.read_exact(&mut header)?;
        let [_, kind, id @ .., padding, _] = header;
        let [id, length] = [[id[0], id[1]], [id[2], id[3]]];
        content.resize(usize::from(u16::from_be_bytes(length)) + usize::from(padding), 0);
        input.read_exact(&mut content)?;
        content.truncate(usize::from(u16::from_be_bytes(length)));
        match kind {
            BEGIN_REQUEST => {
                is_kept = content.get(2).is_some_and(|flags| flags & KEEP_CONNECTION != 0)
            }
            STDIN if content.is_empty() => {
                output.write_all(&response(id, &form::respond(&body)))?;
                body.clear();
                if !is_kept {
                    return Ok(());
                }
            }
            STDIN => body.extend_from_slice(&content),
            // The operation needs no variables.
            _ => {}
        }
    }
}

/// Returns the records of a response.
fn response(id: [u8; 2], text: &[u8]) -> Vec<u8> {
    let mut records = Vec::with_capacity(text.len() + 32);
    for part in text.chunks(usize::from(u16::MAX)).chain([&[][..]]) {
        write_record(STDOUT, id, part, &mut records);
    }
    // The status of the application and of the protocol: both 0.
    write_record(END_REQUEST, id, &[0; 8], &mut records);
    records
}

fn write_record(kind: u8, [high, low]: [u8; 2], content: &[u8], records: &mut Vec<u8>) {
    let [first, second] = u16::try_from(content.len()).unwrap_or(u16::MAX).to_be_bytes();
    records.extend_from_slice(&[1, kind, high, low, first, second, 0, 0]);
    records.extend_from_slice(content);
}
