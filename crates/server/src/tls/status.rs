//! What is known of a site's certificates: until when they are good, and what went wrong with what should
//! have followed them.

use std::fmt;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use super::Stamp;
use super::acme::{self, Outcome};
use super::certificate::{self, Validity, date};
use crate::config::{Acme, Tls};

/// How long before its end a certificate is warned of, unless that is more than a tenth of its life.
const SOON: Duration = Duration::from_secs(7 * 86_400);
/// How often.
const AGAIN: Duration = Duration::from_secs(86_400);

/// What is known of a certificate that is in use, or will be.
#[derive(Clone, Debug)]
pub(crate) struct CertificateStatus {
    pub(crate) file: PathBuf,
    /// The hosts that it is for.
    pub(crate) names: Vec<String>,
    validity: Option<Validity>,
    /// Where it is obtained from, and when it will be again.
    pub(crate) renewal: Option<(String, SystemTime)>,
    /// What went wrong with the one that should take its place.
    pub(crate) trouble: Option<Trouble>,
    /// What the tries to obtain it have left behind, as it was last looked at.
    seen: Vec<Stamp>,
    warned: Option<SystemTime>,
}

/// What went wrong.
#[derive(Clone, Debug)]
pub(crate) struct Trouble {
    /// How often, since it last went well.
    pub(crate) failures: u32,
    /// What it was the last time.
    pub(crate) error: String,
    /// When that was.
    pub(crate) failed_at: SystemTime,
    /// When it is tried again; `None` when that is when the files change.
    pub(crate) next_try: Option<SystemTime>,
}

/// What is known of each certificate of a site.
///
/// # Errors
/// Which file cannot be read as a certificate.
pub(super) fn of(settings: &Tls) -> Result<Vec<CertificateStatus>, String> {
    if let Some(acme) = &settings.acme {
        let mut status = CertificateStatus::new(acme.file());
        if let Ok(info) = certificate::info(&status.file) {
            (status.names, status.validity) = (info.names, Some(info.validity));
        } else {
            status.names.clone_from(&acme.names);
        }
        status.look_at_outcome(acme);
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
        Self { file, names, validity: None, renewal: None, trouble: None, seen, warned: None }
    }

    /// Until when it is good; `None` when there is none yet.
    pub(crate) fn expires(&self) -> Option<SystemTime> {
        self.validity.map(|validity| validity.until)
    }

    /// Takes over how the last tries to obtain one went.
    pub(super) fn look_at_outcome(&mut self, acme: &Acme) {
        let now: Vec<_> = acme::traces(acme).iter().map(Stamp::of).collect();
        if self.seen == now {
            return;
        }
        self.seen = now;
        self.renewal = Some((acme.directory.clone(), acme::renewal(&self.file)));
        self.trouble = Outcome::read(&acme.outcome()).map(|outcome| Trouble {
            failures: outcome.failures,
            failed_at: outcome.failed_at(),
            next_try: Some(outcome.next_try()),
            error: outcome.error,
        });
    }

    /// Its files have changed into something that cannot be used.
    pub(super) fn refuse(&mut self, error: &str) {
        let failures =
            self.trouble.as_ref().map_or(0, |trouble| trouble.failures).saturating_add(1);
        let (error, failed_at) = (error.to_owned(), SystemTime::now());
        self.trouble = Some(Trouble { failures, error, failed_at, next_try: None });
    }

    /// Tells the log, once a day, that it has expired or soon will.
    pub(super) fn warn(&mut self, site: &str) {
        let Some(validity) = self.validity else { return };
        let now = SystemTime::now();
        let life = validity.until.duration_since(validity.from).unwrap_or_default();
        let soon = validity.until.checked_sub(SOON.min(life / 10)).is_some_and(|soon| soon <= now);
        let again = self.warned.is_none_or(|warned| {
            now.duration_since(warned).is_ok_and(|since| since >= AGAIN)
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
                write!(f, ": not there yet, to be had from {authority}")?;
            }
            (None, None) => f.write_str(": not there yet")?,
        }
        if let Some(Trouble { failures, error, failed_at, next_try }) = &self.trouble {
            let plural = if *failures == 1 { "" } else { "s" };
            write!(f, "; tried {failures} time{plural}, last on {}: {error}", date(*failed_at))?;
            if let Some(next) = next_try {
                write!(f, "; next try {}", date(*next))?;
            }
        }
        Ok(())
    }
}
