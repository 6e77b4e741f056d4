//! Files in object storage: the part of the handler for files that waits for a store.

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use dunlin_config::ObjectRoot;
use dunlin_exchange::stream::{self, Broken, Source};
use dunlin_exchange::{Body, Response, Stream, StreamKind};
use dunlin_files::cache::resource::Resource;
use dunlin_files::cache::shared_cache::Key;
use dunlin_files::file_response::{FileResponse, Part};
use dunlin_files::listing::respond::Listable;
use dunlin_files::objects::remote::ContentReader;
use dunlin_files::objects::resolve::{self, arrived};
use dunlin_files::objects::store::{Later, StoreError};
use dunlin_files::search::Found;
use dunlin_files::select::may_be_coded;
use dunlin_fs::failure::Failure;
use dunlin_http::semantics::Method;
use dunlin_http::{FieldLines, Request};

use super::errors;
use super::files::{conclude, deferred, wanted};
use super::object_search::resolver;
use crate::handler::rejection::{error_response, not_for_files};
use crate::route::reply::Reply;
use crate::route::route_match::RouteMatch;
use crate::route::sites::CacheEntry;
use crate::worker::WorkerContext;

/// Seconds after which a client may repeat a request that the store did not respond to.
const RETRY_AFTER: &str = "5";

/// Responds with an object that the cache does not have, or that the store has to confirm.
pub(super) fn respond(
    ctx: &Rc<WorkerContext>,
    request: &Request<'_>,
    matched: &RouteMatch<'_>,
    root: &Arc<ObjectRoot>,
    (previous, keep): (Option<Arc<Resource>>, bool),
) -> Reply {
    let is_read = matches!(request.method(), Method::Get | Method::Head);
    if !is_read && matched.settings.try_files.is_empty() {
        return not_for_files(ctx, request, matched);
    }
    let site = matched.site.serial;
    let Some(resolver) = resolver(ctx, site, root, (previous, keep, false)) else {
        return error_response(500, true).into();
    };
    let (ctx, owned, context) = (Rc::clone(ctx), matched.to_owned(), matched.context.cloned());
    deferred(request.to_owned(), matched.may_run_script(), async move |request| {
        let matched = owned.borrow().with(context.as_ref());
        let mut result = match resolve::resolve(&wanted(&matched), &resolver).await {
            Ok(Found::Listing(directory)) => {
                let read = resolve::list(&resolver.bucket, &directory).await;
                read.map(|read| Found::Listing(Listable::Read(read)))
            }
            // Only the directory of a listing has another type.
            other => other.map(Found::without_listing),
        };
        if let Ok(Found::File(resource)) = &mut result
            && may_be_coded(request, resource)
            && resource.identity.remote.is_some()
        {
            arrived(resource).await;
            let key = Key { site, path: matched.path.into() };
            if let Some(whole) = resolver.context.cached(&key) {
                *resource = whole;
            }
        }
        conclude(&ctx, request, &matched, result)
    })
}

/// Returns the error of a store that does not respond.
pub(super) fn unavailable(
    ctx: &Rc<WorkerContext>,
    request: &Request<'_>,
    matched: &RouteMatch<'_>,
) -> Reply {
    let mut fields = FieldLines::new();
    fields.push("Retry-After", RETRY_AFTER);
    let status = Failure::Unavailable.status();
    errors::reply_with_fields(ctx, request, matched, status, fields)
}

/// Responds with content that is not here.
pub(super) fn stream(
    ctx: &Rc<WorkerContext>,
    request: &Request<'_>,
    matched: &RouteMatch<'_>,
    entry: &Rc<CacheEntry>,
    (response, cache): (FileResponse, &'static str),
) -> Reply {
    let (ctx, owned, context) = (Rc::clone(ctx), matched.to_owned(), matched.context.cloned());
    let resource = Arc::clone(&entry.resource);
    deferred(request.to_owned(), matched.may_run_script(), async move |request| {
        let length = response.length();
        let FileResponse { status, fields, parts, coding, .. } = response;
        let body = match Parts::open(parts).await {
            Ok(body) => body,
            Err(error) => {
                let matched = owned.borrow().with(context.as_ref());
                let is_other = matches!(error, StoreError::Changed | StoreError::Missing);
                if let Some(root) = &matched.settings.objects
                    && is_other
                    && resource.is_cached()
                {
                    // The object is another one than that whose head is cached.
                    resource.validity.invalidate();
                    return respond(&ctx, request, &matched, root, (None, true));
                }
                return unavailable(&ctx, request, &matched);
            }
        };
        let source = stream::from_source(Box::new(body));
        let stream = Stream { source, length: Some(length), kind: StreamKind::Body };
        let body = Body::streamed(stream);
        Response { fields, body, cache, coding, is_coding_final: true, ..Response::new(status) }
            .into()
    })
}

/// A body of parts that come from a store.
struct Parts {
    rest: VecDeque<Part>,
    reading: Option<Box<dyn ContentReader>>,
    opening: Option<Later<Result<Box<dyn ContentReader>, StoreError>>>,
    /// The reader of the first part that is not here.
    first: Option<Box<dyn ContentReader>>,
}

impl std::fmt::Debug for Parts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Parts").field("rest", &self.rest).finish_non_exhaustive()
    }
}

impl Parts {
    /// Waits until the store has begun to respond with the first part.
    async fn open(parts: Vec<Part>) -> Result<Self, StoreError> {
        let remote = parts.iter().find_map(|part| match part {
            Part::Remote(content, range) => Some(content.open(range.clone())),
            Part::Here(_) => None,
        });
        let first = match remote {
            Some(opening) => Some(opening.await?),
            None => None,
        };
        Ok(Self { rest: parts.into(), reading: None, opening: None, first })
    }
}

impl Source for Parts {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, Broken>> {
        loop {
            if let Some(reading) = &mut self.reading {
                match ready!(reading.poll_next(cx)) {
                    Ok(Some(bytes)) => return Poll::Ready(Ok(Some(bytes))),
                    Ok(None) => self.reading = None,
                    Err(_) => return Poll::Ready(Err(Broken)),
                }
            }
            if let Some(opening) = &mut self.opening {
                let opened = ready!(opening.as_mut().poll(cx));
                self.opening = None;
                self.reading = Some(opened.map_err(|_| Broken)?);
                continue;
            }
            match self.rest.pop_front() {
                None => return Poll::Ready(Ok(None)),
                Some(Part::Here(bytes)) => return Poll::Ready(Ok(Some(bytes))),
                Some(Part::Remote(content, range)) => match self.first.take() {
                    Some(first) => self.reading = Some(first),
                    None => self.opening = Some(content.open(range)),
                },
            }
        }
    }
}
