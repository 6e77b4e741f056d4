//! TLS of a site, with every default filled in.

use std::path::{Path, PathBuf};

use dunlin_http::semantics::Url;
use rustls::CipherSuite;
use sha2::{Digest, Sha256};

use super::ciphers::cipher_suite;
use super::error::Problem;
use super::file::{AcmeChallenge, AcmeTable, TlsTable, TlsVersion};
use super::report::Report;
use super::secrets;
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

/// The rules by which a certificate is obtained (RFC 8555).
#[derive(Debug, Clone)]
pub struct Acme {
    /// Names in the certificate.
    pub names: Vec<String>,
    /// URL by which the authority contacts the administrator.
    pub contact: Option<String>,
    /// URL of the authority's directory.
    pub directory: String,
    /// Trusted authorities of the directory's certificate; those of the system if `None`.
    pub authority: Option<PathBuf>,
    /// Allowed challenge types, the preferred first.
    pub challenges: Vec<AcmeChallenge>,
    /// Existing account with the authority.
    pub external: Option<ExternalAccount>,
    /// Directory of the account and the certificate.
    pub folder: PathBuf,
}

/// An existing account with the authority (RFC 8555 §7.3.4).
#[derive(Debug, Clone)]
pub struct ExternalAccount {
    /// The key's identifier.
    pub id: String,
    /// File with the key, in base64url.
    pub key: PathBuf,
}

impl Tls {
    /// Describes the settings in one line.
    pub fn describe(&self) -> String {
        let mut parts = match &self.acme {
            Some(acme) => {
                vec![format!("certificate by ACME from {}", secrets::url(&acme.directory))]
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
    let acme = table.acme.as_ref().map(|acme| read_acme(acme, around, &absolute, report));
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
    let is_new =
        |suite: &CipherSuite| suite.as_str().is_some_and(|name| name.starts_with("TLS13_"));
    if names.is_empty() {
        report(&names.span, "ciphers: the list is empty".into());
    } else if oldest == TlsVersion::Tls13 && !suites.is_empty() && !suites.iter().any(is_new) {
        report(&names.span, "ciphers: none is of TLS 1.3, which alone is spoken".into());
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

const LETS_ENCRYPT: &str = "https://acme-v02.api.letsencrypt.org/directory";

fn read_acme(
    table: &Spanned<AcmeTable>,
    around: &Surroundings<'_>,
    absolute: &impl Fn(&Path) -> PathBuf,
    report: Report<'_>,
) -> Acme {
    let AcmeTable { contact, directory, authority, challenge, external_account } = &table.value;
    if around.hosts.is_empty() {
        report(
            &table.span,
            "acme: the site has no `host`, whose names the certificate would be for".into(),
        );
    }
    for host in around.hosts {
        let what = if host.starts_with('*') {
            "a wildcard can only be proven by DNS-01, which is not spoken; name each host"
        } else if host.parse::<std::net::IpAddr>().is_ok() || host.starts_with('[') {
            "a certificate is obtained for names, not for addresses"
        } else {
            continue;
        };
        report(&table.span, format!("acme: {host}: {what}"));
    }
    if let Some(contact) = contact.as_ref().filter(|contact| !contact.contains('@')) {
        report(
            &contact.span,
            format!("acme: {:?} is not an address such as \"admin@example.com\"", contact.value),
        );
    }
    let url = directory.as_ref().map_or(LETS_ENCRYPT, |directory| &directory.value);
    if !Url::parse(url).is_ok_and(|url| url.is_secure()) {
        let place = directory.as_ref().and_then(|directory| directory.span.clone());
        report(&place, format!("acme: {url:?} is not a URL that begins with https://"));
    }
    let (tls, plain) = around.listeners;
    let usable = [(AcmeChallenge::TlsAlpn01, tls), (AcmeChallenge::Http01, plain)];
    let wanted = challenge.as_deref().copied();
    let challenges: Vec<_> = usable
        .into_iter()
        .filter(|(kind, there)| *there && wanted.is_none_or(|wanted| wanted == *kind))
        .map(|(kind, _)| kind)
        .collect();
    if let (Some(challenge), true) = (challenge, challenges.is_empty()) {
        let lacks = if challenge.value == AcmeChallenge::Http01 {
            "no listener is without TLS"
        } else {
            "no listener uses TLS"
        };
        report(&challenge.span, format!("acme: this challenge cannot be met: {lacks}"));
    }
    let contact = contact.as_ref().map(|contact| match contact.starts_with("mailto:") {
        true => contact.value.clone(),
        false => format!("mailto:{}", contact.value),
    });
    let external = external_account.as_ref().map(|table| {
        let key = absolute(&table.key.value);
        ExternalAccount { id: table.id.value.clone(), key }
    });
    let known_as = external.as_ref().map(|external| external.id.as_str());
    Acme {
        names: around.hosts.to_vec(),
        folder: around.state.join("acme").join(account_name(url, contact.as_deref(), known_as)),
        external,
        contact,
        directory: url.to_owned(),
        authority: authority.as_ref().map(|path| absolute(path)),
        challenges,
    }
}

/// Returns the directory name of an account: the authority's host, and a hash that distinguishes accounts.
fn account_name(directory: &str, contact: Option<&str>, known_as: Option<&str>) -> String {
    let host = directory.split('/').nth(2).unwrap_or_default().replace([':', '[', ']'], "_");
    let known_as = known_as.map(|id| format!("\n{id}")).unwrap_or_default();
    let digest = Sha256::digest(format!("{directory}\n{}{known_as}", contact.unwrap_or_default()));
    let digest: String = digest.iter().take(4).map(|byte| format!("{byte:02x}")).collect();
    format!("{host}-{digest}")
}

impl Acme {
    /// Returns the files that are read when a certificate is obtained.
    pub fn files(&self) -> impl Iterator<Item = &PathBuf> {
        self.authority.iter().chain(self.external.iter().map(|external| &external.key))
    }

    /// Returns the file of the account.
    pub fn account(&self) -> PathBuf {
        self.folder.join("account.json")
    }

    /// Returns the file of certificate and key.
    pub fn file(&self) -> PathBuf {
        self.folder.join(format!("{}.pem", self.label()))
    }

    /// Returns the file with the result of the last attempt.
    pub fn outcome(&self) -> PathBuf {
        self.folder.join(format!("{}.json", self.label()))
    }

    /// Returns the first name and a hash of all names: another list of names needs another certificate.
    fn label(&self) -> String {
        let first = self.names.first().map_or("none", String::as_str);
        let mut names = self.names.clone();
        names.sort();
        let digest = Sha256::digest(names.join("\n"));
        let digest: String = digest.iter().take(4).map(|byte| format!("{byte:02x}")).collect();
        format!("{first}-{digest}")
    }
}
