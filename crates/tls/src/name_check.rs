//! Checks that a certificate is valid for the names of its site.

use std::net::IpAddr;
use std::path::Path;
use std::time::SystemTime;

use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;

use super::certificate::{address, date, info};
use super::pem;

/// Reasons why browsers will reject the certificate in `file` for a site with these names. Empty when the file is not a
/// readable certificate.
pub fn shortcomings(file: &Path, hosts: &[String]) -> Vec<String> {
    let (Ok(info), Some(names)) = (info(file), names(file)) else { return Vec::new() };
    let mut lines = Vec::new();
    let uncovered: Vec<&str> =
        hosts.iter().filter(|host| !names.cover(host)).map(String::as_str).collect();
    if !uncovered.is_empty() {
        let uncovered = uncovered.join(", ");
        lines.push(match names.list() {
            list if list.is_empty() => {
                format!("it does not cover {uncovered}: it has no subject alternative names")
            }
            list => format!("it does not cover {uncovered}; it is for {list}"),
        });
    }
    let now = SystemTime::now();
    if info.validity.until <= now {
        lines.push(format!("it has expired: {}", date(info.validity.until)));
    } else if info.validity.from > now {
        lines.push(format!("it is not valid before {}", date(info.validity.from)));
    }
    lines
}

/// The subject alternative names of a certificate (RFC 9525: no other names count).
#[derive(Default)]
struct Names {
    /// In lower case.
    dns: Vec<String>,
    addresses: Vec<IpAddr>,
}

impl Names {
    /// Returns `true` if clients accept the certificate for a host of the configuration: a name, a name with `*.`, or an
    /// address.
    fn cover(&self, host: &str) -> bool {
        let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
        if let Ok(address) = address {
            return self.addresses.contains(&address);
        }
        // A wildcard matches exactly the leftmost label.
        let wildcard = host.split_once('.').map(|(_, rest)| format!("*.{rest}"));
        self.dns.iter().any(|name| name == host || Some(name) == wildcard.as_ref())
    }

    fn list(&self) -> String {
        let addresses = self.addresses.iter().map(ToString::to_string);
        self.dns.iter().cloned().chain(addresses).collect::<Vec<_>>().join(", ")
    }
}

fn names(file: &Path) -> Option<Names> {
    let chain = pem::certificates(file).ok()?;
    let (_, certificate): (_, X509Certificate<'_>) =
        x509_parser::parse_x509_certificate(chain.first()?.as_ref()).ok()?;
    let mut names = Names::default();
    let extension = certificate.subject_alternative_name().ok().flatten();
    for name in extension.iter().flat_map(|names| &names.value.general_names) {
        match name {
            GeneralName::DNSName(name) => names.dns.push(name.to_ascii_lowercase()),
            GeneralName::IPAddress(bytes) => names.addresses.extend(address(bytes)),
            _ => {}
        }
    }
    Some(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cover_hosts_as_clients_compare_them() {
        let names = Names {
            dns: vec!["example.com".into(), "*.example.com".into()],
            addresses: vec!["127.0.0.1".parse().unwrap(), "::1".parse().unwrap()],
        };
        for host in ["example.com", "www.example.com", "*.example.com", "127.0.0.1", "[::1]"] {
            assert!(names.cover(host), "{host}");
        }
        for host in ["example.org", "a.b.example.com", "*.b.example.com", "127.0.0.2", "com"] {
            assert!(!names.cover(host), "{host}");
        }
    }
}
