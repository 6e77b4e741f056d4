//! TLS of QUIC connections.

use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;

use dunlin_config::Config;
use dunlin_quic::crypto::{ChooseConfig, Chosen, HandshakeSummary};
use rustls::CipherSuite;
use rustls::pki_types::CertificateDer;
use rustls::server::ClientHello;

use super::certificates::Certificates;
use super::handshake::{PolicyMatch, host_of};
use super::info::{ClientCertificate, TlsInfo};
use super::policy::Policy;

/// The choice of the site of a QUIC connection.
pub struct QuicSites {
    /// The number of the listener.
    pub listener: u64,
    /// The address of the listener, which is the host of clients without SNI.
    pub address: IpAddr,
    /// The configuration with the sites.
    pub config: Arc<Config>,
    /// Their certificates.
    pub certificates: Arc<Certificates>,
}

/// What was chosen for a connection.
struct Choice {
    name: Box<str>,
    policy: Policy,
}

impl ChooseConfig for QuicSites {
    fn choose(&self, hello: &ClientHello<'_>) -> Option<Chosen> {
        let name: Box<str> = match hello.server_name() {
            Some(name) => name.into(),
            None => host_of(self.address, self.listener, &self.config),
        };
        let site = self.certificates.site_for(self.listener, &name, &self.config)?;
        let site = self.certificates.of_site(site)?;
        let choice = Choice { name, policy: site.policy };
        Some(Chosen { config: site.http3()?, tag: Arc::new(choice) })
    }
}

/// The TLS session of a QUIC connection whose handshake is complete, or begins with early data.
#[derive(Debug)]
pub struct QuicSession {
    listener: u64,
    name: Box<str>,
    policy: Policy,
    suite: Option<CipherSuite>,
    certificates: Vec<CertificateDer<'static>>,
    client: Option<Rc<ClientCertificate>>,
    is_resumed: bool,
    is_early: bool,
}

impl QuicSession {
    /// Creates the session of a connection to a listener with that number; `None` if its site was not chosen by [`QuicSites`].
    /// `is_early`: the handshake is not complete.
    pub fn new(listener: u64, handshake: HandshakeSummary, is_early: bool) -> Option<Self> {
        let HandshakeSummary { suite, is_resumed, client_certificates, tag, .. } = handshake;
        let Choice { name, policy } = tag.downcast_ref()?;
        let client = ClientCertificate::read(&client_certificates).map(Rc::new);
        let (name, policy) = (name.clone(), *policy);
        let certificates = client_certificates;
        Some(Self { listener, name, policy, suite, certificates, client, is_resumed, is_early })
    }

    /// Returns `true` if the client has resumed a session.
    pub fn is_resumed(&self) -> bool {
        self.is_resumed
    }

    /// Returns `true` if what arrives is early data.
    pub fn is_early(&self) -> bool {
        self.is_early
    }

    /// Notes that the handshake is complete.
    pub fn complete(&mut self) {
        self.is_early = false;
    }

    /// See [`Transport::policy`](crate::Transport::policy).
    pub fn policy(&self) -> Policy {
        self.policy
    }

    /// See [`Transport::tls`](crate::Transport::tls).
    pub fn tls(&self) -> TlsInfo {
        let state = (self.is_early, self.is_resumed);
        TlsInfo::of_quic(self.suite, self.client.as_ref(), &self.name, state)
    }

    /// See [`Transport::renew_policy`](crate::Transport::renew_policy).
    pub fn renew_policy(&mut self, config: &Config, certificates: &Certificates) -> PolicyMatch {
        let site = certificates.site_for(self.listener, &self.name, config);
        let Some(site) = site.and_then(|site| certificates.of_site(site)) else {
            return PolicyMatch::Unmet;
        };
        if self.policy == site.policy {
            return PolicyMatch::Unchanged;
        }
        if !site.is_met_by(self.suite, &self.certificates) {
            return PolicyMatch::Unmet;
        }
        self.policy = site.policy;
        if !site.verifies_clients() {
            self.client = None;
        }
        PolicyMatch::Renewed
    }
}
