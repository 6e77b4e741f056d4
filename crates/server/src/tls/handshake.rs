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
use super::{Certificates, Policy, Session};
use crate::config::Config;

/// Largest message that a handshake may begin with.
const HELLO: usize = 32 * 1024;
/// To those who speak HTTP without TLS to a port with TLS.
const PLAIN: &[u8] =
    b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Type: text/plain\r\n\
Content-Length: 49\r\n\r\nThis port speaks TLS: the address is an https one\n";

/// Does the whole handshake, with the site that the client names. `arrived` was read before; `http2`: that may be agreed
/// upon.
///
/// # Errors
/// What went wrong; the client was told as far as it could be.
pub(crate) async fn handshake(
    tcp: TcpStream,
    arrived: Vec<u8>,
    config: &Config,
    certificates: &Certificates,
    http2: bool,
) -> io::Result<Session> {
    let (mut session, answers_early) = hello(tcp, arrived, config, certificates, http2).await?;
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
    mut arrived: Vec<u8>,
    config: &Config,
    certificates: &Certificates,
    http2: bool,
) -> io::Result<(Session, bool)> {
    let mut acceptor = Acceptor::default();
    let mut first = arrived.len();
    loop {
        let count = match std::mem::take(&mut first) {
            0 => read_more(&tcp, &mut arrived).await?,
            first => first,
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
                let hello = accepted.client_hello();
                let name = hello.server_name().unwrap_or_default().into();
                let found = choose(&hello, config, certificates, http2);
                let Some((found, policy)) = found else {
                    // unrecognized_name, fatal (RFC 6066 §3).
                    let _ = tcp.try_write(&[21, 3, 3, 0, 2, 2, 112]);
                    let what = "no site with a certificate has that name";
                    return Err(io::Error::new(ErrorKind::InvalidData, what));
                };
                let answers_early = found.send_half_rtt_data;
                let connection = UnbufferedServerConnection::new(found);
                let connection = connection.map_err(io::Error::other)?;
                let session = Session::new(tcp, connection, (name, policy), arrived)?;
                return Ok((session, answers_early));
            }
            Err(refused) => return Err(refuse(&tcp, refused)),
        }
    }
}

/// Reads more of the client's first message; says how much.
async fn read_more(tcp: &TcpStream, arrived: &mut Vec<u8>) -> io::Result<usize> {
    loop {
        tcp.readable().await?;
        match read_some(tcp, arrived) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            result => return result,
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

/// The configuration and the policy of the site that the client names, or of the one for every other host.
fn choose(
    hello: &ClientHello<'_>,
    config: &Config,
    certificates: &Certificates,
    http2: bool,
) -> Option<(Arc<ServerConfig>, Policy)> {
    let name = hello.server_name().unwrap_or_default();
    if let Some(challenges) = certificates.challenges()
        && hello.alpn().is_some_and(|mut offered| offered.all(|protocol| protocol == ALPN))
    {
        // No request follows.
        return Some((challenges.handshake(name)?, Policy::UNMET));
    }
    let answering = certificates.of_site(certificates.site_for(name, config)?)?;
    Some((answering.config(http2), answering.policy))
}

/// How a connection stands with the site that its handshake named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// The site's policy is the one that the handshake met.
    Unchanged,
    /// The site's policy has changed, and the handshake meets the present one, too.
    Renewed,
    /// The handshake does not meet the site's present policy.
    Unmet,
}

impl Session {
    /// Compares the handshake with the present policy of the site that it named.
    pub(crate) fn renew_policy(
        &mut self,
        config: &Config,
        certificates: &Certificates,
    ) -> Standing {
        let site = certificates.site_for(&self.name, config);
        let Some(answering) = site.and_then(|site| certificates.of_site(site)) else {
            return Standing::Unmet;
        };
        if self.policy == answering.policy {
            return Standing::Unchanged;
        }
        if self.tls.is_handshaking() || !answering.is_met_by(&self.tls) {
            return Standing::Unmet;
        }
        self.policy = answering.policy;
        if !answering.verifies_clients() {
            self.client = None;
        }
        Standing::Renewed
    }
}
