//! Basic authentication (RFC 7617) against a password file.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::rc::Rc;
use std::sync::{Arc, OnceLock};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use dunlin_config::BasicRules;
use dunlin_exchange::Scheme;
use dunlin_http::FieldName;
use siphasher::sip128::{Hasher128, SipHasher24};

use super::{Attempts, UserFile};
use crate::checks::{CheckInput, Decision, Rejection};

/// Basic authentication of a route.
#[derive(Debug)]
pub(crate) struct Basic {
    rules: BasicRules,
    logins: Logins,
}

/// The users of a file and the failed attempts to log in, which all workers share.
#[derive(Debug, Clone, Default)]
pub(crate) struct Logins {
    pub(crate) users: Arc<UserFile>,
    pub(crate) attempts: Arc<Attempts>,
}

impl Logins {
    /// For the users of a file of these rules.
    pub(crate) fn new(rules: &BasicRules) -> Self {
        Self { users: Arc::new(UserFile::new(rules.accepts_weak_hashes)), attempts: Arc::default() }
    }

    /// For a login that servers of a fleet have in common. `scope` names it.
    pub(crate) fn of_fleet(rules: &BasicRules, scope: String) -> Self {
        Self { attempts: Arc::new(Attempts::of_fleet(scope)), ..Self::new(rules) }
    }
}

impl Basic {
    pub(crate) fn new(rules: BasicRules, logins: Logins) -> Self {
        Self { rules, logins }
    }

    pub(super) fn check(&self, input: &CheckInput<'_, '_>) -> Decision {
        let Self { rules: BasicRules { path, challenge, max_attempts, .. }, logins } = self;
        let Logins { users, attempts } = logins;
        let mut given = input.request.values(FieldName::Authorization);
        let (Some(value), None) = (given.next(), given.next()) else {
            return Decision::Reject(rejected(challenge));
        };
        let credential_hash = credential_hash(value);
        if let Some(name) = users.cached_user(path, credential_hash, input.now) {
            input.context.set_user(name, Scheme::Basic);
            return Decision::Allow;
        }
        let Some((name, password)) = credentials(value) else {
            return Decision::Reject(rejected(challenge));
        };
        let address = input.context.client.address;
        // A browser sends the same credentials on several connections at once: verify and count them once.
        let (verification, is_first) = users.verification(credential_hash);
        if is_first && let Err(wait) = attempts.begin(address, *max_attempts, input.now) {
            let seconds = wait.as_secs().max(1).to_string();
            return Decision::Reject(Rejection::new(429).with("Retry-After", seconds));
        }
        let (users, attempts) = (Arc::clone(users), Arc::clone(attempts));
        let (path, challenge) = (path.clone(), challenge.clone());
        let (services, context) = (Rc::clone(input.services), Rc::clone(input.context));
        Decision::Wait(Box::pin(async move {
            let verify = async || {
                let Some(_permits) = users.permits().await else { return Err(Busy) };
                let (users, name) = (Arc::clone(&users), name.clone());
                let verify = move || users.verify(&path, &name, &password, credential_hash);
                Ok(services.passwords().run(verify).await.unwrap_or(false))
            };
            let found = verification.get_or_try_init(verify).await;
            if is_first && !matches!(found, Ok(false)) {
                attempts.forgive(address);
            }
            match found {
                Ok(true) => {
                    context.set_user(name, Scheme::Basic);
                    Ok(())
                }
                Ok(false) => {
                    tracing::info!(peer = %address, user = name, "authentication failed: wrong name or password");
                    Err(rejected(&challenge))
                }
                Err(Busy) => Err(Rejection::new(503).with("Retry-After", "1")),
            }
        }))
    }
}

/// Too many requests wait for the verification of their password.
struct Busy;

fn rejected(challenge: &str) -> Rejection {
    Rejection::new(401).with("WWW-Authenticate", challenge)
}

/// Keyed hash (SipHash-2-4, 128 bits, with a random key per process) of the credentials that a client sent. The
/// server keeps it in place of the credentials: collisions cannot be constructed, and the time of a verification
/// reveals nothing.
pub(super) type CredentialHash = u128;

fn credential_hash(value: &[u8]) -> CredentialHash {
    static KEYED: OnceLock<SipHasher24> = OnceLock::new();
    let mut hasher = *KEYED.get_or_init(|| {
        let mut key = [0; 16];
        // Fall back to the random keys of the standard library.
        if crate::password::random(&mut key).is_err() {
            key[..8].copy_from_slice(&RandomState::new().hash_one(0).to_ne_bytes());
            key[8..].copy_from_slice(&RandomState::new().hash_one(1).to_ne_bytes());
        }
        SipHasher24::new_with_key(&key)
    });
    hasher.write(value);
    hasher.finish128().as_u128()
}

/// Parses the value of `Authorization` into name and password.
fn credentials(value: &[u8]) -> Option<(String, Vec<u8>)> {
    let (scheme, rest) = value.split_at_checked(6)?;
    if !scheme.eq_ignore_ascii_case(b"basic ") {
        return None;
    }
    let decoded = STANDARD.decode(rest.trim_ascii()).ok()?;
    let colon = memchr::memchr(b':', &decoded)?;
    let name = std::str::from_utf8(&decoded[..colon]).ok()?;
    // Names are passed to logs and scripts.
    let is_clean = !name.is_empty() && !name.chars().any(char::is_control);
    is_clean.then(|| (name.to_owned(), decoded[colon + 1..].to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_well_formed_credentials_are_parsed() {
        let of = |text: &str| credentials(format!("Basic {}", STANDARD.encode(text)).as_bytes());
        assert_eq!(of("ann:p:q"), Some(("ann".into(), b"p:q".to_vec())));
        assert_eq!(of("ann:"), Some(("ann".into(), Vec::new())));
        for wrong in ["ann", ":x", "a\nb:x"] {
            assert_eq!(of(wrong), None, "{wrong:?}");
        }
        for wrong in ["", "Basic", "Basic !", "Bearer YTpi", "Basic YTpi YTpi"] {
            assert_eq!(credentials(wrong.as_bytes()), None, "{wrong:?}");
        }
        assert_eq!(credentials(b"bAsIc YTpi"), Some(("a".into(), b"b".to_vec())));
    }
}
