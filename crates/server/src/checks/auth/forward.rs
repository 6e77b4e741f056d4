//! Forward authentication: an endpoint, which is another server or a path of this one, decides on each request
//! (nginx's `auth_request`, Caddy's and Traefik's forward authentication).
//!
//! A 2xx lets the request pass and may name the user; a 3xx or 4xx is the response to the client, such as
//! a 401 with a challenge or a redirect to a page to log in at. The endpoint gets fields that the server
//! sets and those of the client that the configuration names, and nothing else: what it decides on cannot be
//! changed by fields that it did not expect.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, Instant};

use dunlin_http::http1::Connection;
use dunlin_http::semantics::{is_field_value, target};
use dunlin_http::{BodyLength, FieldLines, Head, Request};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};

use super::fields;
use crate::checks::{CheckInput, Client, Decision, Rejection, RequestContext, Scheme};
use crate::early_hints::EarlyHints;
use crate::handler::file;
use crate::response::{Piece, Response};
use crate::route::{self, Incoming, Origin, Reply};
use crate::stream;
use crate::telemetry::ScriptContext;
use crate::whole_answer::receive;
use crate::worker::WorkerContext;

/// Somebody else who decides.
#[derive(Debug)]
pub(crate) struct Forward {
    pub(crate) target: Target,
    /// The field of the answer that names the user.
    pub(crate) user_field: String,
    /// Fields of the client's request that the endpoint gets.
    pub(crate) fields: Vec<String>,
    /// Longest wait for the answer.
    pub(crate) timeout: Duration,
}

/// Whom to ask.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Target {
    /// A path of the same site.
    Path(String),
    /// A server: host and port, and the path.
    Tcp { authority: String, port: u16, path: String },
    /// A server at a Unix socket.
    Unix { socket: PathBuf, path: String },
}

/// What an answer may have, head and body.
const LARGEST: usize = 64 * 1024;

impl Target {
    /// Reads `/path`, `http://host:port/path` or `unix:/socket:/path`.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let hint = || {
            format!(
                "{text:?} is neither a path such as \"/login/check\" nor an http URL, \
                 nor \"unix:/SOCKET:/PATH\""
            )
        };
        if text.bytes().any(|byte| byte <= b' ' || byte == 127) {
            return Err(hint());
        }
        if text.starts_with('/') {
            return Ok(Self::Path(text.into()));
        }
        if let Some(rest) = text.strip_prefix("unix:") {
            let (socket, path) = rest.split_once(':').ok_or_else(hint)?;
            let fine = socket.starts_with('/') && path.starts_with('/');
            let target = Self::Unix { socket: socket.into(), path: path.into() };
            return fine.then_some(target).ok_or_else(hint);
        }
        let rest = text.strip_prefix("http://").ok_or_else(hint)?;
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let host = dunlin_http::semantics::host::parse(authority.as_bytes());
        let host = host.filter(|host| !host.name.is_empty()).ok_or_else(hint)?;
        let path = if path.is_empty() { "/" } else { path };
        let port = host.port.unwrap_or(80);
        Ok(Self::Tcp { authority: authority.into(), port, path: path.into() })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => f.write_str(path),
            Self::Tcp { authority, path, .. } => write!(f, "http://{authority}{path}"),
            Self::Unix { socket, path } => write!(f, "unix:{}:{path}", socket.display()),
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
        let message = self.message(input);
        let (ctx, context) = (Rc::clone(input.ctx), Rc::clone(input.context));
        let (target, user_field, limit) =
            (self.target.clone(), self.user_field.clone(), self.timeout);
        Decision::Wait(Box::pin(async move {
            let response = async {
                match &target {
                    Target::Path(_) => within(&ctx, &context, &message).await,
                    Target::Tcp { authority, port, .. } => {
                        let host = authority.strip_suffix(&format!(":{port}")).unwrap_or(authority);
                        let host = host.trim_start_matches('[').trim_end_matches(']');
                        talk(TcpStream::connect((host, *port)).await?, &message).await
                    }
                    Target::Unix { socket, .. } => {
                        talk(UnixStream::connect(socket).await?, &message).await
                    }
                }
            };
            let late = || io::Error::new(io::ErrorKind::TimedOut, "its response takes too long");
            let response = tokio::time::timeout(limit, response).await;
            let response = response.unwrap_or_else(|_| Err(late()));
            match response.map_err(|error| error.to_string()).and_then(|it| decide(it, &user_field))
            {
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
                        "forward authentication at {target}: {why}; the request is answered with 502"
                    );
                    Err(Rejection::new(502))
                }
            }
        }))
    }

    /// The request that the endpoint gets.
    fn message(&self, input: &CheckInput<'_, '_>) -> Vec<u8> {
        let CheckInput { request, context, .. } = input;
        let host = request.field(dunlin_http::FieldName::Host).unwrap_or_default();
        let (path, own_host) = match &self.target {
            Target::Path(path) => (path, host),
            Target::Tcp { authority, path, .. } => (path, authority.as_bytes()),
            Target::Unix { path, .. } => (path, host),
        };
        let mut lines = FieldLines::new();
        // A request of HTTP/1.0 may be without Host, and an empty one is malformed.
        let version: &[u8] = if own_host.is_empty() { b" HTTP/1.0\r\n" } else { b" HTTP/1.1\r\n" };
        if !own_host.is_empty() {
            lines.push("Host", own_host);
        }
        lines.push("Connection", "close");
        lines.push("X-Original-Method", request.method_text());
        let uri = origin_form(request);
        lines.push("X-Original-URI", &uri);
        lines.push("X-Forwarded-Method", request.method_text());
        lines.push("X-Forwarded-Uri", &uri);
        lines.push("X-Forwarded-Host", host);
        lines.push("X-Forwarded-For", context.client.address.to_string());
        lines.push("X-Forwarded-Proto", if context.client.encrypted { "https" } else { "http" });
        fields::add_passed(&mut lines, request, &self.fields);
        [b"GET ", path.as_bytes(), version, lines.as_bytes(), b"\r\n"].concat()
    }
}

/// The path with its query, also when the target has a host (RFC 9112 §3.2.2): the endpoint may compare
/// how it begins.
fn origin_form(request: &Request<'_>) -> Vec<u8> {
    let target = target::parse(request.method(), request.target());
    let target = target.ok().and_then(|target| target.path_and_query());
    target.unwrap_or_else(|| request.target().into())
}

/// What the endpoint has decided.
enum Authorization {
    /// The request passes, for this user if the endpoint names one.
    Granted(Option<String>),
    /// The client gets this response instead.
    Denied(Box<Response>),
}

/// Reads the decision from the endpoint's response.
///
/// # Errors
/// Why there is none in it.
fn decide(mut response: Response, user_field: &str) -> Result<Authorization, String> {
    response.fields = fields::for_client(&response.fields).ok_or("its response has bad fields")?;
    match response.status {
        200..300 => Ok(Authorization::Granted(fields::user(&response.fields, user_field)?)),
        300..500 => Ok(Authorization::Denied(Box::new(response))),
        101 => Err("its response switches to another protocol (101)".into()),
        status => Err(format!("its response has status {status}")),
    }
}

/// Asks a path of this server.
async fn within(
    ctx: &Rc<WorkerContext>,
    context: &RequestContext,
    message: &[u8],
) -> io::Result<Response> {
    let malformed = || io::Error::new(io::ErrorKind::InvalidInput, "the request is malformed");
    let mut head = Head::default();
    match Connection::default().head(message, &ctx.http1.limits, &mut head) {
        Ok(Some(length)) if length == message.len() => {}
        _ => return Err(malformed()),
    }
    let request = Request::new(message, &head);
    let client = Client { is_subrequest: true, ..context.client.admitted() };
    let routed = route::dispatch(ctx, client, Origin::Server, &request, &mut Vec::new());
    let mut response = match routed.map_err(|_| malformed())?.reply {
        Reply::Exchange(begin) => {
            begin(Incoming {
                body: stream::empty(),
                length: BodyLength::None,
                received: None,
                ends: context.ends(),
                encrypted: client.encrypted,
                tls: None,
                script_context: Rc::new(ScriptContext::new(Instant::now(), None)),
                // What decides has nothing to tell the client.
                early_hints: EarlyHints::new(false),
                redirects: 0,
            })
            .await
        }
        reply => file::into_response(&request, reply).await,
    };
    // The client is only told what has a bound, and a script need not wait for it to be read.
    if let Some(stream) = response.body.take_stream() {
        stream.source.discard();
    }
    Ok(response)
}

/// Asks another server.
async fn talk(
    mut peer: impl AsyncRead + AsyncWrite + Unpin,
    message: &[u8],
) -> io::Result<Response> {
    peer.write_all(message).await?;
    let whole = receive(&mut peer, false, LARGEST).await?;
    let mut response = Response::new(whole.status);
    for field in whole.fields() {
        let field = field.and_then(|(name, value)| Some((std::str::from_utf8(name).ok()?, value)));
        let bad = || io::Error::new(io::ErrorKind::InvalidData, "its response has bad fields");
        let (name, value) = field.ok_or_else(bad)?;
        if !is_field_value(value) {
            return Err(bad());
        }
        response.fields.push(name, value);
    }
    response.body.push(Piece::Memory(whole.body.into()));
    Ok(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_paths_urls_and_sockets() {
        let tcp = |authority: &str, port, path: &str| {
            Ok(Target::Tcp { authority: authority.into(), port, path: path.into() })
        };
        assert_eq!(Target::parse("/a?b"), Ok(Target::Path("/a?b".into())));
        assert_eq!(Target::parse("http://a.example"), tcp("a.example", 80, "/"));
        assert_eq!(Target::parse("http://[::1]:9/x"), tcp("[::1]:9", 9, "/x"));
        let unix = Target::Unix { socket: "/run/a".into(), path: "/x".into() };
        assert_eq!(Target::parse("unix:/run/a:/x"), Ok(unix));
        for wrong in ["", "x", "https://a/", "http:///", "unix:/run/a", "unix:a:/x", "/a b"] {
            assert!(Target::parse(wrong).is_err(), "{wrong}");
        }
    }
}
