//! Queries for the renewal window that an authority advises (RFC 9773).

use std::time::Duration;

use dunlin_config::{Acme, Authority};
use instant_acme::{CertificateIdentifier, Error, RenewalInfo};

use super::account;
use super::advice::{self, Advice};
use super::client::Client;
use super::renewal::renewal;
use crate::certificate;

/// Bounds on the interval between queries (§4.3).
const MIN_INTERVAL: Duration = Duration::from_secs(60);
const MAX_INTERVAL: Duration = Duration::from_secs(24 * 3600);
/// Interval when the authority did not respond or has no renewal information.
const RETRY_INTERVAL: Duration = Duration::from_secs(6 * 3600);

/// Queries the renewal window of the current certificate and stores it. Returns the time until the next query.
pub(crate) async fn update(acme: &Acme) -> Duration {
    let file = acme.file();
    let Some(identifier) = advice::identifier(&file) else { return RETRY_INTERVAL };
    let Some((info, again)) = info(acme, &identifier).await else { return RETRY_INTERVAL };
    let seconds = |time: i64| u64::try_from(time).unwrap_or_default();
    let window = Advice {
        certificate: identifier.to_string(),
        start: seconds(info.suggested_window.start.unix_timestamp()),
        end: seconds(info.suggested_window.end.unix_timestamp()),
    };
    // A window that ends before it starts is invalid (§4.2).
    if window.start < window.end && Advice::read(&file).as_ref() != Some(&window) {
        let site = acme.names.first().map_or("", String::as_str);
        if let Err(error) = window.write(&file) {
            tracing::error!(site, "{}: {error}", advice::path(&file).display());
        }
        let renewal = certificate::date(renewal(&file));
        let why = info.explanation_url.unwrap_or_default();
        tracing::info!(site, renewal, why, "ACME: the authority has set the time of renewal");
    }
    again.clamp(MIN_INTERVAL, MAX_INTERVAL)
}

/// Returns the renewal window of the certificate `identifier` from the authority that knows it, and the time until the next query.
async fn info(
    acme: &Acme,
    identifier: &CertificateIdentifier<'_>,
) -> Option<(RenewalInfo, Duration)> {
    for authority in &acme.authorities {
        match info_of(acme, authority, identifier).await {
            Ok(info) => return Some(info),
            Err(error) => {
                let directory = &authority.directory;
                tracing::debug!(directory, "ACME: no renewal information: {error}");
            }
        }
    }
    None
}

async fn info_of(
    acme: &Acme,
    authority: &Authority,
    identifier: &CertificateIdentifier<'_>,
) -> Result<(RenewalInfo, Duration), Error> {
    // Do not create an account for this query.
    if !authority.account().exists() {
        return Err(Error::Str("there is no account yet"));
    }
    let client = Client::new(authority.trusted.as_deref());
    let client = client.map_err(|error| Error::Other(error.into()))?;
    account::get_or_create(acme, authority, &client).await?.renewal_info(identifier).await
}
