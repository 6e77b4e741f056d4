//! Builds the shared state of the workers from a configuration, and carries over what a reload keeps.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::SystemTime;

use dunlin_config::{Config, Server, StartupSettings};
use dunlin_exchange::Storage;
use dunlin_files::objects::disk::ObjectDisk;
use dunlin_files::objects::registry::Buckets;
use dunlin_net::blocking;
use dunlin_script::Pools;
use dunlin_script::context::Shared;
use dunlin_script::state::Scripts;
use dunlin_telemetry::redact::Redactor;
use dunlin_telemetry::traces::Tracer;
use dunlin_telemetry::{AccessLogs, ReverseDns, ReverseDnsSettings};
use dunlin_tls::Certificates;

use crate::component::Components;
use crate::control::Commands;
use crate::disk_cache::DiskCache;
use crate::fleet::{self, Fleet, Participants};
use crate::handler::response_cache::shared::ResponseCache;
use crate::handler::script::FileAccess;
use crate::listen::{ConnectionLimiter, ConnectionLimits};
use crate::route::sites::Sites;
use crate::worker::SharedState;
use dunlin_process::{StartError, fail};

/// One generation of the configuration: the shared state of the workers, and the access logs.
#[derive(Clone)]
pub(crate) struct Generation {
    pub(crate) shared: Arc<SharedState>,
    /// Not part of `shared`, so that they are closed after the last request that writes to them.
    pub(crate) logs: AccessLogs,
    directories: Arc<HashMap<PathBuf, Option<Place>>>,
}

impl Generation {
    /// Returns the generation of a start.
    ///
    /// # Errors
    /// The first part that cannot be built.
    pub(crate) fn first(
        config: Config,
        startup: StartupSettings,
        commands: Commands,
        blocking: Arc<blocking::Pools>,
        components: Arc<Components>,
    ) -> Result<Self, StartError> {
        check_build(&config)?;
        let config = Arc::new(config);
        let server = &config.server;
        let sites = Sites::new(&config, None);
        let disk = DiskCache::new(&sites, &config, None, &blocking);
        let objects = disk.clone().map(|disk| disk as Arc<dyn ObjectDisk>);
        let mut files =
            dunlin_files::shared::Shared::first(&config, Arc::clone(&blocking), objects);
        files.buckets = buckets(&config, None)?;
        let files = Arc::new(files);
        let limit = dunlin_config::descriptor_limit();
        let limiter = ConnectionLimiter::new(connections(server), server.threads, limit);
        let limiter = Arc::new(limiter);
        let logs = logs(&config, &AccessLogs::default())?;
        let fleet = Fleet::of(&config, None);
        let certificates = certificates(&config, fleet.as_ref())?;
        let pools = Arc::new(Pools::default());
        let scripts = Arc::new(Shared {
            groups: Arc::clone(&pools.groups),
            bodies: Arc::new(Storage::new(&config)),
            blocking: Arc::clone(&blocking),
            files: FileAccess::new(&files, &limiter),
            reverse_dns: reverse_dns(server)?,
            forwarded_field: server.forwarded_field.clone(),
            name_servers: server.resolver.clone(),
        });
        let stores = (files.cache.store(), disk.as_ref());
        let responses = ResponseCache::for_sites(&sites, None, stores);
        Ok(Self {
            logs,
            directories: Arc::new(directories(&config)),
            shared: Arc::new(SharedState {
                files,
                responses,
                disk,
                fleet,
                maintenance: Arc::default(),
                certificates,
                coding: Arc::default(),
                blocking,
                limiter,
                reverse_dns: scripts.reverse_dns.clone(),
                scripts: Scripts { pools, shared: scripts },
                components,
                serial: Arc::new(AtomicU64::new(0)),
                commands,
                draining: Arc::default(),
                startup: Arc::new(startup),
                loaded: SystemTime::now(),
                started: SystemTime::now(),
                metrics: Arc::default(),
                history: Arc::default(),
                is_counting: config.is_counting(),
                tracer: tracer(server)?,
                live: Arc::default(),
                collectors: Arc::default(),
                redactor: redactor(&config),
                sites,
                config,
            }),
        })
    }

    /// Returns the generation of a reload with `config`. State that both generations share does not change before
    /// [`Generation::takes_over`], so this generation stays usable on failure.
    ///
    /// # Errors
    /// The first part that cannot be built.
    pub(crate) fn next(&self, mut config: Config) -> Result<Self, StartError> {
        let before = &*self.shared;
        let (then, now) = (&before.config.server, &mut config.server);
        // These need a restart.
        now.threads = then.threads;
        now.cache.notify = then.cache.notify;
        now.calls = then.calls;
        check_build(&config)?;
        let config = Arc::new(config);
        let now = &config.server;
        let logs = logs(&config, &self.logs)?;
        let reverse_dns = match now.reverse_dns == then.reverse_dns {
            true => before.reverse_dns.clone(),
            false => reverse_dns(now)?,
        };
        let tracer = match now.traces == then.traces {
            true => before.tracer.clone(),
            false => tracer(now)?,
        };
        let sites = Sites::new(&config, Some(&before.sites));
        let disk = DiskCache::new(&sites, &config, before.disk.as_ref(), &before.blocking);
        let objects = disk.clone().map(|disk| disk as Arc<dyn ObjectDisk>);
        let mut files = before.files.next(&config, objects);
        files.buckets = buckets(&config, Some(&before.files.buckets))?;
        let files = Arc::new(files);
        let fleet = Fleet::of(&config, before.fleet.as_ref());
        let certificates = certificates(&config, fleet.as_ref())?;
        let pools = Arc::clone(&before.scripts.pools);
        let scripts = Arc::new(Shared {
            groups: Arc::clone(&pools.groups),
            bodies: Arc::clone(&before.scripts.shared.bodies),
            blocking: Arc::clone(&before.blocking),
            files: FileAccess::new(&files, &before.limiter),
            reverse_dns: reverse_dns.clone(),
            forwarded_field: now.forwarded_field.clone(),
            name_servers: now.resolver.clone(),
        });
        let stores = (files.cache.store(), disk.as_ref());
        let responses = ResponseCache::for_sites(&sites, before.responses.as_ref(), stores);
        Ok(Self {
            logs,
            directories: Arc::new(directories(&config)),
            shared: Arc::new(SharedState {
                coding: Arc::clone(&before.coding),
                files,
                responses,
                disk,
                fleet,
                maintenance: Arc::clone(&before.maintenance),
                scripts: Scripts { pools, shared: scripts },
                components: Arc::clone(&before.components),
                blocking: Arc::clone(&before.blocking),
                certificates,
                limiter: Arc::clone(&before.limiter),
                reverse_dns,
                serial: Arc::clone(&before.serial),
                commands: before.commands.clone(),
                draining: Arc::clone(&before.draining),
                startup: Arc::clone(&before.startup),
                loaded: SystemTime::now(),
                started: before.started,
                metrics: Arc::clone(&before.metrics),
                history: Arc::clone(&before.history),
                is_counting: config.is_counting(),
                tracer,
                live: Arc::clone(&before.live),
                collectors: Arc::clone(&before.collectors),
                redactor: redactor(&config),
                sites,
                config,
            }),
        })
    }

    /// Returns the directories that resolve differently than in `before`.
    pub(crate) fn moved(&self, before: &Self) -> Vec<MovedDirectory> {
        let moved = self
            .directories
            .iter()
            .filter(|(path, now)| before.directories.get(*path).is_some_and(|then| then != *now));
        moved.map(|(path, now)| MovedDirectory { path: path.clone(), now: now.clone() }).collect()
    }

    /// Clears the caches of files and scripts if any directory has moved; otherwise makes every entry be checked before its
    /// next use.
    pub(crate) fn revalidate(&self, moved: &[MovedDirectory]) {
        if moved.is_empty() {
            self.shared.files.expire_all();
        } else {
            self.shared.files.invalidate_all();
        }
    }

    /// Begins to share the state of this generation with other servers, and leaves the fleet `before` unless it is the same.
    pub(crate) fn joins_fleet(&self, before: Option<&Arc<Fleet>>) {
        let SharedState { sites, fleet, maintenance, responses, .. } = &*self.shared;
        let participants = Participants {
            limits: sites.shared_limits().cloned().collect(),
            attempts: sites.attempts().cloned().collect(),
            maintenance: Arc::clone(maintenance),
            responses: responses.clone(),
            sites: sites.iter().cloned().collect(),
        };
        Fleet::takes_over(fleet.as_ref(), before, participants);
    }

    /// Applies shared limits, and ends what only `before` uses, including the processes of single programs in directories
    /// that have moved. Called once every worker uses this generation.
    pub(crate) fn takes_over(&self, before: &Self, moved: &[MovedDirectory]) {
        let SharedState { config, sites, files, scripts, limiter, .. } = &*self.shared;
        scripts.shared.bodies.set(config);
        if let Some(responses) = &self.shared.responses {
            responses.retain_sites(|site| sites.has(site));
        }
        if let Some(disk) = &self.shared.disk {
            disk.retain(|site| sites.has(site), config);
        }
        DiskCache::takes_over(self.shared.disk.as_ref(), before.shared.disk.as_ref());
        self.joins_fleet(before.shared.fleet.as_ref());
        before.shared.certificates.retire();
        sites.proxies().for_each(|group| group.reload_certificates());
        limiter.set(connections(&config.server));
        let is_root = |path: &Path| self.directories.contains_key(path);
        files.release(&before.shared.files, |site| sites.has(site), is_root);
        let used: HashSet<usize> = sites.iter().flat_map(|site| site.script_ids()).collect();
        let of_directory = |moved: &MovedDirectory| {
            sites.iter().flat_map(|site| site.scripts_in(&moved.path)).collect::<Vec<_>>()
        };
        let moved: HashSet<usize> = moved.iter().flat_map(of_directory).collect();
        scripts.pools.retain(|id| used.contains(&id), |id| moved.contains(&id));
        self.shared.components.retain(config);
    }
}

/// # Errors
/// Returns the part of `config` that this build does not support.
fn check_build(config: &Config) -> Result<(), StartError> {
    fleet::conflict(config).map_or(Ok(()), |problem| Err(fail(problem.to_string())))
}

/// Returns the buckets of roots in object storage.
fn buckets(config: &Config, before: Option<&Arc<Buckets>>) -> Result<Arc<Buckets>, StartError> {
    let before = before.map(|before| &**before);
    Ok(Arc::new(Buckets::new(config, before, open_store).map_err(fail)?))
}

#[cfg(feature = "fleet")]
use dunlin_certificate_store::open as open_certificate_store;
#[cfg(feature = "fleet")]
use dunlin_object_root::open as open_store;

/// Returns a build without clients of object stores rejects such a storage when it verifies the configuration.
#[cfg(not(feature = "fleet"))]
fn open_certificate_store(
    _root: &dunlin_config::ObjectRoot,
) -> Result<Arc<dyn dunlin_tls::SharedStorage>, String> {
    Err(super::verify::NO_STORES.into())
}

/// Returns a build without clients of object stores rejects such roots when it verifies the configuration.
#[cfg(not(feature = "fleet"))]
fn open_store(
    _root: &dunlin_config::ObjectRoot,
) -> Result<Arc<dyn dunlin_files::objects::store::ObjectStore>, String> {
    Err(super::verify::NO_STORES.into())
}

/// The identity of a configured directory when the configuration was read.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Place {
    device: u64,
    inode: u64,
    /// Without symlinks.
    path: PathBuf,
}

impl Place {
    fn of(path: &Path) -> Option<Self> {
        let (real, metadata) = (path.canonicalize().ok()?, path.metadata().ok()?);
        Some(Self { device: metadata.dev(), inode: metadata.ino(), path: real })
    }
}

/// Returns the identity of each configured directory; `None` for those that cannot be resolved.
fn directories(config: &Config) -> HashMap<PathBuf, Option<Place>> {
    let paths = config.sites.iter().flat_map(|site| site.directories().collect::<HashSet<_>>());
    paths.map(|path| (path.to_owned(), Place::of(path))).collect()
}

/// A configured directory that resolves differently than at the last load.
pub(crate) struct MovedDirectory {
    pub(super) path: PathBuf,
    now: Option<Place>,
}

impl fmt::Display for MovedDirectory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        match &self.now {
            Some(now) if now.path == self.path => {
                write!(f, "{path} was replaced by another directory")
            }
            Some(now) => write!(f, "{path} now resolves to {}", now.path.display()),
            None => write!(f, "{path} can no longer be found"),
        }
    }
}

/// Returns what removes secrets from logs and traces.
fn redactor(config: &Config) -> Redactor {
    let keys = config.server.redact_query.as_deref();
    Redactor::new(keys).with(&config.secret_parameters())
}

/// Returns the limits on connections.
fn connections(server: &Server) -> ConnectionLimits {
    let limit = dunlin_config::descriptor_limit();
    let connections = server.connections.unwrap_or(limit / 2);
    if connections + server.cache.descriptors > limit {
        tracing::warn!(
            "{connections} connections and {} cached files may need more than the limit of {limit} open files; raise \
             `limits.open_files`, or ulimit -n",
            server.cache.descriptors
        );
    }
    ConnectionLimits {
        max: connections,
        soft: server.evict_idle_above.unwrap_or(connections - connections / 10).min(connections),
        per_address: server.connections_per_address,
    }
}

/// Opens the access logs; those of `before` with the same settings are kept.
fn logs(config: &Config, before: &AccessLogs) -> Result<AccessLogs, StartError> {
    let own = config.sites.iter().flat_map(|site| site.access_logs()).map(|log| &**log);
    let opened = AccessLogs::open(config.server.access_log.as_ref(), own, before);
    opened.map_err(|(path, error)| {
        fail(format!(
            "access log {}: {error}; check that the directory exists and is writable",
            path.display()
        ))
    })
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

fn certificates(
    config: &Config,
    fleet: Option<&Arc<Fleet>>,
) -> Result<Arc<Certificates>, StartError> {
    let certificates = Arc::new(Certificates::load(config).map_err(fail)?);
    certificates.follow().map_err(|error| fail(format!("following certificates: {error}")))?;
    let storage = match &config.server.acme_storage {
        // Without such sites nothing is stored.
        Some(root) if certificates.has_acme() => {
            let opened = open_certificate_store(root);
            Some(opened.map_err(|error| fail(format!("acme_storage {error}")))?)
        }
        Some(_) => None,
        None => fleet.and_then(|fleet| fleet.storage()),
    };
    certificates
        .obtain(config, storage)
        .map_err(|error| fail(format!("obtaining certificates: {error}")))?;
    Ok(certificates)
}
