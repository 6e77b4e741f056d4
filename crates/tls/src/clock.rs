//! The wall clock for TLS. The clocks of the libraries panic before 1970, where a machine without a clock battery can
//! start.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustls::crypto::aws_lc_rs::Ticketer;
use rustls::pki_types::UnixTime;
use rustls::server::ProducesTickets;
use rustls::time_provider::TimeProvider;

/// The time for certificates and tickets, never before 1970.
#[derive(Debug)]
pub(crate) struct WallClock;

impl TimeProvider for WallClock {
    fn current_time(&self) -> Option<UnixTime> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Some(UnixTime::since_unix_epoch(now))
    }
}

/// Returns a Unix time, at most the end of the year 9999. Files may contain any number.
pub(crate) fn after_1970(seconds: u64) -> SystemTime {
    const LAST: u64 = 253_402_300_799;
    UNIX_EPOCH + Duration::from_secs(seconds.min(LAST))
}

/// Session tickets, whose keys rotate every six hours. Disabled before 1970.
#[derive(Debug, Default)]
pub(crate) struct Tickets(OnceLock<Arc<dyn ProducesTickets>>);

/// Ticket lifetime: twice the rotation interval, as in [`Ticketer`].
const LIFETIME: u32 = 12 * 60 * 60;

impl Tickets {
    /// # Errors
    /// When the system provides no random numbers.
    pub(crate) fn new() -> Result<Self, rustls::Error> {
        let tickets = Self::default();
        if is_after_1970() {
            // The cell is empty.
            let _ = tickets.0.set(Ticketer::new()?);
        }
        Ok(tickets)
    }

    /// Returns the ticketer; created now if the clock was before 1970 at start.
    fn tickets(&self) -> Option<&Arc<dyn ProducesTickets>> {
        if !is_after_1970() {
            return None;
        }
        if self.0.get().is_none() {
            // Another thread may have set it first.
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
    fn tickets_are_decrypted_by_the_ticketer_that_made_them() {
        let tickets = Tickets::new().unwrap();
        let sealed = tickets.encrypt(b"session").unwrap();
        assert_eq!(tickets.decrypt(&sealed).as_deref(), Some(&b"session"[..]));
        assert_eq!(Tickets::new().unwrap().decrypt(&sealed), None);
        assert_eq!(tickets.lifetime(), Ticketer::new().unwrap().lifetime());
        // Created late, as with a clock that was wrong at start.
        let late = Tickets::default();
        assert!(late.encrypt(b"session").is_some());
    }

    #[test]
    fn after_1970_accepts_any_number() {
        assert_eq!(after_1970(5), UNIX_EPOCH + Duration::from_secs(5));
        assert!(after_1970(u64::MAX) > after_1970(5));
    }
}
