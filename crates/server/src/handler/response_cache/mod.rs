//! The response cache of routes with a proxy or scripts: responds with stored responses, and forwards the other requests in
//! such a way that their responses can be stored.
//!
//! `presented` has the request as the origin gets it, which selects responses. The origin gets the path as the key has it, but for
//! characters whose encoding may have a meaning: responses to other spellings are variants of one key.
//!
//! A response that is stored and fresh is ready at once. Otherwise the request is forwarded ([`forwarding`]), by one of all
//! requests for the same URL. The rules are those of the crate `response-cache`.
//!
//! `fill` is a task that receives the body for the store, so that the slowest client does not slow the others. All workers share the
//! store, the flights and the marks of URLs that are not worth waiting for. `tier` connects the directory of responses: files are read on
//! the pool for files, and written and removed on one thread, in the order in which that was decided. `restore` reads what memory does
//! not have, once for all requests that wait for it.

mod background;
mod fill;
mod forwarding;
#[cfg(test)]
mod oracle;
mod outcome;
mod presented;
pub(super) mod purge;
pub(crate) mod purge_order;
mod query;
pub(crate) mod ready;
mod request_kind;
mod restore;
mod reuse;
pub(crate) mod shared;

use std::rc::Rc;
use std::sync::Arc;

use dunlin_config::ResponseCacheRules;
use dunlin_exchange::Response;
use dunlin_http::semantics::date;
use dunlin_http::semantics::target::{self, Target};
use dunlin_http::{FieldName, Request};
use dunlin_response_cache::freshness::Usability;
use dunlin_response_cache::key::{self, Key, KeyText};
use dunlin_response_cache::memory::Found;
use dunlin_response_cache::request::{RequestDirectives, Use, use_for};
use dunlin_response_cache::status::Forward;
use dunlin_response_cache::stored::Stored;

use self::forwarding::{FirstStep, Forwarding};
use self::outcome::Outcome;
use self::presented::{AsForwarded, needs_certificate, varies_by_hidden_fields};
use self::ready::Plain;
use self::reuse::{of_cached, reuse, unavailable};
use self::shared::ResponseCache;
use crate::handler::call::HandlerCall;
use crate::handler::origin::fetch;
use crate::handler::rewrite::RewrittenRequest;
use crate::route::reply::{Awaited, Reply};
use crate::route::route_match::RouteMatch;
use crate::worker::WorkerContext;

/// Responds to a request from the cache, or has the script or the upstreams of its route respond.
pub(crate) fn respond(
    ctx: &Rc<WorkerContext>,
    request: &Request<'_>,
    matched: &RouteMatch<'_>,
) -> Reply {
    match (&matched.settings.cache.responses, &ctx.shared.responses) {
        (Some(rules), Some(cache)) => with_cache(ctx, cache, request, matched, rules),
        _ => {
            let hidden = request_kind::hides_codings_for_pages(request, matched)
                .then(|| {
                    RewrittenRequest::without(request, &["accept-encoding"], &ctx.http1.limits)
                })
                .flatten();
            let call = match &hidden {
                Some(hidden) => HandlerCall::of(ctx, &hidden.as_request(), matched),
                None => HandlerCall::of(ctx, request, matched),
            };
            Reply::Awaited(Awaited::Reading(Box::new(move |incoming| fetch(call, incoming))))
        }
    }
}

fn with_cache(
    ctx: &Rc<WorkerContext>,
    cache: &Arc<ResponseCache>,
    request: &Request<'_>,
    matched: &RouteMatch<'_>,
    rules: &ResponseCacheRules,
) -> Reply {
    // A request for an error page has the URL of another response, and so may one that conditions have rewritten.
    let has_url =
        matched.via.error.is_none() && !matched.client.is_subrequest && !matched.via.is_conditional;
    let is_query = request_kind::is_query(request);
    let used = if is_query { Use::Cache } else { use_for(request) };
    let directives = RequestDirectives::of(request);
    let (now, changes) = (ctx.clock.now(), cache.memory.changes());
    let is_sampled = cache.is_sampled();
    let is_plain = has_url && used == Use::Cache && !needs_certificate(matched);
    let plain = if is_plain { Plain::of(request, matched, directives) } else { None };
    if let Some(plain) = plain.filter(|_| !is_sampled)
        && let Some(made) = ctx.ready_hits.find(plain, changes, now)
    {
        ctx.count_other();
        return Response { cache: Outcome::Hit.count(cache), ..of_cached(made) }.into();
    }
    let raw_path = key::respelled(matched.raw_path);
    let matched = &RouteMatch { raw_path: &raw_path, ..*matched };
    let url = if has_url { url(request, matched) } else { None };
    let (Some(url), Use::Cache | Use::Invalidate) = (url, used) else {
        return pass(cache, HandlerCall::of(ctx, request, matched));
    };
    // Continues with what handlers get of the request besides its head.
    let forward = |step, stored, why, directives| {
        let call = HandlerCall::of(ctx, request, matched);
        let key = Key { site: matched.site.serial, url: url[..].into() };
        let (cache, rules, certificate) = (Arc::clone(cache), rules.clone(), None);
        let forwarding =
            Forwarding { call, cache, certificate, key, is_query, rules, directives, stored, why };
        let forwarding = Box::new(forwarding);
        Reply::reading(move |incoming| forwarding.run(step, incoming))
    };
    if used == Use::Invalidate {
        return forward(FirstStep::Invalidate, None, Forward::Method, RequestDirectives::default());
    }
    if is_query {
        return forward(FirstStep::Query, None, Forward::UriMiss, directives);
    }
    if needs_certificate(matched) {
        return forward(FirstStep::LookUp, None, Forward::UriMiss, directives);
    }
    ctx.count_other();
    let presented = AsForwarded::new(ctx, (*request, matched), None, key::path(&url));
    let (stored, why) = match cache.find((matched.site.serial, &url), &presented, is_sampled) {
        Found::Nothing => (None, Forward::UriMiss),
        Found::OtherVariants => (None, Forward::VaryMiss),
        Found::Response(stored) => {
            let outcome = match stored.head.freshness.usability(&directives, now) {
                Usability::Fresh => Some(Outcome::Hit),
                Usability::AllowedStale => Some(Outcome::Stale),
                Usability::WhileRevalidate => {
                    return forward(
                        FirstStep::RevalidateLater,
                        Some(stored),
                        Forward::Stale,
                        directives,
                    );
                }
                Usability::Validate => None,
            };
            if let Some(outcome) = outcome {
                let response = reuse(ctx, cache, request, matched.settings, &stored, outcome);
                if let Some(plain) = plain.filter(|_| outcome == Outcome::Hit)
                    && varies_by_hidden_fields(&stored.head.vary, matched.settings)
                {
                    ctx.ready_hits.note(plain, (&stored, &response.fields), changes, now);
                }
                return response.into();
            }
            let why = Forward::of(&stored.head.freshness, now);
            (Some(stored), why)
        }
    };
    let may_be_on_disk = stored.is_none() && cache.disk.is_some();
    if directives.only_if_cached && !may_be_on_disk {
        return unavailable(cache).into();
    }
    let step = if may_be_on_disk { FirstStep::Restore } else { FirstStep::Respond };
    forward(step, stored, why, directives)
}

/// Returns the URL of a request; `None` if it has none, such as `*`.
fn url(request: &Request<'_>, matched: &RouteMatch<'_>) -> Option<KeyText> {
    let host = request.field(FieldName::Host).unwrap_or_default();
    let encrypted = matched.client.encrypted;
    match target::parse(request.method(), request.target()) {
        Ok(Target::Origin { path, query } | Target::Absolute { path, query, .. }) => {
            Some(key::url(encrypted, host, path, query))
        }
        _ => None,
    }
}

/// Has the handler respond to a request that does not concern the cache.
fn pass(cache: &Arc<ResponseCache>, call: Rc<HandlerCall>) -> Reply {
    let cache = Arc::clone(cache);
    Reply::reading(async move |incoming| {
        let response = fetch(call, incoming).await;
        Outcome::Bypass(Forward::Bypass).note(&cache, without_own_fields(response))
    })
}

/// Removes the fields of an origin's response that are for this cache alone. Its `Date` stays.
fn without_own_fields(mut response: Response) -> Response {
    response.has_date =
        response.upgrade.is_none() && response.fields.get("Date").and_then(date::parse).is_some();
    if !response.has_date {
        response.fields.remove("Date");
    }
    response.fields.remove("Dunlin-Cache-Control");
    response
}

/// The response that a request for a URL has found.
type Reusable = Option<Arc<Stored>>;
