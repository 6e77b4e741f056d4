//! Who publishes the records of DNS-01, with every default filled in.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::prelude::{BASE64_STANDARD, Engine};

use crate::file::{AcmeDnsTable, Secret, TsigAlgorithm};
use crate::report::Report;
use crate::secrets;
use crate::spanned::Spanned;
use crate::units::DurationValue;

/// Who publishes the records of DNS-01 (RFC 8555 §8.4), and who must have them.
#[derive(Debug, Clone)]
pub struct AcmeDns {
    /// Who publishes them.
    pub publisher: Publisher,
    /// Names or addresses of the servers that must have a record, and their ports; those of the zone's NS records if `None`.
    pub nameservers: Option<Vec<(String, u16)>>,
    /// Time in which they must have it.
    pub propagation_timeout: Duration,
    /// The name servers that resolve names; empty for those of the system.
    pub resolvers: Vec<SocketAddr>,
}

/// Who publishes a record.
#[derive(Debug, Clone)]
pub enum Publisher {
    /// A name server, by dynamic updates.
    Updates(DnsUpdates),
    /// A program with its arguments, and the time in which it must end.
    Command(Vec<String>, Duration),
}

/// Dynamic updates of a zone (RFC 2136).
#[derive(Debug, Clone)]
pub struct DnsUpdates {
    /// Name or address of the server, and its port.
    pub server: (String, u16),
    /// The zone; the one that the server has for the record if `None`.
    pub zone: Option<String>,
    /// The key that signs updates; `None` if they are not signed.
    pub key: Option<TsigKey>,
}

/// A key that signs updates (RFC 8945).
#[derive(Debug, Clone)]
pub struct TsigKey {
    /// Its name.
    pub name: String,
    /// Its hash function.
    pub algorithm: TsigAlgorithm,
    /// Its secret.
    pub secret: TsigSecret,
}

/// The secret of a key, in Base64.
#[derive(Debug, Clone)]
pub enum TsigSecret {
    /// In the configuration.
    Text(Secret),
    /// In a file.
    File(PathBuf),
}

impl AcmeDns {
    /// Returns the file of the secret, if there is one.
    pub(super) fn secret_file(&self) -> Option<&PathBuf> {
        let Publisher::Updates(updates) = &self.publisher else { return None };
        match &updates.key.as_ref()?.secret {
            TsigSecret::File(file) => Some(file),
            TsigSecret::Text(_) => None,
        }
    }

    /// Describes who publishes the records, without secrets.
    pub(super) fn describe(&self) -> String {
        match &self.publisher {
            Publisher::Updates(updates) => {
                let (host, port) = &updates.server;
                let zone = updates.zone.as_ref();
                let zone = zone.map_or(String::new(), |zone| format!(" of {zone}"));
                let key = updates.key.as_ref();
                let key = key.map_or(String::new(), |key| format!(" with the key {}", key.name));
                format!("DNS-01 with updates{zone} at {host} port {port}{key}")
            }
            Publisher::Command(words, _) => format!("DNS-01 with {}", secrets::command(words)),
        }
    }
}

/// Checks `table` and fills in its defaults; `None` after an error.
pub(super) fn read(
    table: &Spanned<AcmeDnsTable>,
    resolvers: &[SocketAddr],
    absolute: &impl Fn(&Path) -> PathBuf,
    report: Report<'_>,
) -> Option<AcmeDns> {
    let publisher = match (&table.server, &table.command) {
        (Some(server), None) => Publisher::Updates(read_updates(table, server, absolute, report)?),
        (None, Some(command)) => read_command(table, command, absolute, report)?,
        _ => {
            let what = "acme: dns needs either `server`, which gets updates, or `command`, a program that publishes records";
            report(&table.span, what.into());
            return None;
        }
    };
    let nameservers = table.nameservers.as_ref().map(|servers| {
        let read = |server| read_server("nameservers", server, report);
        servers.iter().filter_map(read).collect()
    });
    let patience = &table.propagation_timeout;
    Some(AcmeDns {
        publisher,
        nameservers,
        propagation_timeout: read_limit("propagation_timeout", patience, 120, report),
        resolvers: resolvers.to_vec(),
    })
}

fn read_updates(
    table: &Spanned<AcmeDnsTable>,
    server: &Spanned<String>,
    absolute: &impl Fn(&Path) -> PathBuf,
    report: Report<'_>,
) -> Option<DnsUpdates> {
    if let Some(timeout) = &table.timeout {
        report(&timeout.span, "acme: dns: `timeout` is for `command`".into());
    }
    for (key, name) in [("zone", &table.zone), ("key", &table.key)] {
        if let Some(name) = name.as_ref().filter(|name| !is_domain(name)) {
            let what = format!("acme: dns: {key} {:?} is not a domain name", name.value);
            report(&name.span, what);
        }
    }
    Some(DnsUpdates {
        server: read_server("server", server, report)?,
        zone: table.zone.as_ref().map(|zone| zone.trim_end_matches('.').to_ascii_lowercase()),
        key: read_key(table, absolute, report),
    })
}

fn read_key(
    table: &Spanned<AcmeDnsTable>,
    absolute: &impl Fn(&Path) -> PathBuf,
    report: Report<'_>,
) -> Option<TsigKey> {
    let AcmeDnsTable { key, algorithm, secret, secret_file, .. } = &table.value;
    let secret = match (key, secret, secret_file) {
        (Some(_), Some(secret), None) => {
            if !BASE64_STANDARD.decode(secret.reveal()).is_ok_and(|secret| !secret.is_empty()) {
                report(&secret.span, "acme: dns: `secret` is not in Base64".into());
            }
            TsigSecret::Text(secret.value.clone())
        }
        (Some(_), None, Some(file)) => TsigSecret::File(absolute(file)),
        (Some(key), _, _) => {
            let what = "acme: dns: `key` needs either `secret` or `secret_file`";
            report(&key.span, what.into());
            return None;
        }
        (None, secret, file) => {
            let spans = [
                secret.as_ref().map(|secret| ("secret", &secret.span)),
                file.as_ref().map(|file| ("secret_file", &file.span)),
                algorithm.as_ref().map(|algorithm| ("algorithm", &algorithm.span)),
            ];
            for (name, span) in spans.into_iter().flatten() {
                report(span, format!("acme: dns: `{name}` needs `key`, the name of the key"));
            }
            return None;
        }
    };
    let algorithm = algorithm.as_deref().copied().unwrap_or_default();
    Some(TsigKey { name: key.as_ref()?.value.clone(), algorithm, secret })
}

fn read_command(
    table: &Spanned<AcmeDnsTable>,
    command: &Spanned<Vec<Spanned<String>>>,
    absolute: &impl Fn(&Path) -> PathBuf,
    report: Report<'_>,
) -> Option<Publisher> {
    let of_updates = [
        table.key.as_ref().map(|key| ("key", &key.span)),
        table.algorithm.as_ref().map(|algorithm| ("algorithm", &algorithm.span)),
        table.secret.as_ref().map(|secret| ("secret", &secret.span)),
        table.secret_file.as_ref().map(|file| ("secret_file", &file.span)),
        table.zone.as_ref().map(|zone| ("zone", &zone.span)),
    ];
    for (name, span) in of_updates.into_iter().flatten() {
        report(span, format!("acme: dns: `{name}` is for updates of a `server`"));
    }
    let mut words: Vec<String> = command.iter().map(|word| word.value.clone()).collect();
    let Some(program) = words.first_mut().filter(|program| !program.is_empty()) else {
        report(&command.span, "acme: dns: command has no program".into());
        return None;
    };
    // A bare name is searched in `PATH`.
    if program.contains('/') {
        *program = absolute(Path::new(&*program)).display().to_string();
    }
    Some(Publisher::Command(words, read_limit("timeout", &table.timeout, 60, report)))
}

/// Reads a time limit. 0 would let every operation fail.
fn read_limit(
    key: &str,
    span: &Option<Spanned<DurationValue>>,
    default: u64,
    report: Report<'_>,
) -> Duration {
    let Some(span) = span else { return Duration::from_secs(default) };
    if span.0.is_zero() {
        report(&span.span, format!("acme: dns: {key} is 0: write how long to wait"));
    }
    span.0
}

/// Reads the name or address of a name server, and its port.
fn read_server(key: &str, text: &Spanned<String>, report: Report<'_>) -> Option<(String, u16)> {
    let found = server(text);
    if found.is_none() {
        let what = format!(
            "acme: dns: {key} {:?} is not a server such as \"192.0.2.1\", \"[2001:db8::1]:53\" or \"ns.example.com\"",
            text.value
        );
        report(&text.span, what);
    }
    found
}

fn server(text: &str) -> Option<(String, u16)> {
    const PORT: u16 = 53;
    if let Ok(address) = text.parse::<IpAddr>() {
        return Some((address.to_string(), PORT));
    }
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Some((address.ip().to_string(), address.port())).filter(|(_, port)| *port != 0);
    }
    let (host, port) = match text.split_once(':') {
        Some((host, port)) => (host, port.parse().ok().filter(|port| *port != 0)?),
        None => (text, PORT),
    };
    // Digits and dots alone are a mistyped address.
    let is_name = is_domain(host) && host.bytes().any(|byte| byte.is_ascii_alphabetic());
    is_name.then(|| (host.trim_end_matches('.').to_owned(), port))
}

/// Returns `true` if the text is a domain name (RFC 1035, section 2.3.4), with or without a dot at the end.
fn is_domain(text: &str) -> bool {
    let text = text.strip_suffix('.').unwrap_or(text);
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
    };
    text.len() <= 253 && text.split('.').all(is_label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_an_address_or_a_name_with_or_without_port() {
        for (text, host, port) in [
            ("192.0.2.1", "192.0.2.1", 53),
            ("192.0.2.1:5353", "192.0.2.1", 5353),
            ("2001:db8::1", "2001:db8::1", 53),
            ("[2001:db8::1]:54", "2001:db8::1", 54),
            ("ns.example.com", "ns.example.com", 53),
            ("ns.example.com.:55", "ns.example.com", 55),
        ] {
            assert_eq!(server(text), Some((host.to_owned(), port)), "{text}");
        }
        for text in ["", "192.0.2", "192.0.2.1:0", "ns.example.com:x", "a b", "http://ns", ":53"] {
            assert_eq!(server(text), None, "{text}");
        }
    }
}
