//! The client against a server by TLS.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::cell::Cell;
use std::sync::Arc;

use dunlin_client::{Client, Empty, Error, ErrorKind, Origin, Request};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// Returns a certificate of that name, with its key.
fn certificate(name: &str) -> (CertificateDer<'static>, PrivateKeyDer<'static>) {
    let made = rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    (made.cert.der().clone(), key)
}

/// Returns a client that trusts `certificate`.
fn trusting(certificate: &CertificateDer<'static>) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(certificate.clone()).unwrap();
    Arc::new(ClientConfig::builder().with_root_certificates(roots).with_no_client_auth())
}

/// Makes two requests to a server with a certificate of that name, which the client trusts or not: the bodies, and how
/// many connections there were.
fn fetch(name: &str, trusts: bool) -> Result<(Vec<String>, usize), Error> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (shown, key) = certificate(name);
        let trusted = if trusts { shown.clone() } else { certificate(name).0 };
        let config = ServerConfig::builder().with_no_client_auth();
        let config = config.with_single_cert(vec![shown], key).unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let origin = Origin::tcp("127.0.0.1", listener.local_addr().unwrap().port());
        let connections = Cell::new(0);
        let server = async {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                connections.set(connections.get() + 1);
                let Ok(mut stream) = acceptor.accept(stream).await else { continue };
                let mut head = Vec::new();
                while stream.read_buf(&mut head).await.is_ok_and(|count| count > 0) {
                    if head.ends_with(b"\r\n\r\n") {
                        head.clear();
                        let response = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
                        stream.write_all(response).await.unwrap();
                    }
                }
            }
        };
        let client = async {
            let client = Client::default();
            let origin = origin.with_tls(trusting(&trusted)).unwrap();
            let mut bodies = Vec::new();
            for _ in 0..2 {
                let mut exchange = client.send(Request::new(&origin, "GET", "/"), Empty).await?;
                let body = exchange.collect(10).await?;
                bodies.push(String::from_utf8_lossy(&body).into_owned());
            }
            Ok(bodies)
        };
        let bodies: Result<_, Error> = tokio::select! {
            () = server => unreachable!("the server does not stop"),
            bodies = client => bodies,
        };
        Ok((bodies?, connections.get()))
    })
}

#[test]
fn requests_by_tls_share_a_connection() {
    let (bodies, connections) = fetch("127.0.0.1", true).unwrap();
    assert_eq!((bodies, connections), (vec!["ok".to_owned(), "ok".to_owned()], 1));
}

#[test]
fn a_server_that_is_not_trusted_or_has_another_name_gets_no_request() {
    for (name, trusts) in [("127.0.0.1", false), ("other.example", true)] {
        let error = fetch(name, trusts).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Tls, "{error}");
        assert!(error.to_string().contains("the TLS handshake failed: "), "{error}");
    }
}
