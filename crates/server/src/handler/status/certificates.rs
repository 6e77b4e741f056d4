//! The report on certificates.

use std::time::SystemTime;

use dunlin_tls::{CertificateStatus, Certificates};
use serde::{Deserialize, Serialize};

use super::report::seconds;

/// A certificate of a site. Times are in seconds since 1970.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Certificate {
    /// Name of the site.
    pub site: String,
    /// File of the certificate.
    pub file: String,
    /// Names in the certificate.
    pub names: Vec<String>,
    /// End of its validity; `None` if there is no certificate yet.
    pub expires: Option<f64>,
    /// Time of the renewal; `None` if the server does not obtain the certificate.
    pub renewal: Option<f64>,
    /// Failed attempts to load or renew it since the last success.
    pub failures: u64,
    /// Error of the last attempt.
    pub error: Option<String>,
    /// Time of the last failed attempt.
    pub failed_at: Option<f64>,
    /// Time of the next attempt; `None` if the next attempt follows a change of the files.
    pub next_try: Option<f64>,
}

/// Reports the certificates of all sites.
pub(super) fn report(certificates: &Certificates) -> Vec<Certificate> {
    certificates.status().into_iter().map(Certificate::from).collect()
}

impl From<(String, CertificateStatus)> for Certificate {
    fn from((site, status): (String, CertificateStatus)) -> Self {
        let time = |time: Option<SystemTime>| time.map(seconds);
        let failure = status.failure.as_ref();
        Self {
            site,
            file: status.file.display().to_string(),
            expires: time(status.expires()),
            renewal: time(status.renewal.as_ref().map(|(_, time)| *time)),
            failures: failure.map_or(0, |failure| failure.failures.into()),
            error: failure.map(|failure| failure.error.clone()),
            failed_at: time(failure.map(|failure| failure.failed_at)),
            next_try: time(failure.and_then(|failure| failure.next_try)),
            names: status.names,
        }
    }
}
