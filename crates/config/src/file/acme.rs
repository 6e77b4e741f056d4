//! Certificates by ACME.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;

use super::{Secret, Spanned};
use crate::units::DurationValue;

/// How a certificate is obtained by ACME (RFC 8555).
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(
    deny_unknown_fields,
    default,
    expecting = "a table such as { contact = \"admin@example.com\" }"
)]
pub struct AcmeTable {
    /// Mail address for messages of the authority. Default: none.
    pub contact: Option<Spanned<String>>,
    /// URL of the authority's directory. By using it you agree to its terms of service. A list has several authorities,
    /// each a URL or a table `{ url = "..." }`: if one fails, the next is tried, with a separate account. Default: Let's
    /// Encrypt's, `https://acme-v02.api.letsencrypt.org/directory`.
    #[schemars(with = "Option<AcmeDirectoriesSchema>")]
    pub directory: Option<Spanned<AcmeDirectories>>,
    /// File in PEM form with the authorities that sign the certificate of the directory itself. Default: the
    /// system's.
    pub authority: Option<Spanned<PathBuf>>,
    /// Profile of the certificate, which the authority defines, such as `shortlived` of Let's Encrypt, which certificates for
    /// addresses need. A change applies to the next certificate. Default: the authority's.
    pub profile: Option<Spanned<String>>,
    /// Challenge that proves control of the names: `tls-alpn-01` on a listener with TLS (the authority connects to port
    /// 443), `http-01` on one without (port 80), `dns-01` by a DNS record, which needs `dns`. Default: `dns-01` with `dns`;
    /// otherwise those for which there are listeners, in turn.
    pub challenge: Option<Spanned<AcmeChallenge>>,
    /// Publishes the records of `dns-01`, which wildcards need: `{ server = "192.0.2.1", key = "acme", secret_file = "acme.secret" }` by
    /// dynamic updates of a name server, or `{ command = ["/usr/local/bin/dns-hook"] }` by a program. Default: none.
    pub dns: Option<Spanned<AcmeDnsTable>>,
    /// Account at an authority that serves only its customers (external account binding, RFC 8555 §7.3.4): `{ id = "...",
    /// key = FILE }`, with the file of the key in base64url, as the authority shows it. Of several directories, each has
    /// its own.
    pub external_account: Option<Spanned<ExternalAccountTable>>,
}

/// The authorities of a certificate, the preferred first.
#[derive(Debug)]
pub struct AcmeDirectories(pub Vec<AcmeDirectory>);

/// One of several authorities.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct AcmeDirectory {
    /// URL of its directory.
    pub url: Spanned<String>,
    /// `authority` of this directory. Default: that of `acme`.
    pub authority: Option<Spanned<PathBuf>>,
    /// `profile` of this directory. Default: that of `acme`.
    pub profile: Option<Spanned<String>>,
    /// `external_account` of this directory. Default: none.
    pub external_account: Option<Spanned<ExternalAccountTable>>,
}

impl AcmeDirectory {
    /// The authority at `url`.
    pub(crate) fn at(url: String) -> Self {
        let url = Spanned::detached(url);
        Self { url, authority: None, profile: None, external_account: None }
    }
}

#[derive(JsonSchema)]
#[schemars(rename = "AcmeDirectories", untagged)]
#[expect(dead_code, reason = "only its schema is used")]
pub(super) enum AcmeDirectoriesSchema {
    One(String),
    Many(Vec<AcmeDirectorySchema>),
}

#[derive(JsonSchema)]
#[schemars(rename = "AcmeDirectoryOrUrl", untagged)]
#[expect(dead_code, reason = "only its schema is used")]
pub(super) enum AcmeDirectorySchema {
    Url(String),
    Table(Box<AcmeDirectory>),
}

/// An account that an authority knows by other means (RFC 8555 §7.3.4).
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a table such as { id = \"kid-1\", key = \"eab.key\" }")]
pub struct ExternalAccountTable {
    /// Identifier of the key.
    pub id: Spanned<String>,
    /// File with the key, in base64url.
    pub key: Spanned<PathBuf>,
}

/// How it is proven to an authority that a name is this server's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
pub enum AcmeChallenge {
    /// A handshake of TLS for the name (RFC 8737).
    #[serde(rename = "tls-alpn-01")]
    TlsAlpn01,
    /// A file below `/.well-known/acme-challenge/` (RFC 8555 §8.3).
    #[serde(rename = "http-01")]
    Http01,
    /// A record in the Domain Name System (RFC 8555 §8.4).
    #[serde(rename = "dns-01")]
    Dns01,
}

impl AcmeChallenge {
    /// The word in the configuration, and in RFC 8555.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::TlsAlpn01 => "tls-alpn-01",
            Self::Http01 => "http-01",
            Self::Dns01 => "dns-01",
        }
    }
}

/// Who publishes the records of DNS-01 (RFC 8555 §8.4).
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(
    deny_unknown_fields,
    default,
    expecting = "a table such as { server = \"192.0.2.1\", key = \"acme\", secret_file = \"acme.secret\" }"
)]
pub struct AcmeDnsTable {
    /// Address or name of the server that accepts dynamic updates of the zone (RFC 2136), with `:PORT` unless it is 53. Default: none;
    /// `command` publishes the records.
    pub server: Option<Spanned<String>>,
    /// Name of the key that signs the updates (TSIG, RFC 8945). Default: none; the server has to allow updates by address.
    pub key: Option<Spanned<String>>,
    /// Hash function of the key: `hmac-sha256`, `hmac-sha384` or `hmac-sha512`. Default: `hmac-sha256`.
    pub algorithm: Option<Spanned<TsigAlgorithm>>,
    /// Secret of the key, in Base64.
    pub secret: Option<Spanned<Secret>>,
    /// File with the secret of the key, in Base64, instead of `secret`.
    pub secret_file: Option<Spanned<PathBuf>>,
    /// Zone that is updated. Default: the zone that `server` has for the name of the record.
    pub zone: Option<Spanned<String>>,
    /// Program, with its arguments, that publishes a record: it is called with `add` or `remove`, the name of the record and its text,
    /// also in `ACME_ACTION`, `ACME_RECORD` and `ACME_VALUE`, and with the name to prove in `ACME_DOMAIN`. Default: none; `server` gets
    /// updates.
    pub command: Option<Spanned<Vec<Spanned<String>>>>,
    /// Time within which the command must end. Default: `60s`.
    pub timeout: Option<Spanned<DurationValue>>,
    /// Addresses or names of the servers that must have a record before the authority looks for it, with `:PORT` unless it
    /// is 53. An empty list skips the wait. Default: those of the zone's NS records.
    pub nameservers: Option<Spanned<Vec<Spanned<String>>>>,
    /// Time within which these servers must have a record. Default: `2m`.
    pub propagation_timeout: Option<Spanned<DurationValue>>,
}

/// The hash function of a TSIG key (RFC 8945 §6).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[expect(missing_docs, reason = "the names of the functions")]
pub enum TsigAlgorithm {
    #[default]
    #[serde(rename = "hmac-sha256")]
    HmacSha256,
    #[serde(rename = "hmac-sha384")]
    HmacSha384,
    #[serde(rename = "hmac-sha512")]
    HmacSha512,
}
