//! The upstreams of one table `proxy`.

use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Instant;

use dunlin_config::{Proxy, Service};
use dunlin_dns::{CachedLookup, Target};
use dunlin_net::clock;
use dunlin_net::log_limiter::LogLimiter;

use crate::budget::Budget;
use crate::memory::Memory;
use crate::tls::{Files, Outcome};
use crate::turn::Turn;
use crate::upstream::{Upstream, UpstreamReport};

/// The upstreams of one table `proxy`, shared by all workers.
#[derive(Debug)]
pub struct Group {
    pub(crate) rules: Arc<Proxy>,
    /// Those that are fixed; in a group that [`Group::present`] has made, all.
    pub(crate) upstreams: Vec<Arc<Upstream>>,
    /// The services whose records name further ones, each with its weight.
    pub(crate) services: Vec<(Service, u32)>,
    /// The group of the upstreams that there are now, with those of the services.
    pub(crate) present: CachedLookup<Target, Self>,
    /// Upstreams have different priorities.
    pub(crate) has_priorities: bool,
    /// Counts the choices.
    pub(crate) next: AtomicUsize,
    pub(crate) retries: Arc<Budget>,
    /// The files of TLS.
    files: Arc<Files>,
    /// The configurations of TLS; an error if no upstream has TLS.
    tls: Arc<RwLock<Outcome>>,
    /// For bodies that are collected.
    pub(crate) memory: Arc<Memory>,
    pub(crate) made: Instant,
    /// When the last health check began, in milliseconds since `made`; 0 before the first.
    pub(crate) checked: AtomicU64,
    /// A health check resolves the names of the services.
    pub(crate) resolving: Turn,
    /// For failures to resolve the names of the services.
    pub(crate) log_limiter: LogLimiter,
}

impl Group {
    /// Creates the upstreams of `rules`.
    pub fn new(rules: &Arc<Proxy>) -> Self {
        let is_secure = |upstream: &dunlin_config::Upstream| upstream.address.is_secure();
        let files = Arc::new(Files::default());
        // Read before the process switches users: the user of the server may not be able to read the key.
        let tls = match rules.upstreams.iter().any(is_secure) {
            true => files.read(rules),
            false => None,
        };
        let tls = tls.unwrap_or_else(|| Err("no upstream has TLS".into()));
        let fixed = rules.upstreams.iter().filter(|upstream| upstream.address.service().is_none());
        let upstream = |of: &dunlin_config::Upstream| {
            Arc::new(Upstream::new(of, rules, &tls).with_priority(of.backup.into()))
        };
        let upstreams: Vec<Arc<Upstream>> = fixed.map(upstream).collect();
        let is_backup = |other: &&Arc<Upstream>| other.priority > 0;
        let backups = upstreams.iter().filter(is_backup).count();
        let service = |upstream: &dunlin_config::Upstream| {
            Some((upstream.address.service()?.clone(), upstream.weight))
        };
        let services: Vec<_> = rules.upstreams.iter().filter_map(service).collect();
        let names = services.iter().map(|(service, _)| service.name.clone()).collect();
        Self {
            files,
            services,
            present: CachedLookup::new("proxy", names, None),
            has_priorities: (1..upstreams.len()).contains(&backups),
            upstreams,
            tls: Arc::new(RwLock::new(tls)),
            rules: Arc::clone(rules),
            next: AtomicUsize::new(0),
            retries: Arc::default(),
            memory: Memory::new(rules.buffer.total),
            made: clock::now(),
            checked: AtomicU64::new(0),
            resolving: Turn::default(),
            log_limiter: LogLimiter::new(),
        }
    }

    /// Reads the certificates and the key for TLS again. If they have changed, further requests use new connections.
    pub fn reload_certificates(&self) {
        if !self.rules.upstreams.iter().any(|upstream| upstream.address.is_secure()) {
            return;
        }
        match self.files.read(&self.rules) {
            Some(Ok(tls)) => {
                let tls = Ok(tls);
                *self.tls.write().unwrap_or_else(PoisonError::into_inner) = tls.clone();
                let upstreams = self.last_upstreams();
                upstreams.iter().for_each(|upstream| upstream.set_tls(&self.rules, &tls));
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

    /// Returns the table that the group was made of.
    pub fn rules(&self) -> &Arc<Proxy> {
        &self.rules
    }

    /// Returns the state of each upstream.
    pub fn reports(&self) -> impl Iterator<Item = UpstreamReport> {
        self.last_upstreams().into_iter().map(|upstream| upstream.report())
    }

    /// Calls `make` with the configuration of TLS.
    pub(crate) fn with_tls<T>(&self, make: impl FnOnce(&Outcome) -> T) -> T {
        make(&self.tls.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns a group without upstreams and with the state of this one.
    pub(crate) fn copy(&self) -> Self {
        Self {
            rules: Arc::clone(&self.rules),
            upstreams: Vec::new(),
            services: Vec::new(),
            present: CachedLookup::new("proxy", Vec::new(), None),
            has_priorities: false,
            next: AtomicUsize::new(0),
            retries: Arc::clone(&self.retries),
            files: Arc::clone(&self.files),
            tls: Arc::clone(&self.tls),
            memory: Arc::clone(&self.memory),
            made: self.made,
            checked: AtomicU64::new(0),
            resolving: Turn::default(),
            log_limiter: LogLimiter::new(),
        }
    }
}
