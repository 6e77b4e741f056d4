//! Changes of the bodies of a route's responses: substitution and server-side includes.
//!
//! [`handle`] is around the handler of a route. The rules of the changes are those of the crate `transform`; [`source`] is the
//! body as it is sent, [`mod@include`] gets the documents that it includes.

mod body_bytes;
mod environment;
mod include;
mod source;

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use dunlin_config::Transforms;
use dunlin_exchange::{Body, Incoming, Response, Stream, StreamKind, stream};
use dunlin_fs::content::Piece;
use dunlin_http::semantics::{Method, date, status};
use dunlin_http::{FieldName, Request};
use dunlin_net::blocking::Pools;
use dunlin_transform::ssi::Ssi;
use dunlin_transform::{Chain, Part, Transform};

use self::body_bytes::BodyBytes;
use self::environment::PageEnvironment;
use self::include::Includer;
use self::source::Changed;
use super::call::HandlerCall;
use super::rewrite::RewrittenRequest;
use crate::route::reply::{Reply, Routed};
use crate::route::route_match::RouteMatch;
use crate::worker::WorkerContext;

/// Calls the handler of a route.
pub(crate) type Respond = fn(&Rc<WorkerContext>, &Request<'_>, &RouteMatch<'_>) -> Routed;

/// Fields of requests whose responses have bodies that cannot be changed: parts, and coded ones.
const OF_FORM: [&str; 3] = ["accept-encoding", "if-range", "range"];
/// Those, and conditions on the state of a document. A page with includes has no state of its own.
const OF_PAGE: [&str; 5] =
    ["accept-encoding", "if-modified-since", "if-none-match", "if-range", "range"];
/// Fields of a response that describe the bytes of its body.
const OF_BYTES: [&str; 5] =
    ["Accept-Ranges", "Content-MD5", "Content-Digest", "Digest", "Repr-Digest"];
/// Bodies in memory up to this size are changed at once.
const SMALL: u64 = 64 * 1024;

/// Calls the handler of a route whose responses have other bodies than those of its handler.
pub(crate) fn handle(
    ctx: &Rc<WorkerContext>,
    request: &Request<'_>,
    matched: &RouteMatch<'_>,
    respond: Respond,
) -> Routed {
    // Programs and upstreams would compress what cannot be changed then. Files have other forms only where they can be changed.
    let left_out: &[&str] = if matched.settings.handler.is_files() { &[] } else { &OF_FORM[..1] };
    let plain = match request.has(FieldName::AcceptEncoding) && !left_out.is_empty() {
        true => RewrittenRequest::without(request, left_out, &ctx.http1.limits),
        false => None,
    };
    let request = &plain.as_ref().map_or(*request, RewrittenRequest::as_request);
    let routed = respond(ctx, request, matched);
    let reply = routed.reply;
    let call = HandlerCall::of(ctx, request, matched);
    let reply = Reply::reading(move |incoming| change(call, reply, incoming, respond));
    Routed { reply, ..routed }
}

/// Marks a response as that of a route whose bodies are sent as they are.
pub(crate) fn unchanged(request: &Request<'_>, reply: Reply) -> Reply {
    let request = request.to_owned();
    Reply::reading(move |incoming| async move {
        let response = reply.response(&request.as_request(), incoming).await;
        Response { is_changed: true, ..response }
    })
}

async fn change(
    call: Rc<HandlerCall>,
    reply: Reply,
    incoming: Box<Incoming>,
    respond: Respond,
) -> Response {
    let Some(transforms) = call.matched.settings.transforms.clone() else {
        return reply.response(&call.request(), incoming).await;
    };
    let again = incoming.without_body();
    let includes = incoming.includes.clone().of_page();
    let ends = incoming.ends;
    let mut response = reply.response(&call.request(), incoming).await;
    if response.is_changed || response.upgrade.is_some() || includes.is_description {
        return response;
    }
    let request = call.request();
    if let Some(left_out) = to_leave_out(&transforms, &request, &response)
        && let Some(whole) = RewrittenRequest::without(&request, left_out, &call.ctx.http1.limits)
    {
        let not_modified = (response.status == 304).then_some(response);
        let whole = whole.as_request();
        let reply = respond(&call.ctx, &whole, &call.matched()).reply;
        let other = reply.response(&whole, again).await;
        response = match not_modified {
            Some(not_modified) if !has_includes(&transforms, &other) => not_modified,
            _ => other,
        };
    }
    response.is_changed = true;
    let is_head = request.method() == Method::Head;
    if response.status == 304 {
        if names_weak(&request, &response) {
            weaken(&mut response);
        }
    } else if may_change(&transforms, &response) && !has_other_form(&response) {
        let includer = Includer { call: Rc::clone(&call), includes, ends };
        apply(&transforms, &mut response, is_head, includer);
        // The changed body may be compressed.
        response.is_coding_final = false;
    }
    response
}

/// Returns the fields without which the request is repeated, as the body of the response cannot be changed, or as the 304 may
/// be that of a page with includes, which depends on more than its file; `None` if it is not repeated.
fn to_leave_out(
    transforms: &Transforms,
    request: &Request<'_>,
    response: &Response,
) -> Option<&'static [&'static str]> {
    if !matches!(request.method(), Method::Get | Method::Head) {
        return None;
    }
    if response.status == 304 {
        return transforms.ssi.as_ref().map(|_| &OF_PAGE[..]);
    }
    let is_needed = has_other_form(response) && may_change(transforms, response);
    is_needed.then_some(match has_includes(transforms, response) {
        true => &OF_PAGE[..],
        false => &OF_FORM[..],
    })
}

/// Returns `true` if includes are run in the body of a response.
fn has_includes(transforms: &Transforms, response: &Response) -> bool {
    let media_type = response.fields.get("Content-Type").unwrap_or_default();
    transforms.ssi.as_ref().is_some_and(|types| types.has(media_type))
}

/// Returns `true` if the request names the entity tag of a 304 as a weak one: the client has a changed body.
fn names_weak(request: &Request<'_>, response: &Response) -> bool {
    let (Some(tags), Some(tag)) =
        (request.field(FieldName::IfNoneMatch), response.fields.get("ETag"))
    else {
        return false;
    };
    memchr::memmem::find(tags, &[b"W/", tag].concat()).is_some()
}

/// Returns `true` if the body has a type whose bodies are changed.
fn may_change(transforms: &Transforms, response: &Response) -> bool {
    let media_type = response.fields.get("Content-Type").unwrap_or_default();
    // Its parts have types of their own.
    let is_in_parts = response.status == 206 && media_type.starts_with(b"multipart/byteranges");
    let is_message = response.body.stream_kind() == Some(StreamKind::Message);
    (is_in_parts || transforms.concern(media_type)) && !is_message
}

/// Returns `true` if the body is a part of another, or coded.
fn has_other_form(response: &Response) -> bool {
    let coding = response.fields.get("Content-Encoding");
    response.status == 206 || coding.is_some_and(|coding| !coding.eq_ignore_ascii_case(b"identity"))
}

/// Makes the entity tag of a response weak: the bytes of its body are not those that it was made for.
fn weaken(response: &mut Response) {
    if let Some(tag) = response.fields.get("ETag").filter(|tag| tag.starts_with(b"\"")) {
        let weak = [b"W/", tag].concat();
        response.fields.set("ETag", weak);
    }
}

/// Changes the fields and the body of a response.
fn apply(transforms: &Transforms, response: &mut Response, is_head: bool, includer: Includer) {
    let media_type = response.fields.get("Content-Type").unwrap_or_default().to_vec();
    let has_includes = has_includes(transforms, response);
    let chain = chain(transforms, &media_type, response, &includer.call);
    for name in OF_BYTES {
        response.fields.remove(name);
    }
    if has_includes {
        // It depends on more than its file.
        response.fields.remove("ETag");
        response.fields.remove("Last-Modified");
    } else {
        weaken(response);
    }
    response.stated_length = None;
    let mut body = std::mem::take(&mut response.body);
    response.body = if is_head || !status::has_body(response.status) {
        if let Some(stream) = body.take_stream() {
            stream.source.detach();
        }
        // The length of the body is not known.
        let (source, kind) = (stream::empty(), StreamKind::Body);
        Body::streamed(Stream { source, length: None, kind })
    } else {
        let pools = Arc::clone(&includer.call.ctx.files.shared.pools);
        changed(body, chain, has_includes.then_some(includer), pools)
    };
}

/// Returns the changes of the body of a response.
fn chain(
    transforms: &Transforms,
    media_type: &[u8],
    response: &Response,
    call: &Rc<HandlerCall>,
) -> Chain {
    let substitutions = transforms.substitutions.iter().filter(|of| of.types.has(media_type));
    let mut stages: Vec<Box<dyn Transform>> = substitutions
        .map(|of| of.patterns.start_with(|text| expanded(text, call)))
        .map(|substitution| Box::new(substitution) as Box<dyn Transform>)
        .collect();
    if transforms.ssi.as_ref().is_some_and(|types| types.has(media_type)) {
        let modified = response.fields.get("Last-Modified").and_then(date::parse);
        let environment = PageEnvironment::new(Rc::clone(call), modified);
        stages.push(Box::new(Ssi::new(Box::new(environment))));
    }
    Chain::new(stages)
}

/// Replaces the placeholders of a text.
fn expanded(text: &Bytes, call: &HandlerCall) -> Bytes {
    if !text.contains(&b'{') {
        return text.clone();
    }
    let text = String::from_utf8_lossy(text);
    let host = call.request().field(FieldName::Host).unwrap_or_default().to_vec();
    let scheme = if call.client().encrypted { "https" } else { "http" };
    let text = text.replace("{host}", &String::from_utf8_lossy(&host));
    text.replace("{scheme}", scheme).into()
}

/// Returns the changed body. A small one is changed at once, so that its length is known.
fn changed(
    mut body: Body,
    mut chain: Chain,
    includer: Option<Includer>,
    pools: Arc<Pools>,
) -> Body {
    let kind = body.stream_kind().unwrap_or(StreamKind::Body);
    let stream = body.take_stream();
    if let (None, Some(bytes), None) = (&stream, body.as_memory(), &includer)
        && bytes.len() as u64 <= SMALL
    {
        let mut parts = Vec::new();
        chain.push(bytes.clone(), &mut parts);
        chain.end(&mut parts);
        let pieces = parts.into_iter().filter_map(|part| match part {
            Part::Bytes(bytes) => Some(Piece::Memory(bytes)),
            Part::Include(_) => None,
        });
        return Body::of(pieces.collect::<VecDeque<_>>());
    }
    let bytes = BodyBytes::new(body, stream.map(|stream| stream.source));
    let source = stream::from_source(Box::new(Changed::new(bytes, chain, includer, pools)));
    Body::streamed(Stream { source, length: None, kind })
}
