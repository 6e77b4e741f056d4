//! The state with which sessions are resumed: the keys of tickets, or the stored sessions of a site with early data.
//!
//! It outlives the configuration that it was made for. A reload, and a certificate that was renewed, keep the sessions of each
//! site that requires the same of a handshake as before.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};

use dunlin_config::Tls;
use rustls::ServerConfig;
use rustls::server::{
    NoServerSessionStorage, ProducesTickets, ServerSessionMemoryCache, StoresServerSessions,
};

use super::clock::Tickets;
use super::policy::{Policy, Requirements};
use super::shared_tickets::SiteTickets;

/// Maximum length of a client's early data in bytes.
const EARLY_DATA: u32 = 16 * 1024;
/// Maximum number of stored sessions of a site with early data.
const SESSIONS: usize = 10_000;

/// The state with which the sessions of a site are resumed.
pub(crate) enum KeptSessions {
    /// Sessions are in tickets, whose keys change every six hours; the server stores nothing.
    Tickets(Arc<dyn ProducesTickets>),
    /// A stored session can be resumed once, so that early data cannot be replayed.
    Stored(Arc<dyn StoresServerSessions>),
}

/// The site and what it requires of a handshake. A session is resumed within an equal scope only, so that it has met the
/// policy of the site.
type Scope = (String, Policy, bool);

/// Those of all sites of this process that are in use.
static IN_USE: LazyLock<Mutex<HashMap<Scope, Weak<KeptSessions>>>> = LazyLock::new(Mutex::default);

impl KeptSessions {
    /// Those of the site `name`.
    ///
    /// # Errors
    /// When the system provides no random numbers.
    pub(crate) fn of(
        settings: &Tls,
        required: &Requirements,
        name: &str,
    ) -> Result<Arc<Self>, rustls::Error> {
        let scope = (name.to_owned(), required.policy(), settings.early_data);
        let mut in_use = IN_USE.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kept) = in_use.get(&scope).and_then(Weak::upgrade) {
            return Ok(kept);
        }
        let new = Arc::new(Self::new(settings, required, name)?);
        in_use.retain(|_, kept| kept.strong_count() > 0);
        in_use.insert(scope, Arc::downgrade(&new));
        Ok(new)
    }

    fn new(settings: &Tls, required: &Requirements, name: &str) -> Result<Self, rustls::Error> {
        if settings.early_data {
            return Ok(Self::Stored(ServerSessionMemoryCache::new(SESSIONS)));
        }
        // A ticket holds the client's certificate, which may have been revoked since, so those of sites that verify clients
        // are of this server and these authorities and revocation lists alone.
        if settings.clients.is_some() {
            return Ok(Self::Tickets(Arc::new(Tickets::new()?)));
        }
        let mut suites: Vec<u16> = required.suites().into_iter().map(u16::from).collect();
        suites.sort_unstable();
        let scope = format!("{name}\n{suites:?}").into_bytes();
        Ok(Self::Tickets(Arc::new(SiteTickets::new(scope)?)))
    }

    /// Has handshakes with `config` resume these sessions.
    pub(crate) fn apply(&self, config: &mut ServerConfig) {
        match self {
            Self::Tickets(tickets) => {
                config.ticketer = Arc::clone(tickets);
                config.session_storage = Arc::new(NoServerSessionStorage {});
            }
            Self::Stored(sessions) => {
                config.session_storage = Arc::clone(sessions);
                config.max_early_data_size = EARLY_DATA;
            }
        }
    }
}
