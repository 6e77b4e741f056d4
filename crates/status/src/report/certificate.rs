//! Certificates.

use serde::{Deserialize, Serialize};

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
