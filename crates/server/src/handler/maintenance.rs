//! The command `dunlin maintenance` at the admin socket.

use std::rc::Rc;

use dunlin_exchange::Response;
use serde_json::json;

use crate::handler::status::parameter;
use crate::maintenance::{ALL, Closure};
use crate::route::reply::Reply;
use crate::worker::{SharedState, WorkerContext};

/// Seconds after which clients may try again, unless the command names them.
const RETRY_AFTER: u64 = 300;

/// Begins or ends the maintenance of a site, as the query names it: `state=on` or `state=off`, `site=NAME` unless it is for all,
/// `retry_after=SECONDS`.
pub(super) fn command(ctx: &Rc<WorkerContext>, query: Option<&[u8]>) -> Reply {
    let text = |status, text: String| {
        Response::with_text(status, "text/plain; charset=utf-8", format!("{text}\n"))
    };
    let shared = &ctx.shared;
    let (site, closure) = match order(shared, query) {
        Ok(order) => order,
        Err(reason) => return text(409, reason).into(),
    };
    let done = match (closure.is_some(), &*site) {
        (true, ALL) => "all sites are under maintenance".to_owned(),
        (true, site) => format!("{site} is under maintenance"),
        (false, ALL) => "the maintenance of all sites has ended".to_owned(),
        (false, site) => format!("the maintenance of {site} has ended"),
    };
    let Some(fleet) = &shared.fleet else {
        shared.maintenance.set(&site, closure);
        return text(200, done).into();
    };
    // The flags are in the store, from which every server reads them.
    let set = fleet.set_maintenance(&site, closure);
    Reply::later(async move {
        match set.await {
            Ok(others) => text(200, format!("{done}; {others}")),
            Err(error) => text(409, format!("nothing was changed: {error}")),
        }
    })
}

/// Returns the sites under maintenance.
pub(super) fn report(shared: &SharedState) -> Response {
    let sites: Vec<_> = shared
        .maintenance
        .all()
        .into_iter()
        .map(|(site, closure)| json!({ "site": site, "retry_after": closure.retry_after }))
        .collect();
    Response::with_text(200, "application/json", format!("{:#}\n", json!(sites)))
}

fn order(shared: &SharedState, query: Option<&[u8]>) -> Result<(String, Option<Closure>), String> {
    let site = match parameter(query, b"site") {
        none if none.is_empty() => ALL.to_owned(),
        name if shared.sites.iter().any(|site| site.name == name) => name,
        name => return Err(format!("maintenance: there is no site {name:?}")),
    };
    let retry_after = match parameter(query, b"retry_after") {
        none if none.is_empty() => RETRY_AFTER,
        seconds => seconds.parse().map_err(|_| "maintenance: retry_after is not in seconds")?,
    };
    match &*parameter(query, b"state") {
        "on" => Ok((site, Some(Closure { retry_after }))),
        "off" => Ok((site, None)),
        _ => Err("maintenance: the state is `on` or `off`".to_owned()),
    }
}
