//! JSON Web Tokens in compact form (RFC 7515 §3.1, RFC 7519 §7.2).

use std::fmt;

use dunlin_config::{JwtAlgorithm, JwtRules};
use serde_json::{Map, Value};

use crate::key::Key;
use crate::keys::KeySet;
use crate::{algorithm, decode};

/// The claims of a token whose signature, issuer, audience and time are right.
#[derive(Debug, Clone)]
pub struct Claims(Map<String, Value>);

/// Why a token is not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenError {
    /// It is no signed token, or has an extension that is not understood.
    Malformed,
    /// Its algorithm is not among those of the rules.
    Algorithm,
    /// No key has the id that it names.
    UnknownKey,
    /// No key verifies its signature.
    Signature,
    /// It has expired.
    Expired,
    /// It is not valid yet.
    Early,
    /// Its issuer is another one.
    Issuer,
    /// It is for others.
    Audience,
    /// It lacks a claim that is required, or a claim cannot be a field.
    Claim,
}

impl fmt::Display for TokenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Malformed => "the token is malformed",
            Self::Algorithm => "the algorithm of the token is not allowed",
            Self::UnknownKey => "the key of the token is unknown",
            Self::Signature => "the signature of the token is wrong",
            Self::Expired => "the token has expired",
            Self::Early => "the token is not valid yet",
            Self::Issuer => "the issuer of the token is another one",
            Self::Audience => "the token is for another audience",
            Self::Claim => "a claim of the token is missing or malformed",
        })
    }
}

/// Verifies a token at the time `now`, in seconds since 1970.
///
/// # Errors
/// The token is not accepted.
pub fn verify(
    token: &[u8],
    rules: &JwtRules,
    keys: &KeySet,
    now: u64,
) -> Result<Claims, TokenError> {
    let (message, payload, signature, header) = parts(token).ok_or(TokenError::Malformed)?;
    // An extension that has to be understood (RFC 7515 §4.1.11). There are none.
    if header.contains_key("crit") {
        return Err(TokenError::Malformed);
    }
    let named = header.get("alg").and_then(Value::as_str).and_then(algorithm::named);
    let algorithm = named.filter(|named| rules.algorithms.contains(named));
    let algorithm = algorithm.ok_or(TokenError::Algorithm)?;
    let id = match header.get("kid") {
        None => None,
        Some(id) => Some(id.as_str().ok_or(TokenError::Malformed)?),
    };
    let mut candidates = keys.keys.iter().filter(|key| key.is_for(id, algorithm)).peekable();
    if candidates.peek().is_none() {
        return Err(TokenError::UnknownKey);
    }
    if !candidates.any(|key| algorithm::verifies(&key.material, algorithm, message, &signature)) {
        return Err(TokenError::Signature);
    }
    let claims = decode(payload).and_then(|json| serde_json::from_slice(&json).ok());
    let claims = Claims(claims.ok_or(TokenError::Malformed)?);
    claims.check(rules, now)?;
    Ok(claims)
}

type Parts<'t> = (&'t [u8], &'t [u8], Vec<u8>, Map<String, Value>);

/// Splits a token into what is signed, its payload, its signature and its header.
fn parts(token: &[u8]) -> Option<Parts<'_>> {
    let mut parts = token.split(|&byte| byte == b'.');
    let (header, payload, signature) = (parts.next()?, parts.next()?, parts.next()?);
    if parts.next().is_some() {
        return None;
    }
    let message = &token[..header.len() + 1 + payload.len()];
    let header = serde_json::from_slice(&decode(header)?).ok()?;
    Some((message, payload, decode(signature)?, header))
}

impl Key {
    /// Returns `true` if the key may have signed a token with that key id and algorithm.
    fn is_for(&self, id: Option<&str>, algorithm: JwtAlgorithm) -> bool {
        let is_named = match (id, &self.id) {
            (Some(id), Some(own)) => id == own,
            _ => true,
        };
        is_named && self.algorithm.is_none_or(|own| own == algorithm)
    }
}

impl Claims {
    fn check(&self, rules: &JwtRules, now: u64) -> Result<(), TokenError> {
        if rules.required.iter().any(|name| self.find(name).is_none()) {
            return Err(TokenError::Claim);
        }
        let (now, leeway) = (now as f64, rules.leeway.as_secs_f64());
        // RFC 7519 §4.1.4: not on or after that time.
        if self.time("exp")?.is_some_and(|end| now >= end + leeway) {
            return Err(TokenError::Expired);
        }
        if self.time("nbf")?.is_some_and(|start| now + leeway < start) {
            return Err(TokenError::Early);
        }
        let is_one = |value: &Value, of: &[String]| {
            value.as_str().is_some_and(|value| of.iter().any(|one| one == value))
        };
        let issuer = self.0.get("iss");
        if !rules.issuers.is_empty() && !issuer.is_some_and(|value| is_one(value, &rules.issuers)) {
            return Err(TokenError::Issuer);
        }
        let is_for_us = match self.0.get("aud") {
            _ if rules.audiences.is_empty() => true,
            Some(Value::Array(all)) => all.iter().any(|value| is_one(value, &rules.audiences)),
            Some(value) => is_one(value, &rules.audiences),
            None => false,
        };
        if is_for_us { Ok(()) } else { Err(TokenError::Audience) }
    }

    /// Returns a time in seconds since 1970, which may have a fraction (RFC 7519 §2).
    fn time(&self, name: &str) -> Result<Option<f64>, TokenError> {
        match self.0.get(name) {
            None => Ok(None),
            Some(value) => value.as_f64().map(Some).ok_or(TokenError::Claim),
        }
    }

    /// Returns the subject, if the token has one.
    ///
    /// # Errors
    /// It is no text, or has a control character.
    pub fn subject(&self) -> Result<Option<String>, TokenError> {
        match self.0.get("sub") {
            None => Ok(None),
            Some(Value::String(subject)) => clean(subject.clone()).map(Some),
            Some(_) => Err(TokenError::Claim),
        }
    }

    /// Returns a claim as the value of a field, with commas between the members of a list; `None` if the token does not have it.
    ///
    /// # Errors
    /// It has a control character, or a list has members that are no plain values.
    pub fn field(&self, name: &str) -> Result<Option<String>, TokenError> {
        let Some(value) = self.find(name) else { return Ok(None) };
        let text = match value {
            Value::Null => return Ok(None),
            Value::Array(list) => {
                let texts: Option<Vec<_>> = list.iter().map(plain).collect();
                texts.ok_or(TokenError::Claim)?.join(",")
            }
            value => plain(value).unwrap_or_else(|| value.to_string()),
        };
        clean(text).map(Some)
    }

    /// Returns the claim of that name, or the member of a claim that its parts name: `realm_access.roles`.
    fn find(&self, name: &str) -> Option<&Value> {
        if let Some(value) = self.0.get(name) {
            return Some(value);
        }
        let (first, rest) = name.split_once('.')?;
        rest.split('.').try_fold(self.0.get(first)?, |value, part| value.get(part))
    }
}

/// Returns the text of a value that has no members.
fn plain(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Bool(_) | Value::Number(_) => Some(value.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

fn clean(text: String) -> Result<String, TokenError> {
    if text.chars().any(char::is_control) { Err(TokenError::Claim) } else { Ok(text) }
}

#[cfg(test)]
mod tests;
