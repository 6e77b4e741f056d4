//! Authentication by JSON Web Tokens (RFC 7519), as bearer tokens (RFC 6750).

use std::borrow::Cow;
use std::rc::Rc;
use std::sync::Arc;

use dunlin_config::JwtRules;
use dunlin_exchange::{RequestContext, Scheme};
use dunlin_http::semantics::target::{self, Target};
use dunlin_http::{FieldName, Request};
use dunlin_tokens::{Claims, KeySet, TokenError, verify};

use super::Keys;
use crate::checks::signed::{parameter, unix_time};
use crate::checks::{CheckInput, Decision, Rejection};

/// Authentication of a route by tokens.
#[derive(Debug)]
pub(crate) struct Jwt {
    rules: Arc<JwtRules>,
    keys: Arc<Keys>,
}

impl Jwt {
    pub(crate) fn new(rules: JwtRules, keys: Arc<Keys>) -> Self {
        Self { rules: Arc::new(rules), keys }
    }

    pub(super) fn check(&self, input: &CheckInput<'_, '_>) -> Decision {
        let Self { rules, keys } = self;
        let Some(token) = token(input.request, rules) else {
            let rejection = Rejection::new(401);
            return Decision::Reject(rejection.with("WWW-Authenticate", &rules.challenge));
        };
        let verified = read(&token, rules, &keys.current());
        let is_unknown = matches!(verified, Err(Failure::Token(TokenError::UnknownKey)));
        let is_refreshed = keys.refresh(input.services, input.now, is_unknown);
        if verified.is_ok() || !is_refreshed {
            return match decide(verified, rules, input.context) {
                Ok(()) => Decision::Allow,
                Err(rejection) => Decision::Reject(rejection),
            };
        }
        // The keys may be other ones soon.
        let (rules, keys, token) = (Arc::clone(rules), Arc::clone(keys), token.into_owned());
        let context = Rc::clone(input.context);
        Decision::Wait(Box::pin(async move {
            keys.settled().await;
            decide(read(&token, &rules, &keys.current()), &rules, &context)
        }))
    }
}

/// Why a request is rejected.
enum Failure {
    /// There are no keys.
    NoKeys,
    Token(TokenError),
}

/// What a token states.
struct Identity {
    user: Option<String>,
    fields: Vec<(String, String)>,
}

/// Verifies a token, and reads what handlers get of it.
fn read(token: &[u8], rules: &JwtRules, keys: &KeySet) -> Result<Identity, Failure> {
    if keys.is_empty() {
        return Err(Failure::NoKeys);
    }
    let claims = verify(token, rules, keys, unix_time()).map_err(Failure::Token)?;
    identity(&claims, rules).map_err(Failure::Token)
}

fn identity(claims: &Claims, rules: &JwtRules) -> Result<Identity, TokenError> {
    let user = claims.subject()?.filter(|user| !user.is_empty());
    let mut fields = Vec::new();
    for (field, claim) in &rules.claims {
        if let Some(value) = claims.field(claim)? {
            fields.push((field.clone(), value));
        }
    }
    Ok(Identity { user, fields })
}

/// Admits a request, or rejects it.
fn decide(
    verified: Result<Identity, Failure>,
    rules: &JwtRules,
    context: &RequestContext,
) -> Result<(), Rejection> {
    match verified {
        Ok(Identity { user, fields }) => {
            if let Some(user) = user {
                context.set_user(user, Scheme::Bearer);
            }
            fields.iter().for_each(|(name, value)| context.set_request_field(name, value));
            Ok(())
        }
        Err(Failure::NoKeys) => Err(Rejection::new(503).with("Retry-After", "5")),
        Err(Failure::Token(error)) => {
            tracing::info!(peer = %context.client.address, "authentication failed: {error}");
            let JwtRules { challenge, .. } = rules;
            // Parameters follow the scheme, and each other, in another way (RFC 9110 §11.2).
            let comma = if challenge.contains('=') { "," } else { "" };
            let challenge = format!(
                "{challenge}{comma} error=\"invalid_token\", error_description=\"{error}\""
            );
            Err(Rejection::new(401).with("WWW-Authenticate", challenge))
        }
    }
}

/// Returns the token of a request. Two `Authorization` fields have none.
fn token<'r>(request: &Request<'r>, rules: &JwtRules) -> Option<Cow<'r, [u8]>> {
    let mut values = request.values(FieldName::Authorization);
    if let Some(value) = values.next() {
        if values.next().is_some() {
            return None;
        }
        if let Some((scheme, rest)) = value.split_at_checked(7)
            && scheme.eq_ignore_ascii_case(b"bearer ")
        {
            return Some(Cow::Borrowed(rest.trim_ascii()));
        }
    }
    let in_cookie = rules.cookie.as_ref().and_then(|name| cookie(request, name));
    in_cookie.map(Cow::Owned).or_else(|| {
        let name = rules.query.as_ref()?;
        let query = match target::parse(request.method(), request.target()).ok()? {
            Target::Origin { query, .. } | Target::Absolute { query, .. } => query,
            Target::Authority(_) | Target::Asterisk => None,
        };
        parameter(query, name).map(Cow::Borrowed)
    })
}

/// Returns the value of the first cookie of that name (RFC 6265 §4.2.1).
fn cookie(request: &Request<'_>, name: &str) -> Option<Vec<u8>> {
    let cookies = request.cookies()?;
    let mut pairs = cookies.split(|&byte| byte == b';').map(<[u8]>::trim_ascii);
    pairs.find_map(|pair| {
        let value = pair.strip_prefix(name.as_bytes())?.strip_prefix(b"=")?;
        Some(value.to_vec())
    })
}
