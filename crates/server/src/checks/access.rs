//! Address rules: who may ask at all.

use super::{CheckInput, Decision, Network, Rejection};
use crate::transport::Peer;

/// Networks that may ask, and networks that may not. The smallest network that an address is in
/// decides; where none is, an address passes unless there are networks that are allowed.
#[derive(Debug)]
pub(crate) struct Access {
    /// From small to large; of two of one size those that are refused first.
    rules: Vec<(Network, bool)>,
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

    /// What is asked for, by the key of the configuration.
    pub(super) fn describe(&self) -> Vec<(&'static str, String)> {
        let list = |allowed| {
            let rules = self.rules.iter().filter(move |(_, other)| *other == allowed);
            rules.map(|(network, _)| network.to_string()).collect::<Vec<_>>().join(", ")
        };
        vec![("allow", list(true)), ("deny", list(false))]
    }

    /// A client without address is in no network.
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
    fn the_smallest_network_decides() {
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
            // Of one size the refusal counts.
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
