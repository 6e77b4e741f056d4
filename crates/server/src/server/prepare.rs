//! From a configuration to what the loops share, with whatever can be kept of what they shared before.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::SystemTime;

use super::{StartError, fail};
use crate::cache::{Bounds, Store, Watch};
use crate::config::{Config, Server};
use crate::control::Commands;
use crate::event_loop::Shared;
use crate::handler::file::Roots;
use crate::handler::script::Pools;
use crate::listen::{ConnectionLimits, Gauge};
use crate::record::redact::Redactor;
use crate::record::traces::Tracer;
use crate::record::{AccessLog, AccessLogSettings, Format, ReverseDns, ReverseDnsSettings};
use crate::tls::Certificates;

/// What the loops go by, and the log that they write.
#[derive(Clone)]
pub(super) struct Generation {
    pub(super) shared: Arc<Shared>,
    /// Beside what is shared, so that it ends with the last request that writes to it.
    pub(super) access_log: Option<Arc<AccessLog>>,
}

impl Generation {
    /// The first one.
    ///
    /// # Errors
    /// The first thing that cannot be had.
    pub(super) fn first(config: Config, commands: Commands) -> Result<Self, StartError> {
        let server = &config.server;
        let watch = server.cache.notify.then(Watch::new).and_then(|watch| {
            watch
                .inspect_err(|error| {
                    tracing::warn!(
                        "changes on disk are not notified ({error}); files are checked once a second"
                    );
                })
                .ok()
        });
        let limit = crate::config::descriptor_limit();
        Ok(Self {
            access_log: access_log(server)?,
            shared: Arc::new(Shared {
                store: Arc::new(Store::new(bounds(server))),
                watch: watch.map(Arc::new),
                roots: Arc::new(Roots::default()),
                pools: Arc::new(Pools::default()),
                certificates: certificates(&config)?,
                gauge: Arc::new(Gauge::new(connections(server), server.threads, limit)),
                reverse_dns: reverse_dns(server)?,
                serial: Arc::new(AtomicU64::new(0)),
                commands,
                loaded: SystemTime::now(),
                started: SystemTime::now(),
                metrics: Arc::default(),
                is_counting: config.is_counting(),
                tracer: tracer(server)?,
                hub: Arc::default(),
                redactor: Redactor::new(&server.redact_query),
                config: Arc::new(config),
            }),
        })
    }

    /// The next one, by `config`; this one goes on being of use if it fails. Nothing that both have
    /// changes before [`Generation::takes_over`].
    ///
    /// # Errors
    /// The first thing that cannot be had.
    pub(super) fn next(&self, mut config: Config) -> Result<Self, StartError> {
        let before = &*self.shared;
        let (then, now) = (&before.config.server, &mut config.server);
        // These hold until the next start.
        now.threads = then.threads;
        now.cache.notify = then.cache.notify;
        now.calls = then.calls;
        let now = &config.server;
        let store = match bounds(now) == before.store.bounds() {
            true => Arc::clone(&before.store),
            false => Arc::new(Store::new(bounds(now))),
        };
        let access_log = match now.access_log == then.access_log {
            true => self.access_log.clone(),
            false => access_log(now)?,
        };
        let reverse_dns = match now.reverse_dns == then.reverse_dns {
            true => before.reverse_dns.clone(),
            false => reverse_dns(now)?,
        };
        let tracer = match now.traces == then.traces {
            true => before.tracer.clone(),
            false => tracer(now)?,
        };
        Ok(Self {
            access_log,
            shared: Arc::new(Shared {
                store,
                watch: before.watch.clone(),
                roots: Arc::clone(&before.roots),
                pools: Arc::clone(&before.pools),
                certificates: certificates(&config)?,
                gauge: Arc::clone(&before.gauge),
                reverse_dns,
                serial: Arc::clone(&before.serial),
                commands: before.commands.clone(),
                loaded: SystemTime::now(),
                started: before.started,
                metrics: Arc::clone(&before.metrics),
                is_counting: config.is_counting(),
                tracer,
                hub: Arc::clone(&before.hub),
                redactor: Redactor::new(&now.redact_query),
                config: Arc::new(config),
            }),
        })
    }

    /// Lets go of what is only of use with `before`, once every loop goes by this one.
    pub(super) fn takes_over(&self, before: &Self) {
        let Shared { config, store, pools, gauge, .. } = &*self.shared;
        before.shared.certificates.retire();
        gauge.set(connections(&config.server));
        store.retain_sites(|site| config.sites.has(site));
        let scripts: Vec<usize> =
            config.sites.iter().flat_map(|site| site.script_ids().collect::<Vec<_>>()).collect();
        pools.retain(|id| scripts.contains(&id));
    }
}

fn bounds(server: &Server) -> Bounds {
    Bounds {
        bytes: server.cache.size,
        entries: server.cache.entries,
        descriptors: server.cache.descriptors,
    }
}

/// How many connections there may be.
fn connections(server: &Server) -> ConnectionLimits {
    let limit = crate::config::descriptor_limit();
    let connections = server.connections.unwrap_or(limit / 2);
    if connections + server.cache.descriptors > limit {
        tracing::warn!(
            "{connections} connections and {} cached files may need more than the {limit} \
             descriptors that this process may have (ulimit -n)",
            server.cache.descriptors
        );
    }
    ConnectionLimits {
        most: connections,
        soft: server.connections_soft.unwrap_or(connections - connections / 10).min(connections),
        per_address: server.connections_per_address,
    }
}

fn access_log(server: &Server) -> Result<Option<Arc<AccessLog>>, StartError> {
    let Some(log) = &server.access_log else { return Ok(None) };
    let format = Format::parse(&log.format).map_err(|error| fail(error.to_string()))?;
    let opened = AccessLog::open(AccessLogSettings::new(&log.path, format)).map_err(|error| {
        fail(format!(
            "access log {}: {error}; check that the folder exists and may be written",
            log.path.display()
        ))
    })?;
    Ok(Some(opened))
}

fn tracer(server: &Server) -> Result<Option<Arc<Tracer>>, StartError> {
    let tracer = server.traces.as_ref().map(Tracer::start).transpose();
    Ok(tracer.map_err(|error| fail(format!("traces: {error}")))?.map(Arc::new))
}

fn reverse_dns(server: &Server) -> Result<Option<Arc<ReverseDns>>, StartError> {
    let Some(dns) = &server.reverse_dns else { return Ok(None) };
    let started = ReverseDns::new(ReverseDnsSettings {
        resolver: dns.resolver,
        timeout: dns.timeout,
        max_under_way: dns.concurrent,
        cache_entries: dns.entries,
        max_ttl: dns.ttl,
        ..Default::default()
    });
    Ok(Some(Arc::new(started.map_err(|error| fail(format!("reverse DNS: {error}")))?)))
}

fn certificates(config: &Config) -> Result<Arc<Certificates>, StartError> {
    if config.listen.iter().any(|listen| listen.tls)
        && config.sites.iter().all(|site| site.tls.is_none())
    {
        return Err(fail(
            "a listener speaks TLS, and no site has a certificate; write tls = { certificate = \"FILE\", key = \"FILE\" } into [[site]]",
        ));
    }
    let certificates = Arc::new(Certificates::load(config).map_err(fail)?);
    certificates.follow().map_err(|error| fail(format!("following certificates: {error}")))?;
    certificates
        .obtain(config)
        .map_err(|error| fail(format!("obtaining certificates: {error}")))?;
    Ok(certificates)
}
