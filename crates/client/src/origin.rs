//! Servers that requests go to.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::ClientConfig;
use rustls::pki_types::ServerName;

use crate::Url;

/// A server and how to connect to it. Requests to equal origins share connections.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Origin {
    inner: Arc<Inner>,
}

#[derive(PartialEq, Eq, Hash, Clone)]
struct Inner {
    place: Place,
    tls: Option<Tls>,
    has_prior_knowledge: bool,
}

/// The address of a server.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Place {
    /// A name or an address without brackets, and a port.
    Tcp(String, u16),
    Unix(PathBuf),
}

/// TLS to a server.
#[derive(Clone)]
pub(crate) struct Tls {
    pub(crate) config: Arc<ClientConfig>,
    pub(crate) name: ServerName<'static>,
}

impl PartialEq for Tls {
    fn eq(&self, other: &Self) -> bool {
        // Two configurations are equal only if they are the same one: trust cannot be compared.
        Arc::ptr_eq(&self.config, &other.config) && self.name == other.name
    }
}

impl Eq for Tls {}

impl Hash for Tls {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.config).hash(state);
    }
}

impl Origin {
    /// Returns a server at a TCP port; `host` is a name or an address, an IPv6 address with or without brackets.
    #[must_use]
    pub fn tcp(host: &str, port: u16) -> Self {
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        Self::of(Place::Tcp(host.to_owned(), port))
    }

    /// Returns a server at a Unix socket.
    #[must_use]
    pub fn unix(path: &Path) -> Self {
        Self::of(Place::Unix(path.to_owned()))
    }

    /// Returns the server of a URL. `tls` gives the configuration of an `https` URL; the client offers the protocols of its
    /// `alpn_protocols` and speaks HTTP/2 if the server selects `h2`.
    ///
    /// # Errors
    /// If the URL needs TLS and its host cannot be the name of a certificate, or `tls` fails.
    pub fn from_url(
        url: &Url,
        tls: impl FnOnce() -> Result<Arc<ClientConfig>, String>,
    ) -> Result<Self, String> {
        let origin = Self::tcp(url.host(), url.port());
        if url.is_secure() { origin.with_tls(tls()?) } else { Ok(origin) }
    }

    fn of(place: Place) -> Self {
        Self { inner: Arc::new(Inner { place, tls: None, has_prior_knowledge: false }) }
    }

    /// Returns the same server by TLS. The server has to prove that it is the host of this origin.
    ///
    /// # Errors
    /// If the host cannot be the name of a certificate, or the origin is a Unix socket.
    pub fn with_tls(&self, config: Arc<ClientConfig>) -> Result<Self, String> {
        let Place::Tcp(host, _) = &self.inner.place else {
            return Err(format!("{self}: a Unix socket has no name for TLS"));
        };
        self.with_tls_name(config, host)
    }

    /// Returns the same server by TLS. The handshake names `name`, and the server has to prove that it is that host.
    ///
    /// # Errors
    /// If `name` cannot be the name of a certificate.
    pub fn with_tls_name(&self, config: Arc<ClientConfig>, name: &str) -> Result<Self, String> {
        let server = ServerName::try_from(name.to_owned());
        let name = server.map_err(|error| format!("{name:?}: {error}"))?;
        let inner = Inner { tls: Some(Tls { config, name }), ..(*self.inner).clone() };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Creates the same server, which is known to speak HTTP/2 without TLS (RFC 9113 §3.3). By TLS, the server selects the
    /// protocol from the `alpn_protocols` of the configuration.
    #[must_use]
    pub fn with_prior_knowledge(&self) -> Self {
        let inner = Inner { has_prior_knowledge: true, ..(*self.inner).clone() };
        Self { inner: Arc::new(inner) }
    }

    pub(crate) fn has_prior_knowledge(&self) -> bool {
        self.inner.has_prior_knowledge && self.inner.tls.is_none()
    }

    pub(crate) fn place(&self) -> &Place {
        &self.inner.place
    }

    pub(crate) fn tls(&self) -> Option<&Tls> {
        self.inner.tls.as_ref()
    }

    /// Returns `true` if connections use TLS.
    #[must_use]
    pub fn is_secure(&self) -> bool {
        self.inner.tls.is_some()
    }

    /// Host and port as a request names them; the port only if it is not the scheme's default. `localhost` for a Unix
    /// socket.
    #[must_use]
    pub fn authority(&self) -> String {
        let Place::Tcp(host, port) = &self.inner.place else { return "localhost".to_owned() };
        let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
        let default = if self.is_secure() { 443 } else { 80 };
        if *port == default { host } else { format!("{host}:{port}") }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_secure() { "https" } else { "http" };
        match &self.inner.place {
            Place::Unix(path) => write!(f, "{}", path.display()),
            Place::Tcp(..) => write!(f, "{scheme}://{}", self.authority()),
        }
    }
}

impl fmt::Debug for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Origin({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_names_its_server() {
        assert_eq!(Origin::tcp("a.example", 80).authority(), "a.example");
        assert_eq!(Origin::tcp("[::1]", 8080).to_string(), "http://[::1]:8080");
        assert_eq!(Origin::tcp("::1", 80), Origin::tcp("[::1]", 80));
        let unix = Origin::unix(Path::new("/run/a"));
        assert_eq!((unix.to_string(), unix.authority()), ("/run/a".into(), "localhost".into()));
    }
}
