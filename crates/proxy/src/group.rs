//! The upstreams of one table `proxy`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::time::Instant;

use dunlin_config::Proxy;
use dunlin_net::clock;

use crate::budget::Budget;
use crate::memory::Memory;
use crate::upstream::{Upstream, UpstreamReport};

/// The upstreams of one table `proxy`, shared by all workers.
#[derive(Debug)]
pub struct Group {
    pub(crate) rules: Arc<Proxy>,
    pub(crate) upstreams: Vec<Arc<Upstream>>,
    /// Counts the choices.
    pub(crate) next: AtomicUsize,
    pub(crate) retries: Budget,
    /// For bodies that are collected.
    pub(crate) memory: Arc<Memory>,
    pub(crate) made: Instant,
    /// When the last health check began, in milliseconds since `made`; 0 before the first.
    pub(crate) checked: AtomicU64,
}

impl Group {
    /// The upstreams of `rules`.
    pub fn new(rules: &Arc<Proxy>) -> Self {
        let upstream = |upstream| Arc::new(Upstream::new(upstream, rules));
        Self {
            rules: Arc::clone(rules),
            upstreams: rules.upstreams.iter().map(upstream).collect(),
            next: AtomicUsize::new(0),
            retries: Budget::default(),
            memory: Memory::new(rules.buffer.total),
            made: clock::now(),
            checked: AtomicU64::new(0),
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
