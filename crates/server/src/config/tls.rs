//! TLS of a site, with every default filled in.

use std::path::{Path, PathBuf};

use super::at::At;
use super::error::Problem;
use super::file::{TlsTable, TlsVersion};
use super::settings::Report;

/// The certificates of a site.
#[derive(Debug)]
pub struct Tls {
    /// Certificate and key, the preferred first.
    pub certificates: Vec<(PathBuf, PathBuf)>,
    /// An OCSP response.
    pub ocsp: Option<PathBuf>,
    /// Oldest version that is spoken.
    pub min_version: TlsVersion,
    /// What clients have to show; `None` when they are not asked.
    pub clients: Option<ClientCertificates>,
    /// Where it stands, without words.
    pub(super) problem: Problem,
}

/// Certificates that clients have to show.
#[derive(Debug)]
pub struct ClientCertificates {
    /// The authorities.
    pub authority: PathBuf,
    /// Whether a client without one is refused.
    pub required: bool,
    /// Lists of those that were revoked.
    pub revoked: Option<PathBuf>,
}

impl Tls {
    /// Every file that it names.
    pub fn files(&self) -> impl Iterator<Item = &PathBuf> {
        let pairs = self.certificates.iter().flat_map(|(certificate, key)| [certificate, key]);
        let clients = self
            .clients
            .iter()
            .flat_map(|clients| std::iter::once(&clients.authority).chain(&clients.revoked));
        pairs.chain(&self.ocsp).chain(clients)
    }
}

/// Fills in what `table` does not say; what is wrong in it is told to `report`.
pub(super) fn read(
    table: &At<TlsTable>,
    absolute: impl Fn(&Path) -> PathBuf,
    problem: Problem,
    report: Report<'_>,
) -> Tls {
    let TlsTable { certificate, key, client_required, client_authority, client_revoked, .. } =
        &table.value;
    if certificate.0.is_empty() {
        report(&certificate.span, "tls: there is no certificate".into());
    }
    if certificate.0.len() != key.0.len() {
        report(&key.span, "tls: there is not one key for each certificate".into());
    }
    if client_authority.is_none() {
        let what = "does nothing without client_authority";
        if let Some(required) = client_required {
            report(&required.span, format!("tls: client_required {what}"));
        }
        if let Some(revoked) = client_revoked {
            report(&revoked.span, format!("tls: client_revoked {what}"));
        }
    }
    let path = |path: &At<String>| absolute(Path::new(&path.value));
    let optional = |path: &Option<At<PathBuf>>| path.as_ref().map(|path| absolute(path));
    Tls {
        certificates: certificate.0.iter().map(path).zip(key.0.iter().map(path)).collect(),
        ocsp: optional(&table.ocsp),
        min_version: table.min_version,
        clients: optional(client_authority).map(|authority| ClientCertificates {
            authority,
            required: client_required.as_deref().copied().unwrap_or(true),
            revoked: optional(client_revoked),
        }),
        problem,
    }
}
