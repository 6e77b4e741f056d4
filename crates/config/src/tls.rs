//! TLS of a site, with every default filled in.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use rustls::CipherSuite;

use super::acme::{self, Acme};
use super::ciphers::cipher_suite;
use super::error::Problem;
use super::file::{TlsTable, TlsVersion};
use super::report::Report;
use super::spanned::Spanned;

/// The certificates of a site.
#[derive(Debug)]
pub struct Tls {
    /// Pairs of certificate and key, the preferred first. With ACME it is one file for both, which may not exist yet.
    pub certificates: Vec<(PathBuf, PathBuf)>,
    /// The rules by which the certificate is obtained; `None` if it is only read from files.
    pub acme: Option<Acme>,
    /// An OCSP response.
    pub ocsp: Option<PathBuf>,
    /// Allowed cipher suites, the preferred first; `None` for all, in the client's order.
    pub ciphers: Option<Vec<CipherSuite>>,
    /// Accept requests before the end of the handshake.
    pub early_data: bool,
    /// Minimum protocol version.
    pub min_version: TlsVersion,
    /// Client certificates; `None` if they are not requested.
    pub clients: Option<ClientCertificates>,
    /// Position in the file, with an empty message.
    pub problem: Problem,
}

/// Requirements of client certificates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientCertificates {
    /// File of the trusted authorities.
    pub authority: PathBuf,
    /// Reject clients without a certificate.
    pub required: bool,
    /// Certificate revocation lists.
    pub revoked: Option<PathBuf>,
}

fn is_of_tls13(suite: &CipherSuite) -> bool {
    suite.as_str().is_some_and(|name| name.starts_with("TLS13_"))
}

impl Tls {
    /// Returns `true` if the cipher suites permit TLS 1.3.
    pub fn has_tls13(&self) -> bool {
        self.ciphers.as_ref().is_none_or(|suites| suites.iter().any(is_of_tls13))
    }

    /// Describes the settings in one line.
    pub fn describe(&self) -> String {
        let mut parts = match &self.acme {
            Some(acme) => {
                vec![format!("ACME certificate {}", acme.describe())]
            }
            None => self.certificates.iter().map(|(file, _)| file.display().to_string()).collect(),
        };
        if self.min_version == TlsVersion::Tls13 {
            parts.push("TLS 1.3 only".into());
        }
        if let Some(ciphers) = &self.ciphers {
            let names = ciphers.iter().filter_map(CipherSuite::as_str);
            parts.push(names.collect::<Vec<_>>().join(" "));
        }
        if self.early_data {
            parts.push("early data".into());
        }
        if let Some(clients) = &self.clients {
            let who = if clients.required { "all clients" } else { "some clients" };
            parts.push(format!("{who} show a certificate of {}", clients.authority.display()));
        }
        parts.join(", ")
    }

    /// Returns all files that the settings name.
    pub fn files(&self) -> impl Iterator<Item = &PathBuf> {
        let pairs = self.certificates.iter().flat_map(|(certificate, key)| [certificate, key]);
        let clients = self
            .clients
            .iter()
            .flat_map(|clients| std::iter::once(&clients.authority).chain(&clients.revoked));
        pairs.chain(&self.ocsp).chain(clients)
    }
}

/// Settings of the site and its listeners on which TLS depends.
pub(super) struct Surroundings<'a> {
    /// Hosts of the site; empty for the site of all other hosts.
    pub(super) hosts: &'a [String],
    pub(super) state: &'a Path,
    /// Name servers of the server; empty for those of the system.
    pub(super) resolver: &'a [SocketAddr],
    /// A listener uses TLS, and a listener does not.
    pub(super) listeners: (bool, bool),
}

/// Checks `table` and fills in its defaults.
pub(super) fn read(
    table: &Spanned<TlsTable>,
    around: &Surroundings<'_>,
    absolute: impl Fn(&Path) -> PathBuf,
    problem: Problem,
    report: Report<'_>,
) -> Tls {
    let TlsTable { client_required, client_authority, client_revoked, .. } = &table.value;
    if client_authority.is_none() {
        let what = "does nothing without client_authority";
        if let Some(required) = client_required {
            report(&required.span, format!("tls: client_required {what}"));
        }
        if let Some(revoked) = client_revoked {
            report(&revoked.span, format!("tls: client_revoked {what}"));
        }
    }
    if let Some(early) = table.early_data.as_ref().filter(|early| early.value)
        && client_authority.is_some()
    {
        report(&early.span, "tls: with client_authority there is no early_data".into());
    }
    let optional = |path: &Option<Spanned<PathBuf>>| path.as_ref().map(|path| absolute(path));
    let acme = table.acme.as_ref().map(|acme| acme::read(acme, around, &absolute, report));
    let certificates = match &acme {
        Some(acme) => {
            if let Some(certificate) = &table.certificate {
                report(
                    &certificate.span,
                    "tls: a certificate is either named or obtained by acme".into(),
                );
            }
            vec![(acme.file(), acme.file())]
        }
        None => read_files(table, &absolute, report),
    };
    Tls {
        certificates,
        acme,
        ocsp: optional(&table.ocsp),
        ciphers: table.ciphers.as_ref().map(|names| read_ciphers(names, table.min_version, report)),
        early_data: table.early_data.as_deref().copied().unwrap_or(false),
        min_version: table.min_version,
        clients: optional(client_authority).map(|authority| ClientCertificates {
            authority,
            required: client_required.as_deref().copied().unwrap_or(true),
            revoked: optional(client_revoked),
        }),
        problem,
    }
}

fn read_ciphers(
    names: &Spanned<Vec<Spanned<String>>>,
    oldest: TlsVersion,
    report: Report<'_>,
) -> Vec<CipherSuite> {
    let mut suites = Vec::new();
    for name in &names.value {
        match cipher_suite(name) {
            Ok(suite) => suites.push(suite),
            Err(what) => report(&name.span, format!("ciphers: {what}")),
        }
    }
    if names.is_empty() {
        report(&names.span, "ciphers: the list is empty".into());
    } else if oldest == TlsVersion::Tls13 && !suites.is_empty() && !suites.iter().any(is_of_tls13) {
        report(
            &names.span,
            "ciphers: none of them is for TLS 1.3, the only version that is allowed".into(),
        );
    }
    suites
}

/// Returns the pairs of files that `certificate` and `key` name.
fn read_files(
    table: &Spanned<TlsTable>,
    absolute: &impl Fn(&Path) -> PathBuf,
    report: Report<'_>,
) -> Vec<(PathBuf, PathBuf)> {
    let (certificate, key) = match (&table.certificate, &table.key) {
        (Some(certificate), Some(key)) => (certificate, key),
        (None, _) => {
            let what = "tls: there is no certificate; write certificate = \"FILE\" and key = \"FILE\", or acme = { contact = \"ADDRESS\" }";
            report(&table.span, what.into());
            return Vec::new();
        }
        (Some(certificate), None) => {
            report(
                &certificate.span,
                "tls: the certificate has no key; write key = \"FILE\"".into(),
            );
            return Vec::new();
        }
    };
    if certificate.0.is_empty() {
        report(&certificate.span, "tls: there is no certificate".into());
    }
    if certificate.0.len() != key.0.len() {
        report(&key.span, "tls: there is not one key for each certificate".into());
    }
    let path = |path: &Spanned<String>| absolute(Path::new(&path.value));
    certificate.0.iter().map(path).zip(key.0.iter().map(path)).collect()
}
