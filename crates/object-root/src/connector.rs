//! The HTTP client of stores. It follows no redirect, reads no reply without a bound, and makes typed errors of responses, whose
//! bodies the client of stores would put into texts.

use std::pin::Pin;
use std::time::Duration;

use http::{HeaderValue, Method, StatusCode};
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse,
    HttpResponseBody, HttpService,
};
use object_store::{ClientConfigKey, ClientOptions};
use reqwest::redirect::Policy;
use reqwest::tls::Certificate;

use crate::listing;
use crate::reply::{Asked, ErrorStatus, Violation, read};

/// Connects to a store.
#[derive(Debug, Clone, Default)]
pub(crate) struct Connector {
    /// Authorities that are trusted besides those of the system.
    pub(crate) authorities: Vec<Certificate>,
}

#[derive(Debug)]
struct Service(HttpClient);

/// Time to connect.
const CONNECT: Duration = Duration::from_secs(3);
/// The maximum size of an error document that is read, in bytes.
const DOCUMENT: usize = 16 << 10;

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        // A service of the machine that has credentials is without TLS.
        let is_plain = options.get_config_value(&ClientConfigKey::AllowHttp);
        let mut builder = reqwest::Client::builder()
            .user_agent(HeaderValue::from_static("dunlin"))
            .connect_timeout(CONNECT)
            // The target of a redirect is the choice of whoever can write to the bucket. It would get the token of the session.
            .redirect(Policy::none())
            .tls_certs_merge(self.authorities.iter().cloned())
            .https_only(is_plain.as_deref() != Some("true"));
        if let Some(fields) = options.get_default_headers() {
            builder = builder.default_headers(fields.clone());
        }
        let client = builder.build().map_err(|error| object_store::Error::Generic {
            store: "HTTP client",
            source: Box::new(error),
        })?;
        Ok(HttpClient::new(Service(HttpClient::new(client))))
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
            let asked = Asked::of(&request);
            let response = self.0.execute(request).await?;
            let status = response.status();
            if status == StatusCode::NOT_MODIFIED {
                return Ok(response);
            }
            if status.is_redirection() {
                return Err(failed(Violation::Redirect(status)));
            }
            if status.is_success() {
                asked.verify(&response).map_err(failed)?;
                return if asked.is_content { Ok(response) } else { whole(response, &asked).await };
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

/// A reply that the client of stores wants whole. It fails a page of a listing for a single key that is no path, so the page
/// is without those.
async fn whole(response: HttpResponse, asked: &Asked) -> Result<HttpResponse, HttpError> {
    let (parts, body) = response.into_parts();
    let content = read(body, asked.limit).await?;
    let page = asked.is_listing.then(|| listing::without_odd_keys(&content)).flatten();
    Ok(HttpResponse::from_parts(parts, HttpResponseBody::from(page.unwrap_or(content))))
}

fn failed(error: impl std::error::Error + Send + Sync + 'static) -> HttpError {
    HttpError::new(HttpErrorKind::Unknown, error)
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
