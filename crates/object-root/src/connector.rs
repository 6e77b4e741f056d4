//! The HTTP client of stores. It follows no redirect, reads no reply without a bound, and makes typed errors of responses, whose
//! bodies the client of stores would put into texts.

use std::pin::Pin;
use std::sync::Arc;

use dunlin_tls::ClientConfig;
use http::header::USER_AGENT;
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use http_body_util::BodyExt;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse,
    HttpResponseBody, HttpService,
};
use object_store::{ClientConfigKey, ClientOptions};

use crate::listing;
use crate::reply::{ErrorStatus, Expected, Violation, read};
use crate::transport::{self, Client};

/// Connects to a store.
#[derive(Debug, Clone)]
pub(crate) struct Connector {
    pub(crate) tls: Arc<ClientConfig>,
}

#[derive(Debug)]
struct Service {
    client: Client,
    /// Fields of each request that lacks them.
    fields: HeaderMap,
}

/// The maximum size of an error document that is read, in bytes.
const DOCUMENT: usize = 16 << 10;

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        // A service of the machine that has credentials is without TLS.
        let is_plain = options.get_config_value(&ClientConfigKey::AllowHttp);
        let client = transport::client(Arc::clone(&self.tls), is_plain.as_deref() == Some("true"));
        let mut fields = options.get_default_headers().cloned().unwrap_or_default();
        fields.insert(USER_AGENT, HeaderValue::from_static("dunlin"));
        Ok(HttpClient::new(Service { client, fields }))
    }
}

impl Service {
    /// Sends a request. The target of a redirect is the choice of any client that can write to the bucket, and would get the token
    /// of the session, so none is followed.
    async fn send(&self, mut request: HttpRequest) -> Result<HttpResponse, HttpError> {
        for (name, value) in &self.fields {
            request.headers_mut().entry(name).or_insert_with(|| value.clone());
        }
        let again = request.clone();
        let response = match self.client.request(request).await {
            Err(error) if transport::is_unprocessed(&error) => self.client.request(again).await,
            result => result,
        };
        let response = response.map_err(|error| HttpError::new(transport::kind(&error), error))?;
        Ok(response.map(|body| {
            HttpResponseBody::new(
                body.map_err(|error| HttpError::new(HttpErrorKind::Decode, error)),
            )
        }))
    }
}

/// A future as `HttpService` has it.
type Call<'a> = Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'a>>;

impl HttpService for Service {
    fn call<'a, 'b>(&'a self, request: HttpRequest) -> Call<'b>
    where
        'a: 'b,
        Self: 'b,
    {
        Box::pin(async move {
            let is_write = request.method() == Method::PUT;
            let expected = Expected::of(&request);
            let response = self.send(request).await?;
            let status = response.status();
            if status == StatusCode::NOT_MODIFIED {
                return Ok(response);
            }
            if status.is_redirection() {
                return Err(failed(Violation::Redirect(status)));
            }
            if status.is_success() {
                expected.verify(&response).map_err(failed)?;
                return if expected.is_content {
                    Ok(response)
                } else {
                    whole(response, &expected).await
                };
            }
            let (parts, body) = response.into_parts();
            // A document that is too long, or has no end, is of no use.
            let document = read(body, DOCUMENT).await.unwrap_or_default();
            // These have variants of their own.
            let is_known = matches!(
                status,
                StatusCode::NOT_FOUND
                    | StatusCode::PRECONDITION_FAILED
                    | StatusCode::METHOD_NOT_ALLOWED
            );
            // Another write with a condition is in progress.
            let is_conflict = is_write && status == StatusCode::CONFLICT;
            if is_known || is_conflict {
                return Ok(HttpResponse::from_parts(parts, Vec::new().into()));
            }
            let code = code(&String::from_utf8_lossy(&document)).map(str::to_owned);
            Err(failed(ErrorStatus { status, code }))
        })
    }
}

/// Returns a reply that the client of stores wants whole. It fails a page of a listing for a single key that is no path, so
/// the page is without those.
async fn whole(response: HttpResponse, expected: &Expected) -> Result<HttpResponse, HttpError> {
    let (parts, body) = response.into_parts();
    let content = read(body, expected.limit).await?;
    let page = expected.is_listing.then(|| listing::without_odd_keys(&content)).flatten();
    Ok(HttpResponse::from_parts(parts, HttpResponseBody::from(page.unwrap_or(content))))
}

fn failed(error: impl std::error::Error + Send + Sync + 'static) -> HttpError {
    HttpError::new(HttpErrorKind::Unknown, error)
}

/// Returns the code in an error document of S3, which is a word.
fn code(body: &str) -> Option<&str> {
    let (_, rest) = body.split_once("<Code>")?;
    let (code, _) = rest.split_once("</Code>")?;
    (code.len() <= 64 && code.chars().all(|c| c.is_ascii_alphanumeric())).then_some(code)
}

#[cfg(test)]
mod tests {
    use object_store::client::HttpRequestBody;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;
    use crate::reply::Content;

    /// Returns the response of a store that sends `head` and a body of that size.
    async fn response(head: String, size: usize) -> Result<HttpResponse, HttpError> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/object", listener.local_addr().unwrap());
        tokio::spawn(async move {
            let (mut connection, _) = listener.accept().await.unwrap();
            assert!(connection.read(&mut [0; 4096]).await.unwrap() > 0);
            let head = format!("HTTP/1.1 200 OK\r\n{head}Content-Length: {size}\r\n\r\n");
            let _ = connection.write_all(head.as_bytes()).await;
            let _ = connection.write_all(&vec![0; size]).await;
        });
        let service = Service { client: transport::client(tls(), true), fields: HeaderMap::new() };
        let request = HttpRequest::new(HttpRequestBody::empty());
        let (mut parts, body) = request.into_parts();
        parts.uri = url.parse().unwrap();
        parts.extensions.insert(Content);
        service.call(HttpRequest::from_parts(parts, body)).await
    }

    fn tls() -> Arc<ClientConfig> {
        dunlin_tls::client_config_besides(None).unwrap()
    }

    #[tokio::test]
    async fn little_of_a_body_is_read_at_once() {
        let mut body = response(String::new(), 8 << 20).await.unwrap().into_body();
        let mut size = 0;
        while let Some(frame) = body.frame().await {
            let data = frame.unwrap().into_data().unwrap();
            assert!(data.len() <= 128 << 10, "{} bytes at once", data.len());
            size += data.len();
            // The next bytes arrive meanwhile.
            tokio::task::yield_now().await;
        }
        assert_eq!(size, 8 << 20);
    }

    #[tokio::test]
    async fn a_head_has_a_limit() {
        let field = |size| format!("x: {}\r\n", "a".repeat(size));
        assert!(response(field(60 << 10), 0).await.is_ok());
        assert!(response(field(200 << 10), 0).await.is_err());
    }

    #[test]
    fn the_code_of_an_error_document_is_a_word() {
        let document =
            "<?xml version=\"1.0\"?><Error><Code>AccessDenied</Code><Message>x</Message></Error>";
        assert_eq!(code(document), Some("AccessDenied"));
        assert_eq!(code("<Code>a b\nc</Code>"), None);
        assert_eq!(code("no document"), None);
    }
}
