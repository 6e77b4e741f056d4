//! A handler whose behaviour the request's query determines: what it reads, when it responds, and the response.

use std::cell::Cell;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use dunlin_exchange::{Body, Incoming, Response, Stream, StreamKind, Tunnel, stream};
use dunlin_fs::content::Piece;
use dunlin_http::{FieldLines, FieldName, Request};
use dunlin_net::clock;

use super::polls::count_poll;
use crate::route::reply::Reply;

/// The handler responds to requests for this path, after the checks of their route.
pub(crate) const PATH: &str = "/test";

/// Plans that take longer are rejected: the end of the simulation would not wait for them.
pub(crate) const MAX_DURATION: Duration = Duration::from_secs(1200);

thread_local! {
    /// Handlers and producers of bodies that have not ended.
    static RUNNING: Cell<usize> = const { Cell::new(0) };
}

/// Returns how many handlers and producers of bodies run on this thread.
pub(crate) fn running() -> usize {
    RUNNING.get()
}

/// The behaviour of the handler. The default is an empty response at once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    /// Identifies the request: the content of the response depends on it.
    pub(crate) id: u64,
    pub(crate) kind: Kind,
    /// Bytes of the response's body.
    pub(crate) size: usize,
    /// Bytes of each piece of a streamed body; 0 for a body in one piece that is not streamed.
    pub(crate) chunk: usize,
    /// Milliseconds between pieces.
    pub(crate) pause: u64,
    /// Milliseconds before the response.
    pub(crate) delay: u64,
    /// The length of a streamed body is stated.
    pub(crate) states_length: bool,
    /// Bytes of the request's body to read before the response; all when it has fewer.
    pub(crate) read: usize,
    /// Ends a streamed body after this number of bytes, before its end.
    pub(crate) fail: Option<usize>,
    /// Sends early hints first.
    pub(crate) hints: bool,
}

/// The kind of the handler's response.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Responds at once. The response is sent after the request body was received.
    #[default]
    Ready,
    /// Responds later, and does not read the request body.
    Future,
    /// Reads the request body, and may stream its response.
    Streaming,
    /// Switches to a protocol that sends back what the client sends. `fail` breaks it after this number of bytes.
    Tunnel,
    /// As `Streaming`, as the handler of an upstream.
    Proxied,
}

impl Plan {
    /// Returns the request-target that prescribes it.
    pub(crate) fn target(&self) -> String {
        let Self { id, kind, size, chunk, pause, delay, states_length, read, fail, hints } = self;
        let kind = *kind as u8;
        let fail = fail.map_or(-1, |at| at as i64);
        let (states_length, hints) = (u8::from(*states_length), u8::from(*hints));
        format!(
            "{PATH}?{id},{kind},{size},{chunk},{pause},{delay},{states_length},{read},{fail},{hints}"
        )
    }

    fn parse(query: &str) -> Option<Self> {
        let numbers: Vec<i64> = query.split(',').map(str::parse).collect::<Result<_, _>>().ok()?;
        let [id, kind, size, chunk, pause, delay, states_length, read, fail, hints] =
            numbers.try_into().ok()?;
        // A hostile client damages numbers, too.
        let bounded = |number: i64| usize::try_from(number).ok().filter(|&it| it <= 1 << 24);
        let plan = Self {
            id: id as u64,
            kind: match kind {
                0 => Kind::Ready,
                1 => Kind::Future,
                3 => Kind::Tunnel,
                4 => Kind::Proxied,
                _ => Kind::Streaming,
            },
            size: bounded(size)?,
            chunk: bounded(chunk)?,
            pause: bounded(pause)? as u64,
            delay: bounded(delay)? as u64,
            states_length: states_length == 1,
            read: bounded(read)?,
            fail: usize::try_from(fail).ok(),
            hints: hints == 1,
        };
        (plan.longest() <= MAX_DURATION).then_some(plan)
    }

    /// Returns an upper bound of the time until the last piece is sent, if the client receives everything at once.
    fn longest(&self) -> Duration {
        let pieces = self.size.checked_div(self.chunk).map_or(0, |pieces| pieces as u32 + 1);
        let each = Duration::from_millis(self.pause);
        // A timer may fire a tick late.
        let each = if each.is_zero() { each } else { each + clock::TICK };
        Duration::from_millis(self.delay) + each * pieces
    }

    /// Returns the complete body of the response.
    pub(crate) fn content(&self) -> Vec<u8> {
        content(self.id, 0..self.size)
    }
}

/// Returns a stretch of the bytes that belong to `id`.
pub(crate) fn content(id: u64, range: std::ops::Range<usize>) -> Vec<u8> {
    let (first, step) = (id as usize * 7, 1 + id as usize % 25);
    range.map(|at| b'a' + ((first + at * step + at / 26) % 26) as u8).collect()
}

/// Counts one that runs.
#[derive(Debug)]
struct Running;

impl Running {
    fn begin() -> Self {
        RUNNING.set(RUNNING.get() + 1);
        Self
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        RUNNING.set(RUNNING.get() - 1);
    }
}

/// Returns the reply to `request`, when that is for the handler.
pub(crate) fn reply(path: &[u8], request: &Request<'_>) -> Option<Reply> {
    if path != PATH.as_bytes() {
        return None;
    }
    let target = std::str::from_utf8(request.target()).ok()?;
    let plan = Plan::parse(target.split_once('?')?.1)?;
    Some(match plan.kind {
        Kind::Ready => ready(&plan, 0).into(),
        Kind::Future => {
            let running = Running::begin();
            Reply::later(async move {
                let _running = running;
                clock::sleep(Duration::from_millis(plan.delay)).await;
                ready(&plan, 0)
            })
        }
        Kind::Streaming | Kind::Proxied => {
            let running = Running::begin();
            Reply::reading(move |incoming| exchange(plan, incoming, running))
        }
        Kind::Tunnel => {
            let extended = request.protocol().is_some();
            if !extended && !request.has(FieldName::Upgrade) {
                // A damaged number. The handler does not end a tunnel that its client does not know of.
                return None;
            }
            let running = Running::begin();
            Reply::reading(move |incoming| switch(plan, incoming, extended, running))
        }
    })
}

fn ready(plan: &Plan, received: usize) -> Response {
    let mut response = head(plan, received);
    response.body.push(Piece::Memory(plan.content().into()));
    response
}

fn head(plan: &Plan, received: usize) -> Response {
    let mut response = Response::new(200);
    response.fields.push("X-Id", plan.id.to_string());
    response.fields.push("X-Received", received.to_string());
    response
}

/// Returns the response to a request whose body is not the one of its plan.
fn mismatch(plan: &Plan) -> Response {
    let mut response = Response::new(200);
    response.fields.push("X-Id", plan.id.to_string());
    response.fields.push("X-Received", "another body");
    response
}

async fn exchange(plan: Plan, mut incoming: Box<Incoming>, _running: Running) -> Response {
    if plan.kind == Kind::Proxied {
        incoming.script_context.set_proxied();
    }
    if plan.hints {
        let mut fields = FieldLines::new();
        fields.push("Link", "</style.css>; rel=preload");
        incoming.early_hints.send(fields);
    }
    let mut received = 0;
    while received < plan.read {
        match incoming.body.next().await {
            Ok(Some(bytes)) => {
                let expected = content(plan.id, received..received + bytes.len());
                if bytes != expected {
                    return mismatch(&plan);
                }
                received += bytes.len();
            }
            Ok(None) => break,
            // The client has left, or its body was rejected.
            Err(stream::Broken) => return Response::new(400),
        }
    }
    clock::sleep(Duration::from_millis(plan.delay)).await;
    if plan.chunk == 0 {
        return ready(&plan, received);
    }
    let (sender, source) = stream::channel(16 * 1024);
    let length = plan.states_length.then_some(plan.size as u64);
    let mut response = head(&plan, received);
    tokio::task::spawn_local(counted(produce(plan, sender, Running::begin())));
    response.body = Body::streamed(Stream { source, length, kind: StreamKind::Body });
    response
}

async fn switch(
    plan: Plan,
    mut incoming: Box<Incoming>,
    is_extended_connect: bool,
    running: Running,
) -> Response {
    clock::sleep(Duration::from_millis(plan.delay)).await;
    let Tunnel { client, upgrade } = incoming.take_tunnel(is_extended_connect);
    let mut response = Response { upgrade, ..Response::new(101) };
    response.fields.push("Upgrade", "echo");
    let left = plan.fail.unwrap_or(usize::MAX);
    let source = stream::from_source(Box::new(Echo { client, left, _running: running }));
    response.body = Body::streamed(Stream { source, length: None, kind: StreamKind::Endless });
    response
}

/// Sends back what comes.
#[derive(Debug)]
struct Echo {
    client: stream::Receiver,
    left: usize,
    _running: Running,
}

impl stream::Source for Echo {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, stream::Broken>> {
        let polled = self.client.poll_next(cx);
        if let Poll::Ready(Ok(Some(bytes))) = &polled {
            match self.left.checked_sub(bytes.len()) {
                Some(left) => self.left = left,
                None => return Poll::Ready(Err(stream::Broken)),
            }
        }
        polled
    }
}

/// Sends the body piece by piece.
async fn produce(plan: Plan, sender: stream::Sender, _running: Running) {
    let end = plan.fail.map_or(plan.size, |fail| fail.min(plan.size));
    let mut at = 0;
    while at < end {
        if sender.room().await.is_err() {
            return;
        }
        let next = (at + plan.chunk).min(end);
        sender.push(Bytes::from(content(plan.id, at..next)));
        at = next;
        if plan.pause > 0 {
            clock::sleep(Duration::from_millis(plan.pause)).await;
        }
    }
    if plan.fail.is_none() {
        sender.end();
    }
}

/// Returns a task of the tests that [`super::Server::settle`] waits for.
pub(crate) async fn counted<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    std::future::poll_fn(|cx: &mut Context<'_>| -> Poll<F::Output> {
        count_poll();
        Pin::as_mut(&mut future).poll(cx)
    })
    .await
}
