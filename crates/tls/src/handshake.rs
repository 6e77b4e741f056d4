//! The TLS handshake of an accepted connection.

use std::future::poll_fn;
use std::io::{self, ErrorKind};
use std::net::IpAddr;
use std::sync::Arc;

use dunlin_config::Config;
use dunlin_net::stream::Stream;
use rustls::ServerConfig;
use rustls::server::{AcceptedAlert, Acceptor, ClientHello, UnbufferedServerConnection};
use tokio::io::ReadBuf;

use super::acme::challenges::ALPN;
use super::certificates::Certificates;
use super::policy::Policy;
use super::session::{Session, poll_read_some};

/// Maximum length of a ClientHello in bytes.
const MAX_HELLO: usize = 32 * 1024;
/// Response to a plain HTTP request on a TLS port.
const PLAIN_HTTP_RESPONSE: &[u8] =
    b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Type: text/plain\r\n\
Content-Length: 41\r\n\r\nThis port requires TLS: use an https URL\n";

/// The listener of a connection.
#[derive(Debug, Clone, Copy)]
pub struct Listener {
    /// Its number, by which the configuration finds sites.
    pub number: u64,
    /// HTTP/2 is offered in ALPN.
    pub http2: bool,
}

/// Performs the handshake with the site that the client names. `arrived` is data that was read before.
///
/// # Errors
/// Why it failed; an alert was sent to the client if the socket had room for it.
pub async fn handshake(
    stream: Stream,
    arrived: Vec<u8>,
    config: &Config,
    certificates: &Certificates,
    listener: Listener,
) -> io::Result<Session> {
    let (mut session, sends_early) = hello(stream, arrived, config, certificates, listener).await?;
    poll_fn(|cx| {
        // With early data, the response does not wait for the end of the handshake.
        while session.tls.is_handshaking() && !(sends_early && session.has_waiting()) {
            std::task::ready!(session.poll_flush(cx))?;
            std::task::ready!(session.poll_arrive(cx, &mut ReadBuf::new(&mut [])))?;
        }
        std::task::Poll::Ready(io::Result::Ok(()))
    })
    .await?;
    session.store_client_certificate();
    Ok(session)
}

/// Reads the ClientHello and selects the certificate. The second value is whether application data may be sent before
/// the end of the handshake.
async fn hello(
    mut stream: Stream,
    mut arrived: Vec<u8>,
    config: &Config,
    certificates: &Certificates,
    listener: Listener,
) -> io::Result<(Session, bool)> {
    let mut acceptor = Acceptor::default();
    let mut first = arrived.len();
    loop {
        let count = match std::mem::take(&mut first) {
            0 => read_more(&mut stream, &mut arrived).await?,
            first => first,
        };
        if arrived[0].is_ascii_uppercase() {
            let _ = stream.try_write(PLAIN_HTTP_RESPONSE);
            return Err(io::Error::new(ErrorKind::InvalidData, "the client sent plain HTTP"));
        }
        if arrived.len() > MAX_HELLO {
            return Err(io::Error::new(ErrorKind::InvalidData, "the ClientHello is too long"));
        }
        let mut rest = &arrived[arrived.len() - count..];
        while !rest.is_empty() {
            acceptor.read_tls(&mut rest)?;
        }
        match acceptor.accept() {
            Ok(None) => {}
            Ok(Some(accepted)) => {
                let hello = accepted.client_hello();
                let name = match hello.server_name() {
                    Some(name) => name.into(),
                    None => address(&stream, listener, config),
                };
                let found = choose(&hello, &name, (config, certificates), listener);
                let Some((found, policy)) = found else {
                    // unrecognized_name, fatal (RFC 6066 §3).
                    let _ = stream.try_write(&[21, 3, 3, 0, 2, 2, 112]);
                    let what = "no site with a certificate has the requested server name";
                    return Err(io::Error::new(ErrorKind::InvalidData, what));
                };
                let sends_early = found.send_half_rtt_data;
                let connection = UnbufferedServerConnection::new(found);
                let connection = connection.map_err(io::Error::other)?;
                let session =
                    Session::new(stream, connection, (listener.number, name, policy), arrived)?;
                return Ok((session, sends_early));
            }
            Err(rejected) => return Err(send_alert(&stream, rejected)),
        }
    }
}

/// Reads more of the ClientHello. Returns the number of bytes.
async fn read_more(stream: &mut Stream, arrived: &mut Vec<u8>) -> io::Result<usize> {
    match poll_fn(|cx| poll_read_some(stream, cx, arrived)).await? {
        0 => Err(ErrorKind::UnexpectedEof.into()),
        count => Ok(count),
    }
}

/// Sends an alert if the socket has room for it.
fn send_alert(stream: &Stream, (error, mut alert): (rustls::Error, AcceptedAlert)) -> io::Error {
    let mut text = Vec::new();
    let _ = alert.write_all(&mut text);
    let _ = stream.try_write(&text);
    io::Error::new(ErrorKind::InvalidData, error)
}

/// Returns the address to which a client without SNI has connected, as the host of a site; empty if no site has it.
fn address(stream: &Stream, listener: Listener, config: &Config) -> Box<str> {
    match stream.ends() {
        Ok(Some(ends)) => host_of(ends.local.ip(), listener.number, config),
        _ => Box::default(),
    }
}

/// Returns an address of the server as the host of a site; empty if no site has it.
pub(crate) fn host_of(address: IpAddr, listener: u64, config: &Config) -> Box<str> {
    let host = match address.to_canonical() {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => format!("[{address}]"),
    };
    let found = config.sites.find_named_on(listener, host.as_bytes());
    found.map_or_else(Box::default, |_| host.into())
}

/// Returns the configuration and policy of the site that the client names, or of the default site.
fn choose(
    hello: &ClientHello<'_>,
    name: &str,
    (config, certificates): (&Config, &Certificates),
    listener: Listener,
) -> Option<(Arc<ServerConfig>, Policy)> {
    if let Some(challenges) = certificates.challenges()
        && hello.alpn().is_some_and(|mut offered| offered.all(|protocol| protocol == ALPN))
    {
        // The client closes after the handshake (RFC 8737 §3).
        return Some((challenges.handshake(name)?, Policy::UNMET));
    }
    let site = certificates.site_for(listener.number, name, config)?;
    let site = certificates.of_site(site)?;
    Some((site.config(listener.http2), site.policy))
}

/// The result of a comparison of a handshake with the current policy of the site that it named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyMatch {
    /// The policy has not changed since the handshake.
    Unchanged,
    /// The policy has changed, and the handshake meets the new one.
    Renewed,
    /// The handshake does not meet the current policy.
    Unmet,
}

impl Session {
    /// Compares the handshake with the current policy of the site that it named.
    pub fn renew_policy(&mut self, config: &Config, certificates: &Certificates) -> PolicyMatch {
        let site = certificates.site_for(self.listener, &self.name, config);
        let Some(site) = site.and_then(|site| certificates.of_site(site)) else {
            return PolicyMatch::Unmet;
        };
        if self.policy == site.policy {
            return PolicyMatch::Unchanged;
        }
        let suite = self.tls.negotiated_cipher_suite().map(|suite| suite.suite());
        let certificates = self.tls.peer_certificates().unwrap_or_default();
        if self.tls.is_handshaking() || !site.is_met_by(suite, certificates) {
            return PolicyMatch::Unmet;
        }
        self.policy = site.policy;
        if !site.verifies_clients() {
            self.client = None;
        }
        PolicyMatch::Renewed
    }

    /// Returns `true` if the cipher suites of the site permit HTTP/3.
    pub fn may_use_http3(&self, config: &Config, certificates: &Certificates) -> bool {
        let site = certificates.site_for(self.listener, &self.name, config);
        site.and_then(|site| certificates.of_site(site)?.http3()).is_some()
    }
}
