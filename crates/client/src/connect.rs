//! Opening connections.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpStream, UnixStream, lookup_host};
use tokio_rustls::TlsConnector;

use crate::origin::{Origin, Place};
use crate::stream::Stream;
use crate::tls_error::describe_tls_error;
use crate::{Error, ErrorKind, Phase, Timeouts};

/// Opens a connection to `origin`, with its TLS handshake.
pub(crate) async fn connect(origin: &Origin, timeouts: &Timeouts) -> Result<Stream, Error> {
    connect_to(origin, open(origin), timeouts).await
}

/// The same at one of these addresses of the origin, the first that can be reached.
pub(crate) async fn connect_at(
    origin: &Origin,
    addresses: &[SocketAddr],
    timeouts: &Timeouts,
) -> Result<Stream, Error> {
    connect_to(origin, open_first(origin, addresses.iter().copied()), timeouts).await
}

async fn connect_to(
    origin: &Origin,
    open: impl Future<Output = Result<Stream, Error>>,
    timeouts: &Timeouts,
) -> Result<Stream, Error> {
    let plain = within(Phase::Connect, timeouts.connect, origin, open).await?;
    let Some(tls) = origin.tls() else { return Ok(plain) };
    let Stream::Tcp(tcp) = plain else { return Ok(plain) };
    let handshake = TlsConnector::from(Arc::clone(&tls.config)).connect(tls.name.clone(), tcp);
    let failed = |error: io::Error| {
        let reason = describe_tls_error(&error);
        Error::new(ErrorKind::Tls, origin, format_args!("the TLS handshake failed: {reason}"))
    };
    let handshake = async { handshake.await.map_err(failed) };
    let stream = within(Phase::Tls, timeouts.tls, origin, handshake).await?;
    Ok(Stream::Tls(Box::new(stream)))
}

/// Gives `work` that much time.
pub(crate) async fn within<T>(
    phase: Phase,
    limit: Option<Duration>,
    origin: &Origin,
    work: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    let Some(limit) = limit else { return work.await };
    match tokio::time::timeout(limit, work).await {
        Ok(result) => result,
        Err(_) => Err(Error::timeout(phase, origin)),
    }
}

async fn open(origin: &Origin) -> Result<Stream, Error> {
    let failed =
        |error: io::Error| Error::of_system(ErrorKind::Connect, origin, "connecting", &error);
    let (host, port) = match origin.place() {
        Place::Tcp(host, port) => (host, *port),
        Place::Unix(path) => {
            return UnixStream::connect(path).await.map(Stream::Unix).map_err(failed);
        }
    };
    let resolve = |reason: String| Error::new(ErrorKind::Resolve, origin, reason);
    let addresses = lookup_host((host.as_str(), port)).await;
    let addresses =
        addresses.map_err(|error| resolve(format!("resolving {host} failed: {error}")))?;
    open_first(origin, addresses).await
}

async fn open_first(
    origin: &Origin,
    addresses: impl Iterator<Item = SocketAddr>,
) -> Result<Stream, Error> {
    let failed =
        |error: io::Error| Error::of_system(ErrorKind::Connect, origin, "connecting", &error);
    let mut last = Error::new(ErrorKind::Resolve, origin, "the name has no address");
    for address in addresses {
        match TcpStream::connect(address).await {
            Ok(stream) => {
                // Without it, a small body waits for the acknowledgement of its head. A socket that cannot have it
                // works too.
                let _ = stream.set_nodelay(true);
                return Ok(Stream::Tcp(stream));
            }
            Err(error) => last = failed(error),
        }
    }
    Err(last)
}
