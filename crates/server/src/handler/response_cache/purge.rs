//! Purging of stored responses by the admin socket, and by the other servers of the fleet.

use std::sync::Arc;

use dunlin_exchange::Response;

use super::purge_order::PurgeOrder;
use crate::handler::status::{parameter, verbatim_parameter};
use crate::route::reply::Reply;
use crate::worker::SharedState;

/// Purges what the query names: `path=/a`, `path=/a/*` or `tag=T`, and for one site `site=NAME`. Responds after all matching
/// entries are removed, also from disk, and the other servers of the fleet have confirmed it.
pub(in crate::handler) fn purge(shared: &Arc<SharedState>, query: Option<&[u8]>) -> Reply {
    let order = PurgeOrder {
        path: parameter(query, b"path"),
        verbatim: verbatim_parameter(query, b"path"),
        tag: parameter(query, b"tag"),
        site: parameter(query, b"site"),
    };
    let shared = Arc::clone(shared);
    Reply::later(async move {
        let text = |status, text: String| {
            Response::with_text(status, "text/plain; charset=utf-8", format!("{text}\n"))
        };
        let apply = {
            let (shared, order) = (Arc::clone(&shared), order.clone());
            move || {
                let mut sites = shared.sites.iter();
                let find = |name: &str| Some(sites.find(|site| site.name == name)?.serials());
                order.apply(shared.responses.as_deref(), find)
            }
        };
        // It takes time in proportion to the number of stored responses. A worker does it only if the threads have too much to do.
        let applied = shared.blocking.files.run(apply.clone()).await;
        let (count, removed) = match applied.unwrap_or_else(|_| apply()) {
            Ok(purged) => purged,
            Err(reason) => return text(409, reason),
        };
        tracing::info!("purged by the admin socket: {count} URLs ({}{})", order.path, order.tag);
        let others = shared.fleet.as_ref().map(|fleet| fleet.purge(&order));
        if let Some(removed) = removed {
            // It fails if there was nothing to remove.
            let _ = removed.await;
        }
        let here =
            if count == 1 { "1 URL purged".to_owned() } else { format!("{count} URLs purged") };
        match others {
            None => text(200, here),
            Some(others) => match others.await {
                Ok(others) => text(200, format!("{here} here; {others}")),
                Err(error) => text(409, format!("{here} here only: {error}")),
            },
        }
    })
}
