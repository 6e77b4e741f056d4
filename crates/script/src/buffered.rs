//! The fast path for responses that are complete when they are first read, as most are: no task, no stream, no timer.

use std::cell::RefCell;
use std::pin::pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use dunlin_telemetry::ScriptContext;
use futures_util::future::poll_fn;

use super::body_buffer::{BodyBuffer, MAX_BUFFERED};
use super::head::{self, ScriptHead};
use super::source::{Source, SourceEnd};
use super::time_limit::next_limit;
use dunlin_config::Script;
use dunlin_net::deadlines::Deadlines;

/// The conditions under which a response is read.
pub(super) struct ResponseContext<'a> {
    pub(super) deadlines: &'a Deadlines,
    pub(super) rules: &'a Script,
    pub(super) script_context: &'a ScriptContext,
    /// The method is HEAD: a Content-Length does not describe the output.
    pub(super) is_bodiless: bool,
}

thread_local! {
    /// The last header and its parsed form: many responses have the same header.
    static LAST: RefCell<Option<(Bytes, ScriptHead)>> = const { RefCell::new(None) };
}

/// Size of the longest header that is kept.
const MAX_HEADER: usize = 1024;

/// Reads the response to a request that was sent completely, if it is complete at the first read and before any time
/// limit, and needs no processing. Otherwise the error holds what was read, with which an
/// [`Output`](super::output::Output) begins.
pub(super) async fn read(
    source: &impl Source,
    context: ResponseContext<'_>,
) -> Result<(ScriptHead, BodyBuffer), Vec<Bytes>> {
    let ResponseContext { deadlines, rules, script_context, is_bodiless } = context;
    let started = script_context.started();
    script_context.request_sent.set(Some(started));
    let mut content = BodyBuffer::default();
    let first = match next_limit(rules, script_context, true, Some(started)) {
        None => source.read().await,
        Some((limit, _)) => deadlines.before(limit, started, source.read()).await.flatten(),
    };
    let Some(first) = first else { return Err(content.pieces) };
    script_context.mark(&script_context.first_byte);
    content.add(first);
    if !poll_fn(|cx| Poll::Ready(is_all(source, &mut content, cx))).await
        || !matches!(source.end().await, SourceEnd::Complete | SourceEnd::Status(_))
    {
        return Err(content.pieces);
    }
    let Some((head, length)) = content.pieces.first().and_then(|first| head_of(first)) else {
        return Err(content.pieces);
    };
    let stated = head.content_length.filter(|_| !is_bodiless);
    if stated.is_some_and(|stated| stated != (content.length - length) as u64) {
        return Err(content.pieces);
    }
    content.skip(length);
    script_context.mark(&script_context.ended);
    Ok((head, content))
}

/// Adds what can be read at once; true at the end of the output.
fn is_all(source: &impl Source, content: &mut BodyBuffer, cx: &mut Context<'_>) -> bool {
    while content.length < MAX_BUFFERED {
        match pin!(source.read()).poll(cx) {
            Poll::Ready(Some(bytes)) => content.add(bytes),
            Poll::Ready(None) => return true,
            Poll::Pending => return false,
        }
    }
    false
}

/// Returns the header at the front of `output` and its length; `None` if it is incomplete or needs processing.
fn head_of(output: &[u8]) -> Option<(ScriptHead, usize)> {
    LAST.with_borrow_mut(|last| {
        if let Some((bytes, head)) = last
            && output.starts_with(bytes)
        {
            return Some((head.clone(), bytes.len()));
        }
        let (head, length) = head::parse(output).ok()??;
        if !head.is_plain() {
            return None;
        }
        if length <= MAX_HEADER {
            *last = Some((Bytes::copy_from_slice(&output[..length]), head.clone()));
        }
        Some((head, length))
    })
}
