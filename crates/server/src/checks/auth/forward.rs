//! Forward authentication: an endpoint, which is another server or a path of this one, decides on each request
//! (nginx's `auth_request`, Caddy's and Traefik's forward authentication).
//!
//! A 2xx response allows the request and may name the user. A 3xx or 4xx response is sent to the client, such as
//! a 401 with a challenge or a redirect to a login page. The endpoint gets the fields that the server sets and the
//! client's fields that the configuration lists, and no others, so that unexpected fields cannot change its decision.

use std::fmt;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use dunlin_client::{self as client, Url};
use dunlin_http::semantics::target;
use dunlin_http::{FieldLines, FieldName, Request};

use super::fields;
use crate::checks::{CheckInput, Decision, Rejection};
use crate::exchange::{Piece, Response, Scheme};
use crate::tls;

/// Authentication by an endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Forward {
    pub(crate) target: Target,
    /// Response field that names the user.
    pub(crate) user_field: String,
    /// Request fields that are forwarded to the endpoint.
    pub(crate) fields: Vec<String>,
    /// Timeout of the response.
    pub(crate) timeout: Duration,
}

/// The endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Target {
    /// A path of the same site.
    Path(String),
    /// A path of another server, or of one at a Unix socket.
    Server(Arc<Endpoint>),
}

/// A path of another server.
#[derive(Debug)]
pub(crate) struct Endpoint {
    place: Place,
    /// Trusted authorities for an https URL; the system's if absent.
    authority: Option<PathBuf>,
    /// Created for the first request, as an https URL needs certificates from files.
    origin: OnceLock<client::Origin>,
}

/// Endpoints are equal that are configured alike.
impl PartialEq for Endpoint {
    fn eq(&self, other: &Self) -> bool {
        self.place == other.place && self.authority == other.authority
    }
}

impl Eq for Endpoint {}

#[derive(Debug, PartialEq, Eq)]
enum Place {
    Url(Url),
    Unix { socket: PathBuf, path: String },
}

/// Maximum length of a response body in bytes.
const MAX_BODY: usize = 64 * 1024;

impl Target {
    /// Parses `/path`, `http://host:port/path`, `https://host:port/path` or `unix:/socket:/path`.
    pub(crate) fn parse(text: &str, authority: Option<PathBuf>) -> Result<Self, String> {
        let hint = || {
            format!(
                "{text:?} is neither a path such as \"/login/check\" nor an http or https URL, \
                 nor \"unix:/SOCKET:/PATH\""
            )
        };
        if text.bytes().any(|byte| byte <= b' ' || byte == 127) {
            return Err(hint());
        }
        if text.starts_with('/') {
            return Ok(Self::Path(text.into()));
        }
        let place = if let Some(rest) = text.strip_prefix("unix:") {
            let is_absolute =
                |(socket, path): &(&str, &str)| socket.starts_with('/') && path.starts_with('/');
            let (socket, path) = rest.split_once(':').filter(is_absolute).ok_or_else(hint)?;
            Place::Unix { socket: socket.into(), path: path.into() }
        } else {
            Place::Url(Url::parse(text).map_err(|_| hint())?)
        };
        Ok(Self::Server(Arc::new(Endpoint { place, authority, origin: OnceLock::new() })))
    }

    /// Returns `true` if the connection to the endpoint uses TLS.
    pub(crate) fn is_secure(&self) -> bool {
        matches!(self, Self::Server(endpoint) if matches!(&endpoint.place, Place::Url(url) if url.is_secure()))
    }
}

impl Endpoint {
    /// Returns the client of the server.
    ///
    /// # Errors
    /// The server needs TLS, and the certificates of its authorities cannot be read.
    fn origin(&self) -> Result<&client::Origin, String> {
        if let Some(origin) = self.origin.get() {
            return Ok(origin);
        }
        let origin = match &self.place {
            Place::Url(url) => {
                client::Origin::from_url(url, || tls::client_config(self.authority.as_deref()))?
            }
            Place::Unix { socket, .. } => client::Origin::unix(socket),
        };
        Ok(self.origin.get_or_init(|| origin))
    }

    /// Creates a request to the endpoint. `host` is the authority of the client's request.
    fn request(&self, host: &[u8]) -> Result<client::Request, String> {
        let origin = self.origin()?;
        Ok(match &self.place {
            Place::Url(url) => client::Request::for_url(origin, "GET", url),
            Place::Unix { path, .. } => {
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

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => f.write_str(path),
            Self::Server(endpoint) => match &endpoint.place {
                Place::Url(url) => url.fmt(f),
                Place::Unix { socket, path } => write!(f, "unix:{}:{path}", socket.display()),
            },
        }
    }
}

impl Forward {
    pub(super) fn describe(&self) -> String {
        format!("asks {}, with {}", self.target, self.fields.join(", "))
    }

    pub(super) fn check(&self, input: &CheckInput<'_, '_>) -> Decision {
        if input.context.client.is_subrequest {
            return Decision::Allow;
        }
        let fields = self.fields(input);
        let host = input.request.field(FieldName::Host).unwrap_or_default().to_vec();
        let (services, context) = (Rc::clone(input.services), Rc::clone(input.context));
        let (target, user_field, limit) =
            (self.target.clone(), self.user_field.clone(), self.timeout);
        Decision::Wait(Box::pin(async move {
            let response = match &target {
                Target::Path(path) => {
                    let message = message(path, &host, &fields);
                    let late = |_| Err("no response within the time limit".to_owned());
                    let response = services.subrequest(Rc::clone(&context), message);
                    let response = tokio::time::timeout(limit, response);
                    let response = response.await.map(|it| it.map_err(|error| error.to_string()));
                    response.unwrap_or_else(late)
                }
                Target::Server(endpoint) => {
                    request_from(endpoint, services.client(), &host, fields, limit).await
                }
            };
            match response.and_then(|response| decide(response, &user_field)) {
                Ok(Authorization::Granted(user)) => {
                    if let Some(user) = user {
                        context.set_user(user, Scheme::Forward);
                    }
                    Ok(())
                }
                Ok(Authorization::Denied(response)) => {
                    let mut refused = Rejection::new(response.status);
                    refused.response = Some(response);
                    Err(refused)
                }
                Err(why) => {
                    tracing::error!(
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
        lines.push("X-Original-Method", request.method_text());
        let uri = origin_form(request);
        lines.push("X-Original-URI", &uri);
        lines.push("X-Forwarded-Method", request.method_text());
        lines.push("X-Forwarded-Uri", &uri);
        lines.push("X-Forwarded-Host", host);
        lines.push("X-Forwarded-For", context.client.address.to_string());
        lines.push("X-Forwarded-Proto", if context.client.encrypted { "https" } else { "http" });
        fields::add_passed(&mut lines, request, &self.fields);
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
    /// The request is allowed, for this user if the endpoint names one.
    Granted(Option<String>),
    /// The request is rejected with this response.
    Denied(Box<Response>),
}

/// Reads the decision from the endpoint's response.
///
/// # Errors
/// The reason why the response contains no decision.
fn decide(mut response: Response, user_field: &str) -> Result<Authorization, String> {
    response.fields = fields::for_client(&response.fields).ok_or("its response has bad fields")?;
    match response.status {
        200..300 => Ok(Authorization::Granted(fields::user(&response.fields, user_field)?)),
        300..500 => Ok(Authorization::Denied(Box::new(response))),
        101 => Err("its response switches to another protocol (101)".into()),
        status => Err(format!("its response has status {status}")),
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
        Ok((head, exchange.collect(MAX_BODY).await?))
    };
    let (head, body) = exchange.await.map_err(|error: client::Error| error.reason().to_owned())?;
    let mut response = Response::new(head.status);
    response.fields = head.fields;
    response.body.push(Piece::Memory(body));
    Ok(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_paths_urls_and_sockets() {
        for text in [
            "/a?b",
            "http://a.example/",
            "http://[::1]:9/x",
            "https://a.example:444/x?y",
            "unix:/run/a:/x",
        ] {
            let target = Target::parse(text, None).unwrap();
            assert_eq!(target.to_string(), text);
            assert_eq!(target.is_secure(), text.starts_with("https"));
        }
        for wrong in ["", "x", "ftp://a/", "http:///", "unix:/run/a", "unix:a:/x", "/a b"] {
            assert!(Target::parse(wrong, None).is_err(), "{wrong}");
        }
    }
}
