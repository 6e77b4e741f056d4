//! Selects the variant of a site for a request.

use std::rc::Rc;
use std::sync::Arc;

use dunlin_config::Facts;
use dunlin_exchange::Client;
use dunlin_http::Request;

use super::sites::Site;
use crate::checks::resolve_client;
use crate::worker::WorkerContext;

/// Returns the variant of `site` for a request for a decoded path; `None` if no route with conditions matches the path.
pub(super) fn variant(
    ctx: &Rc<WorkerContext>,
    client: Client,
    request: &Request<'_>,
    site: &Arc<Site>,
    (path, query): (&[u8], Option<&[u8]>),
) -> Option<Arc<Site>> {
    let routes = site.conditional_routes(path);
    if routes.is_empty() {
        return None;
    }
    let client = resolve_client(client, request, &ctx.shared.config.server);
    let facts = facts(site, client, request, (path, query));
    let holds = |route: &usize| site.condition(*route).is_some_and(|when| when.holds(&facts));
    let applying: Vec<usize> = routes.into_iter().filter(holds).collect();
    Some(site.variants().find(applying, |routes| Arc::new(ctx.shared.sites.under(site, routes))))
}

/// Returns what conditions, maps and templates see of a request; `client` is the one behind trusted proxies.
pub(crate) fn facts<'r>(
    site: &'r Site,
    client: Client,
    request: &Request<'r>,
    (path, query): (&'r [u8], Option<&'r [u8]>),
) -> Facts<'r> {
    let (encrypted, client) = (client.encrypted, client.address.ip());
    let hidden = &site.config().user_fields;
    Facts { request: *request, path, query, client, encrypted, hidden }
}
