//! Internal redirects: another path of the site responds to a request, by the route of that path.

use std::rc::Rc;
use std::sync::Arc;

use dunlin_config::Candidate;
use dunlin_exchange::RequestContext;
use dunlin_http::Request;

use super::decode::check_slashes;
use super::handle::handle;
use super::reply::{Reply, Routed};
use super::route_match::{RouteMatch, Via};
use super::select::variant;
use crate::checks::Selection;
use crate::handler::checked::{CheckRun, check};
use crate::handler::rejection::error_reply;
use crate::handler::transform;
use crate::worker::WorkerContext;

/// Maximum of internal redirects of one request: more are a loop in the configuration.
pub(crate) const MAX_REDIRECTS: u8 = 10;

/// Redirects a request internally: runs the checks and the handler of the route of `target`.
pub(crate) fn reroute(
    ctx: &Rc<WorkerContext>,
    request: &Request<'_>,
    matched: &RouteMatch<'_>,
    target: &Candidate,
) -> Reply {
    follow(ctx, request, matched, target).reply
}

/// As [`reroute`], with what the route of `target` sets for the exchange.
pub(super) fn follow(
    ctx: &Rc<WorkerContext>,
    request: &Request<'_>,
    matched: &RouteMatch<'_>,
    target: &Candidate,
) -> Routed {
    let failed = |status| {
        let reply = error_reply(ctx, request, matched, status);
        Routed::new(matched.site, matched.settings, reply, false, matched.context.cloned())
    };
    if matched.via.redirects >= MAX_REDIRECTS {
        tracing::error!(
            "{}: more than {MAX_REDIRECTS} internal redirects; check `try`, `rewrite` and `index` of route {:?} of site {}",
            String::from_utf8_lossy(&target.path),
            matched.settings.pattern,
            matched.site.name,
        );
        return failed(500);
    }
    // Other conditions may concern the path.
    let base = ctx.shared.sites.base(matched.site).filter(|base| base.has_conditions());
    let is_crossing = target.path.contains(&0)
        && check_slashes(&target.path, base.unwrap_or(matched.site).config()).is_err();
    let variant = base.filter(|_| !is_crossing).map(|base| {
        let target = (&target.path[..], target.query.as_deref());
        let variant = variant(ctx, matched.client, request, base, target);
        variant.unwrap_or_else(|| Arc::clone(base))
    });
    let site = variant.as_ref().unwrap_or(matched.site);
    let settings = &site.route(&target.path);
    if is_crossing || settings.internal && !target.is_fixed {
        return failed(404);
    }
    let outer = matched.settings;
    let selected = Selection::after_redirect(matched.settings.checks.as_deref());
    let matched = &RouteMatch {
        site,
        settings,
        path: &target.path,
        query: target.query.as_deref(),
        via: Via {
            redirects: matched.via.redirects + 1,
            is_conditional: matched.via.is_conditional
                || base.is_some_and(|base| base.serial != matched.site.serial),
            ..matched.via
        },
        ..*matched
    };
    let routed = admit(ctx, request, matched, selected);
    // The bodies of the other route are not changed, unless its own settings change them.
    match (&outer.transforms, &matched.settings.transforms) {
        (Some(_), None) => {
            let reply = transform::unchanged(request, routed.reply);
            Routed { reply, ..routed }
        }
        _ => routed,
    }
}

/// Runs the checks and the handler of a route.
fn admit(
    ctx: &Rc<WorkerContext>,
    request: &Request<'_>,
    matched: &RouteMatch<'_>,
    selected: Selection,
) -> Routed {
    let Some(checks) = &matched.settings.checks else {
        if let Some(context) = matched.context {
            context.set_computed_fields(Vec::new());
        }
        return handle(ctx, request, matched);
    };
    let context =
        matched.context.map_or_else(|| Rc::new(RequestContext::new(matched.client)), Rc::clone);
    let run = CheckRun { checks, selected, context: &context, at_once: None };
    let handled = |ctx: &Rc<WorkerContext>, request: &Request<'_>, matched: &RouteMatch<'_>| {
        handle(ctx, request, matched).reply
    };
    match check(ctx, request, matched, run, handled) {
        Some(reply) => Routed::new(matched.site, matched.settings, reply, false, Some(context)),
        None => handle(ctx, request, &matched.with(Some(&context))),
    }
}
