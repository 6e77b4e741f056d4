//! Certificates, and what holds for https.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;

use super::{AcmeTable, OneOrMany, OneOrManySchema, Spanned};
use crate::units::DurationValue;

/// The certificates of a site. Files that change are taken over without a restart.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(
    deny_unknown_fields,
    expecting = "a table such as { certificate = \"cert.pem\", key = \"key.pem\" }"
)]
pub struct TlsTable {
    /// Files in PEM form with the certificate and the chain to its authority; several for several kinds of keys, in
    /// order of preference.
    #[schemars(with = "Option<OneOrManySchema>")]
    pub certificate: Option<Spanned<OneOrMany<String>>>,
    /// Files in PEM form with the keys, in the same order.
    #[schemars(with = "Option<OneOrManySchema>")]
    pub key: Option<Spanned<OneOrMany<String>>>,
    /// Obtains and renews the certificate from an ACME authority (RFC 8555), for every name in `host`, instead of `certificate`
    /// and `key`.
    pub acme: Option<Spanned<AcmeTable>>,
    /// `true` permits clients that resume a session to send a request with their first message (0-RTT): only safe methods
    /// without a body are processed before the end of the handshake, others get 425. Sessions are then stored in
    /// memory, each for one use. Default: false.
    pub early_data: Option<Spanned<bool>>,
    /// File with an OCSP response in DER form, which is sent to clients (stapling).
    pub ocsp: Option<Spanned<PathBuf>>,
    /// Allowed cipher suites in order of preference, by OpenSSL's or IANA's names: `TLS_AES_128_GCM_SHA256`,
    /// `ECDHE-ECDSA-AES128-GCM-SHA256`. Default: the safe suites of rustls, in the client's order.
    pub ciphers: Option<Spanned<Vec<Spanned<String>>>>,
    /// Oldest allowed version of TLS. Default: `1.2`.
    #[serde(default)]
    pub min_version: TlsVersion,
    /// File in PEM form with the authorities of client certificates. Default: none; clients need no certificate.
    pub client_authority: Option<Spanned<PathBuf>>,
    /// `true` rejects a client without certificate. Default: true.
    pub client_required: Option<Spanned<bool>>,
    /// File in PEM form with revocation lists of client certificates.
    pub client_revoked: Option<Spanned<PathBuf>>,
}

impl TlsTable {
    /// With one certificate.
    pub fn of(certificate: &std::path::Path, key: &std::path::Path) -> Self {
        let one = |path: &std::path::Path| {
            Spanned::detached(OneOrMany(vec![Spanned::detached(path.display().to_string())]))
        };
        Self {
            certificate: Some(one(certificate)),
            key: Some(one(key)),
            acme: None,
            ocsp: None,
            early_data: None,
            ciphers: None,
            min_version: TlsVersion::default(),
            client_authority: None,
            client_required: None,
            client_revoked: None,
        }
    }
}

/// The policy that browsers remember (RFC 6797 §6.1).
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HstsTable {
    /// Time for which browsers apply it.
    pub age: DurationValue,
    /// `true` applies the policy to all subdomains, too. Default: false.
    #[serde(default)]
    pub subdomains: bool,
    /// `true` permits browsers to have the site in their preload lists. Default: false.
    #[serde(default)]
    pub preload: bool,
}

/// The policy that browsers remember, in either form.
#[derive(Debug, Clone)]
pub struct Hsts(pub HstsTable);

#[derive(JsonSchema)]
#[schemars(rename = "Hsts", untagged)]
#[expect(dead_code, reason = "only its schema is used")]
pub(super) enum HstsSchema {
    Age(DurationValue),
    Table(HstsTable),
}

/// The port of https to which requests are sent; `None` when they are not.
#[derive(Debug, Clone, Copy)]
pub struct RedirectHttps(pub Option<u16>);

#[derive(JsonSchema)]
#[schemars(rename = "RedirectHttps", untagged)]
#[expect(dead_code, reason = "only its schema is used")]
pub(super) enum RedirectHttpsSchema {
    Switch(bool),
    Port(u16),
}

/// A version of TLS.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[expect(missing_docs, reason = "the versions")]
pub enum TlsVersion {
    #[default]
    #[serde(rename = "1.2")]
    Tls12,
    #[serde(rename = "1.3")]
    Tls13,
}
