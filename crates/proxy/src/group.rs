//! The upstreams of one table `proxy`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::time::Instant;

use dunlin_config::Proxy;
use dunlin_net::clock;

use crate::budget::Budget;
use crate::memory::Memory;
use crate::tls::Files;
use crate::upstream::{Upstream, UpstreamReport};

/// The upstreams of one table `proxy`, shared by all workers.
#[derive(Debug)]
pub struct Group {
    pub(crate) rules: Arc<Proxy>,
    pub(crate) upstreams: Vec<Arc<Upstream>>,
    /// Counts the choices.
    pub(crate) next: AtomicUsize,
    pub(crate) retries: Budget,
    /// The files of TLS.
    files: Files,
    /// For bodies that are collected.
    pub(crate) memory: Arc<Memory>,
    pub(crate) made: Instant,
    /// When the last health check began, in milliseconds since `made`; 0 before the first.
    pub(crate) checked: AtomicU64,
}

impl Group {
    /// The upstreams of `rules`.
    pub fn new(rules: &Arc<Proxy>) -> Self {
        let is_secure = |upstream: &dunlin_config::Upstream| upstream.address.is_secure();
        let files = Files::default();
        // Read before the process switches users: nobody else may be able to read the key.
        let tls = match rules.upstreams.iter().any(is_secure) {
            true => files.read(rules),
            false => None,
        };
        let tls = tls.unwrap_or_else(|| Err("no upstream has TLS".into()));
        let upstream = |upstream| Arc::new(Upstream::new(upstream, rules, &tls));
        Self {
            files,
            rules: Arc::clone(rules),
            upstreams: rules.upstreams.iter().map(upstream).collect(),
            next: AtomicUsize::new(0),
            retries: Budget::default(),
            memory: Memory::new(rules.buffer.total),
            made: clock::now(),
            checked: AtomicU64::new(0),
        }
    }

    /// Reads the certificates and the key for TLS again. If they have changed, further requests use new connections.
    pub fn reload_certificates(&self) {
        let is_secure = |upstream: &&Arc<Upstream>| upstream.address.is_secure();
        let mut secure = self.upstreams.iter().filter(is_secure).peekable();
        if secure.peek().is_none() {
            return;
        }
        match self.files.read(&self.rules) {
            Some(Ok(tls)) => {
                let tls = Ok(tls);
                secure.for_each(|upstream| upstream.set_tls(&self.rules, &tls));
            }
            // The check of the configuration has reported it, unless the file has changed since.
            Some(Err(what)) => {
                tracing::error!(
                    "proxy: {what}; upstreams get the certificate that they got before"
                );
            }
            None => {}
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
