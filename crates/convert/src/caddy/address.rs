//! Addresses of sites.

/// An address of a site.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Address {
    /// `None` for every host.
    pub(super) host: Option<String>,
    pub(super) port: Option<u16>,
    /// `http` or `https`, if the address names it.
    pub(super) scheme: Option<String>,
    /// What follows the host.
    pub(super) path: String,
}

/// Reads an address; `None` if it is none.
pub(super) fn read(text: &str) -> Option<Address> {
    let (scheme, rest) = match text.split_once("://") {
        Some((scheme, rest)) => (Some(scheme.to_ascii_lowercase()), rest),
        None => (None, text),
    };
    if scheme.as_ref().is_some_and(|scheme| scheme != "http" && scheme != "https") {
        return None;
    }
    let (authority, path) = match rest.find('/') {
        Some(at) => rest.split_at(at),
        None => (rest, ""),
    };
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.is_empty() && port.chars().all(|c| c.is_ascii_digit()) => {
            (host, Some(port.parse().ok()?))
        }
        _ => (authority, None),
    };
    let host = host.to_ascii_lowercase();
    if host.contains(['{', '$']) {
        return None;
    }
    Some(Address {
        host: Some(host).filter(|host| !host.is_empty() && host != "*"),
        port,
        scheme,
        path: path.to_owned(),
    })
}

impl Address {
    /// Returns `true` if requests come by TLS.
    pub(super) fn is_encrypted(
        &self,
        http_port: u16,
        https_port: u16,
        has_certificates: bool,
    ) -> bool {
        match self.scheme.as_deref() {
            Some(scheme) => scheme == "https",
            None if self.port == Some(http_port) => false,
            None if self.port == Some(https_port) => true,
            None => self.host.is_some() && has_certificates,
        }
    }

    /// Returns `true` if no public authority has certificates for the host.
    pub(super) fn is_internal(&self) -> bool {
        self.host.as_ref().is_none_or(|host| {
            host == "localhost"
                || host.ends_with(".localhost")
                || host.ends_with(".local")
                || host.ends_with(".internal")
                || host.trim_matches(['[', ']']).parse::<std::net::IpAddr>().is_ok()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_schemes_hosts_and_ports() {
        for (text, host, port, is_encrypted) in [
            ("example.com", Some("example.com"), None, true),
            ("http://example.com:8080", Some("example.com"), Some(8080), false),
            (":80", None, Some(80), false),
            (":8443", None, Some(8443), false),
            ("https://*.example.com", Some("*.example.com"), None, true),
            ("localhost:8080", Some("localhost"), Some(8080), true),
        ] {
            let address = read(text).unwrap();
            assert_eq!((address.host.as_deref(), address.port), (host, port), "{text}");
            assert_eq!(address.is_encrypted(80, 443, true), is_encrypted, "{text}");
        }
        assert!(read("ftp://a").is_none() && read("{host}").is_none());
    }
}
