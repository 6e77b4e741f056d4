//! Forward authentication: an endpoint, which is another server or a path of this one, decides on each request
//! (nginx's `auth_request`, Caddy's and Traefik's forward authentication).
//!
//! A 2xx response allows the request and may name the user. A 3xx or 4xx response is sent to the client, such as
//! a 401 with a challenge or a redirect to a login page. The endpoint gets the fields that the server sets and the
//! client's fields that the configuration lists, and no others, so that unexpected fields cannot change its decision.

use std::future::poll_fn;
use std::rc::Rc;
use std::sync::{Arc, OnceLock};
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use dunlin_client as client;
use dunlin_config::{AuthEndpoint, ForwardRules};
use dunlin_exchange::{Response, Scheme};
use dunlin_fs::content::Piece;
use dunlin_http::semantics::target;
use dunlin_http::{FieldLines, FieldName, Request, ResponseHead};
use dunlin_telemetry::RequestLabel;

use super::fields;
use crate::checks::{CheckInput, Decision, Rejection};

/// Authentication by an endpoint.
#[derive(Debug)]
pub(crate) struct Forward {
    rules: Arc<ForwardRules>,
    /// The pattern of the route that has the rules.
    route: Box<str>,
    endpoint: Arc<Endpoint>,
}

/// The endpoint.
#[derive(Debug)]
struct Endpoint {
    target: AuthEndpoint,
    /// Created for the first request, as an https URL needs certificates from files.
    origin: OnceLock<client::Origin>,
}

/// Maximum length of the page with which the endpoint rejects a request, in bytes.
pub(crate) const MAX_BODY: usize = 4 << 20;
/// A body that is not used is received up to this length, so that the connection stays open.
const MAX_UNUSED: usize = 64 * 1024;

impl Endpoint {
    /// Returns the client of the server.
    ///
    /// # Errors
    /// The server needs TLS, and the certificates of its authorities cannot be read.
    fn origin(&self) -> Result<&client::Origin, String> {
        if let Some(origin) = self.origin.get() {
            return Ok(origin);
        }
        let origin = match &self.target {
            AuthEndpoint::Url { url, authority } => {
                client::Origin::from_url(url, || dunlin_tls::client_config(authority.as_deref()))?
            }
            AuthEndpoint::Unix { socket, .. } => client::Origin::unix(socket),
            AuthEndpoint::Path(_) => return Err("the endpoint is a path of this server".into()),
        };
        Ok(self.origin.get_or_init(|| origin))
    }

    /// Creates a request to the endpoint. `host` is the authority of the client's request.
    fn request(&self, host: &[u8]) -> Result<client::Request, String> {
        let origin = self.origin()?;
        Ok(match &self.target {
            AuthEndpoint::Url { url, .. } => client::Request::for_url(origin, "GET", url),
            AuthEndpoint::Unix { path, .. } | AuthEndpoint::Path(path) => {
                let mut request = client::Request::new(origin, "GET", path);
                // A request of HTTP/1.0 may lack `Host`.
                if let (false, Ok(host)) = (host.is_empty(), std::str::from_utf8(host)) {
                    request.head.authority = host.into();
                }
                request
            }
        })
    }
}

impl Forward {
    pub(crate) fn new(rules: ForwardRules, route: &str) -> Self {
        let target = rules.endpoint.clone();
        Self {
            rules: Arc::new(rules),
            route: route.into(),
            endpoint: Arc::new(Endpoint { target, origin: OnceLock::new() }),
        }
    }

    pub(super) fn check(&self, input: &CheckInput<'_, '_>) -> Decision {
        if input.context.client.is_subrequest {
            return Decision::Allow;
        }
        let fields = self.fields(input);
        let host = input.request.field(FieldName::Host).unwrap_or_default().to_vec();
        let (services, context) = (Rc::clone(input.services), Rc::clone(input.context));
        let client = (context.client.address, context.client.encrypted);
        let label = RequestLabel::new(services.redactor(), input.request, &self.route, client);
        let (endpoint, rules) = (Arc::clone(&self.endpoint), Arc::clone(&self.rules));
        let limit = rules.timeout;
        Decision::Wait(Box::pin(async move {
            let target = &endpoint.target;
            let response = match target {
                AuthEndpoint::Path(path) => {
                    let message = message(path, &host, &fields);
                    let late = |_| Err("no response within the time limit".to_owned());
                    let response = services.subrequest(Rc::clone(&context), message);
                    let response = tokio::time::timeout(limit, response);
                    let response = response.await.map(|it| it.map_err(|error| error.to_string()));
                    response.unwrap_or_else(late)
                }
                AuthEndpoint::Url { .. } | AuthEndpoint::Unix { .. } => {
                    request_from(&endpoint, services.client(), &host, fields, limit).await
                }
            };
            match response.and_then(|response| decide(response, &rules)) {
                Ok(Authorization::Granted(user, fields)) => {
                    if let Some(user) = user {
                        context.set_user(user, Scheme::Forward);
                    }
                    fields::copy(&fields, &rules, &context);
                    Ok(())
                }
                Ok(Authorization::Denied(response)) => {
                    let mut rejected = Rejection::new(response.status);
                    rejected.response = Some(response);
                    Err(rejected)
                }
                Err(why) => {
                    let RequestLabel { method, url, route, client } = label;
                    tracing::error!(
                        method,
                        url,
                        route,
                        client,
                        "forward authentication at {target}: {why}; the response is 502"
                    );
                    Err(Rejection::new(502))
                }
            }
        }))
    }

    /// Returns the fields of the request to the endpoint.
    fn fields(&self, input: &CheckInput<'_, '_>) -> FieldLines {
        let CheckInput { request, context, .. } = input;
        let host = request.field(FieldName::Host).unwrap_or_default();
        let mut lines = FieldLines::new();
        lines.push("X-Original-Method", request.equivalent_method());
        let uri = origin_form(request);
        lines.push("X-Original-URI", &uri);
        lines.push("X-Forwarded-Method", request.equivalent_method());
        lines.push("X-Forwarded-Uri", &uri);
        lines.push("X-Forwarded-Host", host);
        lines.push("X-Forwarded-For", context.client.address.to_string());
        lines.push("X-Forwarded-Proto", if context.client.encrypted { "https" } else { "http" });
        fields::add_passed(&mut lines, request, &self.rules.fields);
        lines
    }
}

/// Formats an HTTP/1 request for a path of this server.
fn message(path: &str, host: &[u8], fields: &FieldLines) -> Vec<u8> {
    let mut lines = FieldLines::new();
    // A request of HTTP/1.0 may lack `Host`, and an empty one is malformed.
    let version: &[u8] = if host.is_empty() { b" HTTP/1.0\r\n" } else { b" HTTP/1.1\r\n" };
    if !host.is_empty() {
        lines.push("Host", host);
    }
    lines.push("Connection", "close");
    [b"GET ", path.as_bytes(), version, lines.as_bytes(), fields.as_bytes(), b"\r\n"].concat()
}

/// Returns path and query of the target, also for the absolute form (RFC 9112 §3.2.2), as endpoints may compare the
/// prefix.
fn origin_form(request: &Request<'_>) -> Vec<u8> {
    let target = target::parse(request.method(), request.target());
    let target = target.ok().and_then(|target| target.path_and_query());
    target.unwrap_or_else(|| request.target().into())
}

/// Decision of the endpoint.
enum Authorization {
    /// The request is allowed, for this user if the endpoint names one, with the fields of the response.
    Granted(Option<String>, FieldLines),
    /// The request is rejected with this response.
    Denied(Box<Response>),
}

/// Reads the decision from the endpoint's response.
///
/// # Errors
/// The reason why the response contains no decision.
fn decide(mut response: Response, rules: &ForwardRules) -> Result<Authorization, String> {
    response.fields = fields::for_client(&response.fields).ok_or("its response has bad fields")?;
    match response.status {
        200..300 => {
            let user = fields::user(&response.fields, &rules.user_field)?;
            Ok(Authorization::Granted(user, response.fields))
        }
        300..500 => {
            fields::remove_instructions(&mut response.fields);
            Ok(Authorization::Denied(Box::new(response)))
        }
        101 => Err("its response switches to another protocol (101)".into()),
        status => Err(format!("its response has status {status}")),
    }
}

/// Receives a body that is not used, if it is short or has arrived. Dropping the exchange closes the connection otherwise.
async fn pass_over(exchange: &mut client::Exchange<client::Empty>, head: &ResponseHead) {
    let stated = head.fields.get("Content-Length").and_then(|text| std::str::from_utf8(text).ok());
    let stated = stated.and_then(|text| text.parse::<usize>().ok());
    if stated.is_some_and(|length| length <= MAX_UNUSED) {
        // The decision is in the head.
        drop(exchange.collect(MAX_UNUSED).await);
        return;
    }
    let mut received = 0;
    while received <= MAX_UNUSED {
        match poll_fn(|cx| Poll::Ready(exchange.poll_data(cx))).await {
            Poll::Ready(Some(Ok(bytes))) => received += bytes.len(),
            _ => return,
        }
    }
}

/// Requests the decision from another server.
async fn request_from(
    endpoint: &Endpoint,
    client: &client::Client,
    host: &[u8],
    fields: FieldLines,
    limit: Duration,
) -> Result<Response, String> {
    let mut request = endpoint.request(host)?;
    request.head.fields = fields;
    request.timeouts = client::Timeouts::total(limit);
    let exchange = async {
        let mut exchange = client.send(request, client::Empty).await?;
        let head = exchange.final_head().await?;
        let body = match head.status {
            300..500 => exchange.collect(MAX_BODY).await?,
            _ => {
                pass_over(&mut exchange, &head).await;
                Bytes::new()
            }
        };
        Ok((head, body))
    };
    let (head, body) = exchange.await.map_err(|error: client::Error| error.reason().to_owned())?;
    let mut response = Response::new(head.status);
    response.fields = head.fields;
    response.body.push(Piece::Memory(body));
    Ok(response)
}
