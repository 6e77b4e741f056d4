//! The conditions of the fast path that follow from the configuration.

use std::sync::Arc;

use dunlin_config::Config;
use dunlin_tls::Certificates;

use super::sites::{Site, Sites};

/// What the fast path needs of the configuration.
pub(crate) struct FastPathConditions {
    /// The fast path can respond: there are no trusted proxies, and no challenges of a certificate authority.
    pub(super) is_open: bool,
    /// The only site, which serves every host.
    pub(super) only_site: Option<Arc<Site>>,
    /// Some sites require certificates of their clients.
    pub(super) some_require_certificates: bool,
}

impl FastPathConditions {
    pub(crate) fn new(config: &Config, sites: &Sites, certificates: &Certificates) -> Self {
        let is_open =
            config.server.trusted_proxies.is_empty() && certificates.challenges().is_none();
        Self {
            is_open,
            only_site: sites.only().cloned(),
            some_require_certificates: (0..config.sites.iter().count())
                .any(|site| certificates.requires_certificates(site)),
        }
    }
}
