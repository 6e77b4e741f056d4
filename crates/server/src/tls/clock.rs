//! The wall clock as TLS reads it. The libraries' own reading panics before 1970; a machine without a battery
//! for its clock can start there.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustls::crypto::aws_lc_rs::Ticketer;
use rustls::pki_types::UnixTime;
use rustls::server::ProducesTickets;
use rustls::time_provider::TimeProvider;

/// The time for certificates and tickets: never before 1970.
#[derive(Debug)]
pub(crate) struct WallClock;

impl TimeProvider for WallClock {
    fn current_time(&self) -> Option<UnixTime> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Some(UnixTime::since_unix_epoch(now))
    }
}

/// That many seconds after 1970, or the end of the year 9999: a file may hold any number.
pub(super) fn after_1970(seconds: u64) -> SystemTime {
    const LAST: u64 = 253_402_300_799;
    UNIX_EPOCH + Duration::from_secs(seconds.min(LAST))
}

/// Session tickets, whose keys change every six hours. Before 1970 there are none.
#[derive(Debug, Default)]
pub(super) struct Tickets(OnceLock<Arc<dyn ProducesTickets>>);

/// Twice the time for which a key is used, as [`Ticketer`] has it.
const LIFETIME: u32 = 12 * 60 * 60;

impl Tickets {
    /// # Errors
    /// When there are no random numbers for the keys.
    pub(super) fn new() -> Result<Self, rustls::Error> {
        let tickets = Self::default();
        if is_after_1970() {
            // It is empty.
            let _ = tickets.0.set(Ticketer::new()?);
        }
        Ok(tickets)
    }

    /// What makes them, made now if the clock was before 1970 at the start.
    fn tickets(&self) -> Option<&Arc<dyn ProducesTickets>> {
        if !is_after_1970() {
            return None;
        }
        if self.0.get().is_none() {
            // Another thread may have been faster.
            let _ = self.0.set(Ticketer::new().ok()?);
        }
        self.0.get()
    }
}

fn is_after_1970() -> bool {
    SystemTime::now() >= UNIX_EPOCH
}

impl ProducesTickets for Tickets {
    fn enabled(&self) -> bool {
        is_after_1970()
    }

    fn lifetime(&self) -> u32 {
        LIFETIME
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        self.tickets()?.encrypt(plain)
    }

    fn decrypt(&self, cipher: &[u8]) -> Option<Vec<u8>> {
        self.tickets()?.decrypt(cipher)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tickets_are_read_by_what_made_them() {
        let tickets = Tickets::new().unwrap();
        let sealed = tickets.encrypt(b"session").unwrap();
        assert_eq!(tickets.decrypt(&sealed).as_deref(), Some(&b"session"[..]));
        assert_eq!(Tickets::new().unwrap().decrypt(&sealed), None);
        assert_eq!(tickets.lifetime(), Ticketer::new().unwrap().lifetime());
        // Made later, as where the clock was wrong at the start.
        let late = Tickets::default();
        assert!(late.encrypt(b"session").is_some());
    }

    #[test]
    fn any_number_of_seconds_is_a_time() {
        assert_eq!(after_1970(5), UNIX_EPOCH + Duration::from_secs(5));
        assert!(after_1970(u64::MAX) > after_1970(5));
    }
}
