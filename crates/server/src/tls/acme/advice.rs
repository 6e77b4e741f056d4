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

/// The renewal window that the authority suggests for a certificate, stored beside it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Advice {
    /// The identifier of the certificate (§4.1).
    certificate: String,
    /// The window, in seconds since 1970.
    start: u64,
    end: u64,
}

/// Bounds on the interval between queries (§4.3).
const MIN_INTERVAL: Duration = Duration::from_secs(60);
const MAX_INTERVAL: Duration = Duration::from_secs(24 * 3600);
/// Interval when the authority did not respond or has no renewal information.
const RETRY_INTERVAL: Duration = Duration::from_secs(6 * 3600);

impl Advice {
    /// The stored window of the certificate in `file`; `None` when it belongs to another certificate.
    pub(super) fn read(file: &Path) -> Option<Self> {
        let advice: Self = serde_json::from_slice(&fs::read(path(file)).ok()?).ok()?;
        (advice.certificate == identifier(file)?.to_string()).then_some(advice)
    }

    /// A time in the window, at `spread` / 255 of it, so that servers differ.
    pub(super) fn time(&self, spread: u8) -> SystemTime {
        let (start, end) = (after_1970(self.start), after_1970(self.end));
        let window = end.duration_since(start).unwrap_or_default();
        start + window.mul_f64(f64::from(spread) / 255.0)
    }

    fn write(&self, file: &Path) -> io::Result<()> {
        replace(&path(file), &serde_json::to_vec(self)?, |_| Ok(()))
    }
}

/// Queries the renewal window of the current certificate and stores it. Returns the time until the next query.
pub(super) async fn update(acme: &Acme) -> Duration {
    let file = acme.file();
    let Some(identifier) = identifier(&file) else { return RETRY_INTERVAL };
    let (info, again) = match info(acme, &identifier).await {
        Ok(info) => info,
        Err(error) => {
            tracing::debug!(directory = acme.directory, "ACME: no renewal information: {error}");
            return RETRY_INTERVAL;
        }
    };
    let seconds = |time: i64| u64::try_from(time).unwrap_or_default();
    let advice = Advice {
        certificate: identifier.to_string(),
        start: seconds(info.suggested_window.start.unix_timestamp()),
        end: seconds(info.suggested_window.end.unix_timestamp()),
    };
    // A window that ends before it starts is invalid (§4.2).
    if advice.start < advice.end && Advice::read(&file).as_ref() != Some(&advice) {
        let site = acme.names.first().map_or("", String::as_str);
        if let Err(error) = advice.write(&file) {
            tracing::error!(site, "{}: {error}", path(&file).display());
        }
        let renewal = certificate::date(super::renewal(&file));
        let why = info.explanation_url.unwrap_or_default();
        tracing::info!(site, renewal, why, "ACME: the authority has set the time of renewal");
    }
    again.clamp(MIN_INTERVAL, MAX_INTERVAL)
}

async fn info(
    acme: &Acme,
    identifier: &CertificateIdentifier<'_>,
) -> Result<(instant_acme::RenewalInfo, Duration), Error> {
    // Do not create an account for this query.
    if !acme.account().exists() {
        return Err(Error::Str("there is no account yet"));
    }
    let client =
        Client::new(acme.authority.as_deref()).map_err(|error| Error::Other(error.into()))?;
    order::account(acme, &client).await?.renewal_info(identifier).await
}

/// The ARI identifier of the certificate in `file`.
pub(super) fn identifier(file: &Path) -> Option<CertificateIdentifier<'static>> {
    let chain = certificate::chain(file).ok()?;
    let identifier = CertificateIdentifier::try_from(chain.first()?).ok()?;
    Some(identifier.into_owned())
}

pub(super) fn path(file: &Path) -> PathBuf {
    file.with_extension("renewal")
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    #[test]
    fn the_renewal_time_is_within_the_window() {
        let advice = Advice { certificate: String::new(), start: 1000, end: 2000 };
        let at = |spread| advice.time(spread).duration_since(UNIX_EPOCH).unwrap().as_secs();
        assert_eq!((at(0), at(255)), (1000, 2000));
        assert!((1400..1600).contains(&at(128)));
        // Invalid times do not cause a panic.
        let wrong = Advice { start: u64::from(u32::MAX), end: 0, ..advice };
        assert!(wrong.time(255) > UNIX_EPOCH);
    }
}
