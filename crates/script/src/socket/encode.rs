//! A request as a worker reads it.

use std::future::poll_fn;
use std::task::Poll;

use bytes::Bytes;
use dunlin_exchange::stream::{self, Broken};

use super::response::Framing;
use super::{fastcgi, scgi_uwsgi};
use crate::backend::Outgoing;
use crate::environment;
use crate::failure::Failure;
use dunlin_config::ScriptKind;

/// The head, and the part of the body that leaves with it.
pub(super) type Encoded = Bytes;

/// Bytes up to which the part of the body that has arrived leaves with the head.
const TOGETHER: usize = 64 * 1024;

/// Encodes the request's head and what has arrived of its body.
///
/// # Errors
/// [`Failure::TooLarge`] when the protocol cannot carry the variables; [`Failure::Abandoned`] when the client has left.
pub(super) async fn encode(
    request: &mut Outgoing<'_>,
    framing: Framing,
    keep_alive: bool,
) -> Result<Encoded, Failure> {
    let Outgoing { call, incoming, located, length, .. } = request;
    let variables = environment::variables(call, incoming, located, *length);
    let mut bytes = Vec::with_capacity(2048);
    match call.rules.kind {
        ScriptKind::Scgi => scgi_uwsgi::scgi(&variables, *length, &mut bytes),
        ScriptKind::Uwsgi => scgi_uwsgi::uwsgi(&variables, &mut bytes)?,
        _ => {
            fastcgi::begin(keep_alive, &mut bytes);
            fastcgi::params(variables.iter(), &mut bytes);
        }
    }
    if let Some(body) = &mut request.body
        && add_body(body, framing, &mut bytes).await?
    {
        request.body = None;
    }
    if request.body.is_none() && framing == Framing::Records {
        fastcgi::end_stdin(&mut bytes);
    }
    Ok(bytes.into())
}

/// Adds what has arrived of the body; true when that is all of it.
async fn add_body(
    body: &mut stream::Receiver,
    framing: Framing,
    bytes: &mut Vec<u8>,
) -> Result<bool, Failure> {
    while bytes.len() < TOGETHER {
        let next = poll_fn(|cx| {
            Poll::Ready(match body.poll_next(cx) {
                Poll::Ready(next) => Some(next),
                Poll::Pending => None,
            })
        });
        match next.await {
            None => return Ok(false),
            Some(Err(Broken)) => return Err(Failure::Abandoned),
            Some(Ok(None)) => return Ok(true),
            Some(Ok(Some(part))) => match framing {
                Framing::Records => fastcgi::stdin(&part, bytes),
                Framing::Plain => bytes.extend_from_slice(&part),
            },
        }
    }
    Ok(false)
}
