//! TLS: certificates, and connections that are encrypted.

mod acme;
mod certificate;
mod clock;
mod coverage;
mod handshake;
mod info;
mod policy;
mod seal;
mod session;
mod status;
mod trust;

use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};
use std::time::{Duration, SystemTime};

use self::acme::Challenges;
use self::certificate::Answering;
pub(crate) use self::coverage::shortcomings;
pub(crate) use self::handshake::Standing;
pub(crate) use self::handshake::handshake;
pub(crate) use self::info::{TlsInfo, cipher};
pub(crate) use self::policy::Policy;
use self::policy::{CurrentPolicy, Requirements};
pub(crate) use self::session::Session;
pub(crate) use self::status::CertificateStatus;
pub(crate) use self::trust::client_config;
use crate::config::{Config, Tls};

/// How often the files of certificates are looked at.
const LOOK: Duration = Duration::from_secs(1);

/// What every site that has certificates answers handshakes with.
#[derive(Default)]
pub(crate) struct Certificates {
    /// By the site's number.
    sites: Vec<Option<SiteTls>>,
    /// What authorities ask for; `None` when no certificate is obtained.
    challenges: Option<Arc<Challenges>>,
    /// Others are in use, so that neither the files are of any interest any more, nor what could be obtained.
    retired: Arc<AtomicBool>,
}

struct SiteTls {
    name: String,
    settings: Arc<Tls>,
    /// `None` for as long as none was obtained.
    current: RwLock<Option<Arc<Answering>>>,
    /// That of `current`, which requests are compared with.
    policy: CurrentPolicy,
    /// That there is none was told.
    lack_said: AtomicBool,
    /// The files as they were when they were last looked at.
    seen: Mutex<Vec<Stamp>>,
    /// What is known of each certificate, for whoever asks.
    status: Mutex<Vec<CertificateStatus>>,
}

/// What tells that a file is not what it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp(Option<(SystemTime, u64, u64)>);

impl fmt::Debug for Certificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.sites.iter().flatten().map(|site| &site.name)).finish()
    }
}

impl Certificates {
    /// Loads those of all sites.
    ///
    /// # Errors
    /// What is wrong with the first that cannot be used.
    pub(crate) fn load(config: &Config) -> Result<Self, String> {
        let mut sites = Vec::new();
        for site in config.sites.iter() {
            sites.push(match &site.tls {
                None => None,
                Some(settings) => Some(SiteTls::load(site.name.clone(), Arc::clone(settings))?),
            });
        }
        let obtains = |site: &SiteTls| site.settings.acme.is_some();
        let obtains = sites.iter().flatten().any(obtains);
        let challenges = obtains.then(Challenges::of_process);
        Ok(Self { sites, challenges, retired: Arc::default() })
    }

    /// What authorities ask for; `None` when no certificate is obtained.
    #[inline]
    pub(crate) fn challenges(&self) -> Option<&Arc<Challenges>> {
        self.challenges.as_ref()
    }

    /// What is known of the certificates of each site, by its name.
    pub(crate) fn status(&self) -> Vec<(String, CertificateStatus)> {
        let of_site = |site: &SiteTls| {
            let status = site.status.lock().unwrap_or_else(PoisonError::into_inner).clone();
            status.into_iter().map(|status| (site.name.clone(), status)).collect::<Vec<_>>()
        };
        self.sites.iter().flatten().flat_map(of_site).collect()
    }

    /// What a site answers handshakes with.
    fn of_site(&self, index: usize) -> Option<Arc<Answering>> {
        let site = self.sites.get(index)?.as_ref()?;
        let current = site.current.read().unwrap_or_else(PoisonError::into_inner).clone();
        if current.is_none() && !site.lack_said.swap(true, Ordering::Relaxed) {
            tracing::warn!(site = site.name, "handshakes are refused until there is a certificate");
        }
        current
    }

    /// The site whose certificate a client gets that names no site, where there is none for every host.
    fn first(&self) -> Option<usize> {
        self.sites.iter().position(Option::is_some)
    }

    /// What the site of that number requires of the handshake of every connection by which it is served with TLS.
    #[inline]
    pub(crate) fn policy(&self, site: usize) -> Policy {
        match self.sites.get(site) {
            Some(Some(site)) => site.policy.get(),
            _ => Policy::UNMET,
        }
    }

    /// Whether the site of that number requires a certificate of each of its clients.
    pub(crate) fn requires_certificates(&self, site: usize) -> bool {
        let site = self.sites.get(site).and_then(Option::as_ref);
        let clients = site.and_then(|site| site.settings.clients.as_ref());
        clients.is_some_and(|clients| clients.required)
    }

    /// The site whose certificate a client gets that names the host `name`, or none if that is empty.
    fn site_for(&self, name: &str, config: &Config) -> Option<usize> {
        match config.sites.find(name.as_bytes()) {
            Some(site) => Some(site.index),
            // A client that names no host has to get some certificate.
            None if name.is_empty() => self.first(),
            None => None,
        }
    }

    /// Ends [`Certificates::follow`] and [`Certificates::obtain`].
    pub(crate) fn retire(&self) {
        self.retired.store(true, Ordering::Relaxed);
    }

    fn is_empty(&self) -> bool {
        self.sites.iter().all(Option::is_none)
    }

    /// Takes over files that have changed for as long as the certificates are in use; what cannot be
    /// used is told of, and what was there stays.
    ///
    /// # Errors
    /// When no thread can be started.
    pub(crate) fn follow(self: &Arc<Self>) -> std::io::Result<()> {
        if self.is_empty() {
            return Ok(());
        }
        let certificates: Weak<Self> = Arc::downgrade(self);
        let follow = move || {
            while let Some(certificates) = certificates.upgrade() {
                if certificates.retired.load(Ordering::Relaxed) {
                    return;
                }
                certificates.sites.iter().flatten().for_each(SiteTls::look);
                drop(certificates);
                std::thread::sleep(LOOK);
            }
        };
        std::thread::Builder::new().name("certificates".into()).spawn(follow).map(drop)
    }

    /// Begins to obtain the certificates that are to be had by ACME.
    ///
    /// # Errors
    /// When no thread can be started.
    pub(crate) fn obtain(&self, config: &Config) -> std::io::Result<()> {
        match &self.challenges {
            Some(challenges) => acme::start(config, challenges, &self.retired),
            None => Ok(()),
        }
    }
}

impl Drop for Certificates {
    fn drop(&mut self) {
        self.retire();
    }
}

impl SiteTls {
    fn load(name: String, settings: Arc<Tls>) -> Result<Self, String> {
        // Looked at before they are read: what changes meanwhile is read once more.
        let seen = stamps(&settings);
        let current = match certificate::answering(&settings, &name) {
            Ok(answering) => Some(answering),
            // Another will be obtained.
            Err(error) if is_to_be_obtained(&settings) => {
                tracing::info!(site = name, "there is no certificate yet: {error}");
                None
            }
            Err(error) => return Err(error),
        };
        let status = status::of(&settings)?;
        let policy = match &current {
            Some(answering) => answering.policy,
            None => Requirements::read(&settings)?.policy(),
        };
        Ok(Self {
            name,
            settings,
            policy: CurrentPolicy::new(policy),
            current: RwLock::new(current),
            lack_said: AtomicBool::new(false),
            seen: Mutex::new(seen),
            status: Mutex::new(status),
        })
    }

    fn look(&self) {
        self.look_at_files();
        let mut status = self.status.lock().unwrap_or_else(PoisonError::into_inner);
        for certificate in status.iter_mut() {
            if let Some(acme) = &self.settings.acme {
                certificate.look_at_outcome(acme);
            }
            certificate.warn(&self.name);
        }
    }

    fn look_at_files(&self) {
        let now = stamps(&self.settings);
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if *seen == now {
            return;
        }
        *seen = now;
        let answering = certificate::answering(&self.settings, &self.name);
        let mut status = self.status.lock().unwrap_or_else(PoisonError::into_inner);
        match answering.and_then(|config| Ok((config, status::of(&self.settings)?))) {
            Ok((config, fresh)) => {
                let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
                // Within the lock: a handshake by the new configuration is followed by requests that are compared
                // with the new policy.
                self.policy.set(config.policy);
                *current = Some(config);
                drop(current);
                *status = fresh;
                self.lack_said.store(false, Ordering::Relaxed);
                tracing::info!(site = self.name, "the certificate was renewed from its files");
            }
            Err(error) => {
                status.iter_mut().for_each(|certificate| certificate.refuse(&error));
                tracing::error!(
                    site = self.name,
                    "the changed certificate cannot be used, the one before stays: {error}"
                );
            }
        }
    }
}

/// Whether what is missing is a certificate that will be obtained.
fn is_to_be_obtained(settings: &Tls) -> bool {
    settings.acme.as_ref().is_some_and(|acme| certificate::check_pair(&acme.file()).is_err())
}

impl Stamp {
    fn of(path: &PathBuf) -> Self {
        use std::os::unix::fs::MetadataExt;
        let facts = std::fs::metadata(path).ok();
        Self(facts.and_then(|facts| Some((facts.modified().ok()?, facts.len(), facts.ino()))))
    }
}

fn stamps(settings: &Tls) -> Vec<Stamp> {
    settings.files().map(Stamp::of).collect()
}

/// Whether the certificates of a site can be used, and what to know of them: a line for each.
///
/// # Errors
/// What is wrong with them.
pub(crate) fn examine(settings: &Tls) -> Result<Vec<String>, String> {
    if let Some(acme) = &settings.acme {
        trust::roots(acme.authority.as_deref())?;
        if let Some(external) = &acme.external {
            acme::read_external_key(&external.key)?;
        }
    }
    match certificate::answering(settings, "") {
        Err(error) if !is_to_be_obtained(settings) => return Err(error),
        _ => {}
    }
    Ok(status::of(settings)?.iter().map(CertificateStatus::to_string).collect())
}
