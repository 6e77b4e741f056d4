//! The servers of a scenario: started when a row first needs them, stopped with the scenario.

use std::collections::BTreeMap;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::adapter::{self, BASELINE, Site};
use crate::certificate::Certificate;
use crate::resolver::SlowResolver;
use crate::scenario::{RowPlan, Variant};
use crate::server::{Failure, Server, free_port};

/// Name of a server, name of the file, and the configuration's text.
pub(super) type Configuration = (String, String, String);

/// Settings that servers are started with.
pub(super) struct Setup {
    /// Name of the scenario.
    pub(super) scenario: String,
    /// The scenario's temporary directory.
    pub(super) folder: PathBuf,
    /// The files that are served.
    pub(super) root: PathBuf,
    /// Processor that servers are bound to.
    pub(super) processor: u32,
    /// Processor of the load generator, and of the upstream of reverse proxies.
    pub(super) load_processor: u32,
    /// Address that servers listen on.
    pub(super) address: Ipv4Addr,
    /// Certificate for rows with TLS.
    pub(super) certificate: Option<Certificate>,
    /// Resolver for rows with name look-ups.
    pub(super) resolver: Option<SlowResolver>,
}

/// A server process: its name, its variant, and the paths that it is limited to.
pub(super) type Key = (String, Variant, String);

/// The servers that have been started, and the failures of those that could not be.
pub(super) struct Servers {
    pub(super) setup: Setup,
    started: BTreeMap<Key, Result<Running, Failure>>,
    configurations: Vec<Configuration>,
    /// The upstream of reverse proxies: its address, while it runs.
    upstream: Option<Running>,
}

/// A running server.
pub(super) struct Running {
    pub(super) server: Server,
    pub(super) address: SocketAddr,
}

impl Servers {
    pub(super) fn new(setup: Setup) -> Self {
        Self { setup, started: BTreeMap::new(), configurations: Vec::new(), upstream: None }
    }

    /// Stops all servers and returns the configurations that they ran with.
    pub(super) fn stop(&mut self) -> Vec<Configuration> {
        self.started.clear();
        self.upstream = None;
        std::mem::take(&mut self.configurations)
    }

    /// Returns the key of the process that serves a row.
    pub(super) fn key(name: &str, plan: &RowPlan) -> Key {
        // The baseline serves one file, so it needs a process for each.
        let only = if name == BASELINE { plan.paths.join(" ") } else { String::new() };
        (name.to_owned(), plan.server.clone(), only)
    }

    /// Returns the server with that key, started for `plan` if there is none. A failure to start is final.
    pub(super) fn get(&mut self, key: &Key, plan: &RowPlan) -> Result<&mut Running, Failure> {
        if !self.started.contains_key(key) {
            let started = self.start(&key.0, plan);
            self.started.insert(key.clone(), started);
        }
        match self.started.get_mut(key) {
            Some(Ok(running)) => Ok(running),
            Some(Err(failure)) => Err(failure.clone()),
            None => Err(Failure::from("it was not started".to_owned())),
        }
    }

    /// Removes a server, so that the next row starts another.
    pub(super) fn remove(&mut self, key: &Key) {
        self.started.remove(key);
    }

    fn start(&mut self, name: &str, plan: &RowPlan) -> Result<Running, Failure> {
        let adapter = adapter::by_name(name)?;
        let variant = &plan.server;
        let name = format!("{}-{}", adapter.name, variant.name());
        let folder = self.setup.folder.join(&name);
        fs::create_dir_all(&folder)?;
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o777))?;
        let (address, port) = (self.setup.address, free_port(self.setup.address)?);
        let probe = plan.paths.first().filter(|_| plan.has_file());
        if adapter.name == BASELINE
            && let Some(path) = probe
        {
            let file = self.setup.root.join(path.trim_start_matches('/'));
            fs::copy(file, self.setup.root.join(adapter::BASELINE_FILE))?;
        }
        let upstream = if variant.proxy { Some(self.upstream()?) } else { None };
        let files = self.setup.certificate.as_ref().filter(|_| variant.tls);
        let resolver = self.setup.resolver.as_ref().filter(|_| variant.dns);
        let site = Site {
            program: adapter.find().unwrap_or_default(),
            root: &self.setup.root,
            folder: &folder,
            address,
            port,
            variant,
            certificate: files.map(|files| (files.certificate.as_path(), files.key.as_path())),
            resolver: resolver.map(|resolver| resolver.address),
            upstream,
        };
        let launch = (adapter.launch)(&site)?;
        let file = format!("{}-{}.conf", self.setup.scenario, name);
        self.configurations.push((adapter.name.to_owned(), file, launch.configuration.clone()));
        let body = probe.and_then(|path| fs::read(self.setup.root.join(expected_file(path))).ok());
        let probe = probe.map(String::as_str).zip(body.as_deref()).filter(|_| !variant.tls);
        let address = SocketAddr::from((address, port));
        let server = Server::start(&launch, &folder, self.setup.processor, address, probe)?;
        Ok(Running { server, address })
    }

    /// Returns the address of the upstream of reverse proxies: Dunlin with the files, on the processor of the load generator.
    fn upstream(&mut self) -> Result<SocketAddr, Failure> {
        if let Some(running) = &self.upstream {
            return Ok(running.address);
        }
        let folder = self.setup.folder.join("upstream");
        fs::create_dir_all(&folder)?;
        let (adapter, port) = (adapter::by_name("dunlin")?, free_port(Ipv4Addr::LOCALHOST)?);
        let site = Site {
            program: adapter.find().unwrap_or_default(),
            root: &self.setup.root,
            folder: &folder,
            address: Ipv4Addr::LOCALHOST,
            port,
            variant: &Variant::default(),
            certificate: None,
            resolver: None,
            upstream: None,
        };
        let launch = (adapter.launch)(&site)?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let server = Server::start(&launch, &folder, self.setup.load_processor, address, None)?;
        self.upstream = Some(Running { server, address });
        Ok(address)
    }
}

/// Returns the file whose content is the response to `path`: record files are served as lines.
fn expected_file(path: &str) -> PathBuf {
    let file = Path::new(path.trim_start_matches('/'));
    if file.extension().is_some_and(|extension| extension == "var") {
        file.with_extension("txt")
    } else {
        file.to_owned()
    }
}
