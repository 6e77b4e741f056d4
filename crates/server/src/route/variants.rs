//! Sites whose routes have conditions besides the path. What such a site serves depends on the conditions that hold for a request:
//! for each set of them that occurs, a variant of the site has the routes that apply, as if there were no conditions.
//!
//! A variant has a serial number of its own, so that files and responses that are cached for it are not those of others.

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

use dunlin_config::Facts;
use dunlin_exchange::Client;
use dunlin_http::Request;

use super::sites::Site;
use crate::checks::resolve_client;
use crate::worker::WorkerContext;

/// The variants of a site.
#[derive(Debug, Default)]
pub(super) struct Variants {
    all: Mutex<Used>,
}

/// Variants by the indexes of the routes with conditions that apply.
#[derive(Debug, Default)]
struct Used {
    by_routes: HashMap<Vec<usize>, (u64, Arc<Site>)>,
    /// Counts uses, for the age of a variant.
    uses: u64,
}

/// Maximum of variants of a site. Clients choose the conditions that hold.
const MAX: usize = 128;

impl Variants {
    /// Returns the variant for these routes, which `make` makes if there is none.
    fn find(&self, routes: Vec<usize>, make: impl FnOnce(&[usize]) -> Site) -> Arc<Site> {
        let mut used = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        used.uses += 1;
        let now = used.uses;
        if let Some((last_use, site)) = used.by_routes.get_mut(&routes) {
            *last_use = now;
            return Arc::clone(site);
        }
        if used.by_routes.len() >= MAX {
            let oldest = used.by_routes.iter().min_by_key(|(_, (last_use, _))| *last_use);
            if let Some(oldest) = oldest.map(|(routes, _)| routes.clone()) {
                used.by_routes.remove(&oldest);
            }
        }
        let site = Arc::new(make(&routes));
        used.by_routes.insert(routes, (now, Arc::clone(&site)));
        site
    }

    /// Returns the serial numbers of all variants.
    pub(super) fn serials(&self) -> Vec<usize> {
        let used = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        used.by_routes.values().map(|(_, site)| site.serial).collect()
    }
}

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
    let (encrypted, client) = (client.encrypted, client.address.ip());
    let facts = Facts { request: *request, query, client, encrypted };
    let holds = |route: &usize| site.condition(*route).is_some_and(|when| when.holds(&facts));
    let applying: Vec<usize> = routes.into_iter().filter(holds).collect();
    Some(site.variants().find(applying, |routes| ctx.shared.sites.under(site, routes)))
}
