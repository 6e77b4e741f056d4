//! Request bodies are received completely before a request takes a process, so that a slow upload occupies none.
//! Short bodies stay in memory, longer ones go to a temporary file.

use std::fs::File;
use std::io::{self, Seek, Write};
use std::sync::Arc;

use bytes::Bytes;
use dunlin_exchange::{Incoming, Received, Share, stream};
use dunlin_http::BodyLength;
use rustix::io::Errno;

use super::body_buffer::BodyBuffer;
use super::call::Call;
use super::context::Context;
use super::failure::Failure;
use super::process::Input;
use super::{environment, retry_on_emfile};
use dunlin_config::{BodyHandling, ScriptKind, Settings};
use dunlin_fs::content::ContentFile;
use dunlin_net::blocking::Pool;
use dunlin_net::temp_files;

/// Bodies up to this size stay in memory. Longer ones are written to the file in parts of at least this size.
const MEMORY: usize = 64 * 1024;
/// The limit while slow bodies use all memory for bodies.
const LITTLE: usize = 4 * 1024;
/// Bytes per read from the file.
const PART: usize = 64 * 1024;

/// Receives the whole body, unless the route streams it. Returns its length; `None` if there is no body, or if a
/// streamed body has no known length.
///
/// A chunked body is always received first, because a script needs its length. Only ASGI does without.
pub(super) async fn with_known_length(
    call: &Call<'_>,
    incoming: &mut Incoming,
) -> Result<Option<u64>, Failure> {
    receive(&call.scripts.ctx, call.route.settings(), call.rules.kind, incoming).await?;
    Ok(environment::stated_length(&call.request, incoming.length))
}

/// Returns the same without the length.
pub(super) async fn receive(
    ctx: &Context,
    settings: &Settings,
    kind: ScriptKind,
    incoming: &mut Incoming,
) -> Result<(), Failure> {
    let may_stream = incoming.length != BodyLength::Chunked || kind == ScriptKind::Asgi;
    match settings.body {
        BodyHandling::Stream if may_stream => Ok(()),
        _ if is_received(incoming) => Ok(()),
        // Boxed to keep the futures of most requests small.
        _ => Box::pin(receive_all(ctx, incoming)).await,
    }
}

/// Returns `true` if there is nothing to receive. Most bodies have arrived already, and stay where they are.
fn is_received(incoming: &mut Incoming) -> bool {
    if incoming.length == BodyLength::None || incoming.received.is_some() {
        return true;
    }
    let Some(length) = incoming.body.whole_length() else { return false };
    incoming.length = BodyLength::Known(length);
    incoming.received = Some(Received { file: None, share: None });
    true
}

async fn receive_all(ctx: &Context, incoming: &mut Incoming) -> Result<(), Failure> {
    let storage = &ctx.shared.bodies;
    if let BodyLength::Known(length) = incoming.length
        && length > MEMORY as u64
        && !storage.has_room(length)
    {
        return Err(Failure::Busy);
    }
    let mut share = storage.share();
    let max = if share.take_memory(MEMORY as u64) { MEMORY } else { LITTLE };
    let mut memory = BodyBuffer::default();
    let (mut file, mut length) = (None, 0);
    while let Some(bytes) = incoming.body.next().await.map_err(|_| Failure::Abandoned)? {
        length += bytes.len() as u64;
        memory.add(bytes);
        if memory.length > max {
            file = Some(append(ctx, file, std::mem::take(&mut memory), &mut share).await?);
        }
    }
    if let Some(begun) = file {
        let mut whole = append(ctx, Some(begun), memory, &mut share).await?;
        whole.rewind().map_err(|error| not_stored(&error))?;
        share.shrink_memory(0);
        (file, incoming.body) = (Some(whole), stream::empty());
    } else {
        share.shrink_memory(length);
        incoming.body = stream::of(memory.pieces);
    }
    incoming.length = BodyLength::Known(length);
    incoming.received = Some(Received { file, share: Some(share) });
    Ok(())
}

/// Appends to the file, which is created if there is none, on a thread that may block.
async fn append(
    ctx: &Context,
    file: Option<File>,
    bytes: BodyBuffer,
    share: &mut Share,
) -> Result<File, Failure> {
    if !share.take_file(bytes.length as u64) {
        return Err(Failure::Busy);
    }
    let mut file = match file {
        Some(file) => file,
        None => {
            let created = retry_on_emfile::retry(ctx, async || {
                ctx.shared.blocking.bodies.run(temp_files::file).await?
            });
            created.await.map_err(|error| not_stored(&error))?
        }
    };
    let written = ctx.shared.blocking.bodies.run(move || {
        bytes.pieces.iter().try_for_each(|piece| file.write_all(piece))?;
        Ok(file)
    });
    let written = written.await.unwrap_or_else(|error| Err(error.into()));
    written.map_err(|error| not_stored(&error))
}

fn not_stored(error: &io::Error) -> Failure {
    Failure::Broken(format!("the request body could not be stored in a temporary file: {error}"))
}

/// Returns the body as a stream, wherever it is.
pub(super) fn take_stream(ctx: &Context, incoming: &mut Incoming) -> stream::Receiver {
    let body = std::mem::replace(&mut incoming.body, stream::empty());
    let Some(Received { file, share }) = &mut incoming.received else { return body };
    let Some(file) = file.take() else { return body };
    let length = match incoming.length {
        BodyLength::Known(length) => length,
        _ => 0,
    };
    let (sender, receiver) = stream::channel(4 * PART);
    let file = Arc::new(ContentFile::private(file, length));
    tokio::task::spawn_local(read_back(
        ctx.shared.blocking.bodies.clone(),
        file,
        length,
        share.take(),
        sender,
    ));
    receiver
}

/// Returns the body as the standard input of a process, with its share of the spool while the process runs. A stream is
/// written to a pipe.
pub(super) fn take_input(incoming: &mut Incoming) -> (Input, stream::Receiver, Option<Share>) {
    let input = match (incoming.length, &mut incoming.received) {
        (BodyLength::None | BodyLength::Known(0), _) => Input::Nothing,
        (_, Some(Received { file, .. })) => file.take().map_or(Input::Pipe, Input::File),
        (_, None) => Input::Pipe,
    };
    let share = incoming.received.as_mut().and_then(|received| received.share.take());
    (input, std::mem::replace(&mut incoming.body, stream::empty()), share)
}

/// Reads the file to its end: on the worker thread what is in memory, and on a thread that may block what is not.
async fn read_back(
    pool: Pool,
    file: Arc<ContentFile>,
    length: u64,
    share: Option<Share>,
    sender: stream::Sender,
) {
    let mut offset = 0;
    while offset < length && sender.room().await.is_ok() {
        let mut part = vec![0; PART.min(usize::try_from(length - offset).unwrap_or(PART))];
        let read = match file.read_now(&mut part, offset) {
            Err(Errno::AGAIN) => {
                let file = Arc::clone(&file);
                let read = pool.run(move || {
                    rustix::io::pread(&*file, &mut part, offset).map(|count| (count, part))
                });
                read.await.unwrap_or(Err(Errno::IO))
            }
            read => read.map(|count| (count, part)),
        };
        match read {
            Ok((count, mut part)) if count > 0 => {
                part.truncate(count);
                offset += count as u64;
                sender.push(Bytes::from(part));
                // Yields to other tasks, as a read from a socket does.
                tokio::task::yield_now().await;
            }
            // Dropping the sender breaks the stream.
            _ => return,
        }
    }
    if offset == length {
        sender.end();
    }
    drop(share);
}
