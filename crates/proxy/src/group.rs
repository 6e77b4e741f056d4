//! The upstreams of one table `proxy`.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use dunlin_config::Proxy;

use crate::upstream::{Upstream, UpstreamReport};

/// The upstreams of one table `proxy`, shared by all workers.
#[derive(Debug)]
pub struct Group {
    pub(crate) rules: Arc<Proxy>,
    pub(crate) upstreams: Vec<Arc<Upstream>>,
    /// Number of the upstream at which the next choice begins.
    pub(crate) next: AtomicUsize,
}

impl Group {
    /// The upstreams of `rules`.
    pub fn new(rules: &Arc<Proxy>) -> Self {
        let upstream = |upstream| Arc::new(Upstream::new(upstream, rules));
        Self {
            rules: Arc::clone(rules),
            upstreams: rules.upstreams.iter().map(upstream).collect(),
            next: AtomicUsize::new(0),
        }
    }

    /// The table that the group was made of.
    pub fn rules(&self) -> &Arc<Proxy> {
        &self.rules
    }

    /// The state of each upstream.
    pub fn reports(&self) -> impl Iterator<Item = UpstreamReport> {
        self.upstreams.iter().map(|upstream| upstream.report())
    }
}
