//! Bodies of unknown length: a script is told the length before it starts, so that all of the body
//! has to be there first.

use std::fs::File;
use std::io::{self, Read, Seek, Write};

use bytes::Bytes;
use dunlin_http::Request;
use dunlin_http::http1::BodyLength;

use super::process::Input;
use super::{Failure, environment};
use crate::route::Incoming;
use crate::stream;

/// A body that has arrived as a whole.
pub(super) struct Spooled {
    pub(super) length: u64,
    pub(super) input: Input,
    /// What the input is to be given while the script runs.
    pub(super) memory: stream::Receiver,
}

/// Bodies up to this size stay in memory; of larger ones, this much is written at a time.
const MEMORY: usize = 64 * 1024;

impl Spooled {
    /// The body as a stream, wherever it is kept.
    pub(super) fn replay(self) -> stream::Receiver {
        let Input::File(file) = self.input else { return self.memory };
        let (sender, receiver) = stream::channel(MEMORY);
        tokio::task::spawn_local(read_back(file, sender));
        receiver
    }
}

/// Reads the file to its end, where waiting for the disk holds up nobody.
async fn read_back(mut file: File, sender: stream::Sender) {
    while sender.room().await.is_ok() {
        let read = tokio::task::spawn_blocking(move || {
            let mut bytes = Vec::with_capacity(MEMORY);
            let count = (&mut file).take(MEMORY as u64).read_to_end(&mut bytes)?;
            io::Result::Ok((file, bytes, count))
        });
        match read.await {
            Ok(Ok((_, _, 0))) => return sender.end(),
            Ok(Ok((rest, bytes, _))) => {
                file = rest;
                sender.push(bytes.into());
            }
            // The stream is left broken.
            _ => return,
        }
    }
}

/// The length of the request's body, and the body as a stream: one of unknown length is read to its end
/// first.
pub(super) async fn measured(
    request: &Request<'_>,
    incoming: &mut Incoming,
) -> Result<Option<u64>, Failure> {
    if incoming.length != BodyLength::Chunked {
        return Ok(environment::stated_length(request, incoming.length));
    }
    let spooled = spool(&mut incoming.body).await?;
    let length = spooled.length;
    incoming.body = spooled.replay();
    Ok(Some(length))
}

/// Reads a body to its end. How much it may hold has been seen to by the driver.
pub(super) async fn spool(body: &mut stream::Receiver) -> Result<Spooled, Failure> {
    let mut memory = Vec::new();
    let mut file = None;
    let mut length = 0;
    while let Some(bytes) = body.next().await.map_err(|_| Failure::Abandoned)? {
        length += bytes.len() as u64;
        memory.extend_from_slice(&bytes);
        if memory.len() > MEMORY {
            file = Some(append(file, std::mem::take(&mut memory)).await?);
        }
    }
    if let Some(file) = file {
        let mut file = append(Some(file), memory).await?;
        file.rewind().map_err(broken)?;
        return Ok(Spooled { length, input: Input::File(file), memory: stream::empty() });
    }
    let input = if memory.is_empty() { Input::Nothing } else { Input::Pipe };
    let (sender, receiver) = stream::channel(MEMORY);
    sender.push(Bytes::from(memory));
    sender.end();
    Ok(Spooled { length, input, memory: receiver })
}

/// Adds to the file, which has no name, where waiting for the disk holds up nobody.
async fn append(file: Option<File>, bytes: Vec<u8>) -> Result<File, Failure> {
    let written = tokio::task::spawn_blocking(move || {
        let mut file = file.map_or_else(tempfile::tempfile, Ok)?;
        file.write_all(&bytes)?;
        Ok(file)
    });
    written.await.unwrap_or_else(|error| Err(io::Error::other(error))).map_err(broken)
}

fn broken(error: io::Error) -> Failure {
    Failure::Broken(format!("its request's body could not be kept: {error}"))
}
