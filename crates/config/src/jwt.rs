//! The table `jwt` of the key `auth`: JSON Web Tokens (RFC 7519).

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use dunlin_http::semantics::{Url, is_token};

use super::file::{JwtAlgorithm, JwtTable, OneOrMany};
use super::forward_fields::check_copied_field;
use super::report::Report;
use super::secrets;
use super::signed::is_parameter;
use super::spanned::Spanned;

/// The rules of tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JwtRules {
    /// Where the keys are.
    pub keys: KeySource,
    /// Issuers of which one applies; empty for any.
    pub issuers: Vec<String>,
    /// Audiences of which one applies; empty for any.
    pub audiences: Vec<String>,
    /// Algorithms that signatures may have.
    pub algorithms: Vec<JwtAlgorithm>,
    /// Time by which clocks may differ.
    pub leeway: Duration,
    /// Claims that tokens must have.
    pub required: Vec<String>,
    /// The cookie with the token.
    pub cookie: Option<String>,
    /// The parameter of the query with the token.
    pub query: Option<String>,
    /// Request fields, each with its claim.
    pub claims: Vec<(String, String)>,
    /// Value of `WWW-Authenticate` without the error.
    pub challenge: String,
}

/// Where the keys of tokens are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeySource {
    /// In a file.
    File(PathBuf),
    /// At a URL, as a JSON Web Key Set.
    Url {
        /// The URL.
        url: Url,
        /// Trusted authorities for an https URL; the system's if absent.
        authority: Option<PathBuf>,
        /// Timeout of the response.
        timeout: Duration,
    },
}

/// As it may be shown: without secret parameters of its query.
impl fmt::Display for KeySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Url { url, .. } => f.write_str(&secrets::url(&url.to_string())),
        }
    }
}

impl JwtAlgorithm {
    /// All algorithms whose keys are not secret.
    const ASYMMETRIC: [Self; 10] = [
        Self::RS256,
        Self::RS384,
        Self::RS512,
        Self::PS256,
        Self::PS384,
        Self::PS512,
        Self::ES256,
        Self::ES384,
        Self::ES512,
        Self::EdDSA,
    ];

    /// Returns `true` if who verifies a signature could make it, too.
    pub fn is_symmetric(self) -> bool {
        matches!(self, Self::HS256 | Self::HS384 | Self::HS512)
    }
}

impl JwtRules {
    /// Checks a table; `None` if it names no keys.
    pub(crate) fn read(
        at: &Spanned<JwtTable>,
        realm: Option<&str>,
        report: Report<'_>,
    ) -> Option<Self> {
        let table = &at.value;
        let keys = keys(at, report)?;
        let algorithms = match &table.algorithms {
            None => JwtAlgorithm::ASYMMETRIC.into(),
            Some(list) => {
                let symmetric = list.value.iter().any(|algorithm| algorithm.is_symmetric());
                if list.value.is_empty() {
                    report(&list.span, "auth: jwt: the list of `algorithms` is empty".into());
                } else if symmetric && list.value.iter().any(|one| !one.is_symmetric()) {
                    let what = "auth: jwt: algorithms of symmetric keys (HS256, HS384, HS512) cannot stand with others";
                    report(&list.span, what.into());
                } else if symmetric && matches!(keys, KeySource::Url { .. }) {
                    let what = "auth: jwt: symmetric keys (HS256, HS384, HS512) are secret, and need a `key_file`";
                    report(&list.span, what.into());
                }
                list.value.clone()
            }
        };
        if let Some(name) = table.cookie.as_ref().filter(|name| !is_token(name.as_bytes())) {
            report(&name.span, format!("auth: jwt: cookie: {:?} is not a name", name.value));
        }
        if let Some(name) = table.query.as_ref().filter(|name| !is_parameter(name)) {
            let what = format!(
                "auth: jwt: query: {:?} is not the name of a parameter, of letters, digits, \"-\", \"_\" and \".\"",
                name.value
            );
            report(&name.span, what);
        }
        let required = match &table.required {
            None => vec!["exp".to_owned()],
            Some(names) => names.value.iter().map(|name| name.value.clone()).collect(),
        };
        Some(Self {
            keys,
            issuers: texts("issuer", &table.issuer, report),
            audiences: texts("audience", &table.audience, report),
            algorithms,
            leeway: table.leeway.as_ref().map_or(Duration::from_secs(30), |at| at.value.0),
            required,
            cookie: table.cookie.as_ref().map(|name| name.value.clone()),
            query: table.query.as_ref().map(|name| name.value.clone()),
            claims: claims(table, report),
            challenge: realm.map_or("Bearer".into(), |realm| format!("Bearer realm=\"{realm}\"")),
        })
    }

    /// Describes the rules.
    pub(crate) fn describe(&self) -> String {
        let mut text = format!("tokens with keys of {}", self.keys);
        for (key, values) in [("issuer", &self.issuers), ("audience", &self.audiences)] {
            if !values.is_empty() {
                text.push_str(&format!("; {key} {}", values.join(" or ")));
            }
        }
        for (key, name) in [("cookie", &self.cookie), ("query", &self.query)] {
            if let Some(name) = name {
                text.push_str(&format!("; {key} {name}"));
            }
        }
        for (field, claim) in &self.claims {
            text.push_str(&format!("; {field} from {claim}"));
        }
        text
    }
}

/// Returns where the keys are.
fn keys(at: &Spanned<JwtTable>, report: Report<'_>) -> Option<KeySource> {
    let JwtTable { key_file, jwks, authority, timeout, .. } = &at.value;
    if jwks.is_none() {
        let with_url = [
            ("authority", authority.as_ref().map(|at| &at.span)),
            ("timeout", timeout.as_ref().map(|at| &at.span)),
        ];
        for (key, place) in with_url {
            if let Some(place) = place {
                report(place, format!("auth: jwt: {key} does nothing without `jwks`"));
            }
        }
    }
    match (key_file, jwks) {
        (Some(path), None) => Some(KeySource::File(path.value.clone())),
        (None, Some(text)) => {
            let Ok(url) = Url::parse(text) else {
                let shown = secrets::url(text);
                report(&text.span, format!("auth: jwt: {shown:?} is not an http or https URL"));
                return None;
            };
            let is_local = matches!(url.host(), "127.0.0.1" | "[::1]" | "localhost");
            if !url.is_secure() && !is_local {
                let what = "auth: jwt: jwks needs an https URL: who controls the connection could sign every token";
                report(&text.span, what.into());
            }
            if let Some(path) = authority.as_ref().filter(|_| !url.is_secure()) {
                let what = "auth: jwt: authority does nothing without an https URL";
                report(&path.span, what.into());
            }
            let timeout = timeout.as_ref().map_or(Duration::from_secs(5), |at| at.value.0);
            let authority = authority.as_ref().map(|path| path.value.clone());
            Some(KeySource::Url { url, authority, timeout })
        }
        (Some(_), Some(url)) => {
            report(&url.span, "auth: jwt: either `key_file` or `jwks` has the keys".into());
            None
        }
        (None, None) => {
            let what = "auth: jwt: write key_file = \"FILE\" or jwks = \"https://…\"";
            report(&at.span, what.into());
            None
        }
    }
}

fn texts(
    key: &str,
    values: &Option<Spanned<OneOrMany<String>>>,
    report: Report<'_>,
) -> Vec<String> {
    let Some(values) = values else { return Vec::new() };
    if values.value.0.is_empty() {
        report(&values.span, format!("auth: jwt: the list of `{key}` is empty"));
    }
    values.value.0.iter().map(|value| value.value.clone()).collect()
}

fn claims(table: &JwtTable, report: Report<'_>) -> Vec<(String, String)> {
    let mut claims: Vec<(String, String)> = Vec::new();
    for (field, claim) in table.claims.iter().flat_map(|claims| &claims.value) {
        if let Err(what) = check_copied_field(field) {
            report(&field.span, format!("auth: jwt: claims: {what}"));
        }
        if claims.iter().any(|(other, _)| other.eq_ignore_ascii_case(field)) {
            report(&field.span, format!("auth: jwt: claims: {} is listed twice", field.value));
        }
        if claim.value.is_empty() {
            report(&claim.span, "auth: jwt: claims: the name of the claim is empty".into());
        }
        claims.push((field.value.clone(), claim.value.clone()));
    }
    claims
}
