//! Requests to an ACME authority.

use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use dunlin_client::{self as client, Full, Origin, Timeouts, Url};
use http::{Request, Response, header};
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient};
use rustls::ClientConfig;

use crate::trust::client_config;

/// The longest that one request may take.
const LIMIT: Duration = Duration::from_secs(30);
/// The largest body of a response that is read, in bytes.
const MAX_BODY: usize = 1 << 20;

/// A client for authorities.
#[derive(Clone)]
pub(crate) struct Client {
    tls: Arc<ClientConfig>,
    client: client::Client,
}

impl Client {
    /// Returns a client that trusts servers whose certificates are signed by the authorities in the file `authority`, or by
    /// those that the system trusts.
    ///
    /// # Errors
    /// If no authority can be trusted: the reason.
    pub(crate) fn new(authority: Option<&Path>) -> Result<Self, String> {
        Ok(Self { tls: client_config(authority)?, client: client::Client::default() })
    }

    async fn exchange(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Result<BytesResponse, Box<dyn std::error::Error + Send + Sync>> {
        let (head, body) = request.into_parts();
        // The crate's own type is the only way to the bytes.
        let body = BytesResponse::from(Response::new(body)).body.into_bytes().await?;
        let url = Url::parse(&head.uri.to_string())?;
        let origin = Origin::from_url(&url, || Ok(Arc::clone(&self.tls)))?;
        let mut request = client::Request::for_url(&origin, head.method.as_str(), &url);
        request.timeouts = Timeouts::total(LIMIT);
        let fields = &mut request.head.fields;
        // RFC 8555 §6.1 requires the name of the program.
        fields.push("User-Agent", concat!("dunlin/", env!("CARGO_PKG_VERSION")));
        let written_here = [header::USER_AGENT, header::CONTENT_LENGTH, header::HOST];
        for (name, value) in head.headers.iter().filter(|(name, _)| !written_here.contains(name)) {
            fields.push(name.as_str(), value.as_bytes());
        }
        let mut exchange = self.client.send(request, Full::new(body)).await?;
        let head = exchange.final_head().await?;
        finish(&head, exchange.collect(MAX_BODY).await?)
    }
}

impl HttpClient for Client {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        let client = self.clone();
        Box::pin(async move { client.exchange(request).await.map_err(Error::Other) })
    }
}

/// Returns the response as the protocol's crate takes it.
fn finish(
    head: &dunlin_http::ResponseHead,
    body: Bytes,
) -> Result<BytesResponse, Box<dyn std::error::Error + Send + Sync>> {
    let mut response = Response::builder().status(head.status);
    for (name, value) in head.fields.iter() {
        response = response.header(name, value);
    }
    let (parts, ()) = response.body(())?.into_parts();
    Ok(BytesResponse { parts, body: Box::new(body) })
}
