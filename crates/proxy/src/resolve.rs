//! The addresses of an upstream whose URL has a name.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use dunlin_config::UpstreamAddress;
use dunlin_dns::{self as dns, CachedLookup};
use dunlin_http::semantics::Url;

use crate::failure::{Failure, Kind};
use crate::upstream::Upstream;

/// The addresses of a name.
#[derive(Debug)]
pub(crate) struct Resolved {
    /// The one address of the name that the upstream is at, where each has an upstream of its own.
    only: Option<IpAddr>,
    present: CachedLookup<IpAddr, [IpAddr]>,
    /// Number of the address at which the next connection begins.
    next: AtomicUsize,
}

impl Upstream {
    /// Returns the addresses to connect to, in the order in which to try them: each connection begins with another one.
    /// `None` for a Unix socket. If the name cannot be resolved, its last addresses are used.
    ///
    /// # Errors
    /// The name has no address, and had none before.
    pub(crate) async fn addresses(
        &self,
        servers: &[SocketAddr],
    ) -> Result<Option<Vec<SocketAddr>>, Failure> {
        let Some(url) = self.address.url() else { return Ok(None) };
        let host = host(url);
        let only = self.resolved.only.or_else(|| host.parse().ok());
        if let Some(address) = only {
            return Ok(Some(vec![SocketAddr::new(address, url.port())]));
        }
        let query = async |_| dns::addresses(servers, host).await;
        let addresses = self.resolved.present.get(query, sorted).await;
        let addresses = addresses.map_err(|reason| Failure::new(Kind::Resolve, reason))?;
        let with_port = |address| SocketAddr::new(address, url.port());
        Ok(Some(self.resolved.rotate(&addresses).map(with_port).collect()))
    }
}

impl Resolved {
    /// Returns all addresses of the name of `address`.
    pub(crate) fn all(address: &UpstreamAddress) -> Self {
        let names = address.url().map(|url| host(url).to_owned()).into_iter().collect();
        Self {
            only: None,
            present: CachedLookup::new("proxy", names, None),
            next: AtomicUsize::new(0),
        }
    }

    /// One address of the name.
    pub(crate) fn only(address: IpAddr) -> Self {
        let present = CachedLookup::new("proxy", Vec::new(), None);
        Self { only: Some(address), present, next: AtomicUsize::new(0) }
    }

    /// Returns `true` if the upstream is at this one address of its name; for `None`, at all of them.
    pub(crate) fn is_only(&self, address: Option<IpAddr>) -> bool {
        self.only == address
    }

    /// Returns the addresses, beginning with another one each time.
    fn rotate(&self, addresses: &[IpAddr]) -> impl Iterator<Item = IpAddr> {
        let start = self.next.fetch_add(1, Ordering::Relaxed) % addresses.len().max(1);
        let (before, after) = addresses.split_at(start);
        after.iter().chain(before).copied()
    }
}

fn host(url: &Url) -> &str {
    url.host().trim_start_matches('[').trim_end_matches(']')
}

fn sorted(answers: &[Vec<IpAddr>], _: Option<&Arc<[IpAddr]>>) -> Option<Arc<[IpAddr]>> {
    let mut addresses = answers.concat();
    addresses.sort();
    addresses.dedup();
    (!addresses.is_empty()).then(|| addresses.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_begin_with_each_address_in_turn() {
        let [a, b]: [IpAddr; 2] = ["10.0.0.1", "10.0.0.2"].map(|text| text.parse().unwrap());
        let addresses = sorted(&[vec![b, a, b]], None).unwrap();
        let resolved = Resolved::only(a);
        let next = || resolved.rotate(&addresses).collect::<Vec<_>>();
        assert_eq!([next(), next(), next()], [vec![a, b], vec![b, a], vec![a, b]]);
        assert!(sorted(&[Vec::new()], None).is_none());
    }
}
