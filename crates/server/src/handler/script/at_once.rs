//! Answers that are there as a whole when the script is looked at again, which most are: they need no task, no
//! stream and nobody who watches beside.

use std::cell::RefCell;
use std::pin::pin;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use futures_util::future::poll_fn;

use super::head::{self, ScriptHead};
use super::output::{End, Gathered, Source, WHOLE, next_limit};
use crate::config::Script;
use crate::telemetry::ScriptContext;
use crate::worker::Deadlines;

/// What is known of a request whose answer is awaited.
pub(super) struct Awaited<'a> {
    pub(super) deadlines: &'a Deadlines,
    pub(super) rules: &'a Script,
    pub(super) script_context: &'a ScriptContext,
    /// The request is HEAD: a stated length is not that of what comes.
    pub(super) is_bodiless: bool,
}

thread_local! {
    /// The header of the last answer, and what it said: many are alike.
    static LAST: RefCell<Option<(Bytes, ScriptHead)>> = const { RefCell::new(None) };
}

/// Bytes of a header that is kept at most.
const KEPT: usize = 1024;

/// The answer to a request that the script has all of, when it comes before any limit, is there as a whole, and is
/// for the client as it is. Otherwise what came of it, for an [`Output`](super::output::Output) to begin with.
pub(super) async fn answer(
    source: &impl Source,
    awaited: Awaited<'_>,
) -> Result<(ScriptHead, Gathered), Vec<Bytes>> {
    let Awaited { deadlines, rules, script_context, is_bodiless } = awaited;
    let started = script_context.started();
    script_context.handed_over.set(Some(started));
    let mut content = Gathered::default();
    let first = match next_limit(rules, script_context, true, Some(started)) {
        None => source.read().await,
        Some((limit, _)) => deadlines.before(limit, started, source.read()).await.flatten(),
    };
    let Some(first) = first else { return Err(content.pieces) };
    script_context.mark(&script_context.first_byte);
    content.add(first);
    if !poll_fn(|cx| Poll::Ready(is_all(source, &mut content, cx))).await
        || !matches!(source.end().await, End::Well | End::Status(_))
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

/// Adds what is there; whether that is the end.
fn is_all(source: &impl Source, content: &mut Gathered, cx: &mut Context<'_>) -> bool {
    while content.length < WHOLE {
        match pin!(source.read()).poll(cx) {
            Poll::Ready(Some(bytes)) => content.add(bytes),
            Poll::Ready(None) => return true,
            Poll::Pending => return false,
        }
    }
    false
}

/// The header that begins `answer`, with its length; `None` when it is not there or is none that the client is to
/// get as it is.
fn head_of(answer: &[u8]) -> Option<(ScriptHead, usize)> {
    LAST.with_borrow_mut(|last| {
        if let Some((bytes, head)) = last
            && answer.starts_with(bytes)
        {
            return Some((head.clone(), bytes.len()));
        }
        let (head, length) = head::parse(answer).ok()??;
        if !head.is_plain() {
            return None;
        }
        if length <= KEPT {
            *last = Some((Bytes::copy_from_slice(&answer[..length]), head.clone()));
        }
        Some((head, length))
    })
}

impl Gathered {
    /// Drops so many bytes of the first piece.
    fn skip(&mut self, count: usize) {
        if let Some(first) = self.pieces.first_mut() {
            first.advance(count);
            self.length -= count;
            if first.is_empty() {
                self.pieces.remove(0);
            }
        }
    }
}
