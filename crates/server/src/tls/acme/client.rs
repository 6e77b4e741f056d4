//! The authority is spoken to by HTTP/1.1 over TLS, a connection for each request: there are few, and
//! hours or months between them.

use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response, header};
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::tls::certificate::{chain, provider};
use crate::tls::clock::WallClock;
use crate::whole_answer::{WholeAnswer, receive};

/// The longest that one request may take.
const LIMIT: Duration = Duration::from_secs(30);
/// The largest answer that is read, in bytes.
const MOST: usize = 1 << 20;

/// Speaks to authorities.
#[derive(Clone)]
pub(super) struct Client {
    tls: TlsConnector,
}

type Answer = Result<BytesResponse, Error>;

impl Client {
    /// Trusts who is signed by those in the file `authority`, or by those that the system trusts.
    ///
    /// # Errors
    /// Why nobody could be trusted.
    pub(super) fn new(authority: Option<&Path>) -> Result<Self, String> {
        Ok(Self { tls: TlsConnector::from(client_config(authority)?) })
    }
}

/// What a client needs that trusts who is signed by those in the file `authority`, or by those that the
/// system trusts.
///
/// # Errors
/// Why nobody could be trusted.
pub(crate) fn client_config(authority: Option<&Path>) -> Result<Arc<ClientConfig>, String> {
    let config = ClientConfig::builder_with_details(provider(), Arc::new(WallClock))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots(authority)?)
        .with_no_client_auth();
    Ok(Arc::new(config))
}

/// By whom an authority's own certificate has to be signed.
///
/// # Errors
/// Why the file cannot be used, or that the system trusts nobody.
pub(crate) fn roots(authority: Option<&Path>) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    if let Some(file) = authority {
        for certificate in chain(file)? {
            let wrong = |error| format!("authority {}: {error}", file.display());
            roots.add(certificate).map_err(wrong)?;
        }
        return Ok(roots);
    }
    let system: Vec<CertificateDer<'static>> = rustls_native_certs::load_native_certs().certs;
    // One that is not understood cannot vouch for anybody; the others still can.
    roots.add_parsable_certificates(system);
    if roots.is_empty() {
        return Err("the system has no list of authorities; install ca-certificates".into());
    }
    Ok(roots)
}

impl HttpClient for Client {
    fn request(
        &self,
        request: Request<BodyWrapper<bytes::Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Answer> + Send>> {
        let tls = self.tls.clone();
        Box::pin(async move {
            let host = request.uri().host().unwrap_or_default().to_owned();
            let answer = match tokio::time::timeout(LIMIT, exchange(tls, request)).await {
                Ok(answer) => answer,
                Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "it did not answer in time")),
            };
            answer.map_err(|error| Error::Other(format!("{host}: {error}").into()))
        })
    }
}

async fn exchange(
    tls: TlsConnector,
    request: Request<BodyWrapper<bytes::Bytes>>,
) -> io::Result<BytesResponse> {
    let (head, body) = request.into_parts();
    let body = BytesResponse::from(Response::new(body)).body.into_bytes().await;
    let body = body.map_err(io::Error::other)?;
    let host = head.uri.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
    let port = head.uri.port_u16().unwrap_or(443);
    let tcp = TcpStream::connect((host.as_str(), port)).await?;
    let name = ServerName::try_from(host).map_err(io::Error::other)?;
    let mut stream = tls.connect(name, tcp).await?;
    let mut text = request_head(&head, body.len());
    text.extend_from_slice(&body);
    stream.write_all(&text).await?;
    let head_only = head.method == http::Method::HEAD;
    finish(receive(&mut stream, head_only, MOST).await?)
}

fn request_head(head: &http::request::Parts, length: usize) -> Vec<u8> {
    let target = head.uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
    let authority = head.uri.authority().map_or("", http::uri::Authority::as_str);
    let mut text =
        format!("{} {target} HTTP/1.1\r\nHost: {authority}\r\nConnection: close\r\n", head.method)
            .into_bytes();
    for (name, value) in head.headers.iter().filter(|(name, _)| **name != header::USER_AGENT) {
        text.extend_from_slice(name.as_str().as_bytes());
        text.extend_from_slice(b": ");
        text.extend_from_slice(value.as_bytes());
        text.extend_from_slice(b"\r\n");
    }
    // RFC 8555 §6.1 asks for the name of the program.
    text.extend_from_slice(
        concat!("User-Agent: dunlin/", env!("CARGO_PKG_VERSION"), "\r\n").as_bytes(),
    );
    if head.method == http::Method::POST {
        text.extend_from_slice(format!("Content-Length: {length}\r\n").as_bytes());
    }
    text.extend_from_slice(b"\r\n");
    text
}

/// The answer as the protocol takes it. A line that is no field is left out.
fn finish(answer: WholeAnswer) -> io::Result<BytesResponse> {
    let mut response = Response::builder().status(answer.status);
    for (name, value) in answer.fields().flatten() {
        response = response.header(name, value);
    }
    let (parts, ()) = response.body(()).map_err(io::Error::other)?.into_parts();
    Ok(BytesResponse { parts, body: Box::new(bytes::Bytes::from(answer.body)) })
}
