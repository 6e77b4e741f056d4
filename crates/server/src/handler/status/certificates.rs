//! Certificates, as the report shows them.

use std::time::SystemTime;

use dunlin_tls::{CertificateStatus, Certificates};
use serde::{Deserialize, Serialize};

use super::report::seconds;

/// A certificate of a site. Times are in seconds since 1970.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Certificate {
    /// The site's name.
    pub site: String,
    /// The file that it is in.
    pub file: String,
    /// The hosts that it is for.
    pub names: Vec<String>,
    /// Until when it is good; absent when there is none yet.
    pub expires: Option<f64>,
    /// When it will be renewed; absent when it is not obtained by the server.
    pub renewal: Option<f64>,
    /// How often the next one failed, since it last went well.
    pub failures: u64,
    /// Why, the last time.
    pub error: Option<String>,
    /// When that was.
    pub failed_at: Option<f64>,
    /// When it is tried again; absent when that is when the files change.
    pub next_try: Option<f64>,
}

/// Those of every site that has any.
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
