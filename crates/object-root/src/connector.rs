//! The HTTP client of stores. It makes typed errors of responses, whose bodies the client of stores would put into texts.

use std::error::Error;
use std::fmt;
use std::pin::Pin;

use http::{Method, StatusCode};
use http_body_util::{BodyExt, Limited};
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService,
    ReqwestConnector,
};

/// Connects like `object_store` does by itself.
#[derive(Debug)]
pub(crate) struct Connector;

/// A response with an error that `object_store` has no variant for.
#[derive(Debug)]
pub(crate) struct ErrorStatus {
    pub(crate) status: StatusCode,
    /// The code in an error document of S3.
    pub(crate) code: Option<String>,
}

#[derive(Debug)]
struct Service(HttpClient);

/// The maximum size of an error document that is read, in bytes.
const DOCUMENT: usize = 16 << 10;

impl fmt::Display for ErrorStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "its status is {}", self.status)?;
        match &self.code {
            Some(code) => write!(f, " ({code})"),
            None => Ok(()),
        }
    }
}

impl Error for ErrorStatus {}

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(Service(ReqwestConnector::default().connect(options)?)))
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
            let response = self.0.execute(request).await?;
            let status = response.status();
            // These have variants of their own.
            let is_known = matches!(
                status,
                StatusCode::NOT_FOUND
                    | StatusCode::PRECONDITION_FAILED
                    | StatusCode::METHOD_NOT_ALLOWED
            );
            // Another write with a condition is in progress.
            let is_conflict = is_write && status == StatusCode::CONFLICT;
            if is_known || is_conflict || !(status.is_client_error() || status.is_server_error()) {
                return Ok(response);
            }
            let body = Limited::new(response.into_body(), DOCUMENT).collect().await;
            let body = body.map(http_body_util::Collected::to_bytes).unwrap_or_default();
            let code = code(&String::from_utf8_lossy(&body)).map(str::to_owned);
            Err(HttpError::new(HttpErrorKind::Unknown, ErrorStatus { status, code }))
        })
    }
}

/// The code in an error document of S3, which is a word.
fn code(body: &str) -> Option<&str> {
    let (_, rest) = body.split_once("<Code>")?;
    let (code, _) = rest.split_once("</Code>")?;
    (code.len() <= 64 && code.chars().all(|c| c.is_ascii_alphanumeric())).then_some(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_code_of_an_error_document_is_a_word() {
        let document =
            "<?xml version=\"1.0\"?><Error><Code>AccessDenied</Code><Message>x</Message></Error>";
        assert_eq!(code(document), Some("AccessDenied"));
        assert_eq!(code("<Code>a b\nc</Code>"), None);
        assert_eq!(code("no document"), None);
    }
}
