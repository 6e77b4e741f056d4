//! Requests as the reverse proxy gets them from the router.

use std::rc::Rc;

use dunlin_http::Request;
use dunlin_proxy::{Call, Group};

use crate::route::route_match::RouteMatch;
use crate::worker::WorkerContext;

/// Returns the request for the upstreams of a group.
pub(super) fn call<'a>(
    ctx: &'a Rc<WorkerContext>,
    group: &'a Group,
    request: Request<'a>,
    matched: &RouteMatch<'a>,
) -> Call<'a> {
    let checked = matched.context.map(|context| &**context);
    Call {
        worker: &ctx.proxy,
        group,
        request,
        raw_path: matched.raw_path,
        path: matched.path,
        query: matched.query,
        client: checked.map_or(matched.client, |checked| checked.client),
        checked,
        user_fields: &matched.site.user_fields,
        forwarded_field: &ctx.shared.config.server.forwarded_field,
    }
}
