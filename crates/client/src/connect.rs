//! Opening connections.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::{TcpStream, UnixStream, lookup_host};
use tokio_rustls::TlsConnector;

use crate::origin::{Origin, Place};
use crate::stream::Stream;
use crate::tls_error::describe_tls_error;
use crate::{Error, ErrorKind, Phase, Timeouts};

/// The way in which a connection is opened.
#[derive(Debug, Clone, Copy, Default)]
pub struct Dial<'a> {
    /// Addresses of the origin, of which the first that can be reached is used; `None` for those that its name has.
    pub addresses: Option<&'a [SocketAddr]>,
    /// Bytes with which the connection begins, before TLS: a header of the PROXY protocol.
    pub preface: &'a [u8],
    /// Limits of time.
    pub timeouts: Timeouts,
}

/// Opens a connection to `origin`, with its TLS handshake.
pub(crate) async fn connect(origin: &Origin, dial: &Dial<'_>) -> Result<Stream, Error> {
    let timeouts = &dial.timeouts;
    let open = async {
        let mut stream = match dial.addresses {
            Some(addresses) => open_first(origin, addresses.iter().copied()).await?,
            None => open(origin).await?,
        };
        let failed =
            |error| Error::of_system(ErrorKind::Connect, origin, "sending the header", &error);
        if !dial.preface.is_empty() {
            stream.write_all(dial.preface).await.map_err(failed)?;
        }
        Ok(stream)
    };
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
