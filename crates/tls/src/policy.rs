//! TLS policies: what a site requires of a handshake. A request is served only if the handshake of its connection met the
//! policy of the site that the request names, which may differ from the site that the handshake named.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use dunlin_config::{ClientCertificates, Tls, TlsVersion};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{CipherSuite, RootCertStore, SupportedProtocolVersion, version};
use sha2::{Digest, Sha256};

use super::certificate::provider;
use super::pem;

/// The number of a policy. Two sites have the same policy if and only if they require the same of a handshake. It is stable
/// across reloads, and changes with the content of the files that verify clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Policy(u32);

impl Policy {
    /// For subrequests of the server itself, whose original request was admitted: nothing is compared.
    pub const EXEMPT: Self = Self(0);
    /// For connections without TLS.
    pub const UNENCRYPTED: Self = Self(1);
    /// The policy of a site without `tls`, which no handshake meets.
    pub(crate) const UNMET: Self = Self(u32::MAX);
}

/// A policy that can change while requests are compared with it.
#[derive(Debug)]
pub(crate) struct CurrentPolicy(AtomicU32);

impl CurrentPolicy {
    pub(crate) fn new(policy: Policy) -> Self {
        Self(AtomicU32::new(policy.0))
    }

    #[inline]
    pub(crate) fn get(&self) -> Policy {
        Policy(self.0.load(Ordering::Relaxed))
    }

    pub(crate) fn set(&self, policy: Policy) {
        self.0.store(policy.0, Ordering::Relaxed);
    }
}

/// The requirements of a site, with the content of the files that it names.
pub(crate) struct Requirements {
    /// With the permitted cipher suites, in order of preference.
    pub(crate) provider: Arc<CryptoProvider>,
    pub(crate) versions: Vec<&'static SupportedProtocolVersion>,
    clients: Option<Clients>,
}

impl Requirements {
    /// Reads the files that `settings` names.
    ///
    /// # Errors
    /// The file that cannot be read, and why.
    pub(crate) fn read(settings: &Tls) -> Result<Self, String> {
        let mut provider = CryptoProvider::clone(&provider());
        if let Some(wanted) = &settings.ciphers {
            let all = std::mem::take(&mut provider.cipher_suites);
            let find = |name| all.iter().find(|suite| suite.suite() == name).copied();
            provider.cipher_suites = wanted.iter().copied().filter_map(find).collect();
        }
        let supported: &[&SupportedProtocolVersion] = match settings.min_version {
            TlsVersion::Tls12 => &[&version::TLS13, &version::TLS12],
            TlsVersion::Tls13 => &[&version::TLS13],
        };
        // A version without a suite would be negotiated, and then fail.
        let has_suite = |version: &&&'static SupportedProtocolVersion| {
            provider.cipher_suites.iter().any(|suite| suite.version() == **version)
        };
        let versions = supported.iter().filter(has_suite).copied().collect();
        let clients = settings.clients.as_ref().map(Clients::read).transpose()?;
        Ok(Self { provider: Arc::new(provider), versions, clients })
    }

    /// Returns the suites that a handshake can negotiate. Each belongs to one TLS version, so they also determine the
    /// versions.
    pub(crate) fn suites(&self) -> Vec<CipherSuite> {
        let suites = self.provider.cipher_suites.iter();
        let usable = suites.filter(|suite| self.versions.contains(&suite.version()));
        usable.map(rustls::SupportedCipherSuite::suite).collect()
    }

    pub(crate) fn policy(&self) -> Policy {
        let mut suites: Vec<u16> = self.suites().into_iter().map(u16::from).collect();
        suites.sort_unstable();
        suites.dedup();
        let clients = self.clients.as_ref().map(Clients::digest);
        number_of(Terms { suites, clients })
    }

    /// Returns the verifier of client certificates; `None` when none are requested.
    ///
    /// # Errors
    /// The file that cannot be used, and why.
    pub(crate) fn verifier(&self) -> Result<Option<Arc<dyn ClientCertVerifier>>, String> {
        self.clients.as_ref().map(|clients| clients.verifier(&self.provider)).transpose()
    }
}

/// The terms by which policies are compared.
#[derive(PartialEq, Eq)]
struct Terms {
    /// Sorted.
    suites: Vec<u16>,
    clients: Option<[u8; 32]>,
}

/// All policies that sites of this process have had. The number of a policy is its index plus [`FIRST`].
static POLICIES: Mutex<Vec<Terms>> = Mutex::new(Vec::new());

/// The first number that is not reserved.
const FIRST: usize = 2;

fn number_of(terms: Terms) -> Policy {
    let mut policies = POLICIES.lock().unwrap_or_else(PoisonError::into_inner);
    let index = policies.iter().position(|other| *other == terms).unwrap_or_else(|| {
        policies.push(terms);
        policies.len() - 1
    });
    // It would take 4 billion reloads.
    u32::try_from(index + FIRST).map_or(Policy::UNMET, Policy)
}

/// Authorities and revocation lists for client certificates.
struct Clients {
    authorities: Vec<CertificateDer<'static>>,
    revoked: Option<Vec<CertificateRevocationListDer<'static>>>,
    settings: ClientCertificates,
}

impl Clients {
    fn read(settings: &ClientCertificates) -> Result<Self, String> {
        let lists = |file: &std::path::PathBuf| pem::revocation_lists(file);
        Ok(Self {
            authorities: pem::certificates(&settings.authority)?,
            revoked: settings.revoked.as_ref().map(lists).transpose()?,
            settings: settings.clone(),
        })
    }

    fn digest(&self) -> [u8; 32] {
        let mut digest = Sha256::new();
        digest.update([u8::from(self.settings.required), u8::from(self.revoked.is_some())]);
        let authorities = self.authorities.iter().map(|item| (0, item.as_ref()));
        let revoked = self.revoked.iter().flatten().map(|item| (1, item.as_ref()));
        for (kind, item) in authorities.chain(revoked) {
            digest.update([kind]);
            digest.update((item.len() as u64).to_be_bytes());
            digest.update(item);
        }
        digest.finalize().into()
    }

    fn verifier(
        &self,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Arc<dyn ClientCertVerifier>, String> {
        let mut roots = RootCertStore::empty();
        for authority in &self.authorities {
            roots.add(authority.clone()).map_err(|error| {
                format!("client_authority {}: {error}", self.settings.authority.display())
            })?;
        }
        let mut builder =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider));
        if let Some(lists) = &self.revoked {
            builder = builder.with_crls(lists.iter().cloned());
        }
        if !self.settings.required {
            builder = builder.allow_unauthenticated();
        }
        builder.build().map_err(|error| format!("client_authority: {error}"))
    }
}
