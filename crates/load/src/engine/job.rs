//! A plan made ready: the address, the bytes of every request, and what the answers have to be.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;

use bytes::Bytes;
use rustls::pki_types::ServerName;
use url::Url;

use super::transport::{Asked, Transport};
use crate::plan::{Plan, Protocol, Reuse};
use crate::verify::Reference;

/// A plan with all that running it needs.
pub struct Job {
    /// What is run.
    pub plan: Plan,
    /// Where the server is.
    pub address: SocketAddr,
    /// One for each URL.
    pub(super) requests: Vec<Prepared>,
    /// The same for HTTP/2.
    http2: Vec<(http::Request<()>, Bytes)>,
    pub(super) tls: Option<Tls>,
    /// What the bodies have to be.
    pub(super) reference: Reference,
    /// Statuses that are right; empty: all of 2xx.
    pub(super) statuses: Vec<u16>,
    /// What [`crate::choose::Chooser`] chooses by.
    pub(super) table: Arc<[f64]>,
    /// With a replay: when each request is due, in nanoseconds, and which it is.
    pub(super) replay: Option<Vec<(u64, u32)>>,
}

/// What a TLS session is made with.
pub(super) struct Tls {
    pub(super) config: Arc<rustls::ClientConfig>,
    pub(super) name: ServerName<'static>,
}

/// A request's bytes.
pub(super) struct Prepared {
    pub(super) bytes: Vec<u8>,
    /// The same with the wish to close the connection after it.
    pub(super) last: Vec<u8>,
    /// Length of the body, which stands at the end of both.
    pub(super) body: usize,
    pub(super) head_only: bool,
}

/// Why a plan cannot be run.
#[derive(Debug)]
pub enum JobError {
    /// A URL is malformed, of another kind than http and https, or of another server than the first.
    Url(String, String),
    /// The server's name has no address.
    Resolve(String, String),
    /// TLS cannot be set up.
    Tls(String),
    /// No connection can be made.
    Connect(SocketAddr, std::io::Error),
}

impl fmt::Display for JobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Url(url, why) => write!(f, "{url}: {why}"),
            Self::Resolve(host, why) => write!(f, "{host}: {why}"),
            Self::Tls(why) => write!(f, "TLS: {why}"),
            Self::Connect(address, error) => {
                write!(f, "connecting to {address}: {error}; is the server running?")
            }
        }
    }
}

impl std::error::Error for JobError {}

/// What a plan does not hold.
#[derive(Default)]
pub struct Extras {
    /// The body of each request.
    pub body: Vec<u8>,
    /// Statuses that are right; empty: all of 2xx.
    pub statuses: Vec<u16>,
    /// Methods, when they differ from URL to URL; empty: the plan's for all.
    pub methods: Vec<String>,
    /// With a replay: when each request is due, in nanoseconds, and which it is.
    pub replay: Option<Vec<(u64, u32)>>,
}

impl Job {
    /// Makes `plan` ready.
    ///
    /// # Errors
    /// [`JobError`] says which URL, name or setting is wrong.
    pub fn new(plan: Plan, extras: Extras, reference: Reference) -> Result<Self, JobError> {
        let wrong = |url: &str, why: &str| JobError::Url(url.to_owned(), why.to_owned());
        let mut first: Option<Url> = None;
        let mut requests = Vec::with_capacity(plan.urls.len());
        let mut http2 = Vec::new();
        for (index, text) in plan.urls.iter().enumerate() {
            let url = Url::parse(text).map_err(|error| wrong(text, &error.to_string()))?;
            if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
                return Err(wrong(text, "is not an http or https URL"));
            }
            if first.as_ref().is_some_and(|first| first.origin() != url.origin()) {
                return Err(wrong(text, "is on another server than the first URL"));
            }
            let method = extras.methods.get(index).unwrap_or(&plan.request.method);
            requests.push(Prepared::new(&plan, method, &url, &extras.body));
            if plan.protocol == Protocol::Http2 {
                http2.push(
                    http2_request(&plan, method, &url, &extras.body)
                        .map_err(|why| wrong(text, &why))?,
                );
            }
            first.get_or_insert(url);
        }
        let Some(first) = first else { return Err(wrong("", "there is no URL")) };
        let address = address_of(&first)?;
        let tls = (first.scheme() == "https").then(|| Tls::new(&plan, &first)).transpose()?;
        let table = crate::choose::table(&plan.choice, plan.urls.len());
        Ok(Self {
            plan,
            table,
            address,
            requests,
            http2,
            tls,
            reference,
            statuses: extras.statuses,
            replay: extras.replay,
        })
    }

    /// Makes one connection and closes it.
    ///
    /// # Errors
    /// [`JobError::Connect`] when that cannot be done.
    pub fn probe(&self) -> Result<(), JobError> {
        let timeout = std::time::Duration::from_secs_f64(self.plan.timeout_seconds.max(0.001));
        match std::net::TcpStream::connect_timeout(&self.address, timeout) {
            Ok(_) => Ok(()),
            Err(error) => Err(JobError::Connect(self.address, error)),
        }
    }

    /// Whether connections are encrypted.
    #[must_use]
    pub fn is_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// Whether that status is a right one.
    #[inline]
    pub(super) fn is_right(&self, status: u16) -> bool {
        if self.statuses.is_empty() {
            (200..300).contains(&status)
        } else {
            self.statuses.contains(&status)
        }
    }

    /// The request for the URL with that index, and its body.
    pub(super) fn http2_request(&self, url: usize) -> Option<(http::Request<()>, Bytes)> {
        self.http2.get(url).cloned()
    }

    /// Begins the connection with that number.
    pub(super) fn connect(&self, number: u64) -> std::io::Result<Transport> {
        let sources = &self.plan.source_addresses;
        let from = (!sources.is_empty()).then(|| sources[number as usize % sources.len()]);
        let asked = Asked {
            to: self.address,
            from,
            no_delay: self.plan.request.no_delay,
            pace: self.plan.modem_bits_per_second.map(|bits| bits / 8),
        };
        Transport::open(&asked, self.tls.as_ref())
    }
}

fn address_of(url: &Url) -> Result<SocketAddr, JobError> {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    let port = url.port_or_known_default().unwrap_or(80);
    let resolved = (host, port).to_socket_addrs();
    let told = |why: String| JobError::Resolve(host.to_owned(), why);
    let all: Vec<_> = resolved.map_err(|error| told(error.to_string()))?.collect();
    // Servers listen on IPv4 loopback more often than on both.
    let best = all.iter().find(|address| address.is_ipv4()).or(all.first());
    best.copied().ok_or_else(|| told("has no address".to_owned()))
}

fn http2_request(
    plan: &Plan,
    method: &str,
    url: &Url,
    body: &[u8],
) -> Result<(http::Request<()>, Bytes), String> {
    let mut request =
        http::Request::builder().method(method).uri(url.as_str()).version(http::Version::HTTP_2);
    request = request
        .header("user-agent", concat!("dunlin/", env!("CARGO_PKG_VERSION")))
        .header("accept", "*/*");
    for (name, value) in &plan.request.fields {
        request = request.header(name, value);
    }
    if !body.is_empty() {
        request = request.header("content-length", body.len());
    }
    let request = request.body(()).map_err(|error| error.to_string())?;
    Ok((request, Bytes::copy_from_slice(body)))
}

impl Prepared {
    fn new(plan: &Plan, method: &str, url: &Url, body: &[u8]) -> Self {
        let mut target = url.path().to_owned();
        if let Some(query) = url.query() {
            target.push('?');
            target.push_str(query);
        }
        let version = if plan.protocol == Protocol::Http10 { "1.0" } else { "1.1" };
        let mut head = format!("{method} {target} HTTP/{version}\r\n");
        let has =
            |name: &str| plan.request.fields.iter().any(|(n, _)| n.eq_ignore_ascii_case(name));
        if !has("host") {
            let host = url.host_str().unwrap_or_default();
            let port = url.port().map_or(String::new(), |port| format!(":{port}"));
            head += &format!("Host: {host}{port}\r\n");
        }
        if !has("user-agent") {
            head += concat!("User-Agent: dunlin/", env!("CARGO_PKG_VERSION"), "\r\n");
        }
        if !has("accept") {
            head += "Accept: */*\r\n";
        }
        for (name, value) in &plan.request.fields {
            head += &format!("{name}: {value}\r\n");
        }
        let sends_body = !body.is_empty() || matches!(method, "POST" | "PUT" | "PATCH");
        if sends_body && !has("content-length") {
            head += &format!("Content-Length: {}\r\n", body.len());
        }
        let kept = plan.protocol == Protocol::Http10 && plan.reuse != Reuse::Never;
        let whole = |connection: &str| {
            let mut bytes = format!("{head}{connection}\r\n").into_bytes();
            bytes.extend_from_slice(body);
            bytes
        };
        let says_connection = has("connection");
        Self {
            bytes: whole(if kept && !says_connection { "Connection: keep-alive\r\n" } else { "" }),
            last: whole(if says_connection || plan.protocol == Protocol::Http10 {
                ""
            } else {
                "Connection: close\r\n"
            }),
            body: body.len(),
            head_only: method == "HEAD",
        }
    }
}

impl Tls {
    fn new(plan: &Plan, url: &Url) -> Result<Self, JobError> {
        let told = |error: &dyn fmt::Display| JobError::Tls(error.to_string());
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = rustls::ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| told(&error))?;
        let mut config = if plan.insecure {
            let any = Arc::new(AnyCertificate(provider));
            builder.dangerous().with_custom_certificate_verifier(any).with_no_client_auth()
        } else {
            let mut roots = rustls::RootCertStore::empty();
            let found = rustls_native_certs::load_native_certs();
            for certificate in found.certs {
                // One that is not understood cannot vouch for anybody; the others still can.
                let _ = roots.add(certificate);
            }
            builder.with_root_certificates(roots).with_no_client_auth()
        };
        config.alpn_protocols = match plan.protocol {
            Protocol::Http2 => vec![b"h2".to_vec()],
            _ => vec![b"http/1.1".to_vec()],
        };
        let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']).to_owned();
        let name = ServerName::try_from(host).map_err(|error| told(&error))?;
        Ok(Self { config: Arc::new(config), name })
    }
}

/// Accepts every certificate: the user asked for it.
#[derive(Debug)]
struct AnyCertificate(Arc<rustls::crypto::CryptoProvider>);

impl rustls::client::danger::ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &rustls::pki_types::CertificateDer<'_>,
        _: &[rustls::pki_types::CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: rustls::pki_types::UnixTime,
    ) -> Result<rustls::client::danger::ServerCertVerified, rustls::Error> {
        Ok(rustls::client::danger::ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &rustls::pki_types::CertificateDer<'_>,
        signature: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &rustls::pki_types::CertificateDer<'_>,
        signature: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
