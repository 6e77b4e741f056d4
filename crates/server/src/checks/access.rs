//! Access by client address.

use super::{CheckInput, Decision, Network, Rejection};
use crate::transport::Peer;

/// Allowed and denied networks. The most specific network that contains the address decides. An address that
/// no network contains is allowed only if there is no list of allowed networks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Access {
    /// Most specific first; denied before allowed for the same prefix length.
    rules: Vec<(Network, bool)>,
    /// Whether addresses without a matching rule are allowed.
    others: bool,
}

impl Access {
    pub(crate) fn new(allow: &[Network], deny: &[Network]) -> Self {
        let denied = deny.iter().map(|&network| (network, false));
        let mut rules: Vec<_> =
            denied.chain(allow.iter().map(|&network| (network, true))).collect();
        rules.sort_by_key(|(network, _)| std::cmp::Reverse(network.prefix()));
        Self { rules, others: allow.is_empty() }
    }

    /// Describes the rules, keyed by configuration key.
    pub(crate) fn describe(&self) -> Vec<(&'static str, String)> {
        let list = |allowed| {
            let rules = self.rules.iter().filter(move |(_, other)| *other == allowed);
            rules.map(|(network, _)| network.to_string()).collect::<Vec<_>>().join(", ")
        };
        vec![("allow", list(true)), ("deny", list(false))]
    }

    /// A client without an IP address is in no network.
    fn allows(&self, client: Peer) -> bool {
        let within = |network: &Network| client.ip().is_some_and(|ip| network.contains(ip));
        let rule = self.rules.iter().find(|(network, _)| within(network));
        rule.map_or(self.others, |(_, allowed)| *allowed)
    }

    pub(super) fn check(&self, input: &CheckInput<'_, '_>) -> Decision {
        if self.allows(input.context.client.address) {
            return Decision::Allow;
        }
        Decision::Reject(Rejection::new(403))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_specific_network_decides() {
        let list = |texts: &[&str]| -> Vec<Network> {
            texts.iter().map(|text| text.parse().unwrap()).collect()
        };
        let access = Access::new(
            &list(&["10.0.0.0/8", "10.1.2.3", "2001:db8::/32"]),
            &list(&["10.1.0.0/16", "2001:db8:1::/48", "10.2.0.0/8"]),
        );
        for (address, allowed) in [
            ("10.1.2.3", true),
            ("10.1.2.4", false),
            // Deny wins over allow for the same network.
            ("10.2.0.1", false),
            ("192.0.2.1", false),
            ("2001:db8::1", true),
            ("2001:db8:1::1", false),
        ] {
            assert_eq!(access.allows(Peer::Ip(address.parse().unwrap())), allowed, "{address}");
        }
        assert!(!access.allows(Peer::Unix));
        let only_denied = Access::new(&[], &list(&["10.0.0.0/8"]));
        assert!(!only_denied.allows(Peer::Ip("10.0.0.1".parse().unwrap())));
        assert!(only_denied.allows(Peer::Ip("::1".parse().unwrap())));
    }
}
