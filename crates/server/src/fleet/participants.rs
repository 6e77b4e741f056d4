//! The objects of one generation of the configuration that the fleet keeps in step with the store.

use std::sync::Arc;

use dunlin_limits::rate::RateLimit;
use dunlin_response_cache::memory::Purge;

use crate::checks::Attempts;
use crate::handler::response_cache::purge_order::PurgeOrder;
use crate::handler::response_cache::shared::ResponseCache;
use crate::maintenance::Maintenance;
use crate::route::sites::Site;

/// The objects.
#[cfg_attr(not(feature = "fleet"), expect(dead_code, reason = "the thread is absent"))]
#[derive(Debug)]
pub(crate) struct Participants {
    pub(crate) limits: Vec<Arc<RateLimit>>,
    pub(crate) attempts: Vec<Arc<Attempts>>,
    pub(crate) maintenance: Arc<Maintenance>,
    pub(crate) responses: Option<Arc<ResponseCache>>,
    pub(crate) sites: Vec<Arc<Site>>,
}

#[cfg_attr(not(feature = "fleet"), expect(dead_code, reason = "the thread is absent"))]
impl Participants {
    /// Purges what another server has purged.
    pub(super) fn purge(&self, order: &PurgeOrder) {
        let find = |name: &str| Some(self.sites.iter().find(|site| site.name == name)?.serials());
        match order.apply(self.responses.as_deref(), find) {
            Ok((count, _)) => tracing::info!("purged by another server: {count} URLs"),
            // Servers may have different sites.
            Err(reason) => tracing::debug!("another server has purged: {reason}"),
        }
    }

    /// Purges all, because messages of other servers were lost.
    pub(super) fn purge_all(&self) {
        if let Some(cache) = &self.responses {
            let (count, _) = cache.purge(None, &Purge::Everything);
            tracing::warn!(
                "messages of other servers were lost while the store was not reachable: all cached responses are \
                 purged, {count} URLs"
            );
        }
    }
}
