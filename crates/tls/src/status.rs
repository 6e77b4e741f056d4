//! The status of certificates: expiry, renewal, and failed renewals.

use std::fmt;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use dunlin_config::{Acme, Tls};

use super::acme::files::Outcome;
use super::acme::{renewal, state_files};
use super::certificate::{self, Validity, date};
use super::file_stamp::FileStamp;

/// Time before expiry at which warnings begin, at most a tenth of the lifetime.
const WARNING_PERIOD: Duration = Duration::from_secs(7 * 86_400);
/// Interval between warnings.
const WARNING_INTERVAL: Duration = Duration::from_secs(86_400);

/// The status of a certificate that is in use or will be obtained.
#[derive(Clone, Debug)]
pub struct CertificateStatus {
    /// The file in PEM form.
    pub file: PathBuf,
    /// The host names that it covers.
    pub names: Vec<String>,
    validity: Option<Validity>,
    /// The ACME directory, and the time of the next renewal.
    pub renewal: Option<(String, SystemTime)>,
    /// The failure to replace it, if any.
    pub failure: Option<RenewalFailure>,
    /// State of the files of ACME attempts at the last check.
    seen: Vec<FileStamp>,
    warned: Option<SystemTime>,
}

/// A failure to renew or reload a certificate.
#[derive(Clone, Debug)]
pub struct RenewalFailure {
    /// Number of failures since the last success.
    pub failures: u32,
    /// The last error.
    pub error: String,
    /// Time of the last failure.
    pub failed_at: SystemTime,
    /// Time of the next attempt; `None` when it waits for the files to change.
    pub next_try: Option<SystemTime>,
}

/// Returns the status of each certificate of a site.
///
/// # Errors
/// The file that is not a readable certificate.
pub(crate) fn of(settings: &Tls) -> Result<Vec<CertificateStatus>, String> {
    if let Some(acme) = &settings.acme {
        let mut status = CertificateStatus::new(acme.file());
        if let Ok(info) = certificate::info(&status.file) {
            (status.names, status.validity) = (info.names, Some(info.validity));
        } else {
            status.names.clone_from(&acme.names);
        }
        status.update_outcome(acme);
        return Ok(vec![status]);
    }
    let of_file = |(file, _): &(PathBuf, PathBuf)| {
        let info = certificate::info(file)?;
        let status = CertificateStatus::new(file.clone());
        Ok(CertificateStatus { names: info.names, validity: Some(info.validity), ..status })
    };
    settings.certificates.iter().map(of_file).collect()
}

impl CertificateStatus {
    fn new(file: PathBuf) -> Self {
        let names = Vec::new();
        let seen = Vec::new();
        Self { file, names, validity: None, renewal: None, failure: None, seen, warned: None }
    }

    /// Time of expiry; `None` when there is no certificate yet.
    pub fn expires(&self) -> Option<SystemTime> {
        self.validity.map(|validity| validity.until)
    }

    /// Reads the outcome of the last ACME attempts.
    pub(crate) fn update_outcome(&mut self, acme: &Acme) {
        let now: Vec<_> = state_files(acme).iter().map(FileStamp::of).collect();
        if self.seen == now {
            return;
        }
        self.seen = now;
        self.renewal = Some((acme.directories(), renewal(&self.file)));
        self.failure = Outcome::read(&acme.outcome()).map(|outcome| RenewalFailure {
            failures: outcome.failures,
            failed_at: outcome.failed_at(),
            next_try: Some(outcome.next_try()),
            error: outcome.error,
        });
    }

    /// Records that the changed files cannot be used.
    pub(crate) fn record_failure(&mut self, error: &str) {
        let failures =
            self.failure.as_ref().map_or(0, |failure| failure.failures).saturating_add(1);
        let (error, failed_at) = (error.to_owned(), SystemTime::now());
        self.failure = Some(RenewalFailure { failures, error, failed_at, next_try: None });
    }

    /// Logs a warning, at most once a day, when the certificate has expired or will soon expire.
    pub(crate) fn warn(&mut self, site: &str) {
        let Some(validity) = self.validity else { return };
        let now = SystemTime::now();
        let life = validity.until.duration_since(validity.from).unwrap_or_default();
        let soon = validity
            .until
            .checked_sub(WARNING_PERIOD.min(life / 10))
            .is_some_and(|soon| soon <= now);
        let again = self.warned.is_none_or(|warned| {
            now.duration_since(warned).is_ok_and(|since| since >= WARNING_INTERVAL)
                || warned < validity.until && validity.until <= now
        });
        if !soon || !again {
            return;
        }
        self.warned = Some(now);
        if validity.until <= now {
            tracing::error!(site, "{self}");
        } else {
            tracing::warn!(site, "{self}");
        }
    }
}

impl fmt::Display for CertificateStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("certificate")?;
        if self.validity.is_some() {
            write!(f, " {}", self.file.display())?;
        }
        if !self.names.is_empty() {
            write!(f, " for {}", self.names.join(", "))?;
        }
        match (self.expires(), &self.renewal) {
            (Some(until), renewal) => {
                write!(f, ": until {}, ", date(until))?;
                match until.duration_since(SystemTime::now()) {
                    Ok(left) => match left.as_secs() / 86_400 {
                        1 => f.write_str("1 day is left")?,
                        days => write!(f, "{days} days are left")?,
                    },
                    Err(_) => f.write_str("it has expired")?,
                }
                if let Some((_, time)) = renewal {
                    write!(f, ", renewal on {}", date(*time))?;
                }
            }
            (None, Some((authority, _))) => {
                write!(f, ": not obtained yet; ACME directory {authority}")?;
            }
            (None, None) => f.write_str(": not obtained yet")?,
        }
        if let Some(RenewalFailure { failures, error, failed_at, next_try }) = &self.failure {
            let plural = if *failures == 1 { "" } else { "s" };
            write!(f, "; tried {failures} time{plural}, last on {}: {error}", date(*failed_at))?;
            if let Some(next) = next_try {
                write!(f, "; next try {}", date(*next))?;
            }
        }
        Ok(())
    }
}
