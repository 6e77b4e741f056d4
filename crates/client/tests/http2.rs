//! The client over HTTP/2, against the server of another implementation (the crate h2).
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use dunlin_client::{
    Body, Client, Empty, Error, ErrorKind, Full, Origin, PoolLimits, Request, Timeouts,
};
use dunlin_http::{BodySize, Version};
use h2::server::SendResponse;
use h2::{Reason, RecvStream};
use tokio::net::TcpListener;
use tokio::task::{LocalSet, spawn_local};

type Response = SendResponse<Bytes>;

/// A server: its origin, and how many connections and requests it has had.
#[derive(Clone)]
struct Server {
    origin: Origin,
    connections: Rc<Cell<usize>>,
    requests: Rc<Cell<usize>>,
}

/// Starts a server that calls `handle` with the number of each request.
async fn serve<F, W>(handle: F) -> Server
where
    F: Fn(usize, http::Request<RecvStream>, Response) -> W + Copy + 'static,
    W: Future<Output = ()> + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let origin = Origin::tcp("127.0.0.1", listener.local_addr().unwrap().port());
    let origin = origin.with_prior_knowledge();
    let (connections, requests) = (Rc::default(), Rc::default());
    let server = Server { origin, connections, requests };
    let counted = server.clone();
    spawn_local(async move {
        loop {
            let (socket, _) = listener.accept().await.unwrap();
            counted.connections.set(counted.connections.get() + 1);
            let counted = counted.clone();
            spawn_local(async move {
                let mut connection = h2::server::handshake(socket).await.unwrap();
                while let Some(Ok((request, response))) = connection.accept().await {
                    let number = counted.requests.get();
                    counted.requests.set(number + 1);
                    if request.uri().path() == "/last" {
                        connection.graceful_shutdown();
                    }
                    spawn_local(handle(number, request, response));
                }
            });
        }
    });
    server
}

fn run<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    LocalSet::new().block_on(&runtime, async {
        tokio::time::timeout(Duration::from_secs(60), work).await.expect("the test hangs")
    })
}

/// Responds with the body of the request and the method.
async fn echo(_: usize, request: http::Request<RecvStream>, mut response: Response) {
    let method = request.method().to_string();
    let mut body = request.into_body();
    let head = http::Response::builder().header("method", method).body(()).unwrap();
    let mut out = response.send_response(head, false).unwrap();
    while let Some(data) = body.data().await {
        let mut data = data.unwrap();
        body.flow_control().release_capacity(data.len()).unwrap();
        while !data.is_empty() {
            out.reserve_capacity(data.len());
            let capacity = std::future::poll_fn(|context| out.poll_capacity(context));
            let capacity = capacity.await.unwrap().unwrap();
            out.send_data(data.split_to(capacity.min(data.len())), false).unwrap();
        }
    }
    let mut trailers = http::HeaderMap::new();
    trailers.insert("digest", "x".parse().unwrap());
    out.send_trailers(trailers).unwrap();
}

async fn get(client: &Client, server: &Server, path: &str) -> Result<(u16, Bytes), Error> {
    let mut exchange = client.send(Request::new(&server.origin, "GET", path), Empty).await?;
    let head = exchange.final_head().await?;
    Ok((head.status, exchange.collect(1 << 24).await?))
}

#[test]
fn requests_at_the_same_time_share_a_connection() {
    run(async {
        let server = serve(echo).await;
        let client = Client::default();
        get(&client, &server, "/").await.unwrap();
        let requests = (0..20).map(|number| {
            let (client, origin) = (client.clone(), server.origin.clone());
            spawn_local(async move {
                let body = Full::new(format!("body {number}"));
                let request = Request::new(&origin, "POST", "/");
                let mut exchange = client.send(request, body).await.unwrap();
                let head = exchange.final_head().await.unwrap();
                assert_eq!(head.fields.get("method"), Some(&b"POST"[..]));
                let body = exchange.collect(100).await.unwrap();
                assert_eq!(body, format!("body {number}"));
                assert_eq!(exchange.trailers().as_bytes(), b"digest: x\r\n");
            })
        });
        for request in requests.collect::<Vec<_>>() {
            request.await.unwrap();
        }
        assert_eq!((server.connections.get(), server.requests.get()), (1, 21));
    });
}

/// A body of this number of chunks of 10,000 bytes.
struct Chunks(usize);

impl Body for Chunks {
    fn size(&self) -> BodySize {
        BodySize::Unknown
    }

    fn poll_chunk(&mut self, _: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        let left = self.0.checked_sub(1);
        self.0 = left.unwrap_or_default();
        Poll::Ready(left.map(|number| Ok(vec![number as u8; 10_000].into())))
    }
}

#[test]
fn large_bodies_pass_in_both_directions_at_the_same_time() {
    run(async {
        let server = serve(echo).await;
        let client = Client::default();
        let request = Request::new(&server.origin, "POST", "/");
        let mut exchange = client.send(request, Chunks(500)).await.unwrap();
        exchange.final_head().await.unwrap();
        let mut length = 0;
        while let Some(data) = exchange.data().await {
            for byte in data.unwrap() {
                assert_eq!(byte, (499 - length / 10_000) as u8);
                length += 1;
            }
        }
        assert_eq!(length, 5_000_000);
        let request = Request::new(&server.origin, "POST", "/");
        let body = Full::new(vec![7; 3_000_000]);
        let mut exchange = client.send(request, body).await.unwrap();
        assert_eq!(exchange.collect(1 << 24).await.unwrap(), vec![7; 3_000_000]);
        assert_eq!(server.connections.get(), 1);
    });
}

#[test]
fn a_request_that_was_not_processed_is_repeated() {
    run(async {
        let server = serve(async |number, request, mut response: Response| {
            if number == 0 {
                return response.send_reset(Reason::REFUSED_STREAM);
            }
            echo(number, request, response).await;
        });
        let server = server.await;
        let request = Request::new(&server.origin, "POST", "/");
        let mut exchange = Client::default().send(request, Full::new("body")).await.unwrap();
        assert_eq!(exchange.collect(10).await.unwrap(), "body");
        assert_eq!(server.requests.get(), 2);
    });
}

#[test]
fn a_stream_that_fails_leaves_the_others_alone() {
    run(async {
        let server = serve(async |number, request, mut response: Response| {
            if request.uri().path() == "/fails" {
                return response.send_reset(Reason::INTERNAL_ERROR);
            }
            echo(number, request, response).await;
        });
        let server = server.await;
        let client = Client::default();
        let request = Request::new(&server.origin, "POST", "/");
        let open = client.send(request, Chunks(100)).await.unwrap();
        let error = get(&client, &server, "/fails").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Protocol);
        assert!(error.to_string().ends_with("HTTP/2: the server has reset the stream"), "{error}");
        // An exchange that is dropped does not take the connection with it.
        drop(client.send(Request::new(&server.origin, "POST", "/"), Chunks(100)).await.unwrap());
        let mut open = open;
        assert_eq!(open.collect(1 << 24).await.unwrap().len(), 1_000_000);
        assert_eq!(server.connections.get(), 1);
    });
}

#[test]
fn after_goaway_requests_use_another_connection() {
    run(async {
        let server = serve(echo).await;
        let client = Client::default();
        for path in ["/", "/last", "/", "/"] {
            assert_eq!(get(&client, &server, path).await.unwrap().0, 200);
        }
        assert_eq!(server.requests.get(), 4);
        assert!(server.connections.get() >= 2);
    });
}

#[test]
fn an_idle_connection_is_closed_when_its_time_is_over() {
    run(async {
        let server = serve(echo).await;
        let idle_time = Duration::from_millis(20);
        let client = Client::new(PoolLimits { idle_time, ..PoolLimits::default() });
        get(&client, &server, "/").await.unwrap();
        // Each request finds the connection open or closed; in the end a second one is needed.
        while server.connections.get() < 2 {
            tokio::time::sleep(2 * idle_time).await;
            get(&client, &server, "/").await.unwrap();
        }
    });
}

#[test]
fn a_server_that_does_not_respond_or_does_not_speak_http2_is_an_error() {
    run(async {
        let server = serve(async |_, _, response| {
            std::future::pending::<()>().await;
            drop(response);
        });
        let server = server.await;
        let first_byte = Some(Duration::from_millis(30));
        let timeouts = Timeouts { first_byte, ..Timeouts::default() };
        let request = Request { timeouts, ..Request::new(&server.origin, "GET", "/") };
        assert!(Client::default().send(request, Empty).await.unwrap_err().is_timeout());

        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let origin = Origin::tcp("127.0.0.1", listener.local_addr().unwrap().port());
        let origin = origin.with_prior_knowledge();
        spawn_local(async move {
            let (mut socket, _) = listener.accept().await.unwrap();
            let response = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n";
            tokio::io::AsyncWriteExt::write_all(&mut socket, response).await.unwrap();
            std::future::pending::<()>().await;
        });
        let request = Request::new(&origin, "GET", "/");
        let error = Client::default().send(request, Empty).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Protocol, "{error}");
    });
}

#[test]
fn the_server_selects_the_protocol_in_the_tls_handshake() {
    let certificate = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let key = certificate.signing_key.serialize_der();
    let key = rustls::pki_types::PrivateKeyDer::try_from(key).unwrap();
    let config = rustls::ServerConfig::builder().with_no_client_auth();
    let mut config = config.with_single_cert(vec![certificate.cert.der().clone()], key).unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));

    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificate.cert.der().clone()).unwrap();
    let config = rustls::ClientConfig::builder().with_root_certificates(roots);
    let mut config = config.with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    run(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let origin = Origin::tcp("127.0.0.1", listener.local_addr().unwrap().port());
        let origin = origin.with_tls(Arc::new(config)).unwrap();
        spawn_local(async move {
            let (socket, _) = listener.accept().await.unwrap();
            let socket = acceptor.accept(socket).await.unwrap();
            let mut connection = h2::server::handshake(socket).await.unwrap();
            while let Some(Ok((request, response))) = connection.accept().await {
                assert_eq!(request.uri().scheme_str(), Some("https"));
                spawn_local(echo(0, request, response));
            }
        });
        let client = Client::default();
        for _ in 0..2 {
            let request = Request::new(&origin, "POST", "/");
            let mut exchange = client.send(request, Full::new("body")).await.unwrap();
            assert_eq!(exchange.final_head().await.unwrap().version, Version::Http2);
            assert_eq!(exchange.collect(10).await.unwrap(), "body");
        }
    });
}
