//! The key `auth`: authentication of a route.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use dunlin_http::semantics::{Url, is_field_value, is_token};

use super::fields::may_set;
use super::file::{Auth, AuthTable};
use super::forward_fields::{DEFAULT_FIELDS, check_copied_field, check_forward_field};
use super::jwt::JwtRules;
use super::report::Report;
use super::secrets;
use super::spanned::{Span, Spanned};

/// Authentication as it is configured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AuthRules {
    /// A file of users.
    Basic(BasicRules),
    /// Another service.
    Forward(ForwardRules),
    /// Tokens.
    Jwt(JwtRules),
}

/// Basic authentication as it is configured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BasicRules {
    /// The file of users.
    pub path: PathBuf,
    /// The file may have passwords that are hashed without protection, and lines that cannot be read.
    pub accepts_weak_hashes: bool,
    /// Value of `WWW-Authenticate`.
    pub challenge: String,
    /// Maximum of wrong passwords per address and minute.
    pub max_attempts: u32,
}

impl BasicRules {
    fn describe(&self) -> String {
        format!("basic, users of {}", self.path.display())
    }
}

/// Authentication by a request to another service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForwardRules {
    /// The service.
    pub endpoint: AuthEndpoint,
    /// Response field that names the user.
    pub user_field: String,
    /// Request fields that are forwarded to the endpoint.
    pub fields: Vec<String>,
    /// Timeout of the response.
    pub timeout: Duration,
    /// Fields of its response for the request.
    pub copy_to_request: Vec<String>,
    /// Fields of its response for the client.
    pub copy_to_response: Vec<String>,
}

/// The service that decides on requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AuthEndpoint {
    /// A path of the same site.
    Path(String),
    /// A path of another server.
    Url {
        /// The URL.
        url: Url,
        /// Trusted authorities for an https URL; the system's if absent.
        authority: Option<PathBuf>,
    },
    /// A path of a server at a Unix socket.
    Unix {
        /// The socket.
        socket: PathBuf,
        /// The path.
        path: String,
    },
}

impl AuthEndpoint {
    /// Parses `/path`, `http://host:port/path`, `https://host:port/path` or `unix:/socket:/path`.
    fn parse(text: &str, authority: Option<PathBuf>) -> Result<Self, String> {
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
        let Some(rest) = text.strip_prefix("unix:") else {
            return Ok(Self::Url { url: Url::parse(text).map_err(|_| hint())?, authority });
        };
        let is_absolute =
            |(socket, path): &(&str, &str)| socket.starts_with('/') && path.starts_with('/');
        let (socket, path) = rest.split_once(':').filter(is_absolute).ok_or_else(hint)?;
        Ok(Self::Unix { socket: socket.into(), path: path.into() })
    }

    /// Returns `true` if the connection to the endpoint uses TLS.
    fn is_secure(&self) -> bool {
        matches!(self, Self::Url { url, .. } if url.is_secure())
    }
}

/// As it may be shown: without secret parameters of its query.
impl fmt::Display for AuthEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::Path(path) => path.clone(),
            Self::Url { url, .. } => url.to_string(),
            Self::Unix { socket, path } => format!("unix:{}:{path}", socket.display()),
        };
        f.write_str(&secrets::url(&text))
    }
}

impl ForwardRules {
    fn describe(&self) -> String {
        let mut text = format!("endpoint {}, with {}", self.endpoint, self.fields.join(", "));
        for (names, whose) in
            [(&self.copy_to_request, "request"), (&self.copy_to_response, "response")]
        {
            if !names.is_empty() {
                text.push_str(&format!("; to the {whose} {}", names.join(", ")));
            }
        }
        text
    }
}

impl AuthRules {
    /// Returns the text of `dunlin check --explain`.
    pub(crate) fn describe(&self) -> String {
        match self {
            Self::Basic(basic) => basic.describe(),
            Self::Forward(forward) => forward.describe(),
            Self::Jwt(jwt) => jwt.describe(),
        }
    }
}

/// Checks the key `auth`; `None` if it is `false`.
pub(crate) fn auth(at: &Spanned<Auth>, report: Report<'_>) -> Option<AuthRules> {
    let Auth::Table(table) = &at.value else { return None };
    let named = [
        ("basic", table.basic.as_ref().map(|at| &at.span)),
        ("forward", table.forward.as_ref().map(|at| &at.span)),
        ("jwt", table.jwt.as_ref().map(|at| &at.span)),
    ];
    let mut named = named.into_iter().filter_map(|(key, place)| Some((key, place?)));
    match (named.next(), named.next()) {
        (Some((first, _)), Some((second, place))) => {
            report(place, format!("auth: either `{first}` or `{second}` decides"));
            return None;
        }
        (Some((key, _)), None) => report_others(table, key, report),
        (None, _) => {
            let what =
                "auth: write basic = \"USERS\", forward = \"URL\" or jwt = { jwks = \"URL\" }";
            report(&at.span, what.into());
            return None;
        }
    }
    if let Some(path) = &table.basic {
        return Some(AuthRules::Basic(basic(table, path.value.clone(), report)));
    }
    if let Some(forward_to) = &table.forward {
        return forward(table, forward_to, report).map(AuthRules::Forward);
    }
    let realm = table.realm.is_some().then(|| realm(table, report));
    JwtRules::read(table.jwt.as_ref()?, realm, report).map(AuthRules::Jwt)
}

/// Reports keys that do nothing where `key` decides.
fn report_others(table: &AuthTable, key: &str, report: Report<'_>) {
    let of_forward = [
        ("user_field", table.user_field.as_ref().map(|at| &at.span)),
        ("forward_fields", table.forward_fields.as_ref().map(|at| &at.span)),
        ("forward_authority", table.forward_authority.as_ref().map(|at| &at.span)),
        ("timeout", table.timeout.as_ref().map(|at| &at.span)),
        ("copy_to_request", table.copy_to_request.as_ref().map(|at| &at.span)),
        ("copy_to_response", table.copy_to_response.as_ref().map(|at| &at.span)),
    ];
    let of_basic = [
        ("attempts", table.attempts.as_ref().map(|at| &at.span)),
        ("weak_hashes", table.weak_hashes.as_ref().map(|at| &at.span)),
    ];
    let realm = [("realm", table.realm.as_ref().map(|at| &at.span))];
    let mut report_all = |owner: &str, set: &[(&str, Option<&Span>)]| {
        for (other, place) in set.iter().filter_map(|(name, place)| Some((name, (*place)?))) {
            report(place, format!("auth: {other} does nothing without `{owner}`"));
        }
    };
    if key != "forward" {
        report_all("forward", &of_forward);
    }
    if key != "basic" {
        report_all("basic", &of_basic);
    }
    if key == "forward" {
        report_all("basic", &realm);
    }
}

fn basic(table: &AuthTable, path: PathBuf, report: Report<'_>) -> BasicRules {
    let max = table.attempts.as_ref().map_or(10, |at| at.value);
    if let Some(at) = table.attempts.as_ref().filter(|at| at.value == 0) {
        report(&at.span, "auth: attempts is 0, so that no user could log in".into());
    }
    let challenge = format!("Basic realm=\"{}\", charset=\"UTF-8\"", realm(table, report));
    let accepts_weak_hashes = table.weak_hashes.as_ref().is_some_and(|weak| weak.value);
    let max_attempts = u32::try_from(max).unwrap_or(u32::MAX);
    BasicRules { path, accepts_weak_hashes, challenge, max_attempts }
}

fn forward(
    table: &AuthTable,
    forward: &Spanned<String>,
    report: Report<'_>,
) -> Option<ForwardRules> {
    let authority = table.forward_authority.as_ref().map(|path| path.value.clone());
    let endpoint = AuthEndpoint::parse(forward, authority)
        .map_err(|what| report(&forward.span, format!("auth: {what}")))
        .ok()?;
    if let Some(path) = table.forward_authority.as_ref().filter(|_| !endpoint.is_secure()) {
        let what = "auth: forward_authority does nothing without an https URL";
        report(&path.span, what.into());
    }
    let user_field = table.user_field();
    if let Some(at) = table.user_field.as_ref().filter(|at| !is_token(at.as_bytes())) {
        report(&at.span, format!("auth: {:?} is not a field name", at.value));
    }
    Some(ForwardRules {
        endpoint,
        user_field: user_field.into(),
        fields: forward_fields(table, user_field, report),
        timeout: table.timeout.as_ref().map_or(Duration::from_secs(5), |at| at.value.0),
        copy_to_request: copied_to_request(table, user_field, report),
        copy_to_response: copied_to_response(table, report),
    })
}

/// Returns the names of fields that the request gets. `Remote-User` has the user in any case.
fn copied_to_request(table: &AuthTable, user_field: &str, report: Report<'_>) -> Vec<String> {
    const USER: &str = "Remote-User";
    let mut copied = Vec::new();
    for name in table.copy_to_request.iter().flat_map(|names| &names.value) {
        if name.eq_ignore_ascii_case(USER) {
            if !user_field.eq_ignore_ascii_case(USER) {
                let what =
                    "auth: copy_to_request: Remote-User has the user that `user_field` names";
                report(&name.span, what.into());
            }
            continue;
        }
        if let Err(what) = check_copied_field(name) {
            report(&name.span, format!("auth: copy_to_request: {what}"));
        }
        copied.push(name.value.clone());
    }
    copied
}

fn copied_to_response(table: &AuthTable, report: Report<'_>) -> Vec<String> {
    let names = table.copy_to_response.iter().flat_map(|names| &names.value);
    names
        .map(|name| {
            if let Err(what) = may_set(name) {
                report(&name.span, format!("auth: copy_to_response: {what}"));
            }
            name.value.clone()
        })
        .collect()
}

/// Returns the names of the client's fields that are forwarded to the endpoint.
fn forward_fields(table: &AuthTable, user_field: &str, report: Report<'_>) -> Vec<String> {
    let Some(names) = &table.forward_fields else {
        return DEFAULT_FIELDS.map(String::from).into();
    };
    for name in &names.value {
        if let Err(what) = check_forward_field(name, user_field) {
            report(&name.span, format!("auth: forward_fields: {what}"));
        }
    }
    names.iter().map(|name| name.value.clone()).collect()
}

fn realm<'t>(table: &'t AuthTable, report: Report<'_>) -> &'t str {
    if let Some(at) = &table.realm
        && (!is_field_value(at.as_bytes()) || at.contains(['"', '\\']))
    {
        let what = format!("auth: {:?} cannot stand between quotes", at.value);
        report(&at.span, what);
    }
    table.realm.as_ref().map_or("Restricted", |realm| &realm.value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_paths_urls_and_sockets() {
        for text in [
            "/a?b",
            "http://a.example/",
            "http://[::1]:9/x",
            "https://a.example:444/x?y",
            "unix:/run/a:/x",
        ] {
            let endpoint = AuthEndpoint::parse(text, None).unwrap();
            assert_eq!(endpoint.to_string(), text);
            assert_eq!(endpoint.is_secure(), text.starts_with("https"));
        }
        let secret = AuthEndpoint::parse("http://a.example/x?token=S3", None).unwrap().to_string();
        assert!(secret.starts_with("http://a.example/x?token=hidden-"), "{secret}");
        for wrong in ["", "x", "ftp://a/", "http:///", "unix:/run/a", "unix:a:/x", "/a b"] {
            assert!(AuthEndpoint::parse(wrong, None).is_err(), "{wrong}");
        }
    }
}
