//! The client's end of a connection, with or without TLS.

use std::cell::RefCell;
use std::io::{ErrorKind, Read, Write};
use std::path::Path;
use std::sync::Arc;

use dunlin_net::stream::memory::{ClientEnd, Side};
use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};

use super::TestServer;

/// A stream of plaintext to a server.
pub(crate) trait TestLink {
    fn send(&self, bytes: &[u8]);

    /// Receives up to `max` bytes.
    fn take(&self, max: usize) -> Vec<u8>;

    /// Returns the state of the stream that the server sends. Its end is visible once the client has received all bytes.
    fn server(&self) -> Side;

    /// Returns `true` if the server has closed its end.
    fn is_closed(&self) -> bool;
}

impl TestLink for ClientEnd {
    fn send(&self, bytes: &[u8]) {
        Self::send(self, bytes);
    }

    fn take(&self, max: usize) -> Vec<u8> {
        Self::take(self, max)
    }

    fn server(&self) -> Side {
        Self::server(self)
    }

    fn is_closed(&self) -> bool {
        Self::is_closed(self)
    }
}

impl TestLink for Box<dyn TestLink> {
    fn send(&self, bytes: &[u8]) {
        (**self).send(bytes);
    }

    fn take(&self, max: usize) -> Vec<u8> {
        (**self).take(max)
    }

    fn server(&self) -> Side {
        (**self).server()
    }

    fn is_closed(&self) -> bool {
        (**self).is_closed()
    }
}

/// The host name of the certificate.
pub(super) const HOST: &str = "localhost";

/// Writes a certificate and its key into `directory`. Returns the keys of a site that name them.
pub(crate) fn write_certificate(directory: &Path) -> String {
    let key = KeyPair::generate().expect("a key");
    let parameters = CertificateParams::new(vec![HOST.to_owned()]).expect("a host name");
    let certificate = parameters.self_signed(&key).expect("a certificate");
    for (name, text) in [("cert.pem", certificate.pem()), ("key.pem", key.serialize_pem())] {
        std::fs::write(directory.join(name), text).expect("the file is written");
    }
    "tls = { certificate = 'cert.pem', key = 'key.pem' }\n".to_owned()
}

/// The client's end of a TLS connection. It does not limit the bytes of [`Link::take`].
pub(crate) struct TlsEnd {
    end: ClientEnd,
    tls: RefCell<ClientConnection>,
}

impl TlsEnd {
    /// Does the handshake on a new connection, and offers `protocol`. `directory` has the certificate.
    pub(crate) async fn connect(
        server: &TestServer,
        end: ClientEnd,
        directory: &Path,
        protocol: &[u8],
    ) -> Self {
        let config =
            dunlin_tls::client_config(Some(&directory.join("cert.pem"))).expect("an authority");
        let mut config = ClientConfig::clone(&config);
        config.alpn_protocols = vec![protocol.to_vec()];
        let name = ServerName::try_from(HOST).expect("a host name");
        let mut connection = ClientConnection::new(Arc::new(config), name).expect("a client");
        connection.set_buffer_limit(None);
        let link = Self { end, tls: RefCell::new(connection) };
        for _ in 0..10 {
            link.flush();
            server.settle().await;
            link.receive();
        }
        link.flush();
        server.settle().await;
        assert!(!link.tls.borrow().is_handshaking(), "the handshake has ended");
        assert_eq!(link.tls.borrow().alpn_protocol(), Some(protocol));
        link
    }

    /// Sends all ciphertext.
    fn flush(&self) {
        let mut ciphertext = Vec::new();
        let mut tls = self.tls.borrow_mut();
        while tls.wants_write() {
            tls.write_tls(&mut ciphertext).expect("memory takes all");
        }
        if !ciphertext.is_empty() && !self.end.is_closed() {
            self.end.send(&ciphertext);
        }
    }

    /// Decrypts all ciphertext that has arrived. Returns the plaintext.
    fn receive(&self) -> Vec<u8> {
        let ciphertext = self.end.take(usize::MAX);
        let mut tls = self.tls.borrow_mut();
        let (mut rest, mut plaintext) = (&ciphertext[..], Vec::new());
        loop {
            if !rest.is_empty() {
                tls.read_tls(&mut rest).expect("memory can be read");
            }
            tls.process_new_packets().expect("the server follows the protocol");
            match tls.reader().read_to_end(&mut plaintext) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => panic!("reading plaintext: {error}"),
            }
            if rest.is_empty() {
                return plaintext;
            }
        }
    }
}

impl TestLink for TlsEnd {
    fn send(&self, bytes: &[u8]) {
        self.tls.borrow_mut().writer().write_all(bytes).expect("memory takes all");
        self.flush();
    }

    fn take(&self, _: usize) -> Vec<u8> {
        self.receive()
    }

    fn server(&self) -> Side {
        self.end.server()
    }

    fn is_closed(&self) -> bool {
        self.end.is_closed()
    }
}
