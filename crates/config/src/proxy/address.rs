//! Addresses of upstreams.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;

use dunlin_http::semantics::Url;

/// The address of an upstream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UpstreamAddress {
    /// A server at a TCP port, with TLS if the URL has it.
    Url(Url),
    /// A server by HTTP/2.
    Http2(Url),
    /// A server at a Unix socket.
    Unix(PathBuf),
    /// The servers that the Domain Name System has for a name.
    Service(Service),
}

/// A service whose servers SRV records name (RFC 2782), or which has a server at each address of its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Service {
    /// The name, such as `_http._tcp.example.com`.
    pub name: String,
    /// The port at each address of the name; `None` if SRV records name the servers.
    pub port: Option<u16>,
    /// The scheme of its servers: `http`, `https`, `h2c` or `h2`.
    scheme: &'static str,
}

impl Service {
    /// Returns a server of the service; `None` if its host is not valid in a URL.
    pub fn at(&self, host: &str, port: u16) -> Option<UpstreamAddress> {
        address(&format!("{}://{host}:{port}", self.scheme)).ok()
    }

    fn parse(text: &str) -> Option<Result<Self, String>> {
        match text.strip_prefix("dns+") {
            Some(url) => Self::at_addresses(text, url),
            None => Self::by_records(text),
        }
    }

    /// Returns the service with a server at each address of the name of `url`.
    fn at_addresses(text: &str, url: &str) -> Option<Result<Self, String>> {
        let scheme = scheme(url.split_once("://")?.0)?;
        let service = address(url).map(|address| {
            let url = address.url()?;
            let name = url.host().trim_end_matches('.');
            let is_address = name.starts_with('[') || name.parse::<IpAddr>().is_ok();
            (!is_address).then(|| Self { name: name.to_owned(), port: Some(url.port()), scheme })
        });
        let wrong = format!("{text:?} has no name whose addresses could be resolved");
        Some(service.and_then(|service| service.ok_or(wrong)))
    }

    fn by_records(text: &str) -> Option<Result<Self, String>> {
        let (scheme_name, name) = text.strip_prefix("srv+")?.split_once("://")?;
        let scheme = scheme(scheme_name)?;
        let wrong = format!(
            "{text:?} is not a service such as \"srv+http://_http._tcp.example.com\", whose records have the ports"
        );
        let service = |name: &str| Self { name: name.to_owned(), port: None, scheme };
        Some(service_name(name).map(service).ok_or(wrong))
    }
}

/// Returns the name of a service without the dot at its end; `None` if `text` is not such a name.
pub(crate) fn service_name(text: &str) -> Option<&str> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let name = text.trim_end_matches('.');
    let is_name = text.bytes().all(is_plain) && name.split('.').all(|label| !label.is_empty());
    is_name.then_some(name)
}

/// Returns the scheme of a server that is reached by TCP.
fn scheme(text: &str) -> Option<&'static str> {
    ["http", "https", "h2c", "h2"].into_iter().find(|known| *known == text)
}

impl fmt::Display for UpstreamAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Url(url) => {
                let scheme = if url.is_secure() { "https" } else { "http" };
                write!(f, "{scheme}://{}", url.authority())
            }
            Self::Http2(url) => {
                let scheme = if url.is_secure() { "h2" } else { "h2c" };
                write!(f, "{scheme}://{}", url.authority())
            }
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Service(Service { name, scheme, port: None }) => {
                write!(f, "srv+{scheme}://{name}")
            }
            Self::Service(Service { name, scheme, port: Some(port) }) => {
                write!(f, "dns+{scheme}://{name}:{port}")
            }
        }
    }
}

impl UpstreamAddress {
    /// Returns the URL; `None` for a Unix socket and a service.
    pub fn url(&self) -> Option<&Url> {
        match self {
            Self::Url(url) | Self::Http2(url) => Some(url),
            Self::Unix(_) | Self::Service(_) => None,
        }
    }

    /// Returns the service whose servers the Domain Name System has.
    pub fn service(&self) -> Option<&Service> {
        match self {
            Self::Service(service) => Some(service),
            _ => None,
        }
    }

    /// Returns `true` if connections use TLS.
    pub fn is_secure(&self) -> bool {
        self.url().is_some_and(Url::is_secure)
            || self.service().is_some_and(|service| matches!(service.scheme, "https" | "h2"))
    }

    /// Returns `true` if requests are sent by HTTP/2.
    pub fn is_http2(&self) -> bool {
        matches!(self, Self::Http2(_))
    }
}

/// Parses the address of an upstream.
pub(in super::super) fn address(text: &str) -> Result<UpstreamAddress, String> {
    if let Some(path) = text.strip_prefix("unix:") {
        if path.starts_with('/') && path.len() < 108 && !path.contains('\0') {
            return Ok(UpstreamAddress::Unix(path.into()));
        }
        return Err(format!(
            "{path:?} is not the absolute path of a socket, of less than 108 bytes"
        ));
    }
    if let Some(service) = Service::parse(text) {
        return service.map(UpstreamAddress::Service);
    }
    let http2 = [("h2c://", "http://"), ("h2://", "https://")]
        .into_iter()
        .find_map(|(own, scheme)| Some(format!("{scheme}{}", text.strip_prefix(own)?)));
    let url = Url::parse(http2.as_deref().unwrap_or(text)).map_err(|_| {
        let hint = format!(
            "{text:?} is not an upstream such as \"http://127.0.0.1:3000\", \"https://app.example\", \
             \"h2c://127.0.0.1:50051\", \"dns+http://app:3000\", \"srv+http://_http._tcp.example.com\" or \"unix:/run/app.sock\""
        );
        match text.contains("://") {
            false if Url::parse(&format!("http://{text}")).is_ok() => {
                format!("{hint}; did you mean \"http://{text}\"?")
            }
            _ => hint,
        }
    })?;
    if url.target() != "/" {
        return Err(format!(
            "{text:?} has a path; upstreams get the path of the request, from which `strip` removes a prefix"
        ));
    }
    if url.port() == 0 {
        return Err(format!("{text:?} has no port that can be connected to"));
    }
    Ok(if http2.is_some() { UpstreamAddress::Http2(url) } else { UpstreamAddress::Url(url) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_wrong_ones_explained() {
        for text in [
            "http://127.0.0.1:3000",
            "https://a.example",
            "http://[::1]:80",
            "h2c://a:50051",
            "h2://a",
            "unix:/a",
            "srv+http://_http._tcp.a.example",
            "srv+h2://a",
            "dns+http://a:3000",
            "dns+h2c://a.example:50051",
        ] {
            assert_eq!(address(text).unwrap().to_string(), text);
        }
        let error = |text: &str| address(text).unwrap_err();
        assert!(error("127.0.0.1:3000").ends_with("did you mean \"http://127.0.0.1:3000\"?"));
        assert!(error("http://a/b").contains("`strip`"));
        assert!(error("unix:a").contains("absolute"));
        for wrong in
            ["srv+http://_http._tcp.a:80", "srv+http://", "srv+https://a..b", "srv+http://a/b"]
        {
            assert!(error(wrong).contains("is not a service such as"), "{wrong}");
        }
        assert_eq!(address("dns+https://a.").unwrap().to_string(), "dns+https://a:443");
        for wrong in ["dns+http://127.0.0.1:80", "dns+http://[::1]"] {
            assert!(error(wrong).contains("has no name whose addresses"), "{wrong}");
        }
        assert!(error("dns+http://a/b").contains("`strip`"));
        assert!(error("dns+ftp://a").contains("is not an upstream such as"));
        assert!(error("srv+ftp://a").contains("is not an upstream such as"));
        assert!(error("ftp://a").contains("is not an upstream such as"));
    }
}
