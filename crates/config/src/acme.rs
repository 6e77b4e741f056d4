//! How certificates are obtained by ACME, with every default filled in.

pub(crate) mod dns;

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use dunlin_http::semantics::Url;
use sha2::{Digest, Sha256};

use self::dns::{AcmeDns, Publisher};
use super::file::{AcmeChallenge, AcmeDirectory, AcmeTable, ExternalAccountTable};
use super::report::Report;
use super::secrets;
use super::spanned::Spanned;
use super::tls::Surroundings;

/// How a certificate is obtained (RFC 8555).
#[derive(Debug, Clone)]
pub struct Acme {
    /// Names and addresses in the certificate.
    pub names: Vec<String>,
    /// URL by which the authorities contact the administrator.
    pub contact: Option<String>,
    /// The authorities, the preferred first; at least one.
    pub authorities: Vec<Authority>,
    /// Allowed challenge types, the preferred first.
    pub challenges: Vec<AcmeChallenge>,
    /// Who publishes the records of DNS-01.
    pub dns: Option<AcmeDns>,
    /// Directory of the certificate: that of the account with the first authority.
    pub folder: PathBuf,
}

/// An authority, and the account with it.
#[derive(Debug, Clone)]
pub struct Authority {
    /// URL of its directory.
    pub directory: String,
    /// Trusted authorities of the directory's certificate; those of the system if `None`.
    pub trusted: Option<PathBuf>,
    /// Profile of the certificates; the authority's default if `None`.
    pub profile: Option<String>,
    /// Existing account with the authority.
    pub external: Option<ExternalAccount>,
    /// Directory of the account.
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

impl Authority {
    /// Returns the file of the account.
    pub fn account(&self) -> PathBuf {
        self.folder.join("account.json")
    }
}

impl Acme {
    /// Describes the authorities and the challenge in a few words.
    pub(super) fn describe(&self) -> String {
        let shown = |authority: &Authority| match &authority.profile {
            Some(profile) => format!("{} ({profile})", secrets::url(&authority.directory)),
            None => secrets::url(&authority.directory),
        };
        let authorities: Vec<_> = self.authorities.iter().map(shown).collect();
        let from = format!("from {}", authorities.join(", then "));
        match &self.dns {
            Some(dns) => format!("{from}, proven by {}", dns.describe()),
            None => from,
        }
    }

    /// Returns the URLs of the directories in one text.
    pub fn directories(&self) -> String {
        let urls: Vec<_> =
            self.authorities.iter().map(|authority| authority.directory.as_str()).collect();
        urls.join(", ")
    }

    /// Returns the files that are read when a certificate is obtained.
    pub fn files(&self) -> impl Iterator<Item = &PathBuf> {
        let trusted = self.authorities.iter().filter_map(|authority| authority.trusted.as_ref());
        trusted.chain(self.secrets())
    }

    /// Returns the files with secrets that the configuration names.
    fn secrets(&self) -> impl Iterator<Item = &PathBuf> {
        let external = self.authorities.iter().filter_map(|one| one.external.as_ref());
        let secret = self.dns.as_ref().and_then(AcmeDns::secret_file);
        external.map(|external| &external.key).chain(secret)
    }

    /// Returns the files that no client gets: accounts and secrets.
    pub(super) fn secret_files(&self) -> impl Iterator<Item = PathBuf> {
        self.authorities.iter().map(Authority::account).chain(self.secrets().cloned())
    }

    /// Returns the program that publishes records, if one does.
    pub(super) fn program(&self) -> Option<&str> {
        match &self.dns.as_ref()?.publisher {
            Publisher::Command(words, _) => words.first().map(String::as_str),
            Publisher::Updates(_) => None,
        }
    }

    /// Returns an address for which Let's Encrypt would issue no certificate, as the profile has names only.
    pub(super) fn address_without_profile(&self) -> Option<&str> {
        let is_address = |name: &&String| name.parse::<IpAddr>().is_ok();
        let lacks = |one: &Authority| one.directory == LETS_ENCRYPT && one.profile.is_none();
        let address = self.names.iter().find(is_address)?;
        self.authorities.iter().any(lacks).then_some(address)
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
        let first = self.names.first().map_or("none", String::as_str).replace('*', "_");
        let mut names = self.names.clone();
        names.sort();
        let digest = Sha256::digest(names.join("\n"));
        let digest: String = digest.iter().take(4).map(|byte| format!("{byte:02x}")).collect();
        format!("{first}-{digest}")
    }
}

const LETS_ENCRYPT: &str = "https://acme-v02.api.letsencrypt.org/directory";

/// Checks `table` and fills in its defaults.
pub(super) fn read(
    table: &Spanned<AcmeTable>,
    around: &Surroundings<'_>,
    absolute: &impl Fn(&Path) -> PathBuf,
    report: Report<'_>,
) -> Acme {
    if let Some(contact) = table.contact.as_ref().filter(|contact| !contact.contains('@')) {
        report(
            &contact.span,
            format!("acme: {:?} is not an address such as \"admin@example.com\"", contact.value),
        );
    }
    let contact = table.contact.as_ref().map(|contact| match contact.starts_with("mailto:") {
        true => contact.value.clone(),
        false => format!("mailto:{}", contact.value),
    });
    let authorities = read_authorities(table, (around.state, contact.as_deref()), absolute, report);
    let dns = table.dns.as_ref();
    let dns = dns.and_then(|dns| dns::read(dns, around.resolver, absolute, report));
    let challenges = read_challenges(table, around.listeners, report);
    check_names(table, around.hosts, report);
    Acme {
        names: around.hosts.iter().map(|host| bare(host).to_owned()).collect(),
        contact,
        folder: authorities.first().map(|first| first.folder.clone()).unwrap_or_default(),
        authorities,
        challenges,
        dns,
    }
}

/// Returns the name or address of a host, without the brackets of an address of IPv6.
fn bare(host: &str) -> &str {
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
}

/// Reports names that cannot be proven.
fn check_names(table: &Spanned<AcmeTable>, hosts: &[String], report: Report<'_>) {
    if hosts.is_empty() {
        report(
            &table.span,
            "acme: the site has no `host`, whose names the certificate would be for".into(),
        );
    }
    for host in hosts {
        let what = if host.ends_with(".*") {
            "no certificate is for every domain; name the hosts"
        } else if host.starts_with('*') && table.dns.is_none() {
            "a wildcard needs DNS-01; write dns = { server = \"ADDRESS\", key = \"NAME\", secret_file = \
             \"FILE\" }, or dns = { command = [\"PROGRAM\"] }"
        } else if bare(host).parse::<IpAddr>().is_ok() && table.dns.is_some() {
            "an address cannot be proven by DNS-01 (RFC 8738 §7); write a separate site for it"
        } else {
            continue;
        };
        report(&table.span, format!("acme: {host}: {what}"));
    }
}

/// Returns the challenges that can be met, the preferred first.
fn read_challenges(
    table: &Spanned<AcmeTable>,
    (tls, plain): (bool, bool),
    report: Report<'_>,
) -> Vec<AcmeChallenge> {
    let AcmeTable { challenge, dns, .. } = &table.value;
    let usable = [
        (AcmeChallenge::TlsAlpn01, tls && dns.is_none()),
        (AcmeChallenge::Http01, plain && dns.is_none()),
        (AcmeChallenge::Dns01, dns.is_some()),
    ];
    let wanted = challenge.as_deref().copied();
    let challenges: Vec<_> = usable
        .into_iter()
        .filter(|(kind, there)| *there && wanted.is_none_or(|wanted| wanted == *kind))
        .map(|(kind, _)| kind)
        .collect();
    if let (Some(challenge), true) = (challenge, challenges.is_empty()) {
        let lacks = match challenge.value {
            AcmeChallenge::Dns01 => "there is no `dns`",
            _ if dns.is_some() => "`dns` is for dns-01",
            AcmeChallenge::Http01 => "no listener is without TLS",
            AcmeChallenge::TlsAlpn01 => "no listener uses TLS",
        };
        report(&challenge.span, format!("acme: this challenge cannot be met: {lacks}"));
    }
    challenges
}

/// Returns the authorities, at least one.
fn read_authorities(
    table: &Spanned<AcmeTable>,
    (state, contact): (&Path, Option<&str>),
    absolute: &impl Fn(&Path) -> PathBuf,
    report: Report<'_>,
) -> Vec<Authority> {
    let AcmeTable { directory, authority, profile, external_account, .. } = &table.value;
    let default = [AcmeDirectory::at(LETS_ENCRYPT.to_owned())];
    let place = directory.as_ref().and_then(|directory| directory.span.clone());
    let directories = directory.as_ref().map_or(&default[..], |directory| &directory.0);
    if directories.is_empty() {
        report(&place, "acme: the list of directories is empty".into());
    }
    if let (Some(account), true) = (external_account, directories.len() > 1) {
        let what = "acme: each of several directories has its own external_account; write { url = \"...\", \
                    external_account = { ... } } into `directory`";
        report(&account.span, what.into());
    }
    let mut authorities: Vec<Authority> = Vec::new();
    for one in directories {
        let url = &one.url.value;
        let place = one.url.span.clone().or_else(|| place.clone());
        if !Url::parse(url).is_ok_and(|url| url.is_secure()) {
            report(&place, format!("acme: {url:?} is not a URL that begins with https://"));
        }
        let external = one.external_account.as_ref().or(external_account.as_ref());
        let external = external.map(|table| read_external(table, absolute));
        let known_as = external.as_ref().map(|external| external.id.as_str());
        let folder = state.join("acme").join(account_name(url, contact, known_as));
        if authorities.iter().any(|other| other.folder == folder) {
            report(&place, format!("acme: the directory {url:?} is listed twice"));
        }
        authorities.push(Authority {
            directory: url.clone(),
            trusted: one.authority.as_ref().or(authority.as_ref()).map(|path| absolute(path)),
            profile: one.profile.as_ref().or(profile.as_ref()).map(|name| name.value.clone()),
            external,
            folder,
        });
    }
    authorities
}

fn read_external(
    table: &Spanned<ExternalAccountTable>,
    absolute: &impl Fn(&Path) -> PathBuf,
) -> ExternalAccount {
    ExternalAccount { id: table.id.value.clone(), key: absolute(&table.key.value) }
}

/// Returns the directory name of an account: the authority's host, and a hash that distinguishes accounts.
fn account_name(directory: &str, contact: Option<&str>, known_as: Option<&str>) -> String {
    let host = directory.split('/').nth(2).unwrap_or_default().replace([':', '[', ']'], "_");
    let known_as = known_as.map(|id| format!("\n{id}")).unwrap_or_default();
    let digest = Sha256::digest(format!("{directory}\n{}{known_as}", contact.unwrap_or_default()));
    let digest: String = digest.iter().take(4).map(|byte| format!("{byte:02x}")).collect();
    format!("{host}-{digest}")
}
