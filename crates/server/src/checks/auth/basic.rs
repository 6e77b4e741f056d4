//! Basic authentication (RFC 7617) from a file of users.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::{Arc, OnceLock};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use dunlin_http::FieldName;
use siphasher::sip128::{Hasher128, SipHasher24};

use super::{Attempts, UserFile};
use crate::checks::{CheckInput, Decision, Rejection, Scheme};

/// Name and password, as a file has them.
#[derive(Debug)]
pub(crate) struct Basic {
    pub(crate) path: PathBuf,
    pub(crate) users: Arc<UserFile>,
    /// As `WWW-Authenticate` has it.
    pub(crate) challenge: String,
    pub(crate) attempts: Arc<Attempts>,
    /// Wrong passwords of one address within a minute.
    pub(crate) most_attempts: u32,
}

impl Basic {
    pub(super) fn describe(&self) -> String {
        format!("basic, users of {}", self.path.display())
    }

    pub(super) fn check(&self, input: &CheckInput<'_, '_>) -> Decision {
        let mut given = input.request.values(FieldName::Authorization);
        let (Some(value), None) = (given.next(), given.next()) else {
            return Decision::Reject(refused(&self.challenge));
        };
        let proof = proof(value);
        if let Some(name) = self.users.known(&self.path, proof, input.now) {
            input.context.set_user(name, Scheme::Basic);
            return Decision::Allow;
        }
        let Some((name, password)) = credentials(value) else {
            return Decision::Reject(refused(&self.challenge));
        };
        let address = input.context.client.address;
        // A browser asks on many connections at once: what they all say is compared, and counted, once.
        let (comparison, is_first) = self.users.comparison(proof);
        if is_first && let Err(wait) = self.attempts.begin(address, self.most_attempts, input.now) {
            let seconds = wait.as_secs().max(1).to_string();
            return Decision::Reject(Rejection::new(429).with("Retry-After", seconds));
        }
        let (users, attempts) = (Arc::clone(&self.users), Arc::clone(&self.attempts));
        let (path, challenge) = (self.path.clone(), self.challenge.clone());
        let (ctx, context) = (Rc::clone(input.ctx), Rc::clone(input.context));
        Decision::Wait(Box::pin(async move {
            let compare = async || {
                let Some(_permits) = users.permits().await else { return Err(Busy) };
                let (users, name) = (Arc::clone(&users), name.clone());
                let compare = move || users.verify(&path, &name, &password, proof);
                Ok(ctx.shared.blocking.passwords.run(compare).await.unwrap_or(false))
            };
            let found = comparison.get_or_try_init(compare).await;
            if is_first && !matches!(found, Ok(false)) {
                attempts.forgive(address);
            }
            match found {
                Ok(true) => {
                    context.set_user(name, Scheme::Basic);
                    Ok(())
                }
                Ok(false) => {
                    tracing::info!(peer = %address, user = name, "wrong name or password");
                    Err(refused(&challenge))
                }
                Err(Busy) => Err(Rejection::new(503).with("Retry-After", "1")),
            }
        }))
    }
}

/// Too many wait for their passwords to be compared.
struct Busy;

fn refused(challenge: &str) -> Rejection {
    Rejection::new(401).with("WWW-Authenticate", challenge)
}

/// Stands for what a client sent without holding it. It is a keyed hash (SipHash-2-4 of 128 bits) by a key of this
/// process alone: nobody can find another value that has it, and the time of a comparison tells nothing.
pub(super) type Proof = u128;

fn proof(value: &[u8]) -> Proof {
    static KEYED: OnceLock<SipHasher24> = OnceLock::new();
    let mut hasher = *KEYED.get_or_init(|| {
        let mut key = [0; 16];
        // Without it the standard library's random numbers have to do.
        if crate::password::random(&mut key).is_err() {
            key[..8].copy_from_slice(&RandomState::new().hash_one(0).to_ne_bytes());
            key[8..].copy_from_slice(&RandomState::new().hash_one(1).to_ne_bytes());
        }
        SipHasher24::new_with_key(&key)
    });
    hasher.write(value);
    hasher.finish128().as_u128()
}

/// Name and password.
fn credentials(value: &[u8]) -> Option<(String, Vec<u8>)> {
    let (scheme, rest) = value.split_at_checked(6)?;
    if !scheme.eq_ignore_ascii_case(b"basic ") {
        return None;
    }
    let decoded = STANDARD.decode(rest.trim_ascii()).ok()?;
    let colon = memchr::memchr(b':', &decoded)?;
    let name = std::str::from_utf8(&decoded[..colon]).ok()?;
    // Names go to logs and scripts.
    let is_clean = !name.is_empty() && !name.chars().any(char::is_control);
    is_clean.then(|| (name.to_owned(), decoded[colon + 1..].to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_read_and_nothing_else() {
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
