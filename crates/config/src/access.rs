//! The keys `allow` and `deny`: access by client address.

use std::net::IpAddr;

use super::file::Route;
use super::network::Network;
use super::report::Report;
use super::spanned::Spanned;

/// Allowed and denied networks. The most specific network that contains the address decides. An address that
/// no network contains is allowed only if there is no list of allowed networks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessRules {
    /// Most specific first; denied before allowed for the same prefix length.
    rules: Vec<(Network, bool)>,
    /// Addresses without a matching rule are allowed.
    others: bool,
}

impl AccessRules {
    /// Creates rules from a list of allowed and a list of denied networks.
    pub fn new(allow: &[Network], deny: &[Network]) -> Self {
        let denied = deny.iter().map(|&network| (network, false));
        let mut rules: Vec<_> =
            denied.chain(allow.iter().map(|&network| (network, true))).collect();
        rules.sort_by_key(|(network, _)| std::cmp::Reverse(network.prefix()));
        Self { rules, others: allow.is_empty() }
    }

    /// Checks the keys `allow` and `deny` of a route; `None` if it has neither.
    pub(crate) fn read(route: &Route, report: Report<'_>) -> Option<Self> {
        if route.allow.is_none() && route.deny.is_none() {
            return None;
        }
        if let Some(list) = route.allow.as_ref().filter(|list| list.is_empty()) {
            let what = "allow: the list is empty, so that every client is rejected";
            report(&list.span, what.into());
        }
        let allow = networks("allow", list(&route.allow), report);
        Some(Self::new(&allow, &networks("deny", list(&route.deny), report)))
    }

    /// Describes the rules, keyed by configuration key.
    pub(crate) fn describe(&self) -> Vec<(&'static str, String)> {
        let list = |allowed| {
            let rules = self.rules.iter().filter(move |(_, other)| *other == allowed);
            rules.map(|(network, _)| network.to_string()).collect::<Vec<_>>().join(", ")
        };
        vec![("allow", list(true)), ("deny", list(false))]
    }

    /// Returns `true` if the client at `address` is allowed. A client without an IP address is in no network.
    pub fn allows(&self, address: Option<IpAddr>) -> bool {
        let within = |network: &Network| address.is_some_and(|ip| network.contains(ip));
        let rule = self.rules.iter().find(|(network, _)| within(network));
        rule.map_or(self.others, |(_, allowed)| *allowed)
    }
}

fn list(texts: &Option<Spanned<Vec<Spanned<String>>>>) -> &[Spanned<String>] {
    texts.as_ref().map_or(&[], |texts| &texts.value)
}

/// Returns the networks of a list.
pub(crate) fn networks(key: &str, texts: &[Spanned<String>], report: Report<'_>) -> Vec<Network> {
    let read = |text: &Spanned<String>| {
        let network = text.parse::<Network>();
        network.map_err(|what| report(&text.span, format!("{key}: {what}"))).ok()
    };
    texts.iter().filter_map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_specific_network_decides() {
        let list = |texts: &[&str]| -> Vec<Network> {
            texts.iter().map(|text| text.parse().unwrap()).collect()
        };
        let access = AccessRules::new(
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
            assert_eq!(access.allows(Some(address.parse().unwrap())), allowed, "{address}");
        }
        assert!(!access.allows(None));
        let only_denied = AccessRules::new(&[], &list(&["10.0.0.0/8"]));
        assert!(!only_denied.allows(Some("10.0.0.1".parse().unwrap())));
        assert!(only_denied.allows(Some("::1".parse().unwrap())));
    }
}
