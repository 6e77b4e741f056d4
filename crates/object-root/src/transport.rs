//! The connections of the HTTP client of stores: their time, their buffers, and what their errors mean.

use std::error::Error;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use dunlin_tls::ClientConfig;
use http::Uri;
use http::uri::Scheme;
use hyper_rustls::{HttpsConnector, MaybeHttpsStream};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::proxy::Tunnel;
use hyper_util::client::proxy::matcher::Matcher;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use object_store::client::{HttpErrorKind, HttpRequestBody};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tower_service::Service;

/// An HTTP client of stores.
pub(crate) type Client = legacy::Client<Connections, HttpRequestBody>;

/// Makes connections, with TLS where the URL has it.
#[derive(Debug, Clone)]
pub(crate) struct Connections(HttpsConnector<Hop>);

/// Connects to a server by TCP, or through the proxy that the environment names.
#[derive(Debug, Clone)]
struct Hop {
    tcp: HttpConnector,
    proxies: Arc<Matcher>,
}

type BoxError = Box<dyn Error + Send + Sync>;
type Connecting<T> = Pin<Box<dyn Future<Output = Result<T, BoxError>> + Send>>;

/// Time to connect, the handshake of TLS included.
const CONNECT: Duration = Duration::from_secs(3);
/// Time that a connection is kept without a request.
const IDLE: Duration = Duration::from_secs(90);
/// Time between the probes of a connection on which nothing arrives.
const PROBE: Duration = Duration::from_secs(15);
/// Time that sent bytes wait for their acknowledgement.
const ACKNOWLEDGEMENT: Duration = Duration::from_secs(30);
/// The most bytes that are read at once. A head is at most twice as long. Several such pieces of a body wait for a slow client.
const BUFFER: usize = 64 << 10;
/// The most bytes of a body that wait in a connection of HTTP/2.
const WINDOW: u32 = 256 << 10;
/// The window of a connection of HTTP/2. Those of its streams are the limit: a body that waits for its client would hold up
/// the others otherwise.
const CONNECTION_WINDOW: u32 = (1 << 31) - 1;

/// Makes a client, which accepts `http` as scheme if `is_plain`.
pub(crate) fn client(tls: Arc<ClientConfig>, is_plain: bool) -> Client {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(CONNECT));
    tcp.set_keepalive(Some(PROBE));
    tcp.set_keepalive_interval(Some(PROBE));
    tcp.set_keepalive_retries(Some(3));
    #[cfg(target_os = "linux")]
    tcp.set_tcp_user_timeout(Some(ACKNOWLEDGEMENT));
    let hop = Hop { tcp, proxies: Arc::new(Matcher::from_env()) };
    let mut connector = HttpsConnector::from((hop, tls));
    if !is_plain {
        connector.enforce_https();
    }
    legacy::Client::builder(TokioExecutor::new())
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE)
        .http1_max_buf_size(BUFFER)
        .http2_initial_stream_window_size(WINDOW)
        .http2_initial_connection_window_size(CONNECTION_WINDOW)
        .build(Connections(connector))
}

impl Service<Uri> for Connections {
    type Response = MaybeHttpsStream<TokioIo<TcpStream>>;
    type Error = BoxError;
    type Future = Connecting<Self::Response>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, target: Uri) -> Self::Future {
        let connecting = self.0.call(target);
        Box::pin(async move {
            let late = |_| io::Error::new(io::ErrorKind::TimedOut, "operation timed out");
            timeout(CONNECT, connecting).await.map_err(late)?
        })
    }
}

impl Service<Uri> for Hop {
    type Response = TokioIo<TcpStream>;
    type Error = BoxError;
    type Future = Connecting<Self::Response>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.tcp.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, target: Uri) -> Self::Future {
        // A service without TLS is in the same network, as that of the machine for credentials.
        let is_secure = target.scheme() == Some(&Scheme::HTTPS);
        let Some(proxy) = self.proxies.intercept(&target).filter(|_| is_secure) else {
            let connecting = self.tcp.call(target);
            return Box::pin(async move { connecting.await.map_err(Into::into) });
        };
        if proxy.uri().scheme() != Some(&Scheme::HTTP) {
            let error = io::Error::other("the proxy of the environment is not one of `http://`");
            return Box::pin(async move { Err(error.into()) });
        }
        let mut tunnel = Tunnel::new(proxy.uri().clone(), self.tcp.clone());
        if let Some(credentials) = proxy.basic_auth() {
            tunnel = tunnel.with_auth(credentials.clone());
        }
        let connecting = tunnel.call(target);
        Box::pin(async move { connecting.await.map_err(Into::into) })
    }
}

/// Returns the kind of an error without a response.
pub(crate) fn kind(error: &legacy::Error) -> HttpErrorKind {
    if causes(error).any(is_late) {
        return HttpErrorKind::Timeout;
    }
    if error.is_connect() {
        return HttpErrorKind::Connect;
    }
    causes(error).find_map(interruption).unwrap_or(HttpErrorKind::Unknown)
}

/// Returns `true` if the server states that it has not processed the request.
pub(crate) fn is_unprocessed(error: &legacy::Error) -> bool {
    causes(error).filter_map(|error| error.downcast_ref::<h2::Error>()).any(|error| {
        let is_shutdown = error.is_go_away() && error.reason() == Some(h2::Reason::NO_ERROR);
        let is_refused = error.is_reset() && error.reason() == Some(h2::Reason::REFUSED_STREAM);
        error.is_remote() && (is_shutdown || is_refused)
    })
}

fn causes<'e>(error: &'e (dyn Error + 'static)) -> impl Iterator<Item = &'e (dyn Error + 'static)> {
    let mut next = Some(error);
    std::iter::from_fn(move || {
        let error = next?;
        next = error.source();
        Some(error)
    })
}

fn is_late(error: &(dyn Error + 'static)) -> bool {
    error.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_timeout)
        || error.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::TimedOut)
}

/// Returns what kind of interruption of a connection the error is.
fn interruption(error: &(dyn Error + 'static)) -> Option<HttpErrorKind> {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    if let Some(error) = error.downcast_ref::<hyper::Error>() {
        let is_closed =
            error.is_closed() || error.is_incomplete_message() || error.is_body_write_aborted();
        return is_closed.then_some(HttpErrorKind::Request);
    }
    let error = error.downcast_ref::<io::Error>()?;
    matches!(error.kind(), ConnectionAborted | ConnectionReset | BrokenPipe | UnexpectedEof)
        .then_some(HttpErrorKind::Interrupted)
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn a_connection_with_tls_passes_through_the_proxy() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let matcher = Matcher::builder().all(format!("http://a:b@{address}")).build();
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        let mut hop = Hop { tcp, proxies: Arc::new(matcher) };
        let proxy = tokio::spawn(async move {
            let (mut connection, _) = listener.accept().await.unwrap();
            let mut head = vec![0; 4096];
            let length = connection.read(&mut head).await.unwrap();
            connection.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
            String::from_utf8(head[..length].to_vec()).unwrap()
        });
        assert!(hop.call(Uri::from_static("https://store.test/key")).await.is_ok());
        let head = proxy.await.unwrap();
        assert!(head.starts_with("CONNECT store.test:443 HTTP/1.1\r\n"), "{head}");
        assert!(head.to_lowercase().contains("proxy-authorization: basic "), "{head}");
        hop.proxies = Arc::new(Matcher::builder().all("https://proxy.test").build());
        assert!(hop.call(Uri::from_static("https://store.test/")).await.is_err());
    }
}
