//! The encrypter of this module against the decrypter of rustls.

use std::io::{ErrorKind, Read};
use std::sync::Arc;

use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, UnbufferedStatus};
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig};

use super::*;
use crate::certificate::provider;

/// A connected client and server.
struct Pair {
    client: ClientConnection,
    server: UnbufferedServerConnection,
    /// What the client has sent and the server has not processed.
    sent: Vec<u8>,
}

impl Pair {
    /// Connects with the only suite that both have.
    fn new(suite: CipherSuite) -> Self {
        let made = rcgen::generate_simple_self_signed(["a.test".to_owned()]).unwrap();
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
        let mut only = CryptoProvider::clone(&provider());
        only.cipher_suites.retain(|other| other.suite() == suite);
        let server = ServerConfig::builder_with_provider(Arc::new(only))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key)
            .unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(made.cert.der().clone()).unwrap();
        let original = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let client = ClientConfig::builder_with_provider(original)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let mut pair = Self {
            client: ClientConnection::new(Arc::new(client), "a.test".try_into().unwrap()).unwrap(),
            server: UnbufferedServerConnection::new(Arc::new(server)).unwrap(),
            sent: Vec::new(),
        };
        while pair.client.is_handshaking() || pair.client.wants_write() {
            let answer = pair.process();
            pair.receive(&answer);
        }
        pair
    }

    /// Has the server process what the client sends. Returns what it answers.
    fn process(&mut self) -> Vec<u8> {
        while self.client.wants_write() {
            self.client.write_tls(&mut self.sent).unwrap();
        }
        let mut answer = Vec::new();
        loop {
            let UnbufferedStatus { mut discard, state } =
                self.server.process_tls_records(&mut self.sent);
            let mut is_done = false;
            match state.unwrap() {
                ConnectionState::EncodeTlsData(mut data) => {
                    let mut bytes = [0; 8192];
                    let count = data.encode(&mut bytes).unwrap();
                    answer.extend_from_slice(&bytes[..count]);
                }
                ConnectionState::TransmitTlsData(data) => data.done(),
                ConnectionState::ReadTraffic(mut traffic) => {
                    while let Some(record) = traffic.next_record() {
                        discard += record.unwrap().discard;
                    }
                }
                _ => is_done = true,
            }
            self.sent.drain(..discard);
            if is_done {
                return answer;
            }
        }
    }

    /// Has the client decrypt `records`. Returns the content.
    fn receive(&mut self, mut records: &[u8]) -> Vec<u8> {
        let mut content = Vec::new();
        while !records.is_empty() {
            self.client.read_tls(&mut records).unwrap();
            self.client.process_new_packets().unwrap();
            match self.client.reader().read_to_end(&mut content) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                result => panic!("{result:?}"),
            }
        }
        content
    }

    fn encrypt(&mut self, content: &[u8], sealed: &mut Sealed) {
        let status = self.server.process_tls_records(&mut []);
        let Ok(ConnectionState::WriteTraffic(mut traffic)) = status.state else { panic!() };
        encrypt_into(&mut traffic, content, sealed).unwrap();
    }
}

#[test]
fn clients_decrypt_content_of_every_length() {
    let suites = rustls::crypto::aws_lc_rs::default_provider().cipher_suites;
    let suites: Vec<_> = suites.iter().filter(|suite| suite.tls13().is_some()).collect();
    assert_eq!((suites.len(), SUITES.len()), (3, 3));
    for suite in suites {
        let mut pair = Pair::new(suite.suite());
        let mut sealed = Sealed::default();
        for length in [1_usize, 15, 16, 17, 1350, 16_383, 16_384, 16_385, 100_000, 2] {
            let content: Vec<u8> = (0..length).map(|at| (at * 31 % 251) as u8).collect();
            sealed.clear();
            pair.encrypt(&content, &mut sealed);
            let records = length.div_ceil(FULL);
            assert_eq!(sealed.as_bytes().len(), length + records * OVERHEAD);
            assert!(pair.receive(sealed.as_bytes()) == content, "{suite:?}, {length} bytes");
        }
    }
}

#[test]
fn records_follow_those_of_calls_before_and_a_key_update() {
    let mut pair = Pair::new(CipherSuite::TLS13_AES_128_GCM_SHA256);
    let mut sealed = Sealed::default();
    pair.encrypt(b"before", &mut sealed);
    let before = sealed.as_bytes().len();
    // The server answers with a KeyUpdate message before the next record.
    pair.client.refresh_traffic_keys().unwrap();
    assert!(pair.process().is_empty());
    pair.encrypt(b" after", &mut sealed);
    let other = sealed.as_bytes().len() - before - 6 - OVERHEAD;
    assert!(other > OVERHEAD, "{other} bytes of other messages");
    sealed.append(&[]);
    assert_eq!(pair.receive(sealed.as_bytes()), b"before after");
}
