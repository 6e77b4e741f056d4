//! From an accepted socket to an encrypted connection of a site.

use std::future::poll_fn;
use std::io::{self, ErrorKind};
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::server::{AcceptedAlert, Acceptor, ClientHello};
use tokio::net::TcpStream;

use super::acme::ALPN;
use super::{Certificates, Session};
use crate::config::Config;

/// Largest message that a handshake may begin with.
const HELLO: usize = 32 * 1024;
/// To those who speak HTTP without TLS to a port with TLS.
const PLAIN: &[u8] =
    b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Type: text/plain\r\n\
Content-Length: 49\r\n\r\nThis port speaks TLS: the address is an https one\n";

/// Does the whole handshake, with the site that the client names; `http2`: that may be agreed upon.
///
/// # Errors
/// What went wrong; the client was told as far as it could be.
pub(crate) async fn handshake(
    tcp: TcpStream,
    config: &Config,
    certificates: &Certificates,
    http2: bool,
) -> io::Result<Session> {
    let mut session = hello(tcp, config, certificates, http2).await?;
    poll_fn(|cx| {
        loop {
            if session.poll_flush(cx)?.is_pending() {
                return std::task::Poll::Pending;
            }
            // With early data the answer need not wait for the end.
            if !session.tls.is_handshaking() || session.tls.early_data().is_some() {
                return std::task::Poll::Ready(io::Result::Ok(()));
            }
            std::task::ready!(session.poll_arrive(cx))?;
        }
    })
    .await?;
    session.see_client();
    Ok(session)
}

/// Reads the client's first message and chooses the certificate by it.
async fn hello(
    tcp: TcpStream,
    config: &Config,
    certificates: &Certificates,
    http2: bool,
) -> io::Result<Session> {
    let mut acceptor = Acceptor::default();
    let mut buffer = [0; 4096];
    let mut read = 0;
    loop {
        tcp.readable().await?;
        let count = match tcp.try_read(&mut buffer) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
            Err(error) => return Err(error),
        };
        if read == 0 && buffer[0].is_ascii_uppercase() {
            let _ = tcp.try_write(PLAIN);
            return Err(io::Error::new(ErrorKind::InvalidData, "it speaks HTTP without TLS"));
        }
        read += count;
        if read > HELLO {
            return Err(io::Error::new(ErrorKind::InvalidData, "its first message is too long"));
        }
        let mut rest = &buffer[..count];
        while !rest.is_empty() {
            acceptor.read_tls(&mut rest)?;
        }
        match acceptor.accept() {
            Ok(None) => {}
            Ok(Some(accepted)) => {
                let found = choose(&accepted.client_hello(), config, certificates, http2);
                let Some(found) = found else {
                    // unrecognized_name, fatal (RFC 6066 §3).
                    let _ = tcp.try_write(&[21, 3, 3, 0, 2, 2, 112]);
                    let what = "no site with a certificate has that name";
                    return Err(io::Error::new(ErrorKind::InvalidData, what));
                };
                let connection = accepted.into_connection(found);
                let mut connection = connection.map_err(|refused| refuse(&tcp, refused))?;
                connection.set_buffer_limit(None);
                let mut session = Session::new(tcp, connection);
                // Early data may have come with the first message.
                session.take_in(&[])?;
                return Ok(session);
            }
            Err(refused) => return Err(refuse(&tcp, refused)),
        }
    }
}

/// Tells the client, as far as there is room for it.
fn refuse(tcp: &TcpStream, (error, mut alert): (rustls::Error, AcceptedAlert)) -> io::Error {
    let mut text = Vec::new();
    let _ = alert.write_all(&mut text);
    let _ = tcp.try_write(&text);
    io::Error::new(ErrorKind::InvalidData, error)
}

/// What belongs to the site that the client names, or to the one for every other host.
fn choose(
    hello: &ClientHello<'_>,
    config: &Config,
    certificates: &Certificates,
    http2: bool,
) -> Option<Arc<ServerConfig>> {
    let name = hello.server_name().unwrap_or_default();
    if let Some(challenges) = certificates.challenges()
        && hello.alpn().is_some_and(|mut offered| offered.all(|protocol| protocol == ALPN))
    {
        return challenges.handshake(name);
    }
    let found = match config.sites.find(name.as_bytes()) {
        Some(site) => certificates.of_site(site.index),
        // A client that names no host has to get some certificate.
        None if name.is_empty() => certificates.first(),
        None => None,
    };
    Some(found?.config(http2))
}
