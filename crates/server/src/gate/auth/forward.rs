//! Authentication by somebody else: a request to another server, or to a path of this one, decides
//! (nginx's `auth_request`, Caddy's and Traefik's forward authentication).
//!
//! A 2xx lets the request pass and may name the user; what is neither that nor an error of a server is
//! the answer to the client, such as a 401 with a challenge or a redirect to a page to log in at.

use std::io;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, Instant};

use dunlin_http::http1::{BodyLength, Connection};
use dunlin_http::semantics::{is_field_value, is_token};
use dunlin_http::{FieldLines, Head, Request};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};

use crate::early_hints::EarlyHints;
use crate::event_loop::Loop;
use crate::gate::{Asker, Client, Pass, Refused, Verdict};
use crate::handler::file;
use crate::record::Course;
use crate::response::{Piece, Response};
use crate::route::{self, Incoming, Origin, Reply};
use crate::stream;
use crate::whole_answer::{WholeAnswer, receive};

/// Somebody else who decides.
#[derive(Debug)]
pub(crate) struct Forward {
    pub(crate) target: Target,
    /// The field of the answer that names the user.
    pub(crate) user_field: String,
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

/// Fields of the request that are not passed on: they concern its connection or its body, or say what
/// this server says itself.
const NOT_PASSED_ON: [&str; 20] = [
    "connection",
    "content-length",
    "content-encoding",
    "expect",
    "host",
    "if-match",
    "if-modified-since",
    "if-none-match",
    "if-unmodified-since",
    "if-range",
    "keep-alive",
    "proxy-connection",
    "range",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "accept-encoding",
    "x-original-method",
    "x-original-uri",
];

/// Fields of the answer that are not the client's.
const NOT_FOR_CLIENTS: [&str; 8] = [
    "connection",
    "content-length",
    "date",
    "keep-alive",
    "proxy-connection",
    "server",
    "trailer",
    "transfer-encoding",
];

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

impl Forward {
    pub(super) fn describe(&self) -> String {
        match &self.target {
            Target::Path(path) => format!("asks {path}"),
            Target::Tcp { authority, path, .. } => format!("asks http://{authority}{path}"),
            Target::Unix { socket, path } => format!("asks {} {path}", socket.display()),
        }
    }

    pub(super) fn ask(&self, asker: &Asker<'_, '_>) -> Verdict {
        if asker.pass.client.is_subrequest {
            return Verdict::Pass;
        }
        let message = self.message(asker);
        let (ctx, pass) = (Rc::clone(asker.ctx), Rc::clone(asker.pass));
        let (target, user_field, limit) =
            (self.target.clone(), self.user_field.clone(), self.timeout);
        Verdict::Wait(Box::pin(async move {
            let answer = async {
                match &target {
                    Target::Path(_) => within(&ctx, &pass, &message).await,
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
            let late = || io::Error::new(io::ErrorKind::TimedOut, "it took too long");
            let answer = tokio::time::timeout(limit, answer).await.unwrap_or_else(|_| Err(late()));
            match answer {
                Ok(answer) if (200..300).contains(&answer.status) => {
                    let user = answer.fields.get(&user_field).map(<[u8]>::to_vec);
                    if let Some(user) = user.and_then(|user| String::from_utf8(user).ok()) {
                        pass.set_user(user);
                    }
                    Ok(())
                }
                Ok(answer) if answer.status < 500 => {
                    let mut refused = Refused::new(answer.status);
                    refused.response = Some(Box::new(answer));
                    Err(refused)
                }
                Ok(answer) => {
                    tracing::error!("{target:?} could not say who asks: status {}", answer.status);
                    Err(Refused::new(502))
                }
                Err(error) => {
                    tracing::error!("{target:?} could not say who asks: {error}");
                    Err(Refused::new(502))
                }
            }
        }))
    }

    /// The request that is sent.
    fn message(&self, asker: &Asker<'_, '_>) -> Vec<u8> {
        let Asker { request, pass, .. } = asker;
        let host = request.field(dunlin_http::FieldName::Host).unwrap_or_default();
        let (path, own_host) = match &self.target {
            Target::Path(path) => (path, host),
            Target::Tcp { authority, path, .. } => (path, authority.as_bytes()),
            Target::Unix { path, .. } => (path, host),
        };
        let mut lines = FieldLines::new();
        lines.push("Host", own_host);
        lines.push("Connection", "close");
        lines.push("X-Original-Method", request.method_text());
        lines.push("X-Original-URI", request.target());
        lines.push("X-Forwarded-Method", request.method_text());
        lines.push("X-Forwarded-Uri", request.target());
        lines.push("X-Forwarded-Host", host);
        lines.push("X-Forwarded-For", pass.client.address.to_string());
        lines.push("X-Forwarded-Proto", if pass.client.encrypted { "https" } else { "http" });
        for (name, value) in request.fields() {
            let is = |other: &&str| name.eq_ignore_ascii_case(other.as_bytes());
            let said = name.len() >= 12 && name[..12].eq_ignore_ascii_case(b"x-forwarded-");
            let Ok(name) = std::str::from_utf8(name) else { continue };
            if !said && !NOT_PASSED_ON.iter().any(is) {
                lines.push(name, value);
            }
        }
        [b"GET ", path.as_bytes(), b" HTTP/1.1\r\n", lines.as_bytes(), b"\r\n"].concat()
    }
}

/// Asks a path of this server.
async fn within(ctx: &Rc<Loop>, pass: &Pass, message: &[u8]) -> io::Result<Response> {
    let malformed = || io::Error::new(io::ErrorKind::InvalidInput, "the request is malformed");
    let mut head = Head::default();
    match Connection::default().head(message, &ctx.http1.limits, &mut head) {
        Ok(Some(length)) if length == message.len() => {}
        _ => return Err(malformed()),
    }
    let request = Request::new(message, &head);
    let client = Client { is_subrequest: true, ..pass.client };
    let routed = route::dispatch(ctx, client, Origin::Server, &request, &mut Vec::new());
    let mut response = match routed.map_err(|_| malformed())?.reply {
        Reply::Exchange(begin) => {
            begin(Incoming {
                body: stream::empty(),
                length: BodyLength::None,
                ends: pass.ends(),
                encrypted: client.encrypted,
                tls: None,
                course: Rc::new(Course::new(Instant::now(), None)),
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
    let answer = receive(&mut peer, false, LARGEST).await?;
    let bad = || io::Error::new(io::ErrorKind::InvalidData, "bad fields");
    let mut response = response(&answer).ok_or_else(bad)?;
    response.body.push(Piece::Memory(answer.body.into()));
    Ok(response)
}

/// Status and fields as the client may have them.
fn response(answer: &WholeAnswer) -> Option<Response> {
    let mut response = Response::new(answer.status);
    for field in answer.fields() {
        let (name, value) = field?;
        if !is_token(name) || !is_field_value(value) {
            return None;
        }
        if !NOT_FOR_CLIENTS.iter().any(|other| name.eq_ignore_ascii_case(other.as_bytes())) {
            response.fields.push(std::str::from_utf8(name).ok()?, value);
        }
    }
    Some(response)
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
