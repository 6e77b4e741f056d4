//! The clients with the most requests, by the Space-Saving algorithm (Metwally et al., 2005): a
//! bounded table in which a new client replaces the one with the fewest requests.

use dunlin_net::address::Peer;

/// Counters of one client.
#[derive(Debug, Clone, Copy)]
pub struct Client {
    /// The address of the client.
    pub address: Peer,
    /// Upper bound of its requests: a new client continues the count of the one that it replaces.
    pub requests: u64,
    /// Bytes of response bodies that were sent to it.
    pub sent: u64,
    /// Sum of durations in nanoseconds.
    pub sum: u64,
    /// The longest duration in nanoseconds.
    pub slowest: u64,
}

/// A bounded table of clients.
#[derive(Debug, Clone, Default)]
pub struct Clients {
    all: Vec<Client>,
}

const MAX_CLIENTS: usize = 64;

impl Clients {
    pub(super) fn count(&mut self, address: Peer, sent: u64, nanos: u64) {
        self.merge(Client { address, requests: 1, sent, sum: nanos, slowest: nanos });
    }

    pub(super) fn add(&mut self, other: &Self) {
        for client in &other.all {
            self.merge(*client);
        }
    }

    /// Returns the clients in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = &Client> {
        self.all.iter()
    }

    fn merge(&mut self, client: Client) {
        if let Some(known) = self.all.iter_mut().find(|known| known.address == client.address) {
            known.requests += client.requests;
            known.sent += client.sent;
            known.sum += client.sum;
            known.slowest = known.slowest.max(client.slowest);
        } else if self.all.len() < MAX_CLIENTS {
            self.all.push(client);
        } else if let Some(least) = self.all.iter_mut().min_by_key(|known| known.requests) {
            *least = Client { requests: least.requests + client.requests, ..client };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    #[test]
    fn the_busiest_clients_are_never_replaced() {
        let mut clients = Clients::default();
        let busy = Peer::Ip(IpAddr::from([192, 0, 2, 1]));
        for n in 0..20_000_u32 {
            clients.count(busy, 1, 1);
            clients.count(Peer::Ip(IpAddr::from(n.to_be_bytes())), 1, 1);
        }
        assert_eq!(clients.iter().count(), MAX_CLIENTS);
        let max = clients.iter().max_by_key(|client| client.requests).unwrap();
        assert_eq!(max.address, busy);
        assert!(max.requests >= 20_000);
    }
}
