//! From an accepted socket to an encrypted connection of a site.

use std::future::poll_fn;
use std::io::{self, ErrorKind};
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::server::{AcceptedAlert, Acceptor, ClientHello, UnbufferedServerConnection};
use tokio::io::ReadBuf;
use tokio::net::TcpStream;

use super::acme::ALPN;
use super::session::read_some;
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
    let (mut session, answers_early) = hello(tcp, config, certificates, http2).await?;
    poll_fn(|cx| {
        // With early data the answer need not wait for the end.
        while session.tls.is_handshaking() && !(answers_early && session.has_waiting()) {
            std::task::ready!(session.poll_flush(cx))?;
            std::task::ready!(session.poll_arrive(cx, &mut ReadBuf::new(&mut [])))?;
        }
        std::task::Poll::Ready(io::Result::Ok(()))
    })
    .await?;
    session.see_client();
    Ok(session)
}

/// Reads the client's first message and chooses the certificate by it. The other value says whether anything may be
/// sent to the client before the handshake has ended.
async fn hello(
    tcp: TcpStream,
    config: &Config,
    certificates: &Certificates,
    http2: bool,
) -> io::Result<(Session, bool)> {
    let mut acceptor = Acceptor::default();
    let mut arrived = Vec::new();
    loop {
        tcp.readable().await?;
        let count = match read_some(&tcp, &mut arrived) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
            Err(error) => return Err(error),
        };
        if arrived[0].is_ascii_uppercase() {
            let _ = tcp.try_write(PLAIN);
            return Err(io::Error::new(ErrorKind::InvalidData, "it speaks HTTP without TLS"));
        }
        if arrived.len() > HELLO {
            return Err(io::Error::new(ErrorKind::InvalidData, "its first message is too long"));
        }
        let mut rest = &arrived[arrived.len() - count..];
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
                let answers_early = found.send_half_rtt_data;
                let connection = UnbufferedServerConnection::new(found);
                let connection = connection.map_err(io::Error::other)?;
                return Ok((Session::new(tcp, connection, arrived)?, answers_early));
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
