//! The addresses of an upstream whose URL has a name.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use dunlin_dns::{self as dns, PATIENCE, RETRY};
use dunlin_net::clock;

use crate::failure::{Failure, Kind};
use crate::upstream::Upstream;

/// The addresses that a name has had lately.
#[derive(Debug, Default)]
pub(crate) struct Resolved {
    /// The one address of the name that the upstream is at, where each has an upstream of its own.
    only: Option<IpAddr>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    addresses: Vec<SocketAddr>,
    /// When the name is resolved again.
    until: Option<Instant>,
    /// Number of the address at which the next connection begins.
    next: usize,
    /// The last attempt has failed, and that was logged.
    has_failed: bool,
}

impl Upstream {
    /// The addresses to connect to, in the order in which to try them: each connection begins with another one. `None` for a
    /// Unix socket. If the name cannot be resolved, its last addresses are used.
    ///
    /// # Errors
    /// The name has no address, and had none before.
    pub(crate) async fn addresses(
        &self,
        servers: &[SocketAddr],
    ) -> Result<Option<Vec<SocketAddr>>, Failure> {
        let Some(url) = self.address.url() else { return Ok(None) };
        if let Some(address) = self.resolved.only {
            return Ok(Some(vec![SocketAddr::new(address, url.port())]));
        }
        let host = url.host().trim_start_matches('[').trim_end_matches(']');
        if let Ok(address) = host.parse() {
            return Ok(Some(vec![SocketAddr::new(address, url.port())]));
        }
        if let Some(addresses) = self.resolved.fresh(clock::now()) {
            return Ok(Some(addresses));
        }
        let query = Box::pin(dns::addresses(servers, host));
        // A name with known addresses does not wait long for new ones.
        let answer = match self.resolved.begin(clock::now()) {
            true => tokio::time::timeout(PATIENCE, query)
                .await
                .unwrap_or_else(|_| Err(format!("resolving {host} takes too long"))),
            false => query.await,
        };
        let reason = match answer {
            Ok(answer) => {
                let with_port = |address| SocketAddr::new(address, url.port());
                let addresses = answer.items.into_iter().map(with_port).collect();
                if self.resolved.set(addresses, clock::now() + answer.time) {
                    tracing::info!(upstream = &*self.name, "{host} is resolved again");
                }
                None
            }
            Err(reason) => Some(reason),
        };
        match (self.resolved.last(), reason) {
            (Some(addresses), reason) => {
                if let Some(reason) = reason
                    && self.resolved.fail()
                {
                    tracing::warn!(upstream = &*self.name, "{reason}; its last addresses are used");
                }
                Ok(Some(addresses))
            }
            (None, reason) => Err(Failure::new(Kind::Resolve, reason.unwrap_or_default())),
        }
    }
}

impl Resolved {
    /// One address of the name.
    pub(crate) fn only(address: IpAddr) -> Self {
        Self { only: Some(address), ..Self::default() }
    }

    /// Whether the upstream is at this one address of its name; for `None`, at all of them.
    pub(crate) fn is_only(&self, address: Option<IpAddr>) -> bool {
        self.only == address
    }

    /// The addresses, if their time is not over.
    fn fresh(&self, now: Instant) -> Option<Vec<SocketAddr>> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.until.is_none_or(|until| until <= now) {
            return None;
        }
        state.rotated()
    }

    /// The addresses of the last answer.
    fn last(&self) -> Option<Vec<SocketAddr>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).rotated()
    }

    /// Notes that a query begins. Until its answer arrives, other requests use the last one. Returns `false` if there was none.
    fn begin(&self, now: Instant) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.addresses.is_empty() {
            return false;
        }
        state.until = Some(now + RETRY);
        true
    }

    /// Notes an answer. Returns `true` if the attempt before failed.
    fn set(&self, mut addresses: Vec<SocketAddr>, until: Instant) -> bool {
        addresses.sort();
        addresses.dedup();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        (state.addresses, state.until) = (addresses, Some(until));
        std::mem::take(&mut state.has_failed)
    }

    /// Notes that an attempt has failed. Returns `true` if the one before did not.
    fn fail(&self) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        !std::mem::replace(&mut state.has_failed, true)
    }
}

impl State {
    /// The addresses, beginning with another one each time; `None` if there are none.
    fn rotated(&mut self) -> Option<Vec<SocketAddr>> {
        if self.addresses.is_empty() {
            return None;
        }
        let start = self.next % self.addresses.len();
        self.next = self.next.wrapping_add(1);
        let (before, after) = self.addresses.split_at(start);
        Some([after, before].concat())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const TIME: Duration = Duration::from_secs(10);

    #[test]
    fn connections_begin_with_each_address_in_turn() {
        let resolved = Resolved::default();
        let now = Instant::now();
        assert_eq!(resolved.fresh(now), None);
        assert!(!resolved.begin(now));
        let [a, b] = ["10.0.0.1:1", "10.0.0.2:1"].map(|text| text.parse().unwrap());
        resolved.set(vec![b, a, b], now + TIME);
        assert_eq!(resolved.fresh(now), Some(vec![a, b]));
        assert_eq!(resolved.fresh(now), Some(vec![b, a]));
    }

    #[test]
    fn the_last_answer_is_kept_while_there_is_no_other() {
        let resolved = Resolved::default();
        let now = Instant::now();
        let a = "10.0.0.1:1".parse().unwrap();
        resolved.set(vec![a], now + TIME);
        assert_eq!(resolved.fresh(now + TIME), None);
        assert_eq!(resolved.last(), Some(vec![a]));
        // One request sends the query, and the others use the last answer meanwhile.
        assert!(resolved.begin(now + TIME));
        assert_eq!(resolved.fresh(now + TIME), Some(vec![a]));
        // Only the first failure and the next answer are logged.
        assert_eq!([resolved.fail(), resolved.fail()], [true, false]);
        assert_eq!([(); 2].map(|()| resolved.set(vec![a], now + TIME)), [true, false]);
        assert_eq!(resolved.fresh(now + TIME + RETRY), None);
    }
}
