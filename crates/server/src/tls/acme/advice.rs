//! When an authority advises to renew a certificate (RFC 9773): earlier than planned when it will revoke it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use instant_acme::{CertificateIdentifier, Error};
use serde::{Deserialize, Serialize};

use super::client::Client;
use super::files::replace;
use super::order;
use crate::config::Acme;
use crate::tls::certificate;
use crate::tls::clock::after_1970;

/// What the authority has said of a certificate, kept beside it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Advice {
    /// Of which certificate, by its identifier (§4.1).
    certificate: String,
    /// The window in which it is to be renewed, in seconds since 1970.
    start: u64,
    end: u64,
}

/// How soon an authority is asked again at the earliest, and at the latest (§4.3).
const SOONEST: Duration = Duration::from_secs(60);
const LATEST: Duration = Duration::from_secs(24 * 3600);
/// How soon when it did not answer, or says nothing of the kind.
const UNHEARD: Duration = Duration::from_secs(6 * 3600);

impl Advice {
    /// What was said of the certificate in this file; nothing when that was of another.
    pub(super) fn read(file: &Path) -> Option<Self> {
        let advice: Self = serde_json::from_slice(&fs::read(kept(file)).ok()?).ok()?;
        (advice.certificate == identifier(file)?.to_string()).then_some(advice)
    }

    /// A time in the window: another for each of many servers. `spread`: a part of 255.
    pub(super) fn time(&self, spread: u8) -> SystemTime {
        let (start, end) = (after_1970(self.start), after_1970(self.end));
        let window = end.duration_since(start).unwrap_or_default();
        start + window.mul_f64(f64::from(spread) / 255.0)
    }

    fn write(&self, file: &Path) -> io::Result<()> {
        replace(&kept(file), &serde_json::to_vec(self)?, |_| Ok(()))
    }
}

/// Asks the authority when the certificate that is there is to be renewed, and keeps what it says. Returns after
/// which time it is to be asked again.
pub(super) async fn ask(acme: &Acme) -> Duration {
    let file = acme.file();
    let Some(identifier) = identifier(&file) else { return UNHEARD };
    let (info, again) = match info(acme, &identifier).await {
        Ok(told) => told,
        Err(error) => {
            tracing::debug!(directory = acme.directory, "no advice about renewal: {error}");
            return UNHEARD;
        }
    };
    let seconds = |time: i64| u64::try_from(time).unwrap_or_default();
    let advice = Advice {
        certificate: identifier.to_string(),
        start: seconds(info.suggested_window.start.unix_timestamp()),
        end: seconds(info.suggested_window.end.unix_timestamp()),
    };
    // A window that ends before it begins says nothing (§4.2).
    if advice.start < advice.end && Advice::read(&file).as_ref() != Some(&advice) {
        let site = acme.names.first().map_or("", String::as_str);
        if let Err(error) = advice.write(&file) {
            tracing::error!(site, "{}: {error}", kept(&file).display());
        }
        let renewal = certificate::date(super::renewal(&file));
        let why = info.explanation_url.unwrap_or_default();
        tracing::info!(
            site,
            renewal,
            why,
            "the authority says when the certificate is to be renewed"
        );
    }
    again.clamp(SOONEST, LATEST)
}

async fn info(
    acme: &Acme,
    identifier: &CertificateIdentifier<'_>,
) -> Result<(instant_acme::RenewalInfo, Duration), Error> {
    // It is not worth an account of its own.
    if !acme.account().exists() {
        return Err(Error::Str("there is no account yet"));
    }
    let client =
        Client::new(acme.authority.as_deref()).map_err(|error| Error::Other(error.into()))?;
    order::account(acme, &client).await?.renewal_info(identifier).await
}

/// By what the authority knows the certificate in this file.
pub(super) fn identifier(file: &Path) -> Option<CertificateIdentifier<'static>> {
    let chain = certificate::chain(file).ok()?;
    let identifier = CertificateIdentifier::try_from(chain.first()?).ok()?;
    Some(identifier.into_owned())
}

pub(super) fn kept(file: &Path) -> PathBuf {
    file.with_extension("renewal")
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    #[test]
    fn a_time_is_within_the_window() {
        let advice = Advice { certificate: String::new(), start: 1000, end: 2000 };
        let at = |spread| advice.time(spread).duration_since(UNIX_EPOCH).unwrap().as_secs();
        assert_eq!((at(0), at(255)), (1000, 2000));
        assert!((1400..1600).contains(&at(128)));
        // Times that an authority makes up are no reason to fall over.
        let wrong = Advice { start: u64::from(u32::MAX), end: 0, ..advice };
        assert!(wrong.time(255) > UNIX_EPOCH);
    }
}
