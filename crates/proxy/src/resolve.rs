//! The addresses of an upstream whose URL has a name.

use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use dunlin_net::clock;
use tokio::net::lookup_host;

use crate::failure::{Failure, Kind};
use crate::upstream::Upstream;

/// The addresses that a name has had lately.
#[derive(Debug, Default)]
pub(crate) struct Resolved {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    addresses: Vec<SocketAddr>,
    /// When the name is resolved again.
    until: Option<Instant>,
    /// Number of the address at which the next connection begins.
    next: usize,
}

/// How long an answer is used.
const TIME: Duration = Duration::from_secs(10);

impl Upstream {
    /// The addresses to connect to, in the order in which to try them: each connection begins with another one. `None` for a
    /// Unix socket. If the name cannot be resolved, its last addresses are used.
    ///
    /// # Errors
    /// The name has no address, and had none before.
    pub(crate) async fn addresses(&self) -> Result<Option<Vec<SocketAddr>>, Failure> {
        let Some(url) = self.address.url() else { return Ok(None) };
        let host = url.host().trim_start_matches('[').trim_end_matches(']');
        if let Ok(address) = host.parse() {
            return Ok(Some(vec![SocketAddr::new(address, url.port())]));
        }
        let now = clock::now();
        if let Some(addresses) = self.resolved.known(Some(now)) {
            return Ok(Some(addresses));
        }
        let answer = lookup_host((host, url.port())).await.map(Iterator::collect::<Vec<_>>);
        let reason = match answer {
            Ok(addresses) if !addresses.is_empty() => {
                self.resolved.set(addresses, now + TIME);
                String::new()
            }
            Ok(_) => format!("{host} has no address"),
            Err(error) => format!("resolving {host} failed: {error}"),
        };
        match self.resolved.known(None) {
            Some(addresses) => {
                if !reason.is_empty() {
                    self.log(|name| {
                        tracing::warn!(upstream = name, "{reason}; its last addresses are used");
                    });
                }
                Ok(Some(addresses))
            }
            None => Err(Failure::new(Kind::Resolve, reason)),
        }
    }
}

impl Resolved {
    /// The addresses, if there are any; with `now` only if they are not too old.
    fn known(&self, now: Option<Instant>) -> Option<Vec<SocketAddr>> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let is_old = now.is_some_and(|now| state.until.is_none_or(|until| until <= now));
        if is_old || state.addresses.is_empty() {
            return None;
        }
        let start = state.next % state.addresses.len();
        state.next = state.next.wrapping_add(1);
        let (before, after) = state.addresses.split_at(start);
        Some([after, before].concat())
    }

    fn set(&self, mut addresses: Vec<SocketAddr>, until: Instant) {
        addresses.sort();
        addresses.dedup();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        (state.addresses, state.until) = (addresses, Some(until));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_begin_with_each_address_in_turn() {
        let resolved = Resolved::default();
        let now = Instant::now();
        assert_eq!(resolved.known(Some(now)), None);
        let [a, b] = ["10.0.0.1:1", "10.0.0.2:1"].map(|text| text.parse().unwrap());
        resolved.set(vec![b, a, b], now + TIME);
        assert_eq!(resolved.known(Some(now)), Some(vec![a, b]));
        assert_eq!(resolved.known(Some(now)), Some(vec![b, a]));
        assert_eq!(resolved.known(Some(now + TIME)), None);
        assert_eq!(resolved.known(None), Some(vec![a, b]), "the last answer is kept");
    }
}
