//! WebDAV: connects the trees of [`dunlin_files::dav`] to the router. What may wait for a disk runs on the pool for files.

use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use dunlin_config::Settings;
use dunlin_config::field_edits::apply_to_message;
use dunlin_dav::multistatus::MEDIA_TYPE;
use dunlin_exchange::stream::{self, Broken, Source};
use dunlin_exchange::{Body, Incoming, Response, Stream, StreamKind};
use dunlin_files::dav::find::Walk;
use dunlin_files::dav::upload::Upload;
use dunlin_files::dav::{DavRequest, Outcome, Performed, Tree};
use dunlin_fs::content::Piece;
use dunlin_http::semantics::Method;
use dunlin_http::{FieldLines, Request};
use dunlin_net::blocking::{Pools, Rejected};

use super::call::HandlerCall;
use super::errors::{self, Details};
use crate::password;
use crate::route::reply::Reply;
use crate::route::route_match::RouteMatch;
use crate::worker::WorkerContext;

/// Maximum size of a body in XML.
const MAX_XML: usize = 64 * 1024;
/// Bytes of a file that are received before they are written.
const WRITE: usize = 256 * 1024;

/// Returns `true` if the request is one for WebDAV that the route allows.
pub(crate) fn handles(settings: &Settings, request: &Request<'_>) -> bool {
    let is_other = request.method() != Method::Options;
    is_other && settings.dav.as_ref().is_some_and(|dav| dav.allows(request.method_text()))
}

/// Adds the fields of a response to OPTIONS.
pub(crate) fn announce(settings: &Settings, fields: &mut FieldLines) {
    if let Some(dav) = &settings.dav {
        fields.push("DAV", if dav.has_locks() { "1, 2" } else { "1" });
        // Clients of Microsoft need it.
        fields.push("MS-Author-Via", "DAV");
    }
}

/// Responds to a request that [`handles`] returns `true` for.
pub(crate) fn respond(
    ctx: &Rc<WorkerContext>,
    request: &Request<'_>,
    matched: &RouteMatch<'_>,
) -> Reply {
    ctx.count_other();
    let call = HandlerCall::of(ctx, request, matched);
    Reply::reading(move |mut incoming| async move {
        let outcome = match perform(&call, &mut incoming).await {
            Ok(response) => return response,
            Err(outcome) => outcome,
        };
        let matched = call.matched();
        if outcome.body.is_some() {
            return message(&matched, outcome);
        }
        let (request, details) = (call.request(), Details::default());
        let reply = errors::reply(&call.ctx, &request, &matched, outcome.status, details);
        Box::pin(reply.response(&request, Box::new(incoming.with_empty_body()))).await
    })
}

/// Performs the request.
///
/// # Errors
/// The response of the tree, if it fails.
async fn perform(call: &Rc<HandlerCall>, incoming: &mut Incoming) -> Result<Response, Outcome> {
    let head = call.request();
    let is_upload = head.method() == Method::Put;
    let is_find = head.method_text() == b"PROPFIND";
    let body = if is_upload { Vec::new() } else { body(incoming).await? };
    let mut token = [0; 16];
    password::random(&mut token).map_err(|_| Outcome::of(500))?;
    let request = DavRequest {
        request: call.request().to_owned(),
        path: call.matched.path.clone(),
        body,
        user: call.context.as_ref().and_then(|context| context.user().map(Into::into)),
        token: token_of(token),
    };
    let pools = Arc::clone(&call.ctx.files.shared.pools);
    let shared = Arc::clone(&call.ctx.files.shared);
    let (site, route) =
        (Arc::clone(call.matched.site.config()), Arc::clone(call.matched.settings.configured()));
    let path = request.path.clone();
    let tree = move || Tree::new(&shared, &site, &route, &path);
    if is_upload {
        if head.fields().any(|(name, _)| name.eq_ignore_ascii_case(b"content-range")) {
            // RFC 9110 §14.4.
            return Err(Outcome::of(400));
        }
        return upload(call, &pools, tree, request, incoming).await;
    }
    if is_find {
        return find(call, pools, tree, request).await;
    }
    let job = move || tree()?.perform(&request);
    let outcome = pools.files.run(job).await.map_err(unavailable)??;
    Ok(message(&call.matched(), outcome))
}

/// Receives the body of a request in XML.
async fn body(incoming: &mut Incoming) -> Result<Vec<u8>, Outcome> {
    let mut body = Vec::new();
    while let Some(bytes) = incoming.body.next().await.map_err(|_| Outcome::of(400))? {
        if body.len() + bytes.len() > MAX_XML {
            return Err(Outcome::of(413));
        }
        body.extend_from_slice(&bytes);
    }
    Ok(body)
}

/// Receives a file.
async fn upload(
    call: &HandlerCall,
    pools: &Pools,
    tree: impl FnOnce() -> Result<Tree, dunlin_fs::failure::Failure> + Send + 'static,
    request: DavRequest,
    incoming: &mut Incoming,
) -> Result<Response, Outcome> {
    let begin = move || {
        let upload = Upload::begin(Arc::new(tree()?), &request)?;
        Ok::<_, Outcome>((upload, request))
    };
    let (mut upload, request) = pools.files.run(begin).await.map_err(unavailable)??;
    let mut waiting = BytesMut::new();
    loop {
        let bytes = incoming.body.next().await.map_err(|_| Outcome::of(400))?;
        let has_ended = bytes.is_none();
        waiting.extend_from_slice(&bytes.unwrap_or_default());
        if waiting.len() >= WRITE || has_ended && !waiting.is_empty() {
            let part = waiting.split().freeze();
            let write = move || upload.write(&part).map(|()| upload);
            upload = pools.files.run(write).await.map_err(unavailable)??;
        }
        if has_ended {
            break;
        }
    }
    let finish = move || -> Performed { upload.finish(&request) };
    let outcome = pools.files.run(finish).await.map_err(unavailable)??;
    Ok(message(&call.matched(), outcome))
}

/// Responds to a PROPFIND: with a stream, unless the response is short.
async fn find(
    call: &HandlerCall,
    pools: Arc<Pools>,
    tree: impl FnOnce() -> Result<Tree, dunlin_fs::failure::Failure> + Send + 'static,
    request: DavRequest,
) -> Result<Response, Outcome> {
    let begin = move || {
        let mut walk = Walk::begin(Arc::new(tree()?), &request)?;
        let first = walk.next_part();
        Ok::<_, Outcome>((walk, first))
    };
    let (walk, first) = pools.files.run(begin).await.map_err(unavailable)??;
    if walk.has_ended() {
        let outcome = Outcome { body: first, ..Outcome::of(207) };
        return Ok(message(&call.matched(), outcome));
    }
    let mut response = message(&call.matched(), Outcome::of(207));
    response.fields.push("Content-Type", MEDIA_TYPE);
    let first = first.map(Bytes::from);
    let source =
        stream::from_source(Box::new(Parts { first, walk: Some(walk), running: None, pools }));
    response.body = Body::streamed(Stream { source, length: None, kind: StreamKind::Body });
    Ok(response)
}

/// Returns the response for an outcome.
fn message(matched: &RouteMatch<'_>, outcome: Outcome) -> Response {
    let mut response = Response::new(outcome.status);
    if let Some(token) = &outcome.lock_token {
        response.fields.push("Lock-Token", token);
    }
    if let Some(body) = outcome.body {
        response.fields.push("Content-Type", MEDIA_TYPE);
        response.body.push(Piece::Memory(body.into()));
    }
    apply_to_message(matched.settings, response.status, &mut response.fields);
    response
}

fn unavailable(_: Rejected) -> Outcome {
    Outcome::of(503)
}

/// Returns the token of a lock: a UUID (RFC 9562, version 4).
fn token_of(random: [u8; 16]) -> String {
    let number = u128::from_be_bytes(random) & !(0xf << 76 | 0x3 << 62) | 0x4 << 76 | 0x2 << 62;
    let hex = format!("{number:032x}");
    let [a, b, c, d, e] = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]];
    format!("urn:uuid:{a}-{b}-{c}-{d}-{e}")
}

/// A part that is made.
type Part = dyn Future<Output = Result<(Walk, Option<String>), Rejected>>;

/// The parts of a multistatus, each of which is made on the pool for files.
struct Parts {
    first: Option<Bytes>,
    /// `None` while a part is made.
    walk: Option<Walk>,
    running: Option<Pin<Box<Part>>>,
    pools: Arc<Pools>,
}

impl std::fmt::Debug for Parts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Parts").field("walk", &self.walk).finish_non_exhaustive()
    }
}

impl Source for Parts {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, Broken>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Ok(Some(first)));
        }
        if let Some(mut walk) = self.walk.take() {
            let pools = Arc::clone(&self.pools);
            self.running = Some(Box::pin(async move {
                let next = move || {
                    let part = walk.next_part();
                    (walk, part)
                };
                pools.files.run(next).await
            }));
        }
        let Some(running) = &mut self.running else { return Poll::Ready(Ok(None)) };
        let made = ready!(running.as_mut().poll(cx));
        self.running = None;
        let (walk, part) = made.map_err(|_| Broken)?;
        self.walk = part.is_some().then_some(walk);
        Poll::Ready(Ok(part.map(Bytes::from)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_a_uuid_of_version_4() {
        assert_eq!(token_of([0xff; 16]), "urn:uuid:ffffffff-ffff-4fff-bfff-ffffffffffff");
        assert_eq!(token_of([0; 16]), "urn:uuid:00000000-0000-4000-8000-000000000000");
    }
}
