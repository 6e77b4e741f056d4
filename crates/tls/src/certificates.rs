//! The certificates of all sites: loading, reloading when files change, and renewal.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};
use std::time::Duration;

use dunlin_config::{Config, Publisher, Tls};

use super::acme::account::read_external_key;
use super::acme::challenges::Challenges;
use super::acme::records::update_key;
use super::acme::storage::SharedStorage;
use super::certificate;
use super::file_stamp::FileStamp;
use super::policy::{CurrentPolicy, Policy, Requirements};
use super::site::{SiteConfig, site_config};
use super::status::{self, CertificateStatus};
use super::{acme, trust};

/// Interval at which certificate files are checked for changes.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The TLS configuration of every site that has one.
#[derive(Default)]
pub struct Certificates {
    /// By site index.
    sites: Vec<Option<SiteTls>>,
    /// Pending ACME challenges; `None` when no site obtains its ACME certificate.
    challenges: Option<Arc<Challenges>>,
    /// A newer generation is in use: stop following files and renewing certificates.
    retired: Arc<AtomicBool>,
}

struct SiteTls {
    name: String,
    settings: Arc<Tls>,
    /// `None` until the first certificate was obtained.
    current: RwLock<Option<Arc<SiteConfig>>>,
    /// The policy of `current`, with which requests are compared.
    policy: CurrentPolicy,
    /// The log has a warning that there is no certificate.
    lack_reported: AtomicBool,
    /// State of the files at the last check.
    seen: Mutex<Vec<FileStamp>>,
    /// Status of each certificate, for reports.
    status: Mutex<Vec<CertificateStatus>>,
}

impl fmt::Debug for Certificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.sites.iter().flatten().map(|site| &site.name)).finish()
    }
}

impl Certificates {
    /// Loads the certificates of all sites.
    ///
    /// # Errors
    /// The first certificate that cannot be used, and why.
    pub fn load(config: &Config) -> Result<Self, String> {
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

    /// Pending ACME challenges; `None` when no site obtains its ACME certificate.
    #[inline]
    pub fn challenges(&self) -> Option<&Arc<Challenges>> {
        self.challenges.as_ref()
    }

    /// Returns the status of all certificates, with the names of their sites.
    pub fn status(&self) -> Vec<(String, CertificateStatus)> {
        let of_site = |site: &SiteTls| {
            let status = site.status.lock().unwrap_or_else(PoisonError::into_inner).clone();
            status.into_iter().map(|status| (site.name.clone(), status)).collect::<Vec<_>>()
        };
        self.sites.iter().flatten().flat_map(of_site).collect()
    }

    /// Returns the TLS configuration of a site.
    pub(crate) fn of_site(&self, index: usize) -> Option<Arc<SiteConfig>> {
        let site = self.sites.get(index)?.as_ref()?;
        let current = site.current.read().unwrap_or_else(PoisonError::into_inner).clone();
        if current.is_none() && !site.lack_reported.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                site = site.name,
                "TLS handshakes fail until a certificate is available"
            );
        }
        current
    }

    /// Returns the site whose certificate a client without SNI gets when there is no default site: the first of the listener.
    fn first(&self, listener: u64, config: &Config) -> Option<usize> {
        let has_tls = |site: &usize| self.sites.get(*site).is_some_and(Option::is_some);
        config.sites.on(listener).find(has_tls)
    }

    /// Returns the policy that the handshake of a TLS connection must meet for requests to this site.
    #[inline]
    pub fn policy(&self, site: usize) -> Policy {
        match self.sites.get(site) {
            Some(Some(site)) => site.policy.get(),
            _ => Policy::UNMET,
        }
    }

    /// Returns `true` if the site requires client certificates.
    pub fn requires_certificates(&self, site: usize) -> bool {
        let site = self.sites.get(site).and_then(Option::as_ref);
        let clients = site.and_then(|site| site.settings.clients.as_ref());
        clients.is_some_and(|clients| clients.required)
    }

    /// Returns the site whose certificate a client of a listener gets for the server name `name`, which is empty without SNI.
    pub(crate) fn site_for(&self, listener: u64, name: &str, config: &Config) -> Option<usize> {
        match config.sites.find_on(listener, name.as_bytes()) {
            // A client without SNI needs some certificate.
            None if name.is_empty() => self.first(listener, config),
            site => site,
        }
    }

    /// Ends [`Certificates::follow`] and [`Certificates::obtain`].
    pub fn retire(&self) {
        self.retired.store(true, Ordering::Relaxed);
    }

    fn is_empty(&self) -> bool {
        self.sites.iter().all(Option::is_none)
    }

    /// Starts a thread that reloads certificates when their files change. A certificate that cannot be used is logged, and
    /// the previous one stays in use.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub fn follow(self: &Arc<Self>) -> std::io::Result<()> {
        if self.is_empty() {
            return Ok(());
        }
        let certificates: Weak<Self> = Arc::downgrade(self);
        let follow = move || {
            while let Some(certificates) = certificates.upgrade() {
                if certificates.retired.load(Ordering::Relaxed) {
                    return;
                }
                certificates.sites.iter().flatten().for_each(SiteTls::check);
                drop(certificates);
                std::thread::sleep(CHECK_INTERVAL);
            }
        };
        std::thread::Builder::new().name("certificates".into()).spawn(follow).map(drop)
    }

    /// Returns `true` if certificates are obtained by ACME.
    pub fn has_acme(&self) -> bool {
        self.challenges.is_some()
    }

    /// Starts a thread that obtains and renews certificates by ACME, if a site uses it. `shared` is the storage of the fleet, if there
    /// is one.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub fn obtain(
        &self,
        config: &Config,
        shared: Option<Arc<dyn SharedStorage>>,
    ) -> std::io::Result<()> {
        match &self.challenges {
            Some(challenges) => acme::start(config, challenges, &self.retired, shared),
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
        // Taken before the files are read, so that a change in between is noticed.
        let seen = stamps(&settings);
        let current = match site_config(&settings, &name) {
            Ok(site) => Some(site),
            // ACME will obtain one.
            Err(error) if awaits_acme(&settings) => {
                tracing::info!(
                    site = name,
                    "no certificate is available yet, it will be obtained: {error}"
                );
                None
            }
            Err(error) => return Err(error),
        };
        let status = status::of(&settings)?;
        let policy = match &current {
            Some(site) => site.policy,
            None => Requirements::read(&settings)?.policy(),
        };
        Ok(Self {
            name,
            settings,
            policy: CurrentPolicy::new(policy),
            current: RwLock::new(current),
            lack_reported: AtomicBool::new(false),
            seen: Mutex::new(seen),
            status: Mutex::new(status),
        })
    }

    fn check(&self) {
        self.check_files();
        let mut status = self.status.lock().unwrap_or_else(PoisonError::into_inner);
        for certificate in status.iter_mut() {
            if let Some(acme) = &self.settings.acme {
                certificate.update_outcome(acme);
            }
            certificate.warn(&self.name);
        }
    }

    fn check_files(&self) {
        let now = stamps(&self.settings);
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if *seen == now {
            return;
        }
        *seen = now;
        let loaded = site_config(&self.settings, &self.name);
        let mut status = self.status.lock().unwrap_or_else(PoisonError::into_inner);
        match loaded.and_then(|config| Ok((config, status::of(&self.settings)?))) {
            Ok((config, fresh)) => {
                let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
                // Set within the lock, so that requests after a handshake with the new configuration are compared with
                // the new policy.
                self.policy.set(config.policy);
                *current = Some(config);
                drop(current);
                *status = fresh;
                self.lack_reported.store(false, Ordering::Relaxed);
                tracing::info!(site = self.name, "the certificate was reloaded from its files");
            }
            Err(error) => {
                status.iter_mut().for_each(|certificate| certificate.record_failure(&error));
                tracing::error!(
                    site = self.name,
                    "the changed certificate cannot be used, the previous one stays in use: {error}"
                );
            }
        }
    }
}

/// Returns `true` if the certificate is missing and ACME will obtain it.
fn awaits_acme(settings: &Tls) -> bool {
    settings.acme.as_ref().is_some_and(|acme| {
        let file = acme.file();
        certificate::check_pair(&file, &file).is_err()
    })
}

fn stamps(settings: &Tls) -> Vec<FileStamp> {
    settings.files().map(FileStamp::of).collect()
}

/// Checks that the certificates of a site can be used. Returns a line about each.
///
/// # Errors
/// The first problem.
pub fn examine(settings: &Tls) -> Result<Vec<String>, String> {
    if let Some(acme) = &settings.acme {
        for authority in &acme.authorities {
            trust::roots(authority.trusted.as_deref())?;
            if let Some(external) = &authority.external {
                read_external_key(&external.key)?;
            }
        }
        if let Some(Publisher::Updates(updates)) = acme.dns.as_ref().map(|dns| &dns.publisher) {
            updates.key.as_ref().map(update_key).transpose()?;
        }
    }
    match site_config(settings, "") {
        Err(error) if !awaits_acme(settings) => return Err(error),
        _ => {}
    }
    Ok(status::of(settings)?.iter().map(CertificateStatus::to_string).collect())
}
