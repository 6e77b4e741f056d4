//! HTTP requests of components to other servers: only to the hosts that the configuration lists.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use dunlin_client::{Body, Client, ErrorKind, Exchange, Origin, Phase, Request, Timeouts, Url};
use dunlin_config::Outbound;
use dunlin_http::{BodySize, FieldLines, RequestHead};
use http::header::{CONTENT_LENGTH, HOST};
use http::{HeaderMap, HeaderName, HeaderValue};
use http_body::{Body as _, Frame, SizeHint};
use wasmtime_wasi_http::{Error, RequestOptions, WasiBody};

/// A request of a component.
pub(crate) type WasiRequest = http::Request<WasiBody>;

/// The response to a request of a component, and a future that ends when the exchange does.
type Sent = (http::Response<WasiBody>, Box<dyn Future<Output = Result<(), Error>> + Send>);

/// A request that is being sent.
pub(crate) type Sending = Box<dyn Future<Output = Result<Sent, Error>> + Send>;

/// Sends the requests of the components of a route.
#[derive(Clone)]
pub(crate) struct OutboundHttp {
    /// The name of the component in the log.
    pub(crate) name: Arc<str>,
    pub(crate) hosts: Arc<[Outbound]>,
    pub(crate) client: Client,
}

impl OutboundHttp {
    /// Sends a request, if its host is listed.
    pub(crate) fn send(
        &mut self,
        request: WasiRequest,
        options: Option<RequestOptions>,
    ) -> Sending {
        let url = match self.allowed(&request) {
            Ok(url) => url,
            Err(error) => return Box::new(async { Err(error) }),
        };
        let client = self.client.clone();
        Box::new(async move {
            let sent = exchange(&client, &url, request, options).await?;
            Ok((sent, Box::new(async { Ok(()) }) as Box<_>))
        })
    }

    /// Returns the URL of a request whose host is listed.
    fn allowed(&self, request: &WasiRequest) -> Result<Url, Error> {
        let url =
            Url::parse(&request.uri().to_string()).map_err(|_| Error::HttpRequestUriInvalid)?;
        let default = if url.is_secure() { 443 } else { 80 };
        if self.hosts.iter().any(|host| host.allows(url.host(), url.port(), default)) {
            return Ok(url);
        }
        tracing::warn!(
            script = &*self.name,
            "the component sent a request to {}, which `outbound` does not list",
            url.authority()
        );
        Err(Error::HttpRequestDenied)
    }
}

async fn exchange(
    client: &Client,
    url: &Url,
    request: WasiRequest,
    options: Option<RequestOptions>,
) -> Result<http::Response<WasiBody>, Error> {
    let origin = Origin::from_url(url, tls).map_err(|why| Error::InternalError(Some(why)))?;
    let (parts, body) = request.into_parts();
    let mut outgoing = Request::for_url(&origin, parts.method.as_str(), url);
    copy_fields(&parts.headers, &mut outgoing.head);
    outgoing.timeouts = timeouts(options);
    let stated =
        parts.headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
    let body = RequestBody { stated, body: Mutex::new(body), trailers: FieldLines::default() };
    let mut exchange = client.send(outgoing, body).await.map_err(|error| reported(&error))?;
    let head = exchange.final_head().await.map_err(|error| reported(&error))?;
    let mut response = http::Response::new(boxed(ResponseBody { exchange, is_over: false }));
    *response.status_mut() =
        http::StatusCode::from_u16(head.status).map_err(|_| Error::HttpProtocolError)?;
    for (name, value) in head.fields.iter() {
        if let (Ok(name), Ok(value)) =
            (HeaderName::from_bytes(name), HeaderValue::from_bytes(value))
        {
            response.headers_mut().append(name, value);
        }
    }
    Ok(response)
}

fn boxed(body: ResponseBody) -> WasiBody {
    WasiBody::new(body)
}

/// Returns the configuration of TLS, which is the same for all components so that they share connections.
fn tls() -> Result<Arc<rustls::ClientConfig>, String> {
    static CONFIG: OnceLock<Result<Arc<rustls::ClientConfig>, String>> = OnceLock::new();
    CONFIG.get_or_init(|| dunlin_tls::client_config(None)).clone()
}

/// Copies the fields that the client does not generate itself.
fn copy_fields(fields: &HeaderMap, head: &mut RequestHead) {
    for (name, value) in fields {
        if *name != HOST && *name != CONTENT_LENGTH {
            head.fields.push(name.as_str(), value);
        }
    }
}

fn timeouts(options: Option<RequestOptions>) -> Timeouts {
    let default = Timeouts::default();
    let Some(options) = options else { return default };
    Timeouts {
        connect: options.connect_timeout.or(default.connect),
        first_byte: options.first_byte_timeout.or(default.first_byte),
        between_bytes: options.between_bytes_timeout.or(default.between_bytes),
        ..default
    }
}

/// Returns the error as the component sees it.
fn reported(error: &dunlin_client::Error) -> Error {
    match error.kind() {
        ErrorKind::InvalidRequest => Error::HttpRequestUriInvalid,
        ErrorKind::Resolve => Error::DnsError { rcode: None, info_code: None },
        ErrorKind::Connect if error.io_kind() == Some(io::ErrorKind::ConnectionRefused) => {
            Error::ConnectionRefused
        }
        ErrorKind::Connect => Error::DestinationUnavailable,
        ErrorKind::Tls => Error::TlsProtocolError,
        ErrorKind::Timeout(Phase::Wait) => Error::ConnectionLimitReached,
        ErrorKind::Timeout(Phase::FirstByte) => Error::HttpResponseTimeout,
        ErrorKind::Timeout(Phase::BetweenBytes) => Error::ConnectionReadTimeout,
        ErrorKind::Timeout(_) => Error::ConnectionTimeout,
        ErrorKind::Connection => Error::ConnectionTerminated,
        _ => Error::HttpProtocolError,
    }
}

/// The body of a request on its way to the other server.
struct RequestBody {
    /// Content-Length of the request.
    stated: Option<u64>,
    /// The client shares it, which a body of WASI does not permit.
    body: Mutex<WasiBody>,
    trailers: FieldLines,
}

impl Body for RequestBody {
    fn size(&self) -> BodySize {
        let body = self.body.lock().unwrap_or_else(PoisonError::into_inner);
        match self.stated.or(body.size_hint().exact()) {
            Some(0) => BodySize::Empty,
            Some(length) => BodySize::Known(length),
            None if body.is_end_stream() => BodySize::Empty,
            None => BodySize::Unknown,
        }
    }

    fn poll_chunk(&mut self, context: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        let body = self.body.get_mut().unwrap_or_else(PoisonError::into_inner);
        loop {
            let frame = match Pin::new(&mut *body).poll_frame(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Ready(Some(Err(error))) => {
                    return Poll::Ready(Some(Err(io::Error::other(error.to_string()))));
                }
                Poll::Ready(Some(Ok(frame))) => frame,
            };
            match frame.into_data() {
                Ok(bytes) if bytes.is_empty() => {}
                Ok(bytes) => return Poll::Ready(Some(Ok(bytes))),
                Err(frame) => {
                    for (name, value) in frame.into_trailers().iter().flatten() {
                        self.trailers.push(name.as_str(), value);
                    }
                }
            }
        }
    }

    fn trailers(&mut self) -> FieldLines {
        std::mem::take(&mut self.trailers)
    }
}

/// The body of a response on its way to the component.
struct ResponseBody {
    exchange: Exchange<RequestBody>,
    is_over: bool,
}

impl http_body::Body for ResponseBody {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        let data = match self.exchange.poll_data(context) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(data) => data,
        };
        Poll::Ready(match data {
            Some(data) => Some(data.map(Frame::data).map_err(|error| reported(&error))),
            None => {
                self.is_over = true;
                let mut trailers = HeaderMap::new();
                for (name, value) in self.exchange.trailers().iter() {
                    if let (Ok(name), Ok(value)) =
                        (HeaderName::from_bytes(name), HeaderValue::from_bytes(value))
                    {
                        trailers.append(name, value);
                    }
                }
                (!trailers.is_empty()).then(|| Ok(Frame::trailers(trailers)))
            }
        })
    }

    fn is_end_stream(&self) -> bool {
        self.is_over
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}
