//! Session tickets that every server of a fleet accepts. Their keys are derived, for each site, of secrets that the servers
//! share; without secrets, each server has keys of its own.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Instant;

use aws_lc_rs::aead::{AES_256_GCM_SIV, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::{hkdf, rand};
use rustls::server::ProducesTickets;

use super::clock::Tickets;

/// A secret of the fleet.
#[derive(Clone)]
pub struct TicketSecret {
    /// The name of the secret, with which each ticket begins.
    pub id: [u8; ID],
    /// The secret.
    pub secret: [u8; 32],
    /// Time since it is used for new tickets in milliseconds, negative if it is not yet.
    pub age: i64,
}

/// The secrets at a time.
struct Secrets {
    list: Vec<TicketSecret>,
    learned: Instant,
}

/// Length of the name of a secret in bytes.
const ID: usize = 16;
/// Age in milliseconds from which a secret is not used for new tickets: it has not been replaced in time, so the store of the
/// fleet was not reachable for hours.
const MAX_USE: i64 = 12 * 3600 * 1000;
/// Age in milliseconds from which tickets of a secret are not accepted: the last ticket has expired.
const MAX_AGE: i64 = 24 * 3600 * 1000;

/// The secrets of this process, the newest first.
static SECRETS: RwLock<Option<Arc<Secrets>>> = RwLock::new(None);

/// Sets the secrets of the fleet, the newest first; none for a server that is in no fleet.
pub fn set_ticket_secrets(list: Vec<TicketSecret>) {
    let secrets = (!list.is_empty()).then(|| Arc::new(Secrets { list, learned: Instant::now() }));
    *SECRETS.write().unwrap_or_else(PoisonError::into_inner) = secrets;
}

/// The tickets of a site.
pub(crate) struct SiteTickets {
    /// Tickets of this server alone.
    own: Tickets,
    /// The data with which the keys of this site are derived.
    scope: Vec<u8>,
    derived: RwLock<Option<Derived>>,
}

/// The keys of a site.
#[derive(Clone)]
struct Derived {
    of: Arc<Secrets>,
    keys: Arc<[LessSafeKey]>,
}

/// The purpose from which the keys of sites are derived.
const PURPOSE: &[u8] = b"dunlin session tickets 1";

impl std::fmt::Debug for SiteTickets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SiteTickets").finish_non_exhaustive()
    }
}

impl SiteTickets {
    /// Returns the tickets of a site. `scope` names the site and what it requires of a handshake: a ticket is valid for an
    /// equal scope only.
    ///
    /// # Errors
    /// When the system provides no random numbers.
    pub(crate) fn new(scope: Vec<u8>) -> Result<Self, rustls::Error> {
        Ok(Self { own: Tickets::new()?, scope, derived: RwLock::new(None) })
    }

    /// Returns the keys of the current secrets.
    fn keys(&self) -> Option<Derived> {
        let secrets = SECRETS.read().unwrap_or_else(PoisonError::into_inner).clone()?;
        let is_current = |derived: &&Derived| Arc::ptr_eq(&derived.of, &secrets);
        let derived = self.derived.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(derived) = derived.as_ref().filter(is_current) {
            return Some(derived.clone());
        }
        drop(derived);
        let keys = secrets.list.iter().map(|secret| derive(&secret.secret, &self.scope));
        let derived = Derived { keys: keys.collect::<Option<_>>()?, of: secrets };
        *self.derived.write().unwrap_or_else(PoisonError::into_inner) = Some(derived.clone());
        Some(derived)
    }
}

impl Secrets {
    fn age(&self, secret: &TicketSecret) -> i64 {
        let since = self.learned.elapsed().as_millis();
        secret.age.saturating_add(i64::try_from(since).unwrap_or(i64::MAX))
    }
}

fn derive(secret: &[u8; 32], scope: &[u8]) -> Option<LessSafeKey> {
    let secret = hkdf::Salt::new(hkdf::HKDF_SHA256, PURPOSE).extract(secret);
    let scope = [scope];
    let derived = secret.expand(&scope, &AES_256_GCM_SIV).ok()?;
    Some(LessSafeKey::new(UnboundKey::from(derived)))
}

impl ProducesTickets for SiteTickets {
    fn enabled(&self) -> bool {
        self.own.enabled()
    }

    fn lifetime(&self) -> u32 {
        self.own.lifetime()
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        let of_fleet = || {
            let Derived { of, keys } = self.keys()?;
            let is_in_use = |secret: &TicketSecret| (0..MAX_USE).contains(&of.age(secret));
            let index = of.list.iter().position(is_in_use)?;
            let (secret, key) = (of.list.get(index)?, keys.get(index)?);
            let mut nonce = [0; NONCE_LEN];
            rand::fill(&mut nonce).ok()?;
            let mut sealed = plain.to_vec();
            let (aad, once) = (Aad::from(secret.id), Nonce::assume_unique_for_key(nonce));
            key.seal_in_place_append_tag(once, aad, &mut sealed).ok()?;
            Some([&secret.id[..], &nonce, &sealed].concat())
        };
        of_fleet().or_else(|| self.own.encrypt(plain))
    }

    fn decrypt(&self, cipher: &[u8]) -> Option<Vec<u8>> {
        let of_fleet = || {
            let (id, rest) = cipher.split_at_checked(ID)?;
            let (nonce, sealed) = rest.split_at_checked(NONCE_LEN)?;
            let Derived { of, keys } = self.keys()?;
            let index = of.list.iter().position(|secret| secret.id == id)?;
            let secret = of.list.get(index)?;
            if of.age(secret) >= MAX_AGE {
                return None;
            }
            let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
            let mut opened = sealed.to_vec();
            let length = keys
                .get(index)?
                .open_in_place(nonce, Aad::from(secret.id), &mut opened)
                .ok()?
                .len();
            opened.truncate(length);
            Some(opened)
        };
        of_fleet().or_else(|| self.own.decrypt(cipher))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3600 * 1000;

    fn secret(number: u8, age: i64) -> TicketSecret {
        TicketSecret { id: [number; ID], secret: [number; 32], age }
    }

    fn tickets(scope: &str) -> SiteTickets {
        SiteTickets::new(scope.as_bytes().to_vec()).unwrap()
    }

    /// One test, since the secrets are those of the process.
    #[test]
    fn servers_with_the_same_secrets_accept_each_others_tickets_for_the_same_site() {
        let (one, other, elsewhere) = (tickets("a"), tickets("a"), tickets("b"));
        let alone = one.encrypt(b"alone").unwrap();
        assert_eq!(other.decrypt(&alone), None, "without secrets, each server is alone");
        set_ticket_secrets(vec![secret(2, -60_000), secret(1, HOUR)]);
        let sealed = one.encrypt(b"session").unwrap();
        assert_eq!(sealed[..ID], [1; ID], "the newest one is not in use yet");
        assert_eq!(other.decrypt(&sealed).as_deref(), Some(&b"session"[..]));
        assert_eq!(elsewhere.decrypt(&sealed), None);
        assert_eq!(one.decrypt(&alone).as_deref(), Some(&b"alone"[..]), "tickets from before");
        let mut changed = sealed.clone();
        changed[ID + NONCE_LEN] ^= 1;
        assert_eq!(other.decrypt(&changed), None);
        // The next one is in use, and the one before is accepted.
        set_ticket_secrets(vec![secret(2, 0), secret(1, 7 * HOUR)]);
        assert_eq!(one.encrypt(b"x").unwrap()[..ID], [2; ID]);
        assert_eq!(other.decrypt(&sealed).as_deref(), Some(&b"session"[..]));
        // Secrets that were not replaced in time are not used for new tickets, and end.
        set_ticket_secrets(vec![secret(1, 13 * HOUR)]);
        let alone = one.encrypt(b"alone").unwrap();
        assert_eq!(other.decrypt(&alone), None);
        assert!(other.decrypt(&sealed).is_some());
        set_ticket_secrets(vec![secret(1, 25 * HOUR)]);
        assert_eq!(other.decrypt(&sealed), None);
        for short in 0..sealed.len() {
            assert_eq!(other.decrypt(&sealed[..short]), None);
        }
        set_ticket_secrets(Vec::new());
    }
}
