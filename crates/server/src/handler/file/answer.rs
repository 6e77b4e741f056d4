//! The response for a resolved file: content negotiation, conditions and ranges.

use std::rc::Rc;

use dunlin_http::semantics::conditional::{self, Outcome, Preconditions, Validators};
use dunlin_http::semantics::multipart::Multipart;
use dunlin_http::semantics::negotiate::accept_encoding;
use dunlin_http::semantics::range::{self, ByteRange, RangeOutcome};
use dunlin_http::semantics::{ContentCoding, Method, date, digest};
use dunlin_http::{FieldLines, FieldName, FieldSet, Request};
use smallvec::SmallVec;

use super::{encoded, error_reply, render};
use crate::cache::Representation;
use crate::cache::worker_cache::CacheEntry;
use crate::exchange::{Body, Piece, Response};
use crate::fs::content::StoredContent;
use crate::route::{self, CachedResponse, Reply, RouteMatch};
use crate::telemetry::random_id;
use crate::worker::WorkerContext;

/// Request fields that can make the response differ from the complete 200.
const SPECIAL: FieldSet = FieldSet::of(&[
    FieldName::IfMatch,
    FieldName::IfNoneMatch,
    FieldName::IfModifiedSince,
    FieldName::IfUnmodifiedSince,
    FieldName::Range,
    FieldName::WantReprDigest,
]);

/// Makes the response from a fresh entry.
#[inline]
pub(crate) fn answer_from_cache(
    ctx: &Rc<WorkerContext>,
    request: &Request<'_>,
    matched: &RouteMatch<'_>,
    entry: &Rc<CacheEntry>,
    cache: &'static str,
) -> Reply {
    if let Some(coding) = plain_coding(request, entry) {
        let entry = Rc::clone(entry);
        let cached = CachedResponse { entry, coding, not_modified: false, cache, content: None };
        return Reply::Cached(cached);
    }
    let coding = match choose(request, entry) {
        Chosen::Coding(coding) => coding,
        Chosen::Unknown(coding) => return search(ctx, request, matched, entry, coding, cache),
        Chosen::Nothing => {
            // The response depends on Accept-Encoding (RFC 9110 §12.5.5).
            let vary = one_field("Vary", "Accept-Encoding");
            return error_reply(ctx, request, matched, 406, vary);
        }
    };
    let form = match entry.resource.representation(coding) {
        Some(Some(form)) => form,
        _ => &entry.resource.identity,
    };
    special_answer(ctx, request, matched, entry, form, cache)
}

/// The content coding of the response if it is the complete 200 and the representation exists.
#[inline]
pub(crate) fn plain_coding(request: &Request<'_>, entry: &CacheEntry) -> Option<ContentCoding> {
    // With a prebuilt response, nothing depends on the time.
    if request.has_any(SPECIAL) || entry.prebuilt.is_none() && entry.settings.expires.is_some() {
        return None;
    }
    match choose(request, entry) {
        Chosen::Coding(coding) => Some(coding),
        _ => None,
    }
}

enum Chosen {
    Coding(ContentCoding),
    /// The preferred content coding, for which no search has ended yet.
    Unknown(ContentCoding),
    Nothing,
}

#[inline]
fn choose(request: &Request<'_>, entry: &CacheEntry) -> Chosen {
    if !request.has(FieldName::AcceptEncoding) {
        return Chosen::Coding(ContentCoding::Identity);
    }
    negotiate(request, entry)
}

fn negotiate(request: &Request<'_>, entry: &CacheEntry) -> Chosen {
    let values: SmallVec<[&[u8]; 2]> = request.values(FieldName::AcceptEncoding).collect();
    let accepted = accept_encoding(&values);
    let resource = &entry.resource;
    let settings = &resource.settings;
    let mut available: SmallVec<[ContentCoding; 4]> = SmallVec::new();
    for &coding in settings.precompressed.iter().chain(&settings.compress) {
        let none = matches!(resource.representation(coding), Some(None));
        if !none && !available.contains(&coding) && encoded::is_possible(resource, coding) {
            available.push(coding);
        }
    }
    available.push(ContentCoding::Identity);
    match accepted.choose(&available) {
        None => Chosen::Nothing,
        Some(coding) if resource.representation(coding).is_none() => Chosen::Unknown(coding),
        Some(coding) => Chosen::Coding(coding),
    }
}

/// Responds after the search for an encoded variant. If the search takes long, sends the unencoded representation.
fn search(
    ctx: &Rc<WorkerContext>,
    request: &Request<'_>,
    matched: &RouteMatch<'_>,
    entry: &Rc<CacheEntry>,
    coding: ContentCoding,
    cache: &'static str,
) -> Reply {
    let (ctx, entry) = (Rc::clone(ctx), Rc::clone(entry));
    let (may_run_script, context) = (matched.may_run_script(), matched.context.cloned());
    let (request, matched) = (request.to_owned(), matched.to_owned());
    let reply = async move |request: &Request<'_>| {
        let resource = &entry.resource;
        encoded::search(&ctx.shared, resource, coding).await;
        if let Some(Some(form)) = resource.representation(coding) {
            super::let_date_reach(&ctx, form);
        }
        let matched = matched.borrow().with(context.as_ref());
        match resource.representation(coding) {
            Some(_) => answer_from_cache(&ctx, request, &matched, &entry, cache),
            None => special_answer(&ctx, request, &matched, &entry, &resource.identity, cache),
        }
    };
    // A script may respond with the error page.
    if may_run_script {
        return Reply::Streaming(Box::new(move |incoming| {
            Box::pin(async move {
                let request = request.as_request();
                let reply = reply(&request).await;
                route::complete(&request, reply, incoming).await
            })
        }));
    }
    Reply::Future(Box::pin(async move {
        let request = request.as_request();
        let reply = reply(&request).await;
        super::into_response(&request, reply).await
    }))
}

fn special_answer(
    ctx: &Rc<WorkerContext>,
    request: &Request<'_>,
    matched: &RouteMatch<'_>,
    entry: &Rc<CacheEntry>,
    form: &Representation,
    cache: &'static str,
) -> Reply {
    let now = ctx.clock.unix();
    let expires = entry.resource.settings.expires;
    let mut response = match precondition(request, form) {
        Outcome::NotModified => {
            let ready = !form.head_not_modified.is_empty();
            if ready && expires.is_none() {
                let (entry, coding) = (Rc::clone(entry), form.coding);
                let not_modified = true;
                return Reply::Cached(CachedResponse {
                    entry,
                    coding,
                    not_modified,
                    cache,
                    content: None,
                });
            }
            not_modified(form)
        }
        Outcome::PreconditionFailed => {
            return error_reply(ctx, request, matched, 412, precondition_failed(form));
        }
        Outcome::Proceed => match wanted_ranges(request, entry, form, now) {
            RangeOutcome::Whole => whole(form, &form.body),
            RangeOutcome::Ranges(ranges) => partial(entry, form, &ranges),
            RangeOutcome::Unsatisfiable => {
                return error_reply(ctx, request, matched, 416, unsatisfiable(form));
            }
        },
    };
    if let Some(expires) = expires {
        response.fields.push("Expires", date::format(now + expires.as_secs()));
    }
    if let Some(sha256) = &form.sha256
        && request.has(FieldName::WantReprDigest)
        && matches!(response.status, 200 | 206)
    {
        let values: SmallVec<[&[u8]; 2]> = request.values(FieldName::WantReprDigest).collect();
        if digest::wants_sha256(&values) {
            response.fields.push("Repr-Digest", digest::repr_digest(sha256));
        }
    }
    response.cache = cache;
    if request.method() == Method::Head {
        response = response.without_body();
    }
    response.into()
}

fn precondition(request: &Request<'_>, form: &Representation) -> Outcome {
    let values = |name| request.values(name).collect::<SmallVec<[&[u8]; 2]>>();
    let preconditions = Preconditions {
        if_match: &values(FieldName::IfMatch),
        if_none_match: &values(FieldName::IfNoneMatch),
        if_modified_since: &values(FieldName::IfModifiedSince),
        if_unmodified_since: &values(FieldName::IfUnmodifiedSince),
    };
    conditional::evaluate(request.method(), &preconditions, Some(&validators(form)))
}

fn validators(form: &Representation) -> Validators<'_> {
    Validators { etag: form.etag.as_ref(), last_modified: form.last_modified }
}

fn wanted_ranges(
    request: &Request<'_>,
    entry: &CacheEntry,
    form: &Representation,
    now: u64,
) -> RangeOutcome {
    let most = entry.resource.settings.ranges;
    if request.method() != Method::Get || !request.has(FieldName::Range) || most == 0 {
        return RangeOutcome::Whole;
    }
    let if_range: SmallVec<[&[u8]; 2]> = request.values(FieldName::IfRange).collect();
    if !conditional::if_range_allows(&if_range, &validators(form), now) {
        return RangeOutcome::Whole;
    }
    let values: SmallVec<[&[u8]; 2]> = request.values(FieldName::Range).collect();
    range::parse(&values, form.length, most)
}

/// The complete 200 response with `body`.
pub(super) fn whole(form: &Representation, body: &StoredContent) -> Response {
    let mut response = start(200, form);
    response.body.push(Piece::of(body, 0..form.length));
    response
}

/// The 304 response.
pub(super) fn not_modified(form: &Representation) -> Response {
    let mut response = start(304, form);
    response.fields = render::without_content(&form.fields);
    response
}

/// Additional fields of a 412.
fn precondition_failed(form: &Representation) -> FieldLines {
    form.etag.as_ref().map_or_else(FieldLines::new, |etag| one_field("ETag", etag.to_string()))
}

/// Additional fields of a 416.
fn unsatisfiable(form: &Representation) -> FieldLines {
    let mut fields = one_field("Content-Range", range::content_range_unsatisfied(form.length));
    fields.push("Accept-Ranges", "bytes");
    fields
}

fn one_field(name: &str, value: impl AsRef<[u8]>) -> FieldLines {
    let mut fields = FieldLines::new();
    fields.push(name, value);
    fields
}

fn partial(entry: &CacheEntry, form: &Representation, ranges: &[ByteRange]) -> Response {
    let mut response = start(206, form);
    if let [range] = ranges {
        response.fields.push("Content-Range", range::content_range(range, form.length));
        response.body.push(Piece::of(&form.body, range.start..range.end));
        return response;
    }
    // 128 random bits: the content cannot contain it by chance.
    let boundary = random_id();
    let media_type = &entry.resource.content_type.media_type;
    let multipart = Multipart::new(boundary.as_bytes(), media_type, form.length, ranges);
    response.fields.set("Content-Type", multipart.content_type());
    for (head, range) in multipart.parts() {
        response.body.push(Piece::Memory(head.into()));
        response.body.push(Piece::of(&form.body, range.start..range.end));
    }
    response.body.push(Piece::Memory(multipart.end().into()));
    response
}

fn start(status: u16, form: &Representation) -> Response {
    let mut response = Response::new(status);
    response.fields = form.fields.clone();
    response.body = Body::default();
    if form.coding != ContentCoding::Identity {
        response.coding = form.coding.as_str();
    }
    response
}

/// Whether the entry's open file has changed since it was opened.
pub(crate) fn has_changed(entry: &CacheEntry) -> bool {
    matches!(&entry.resource.identity.body, StoredContent::File(file) if file.is_live() && !file.is_unchanged())
}
