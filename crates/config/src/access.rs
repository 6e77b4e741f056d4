//! The keys `allow` and `deny`, access by client address, and `any`, of whose conditions one must hold.

use std::net::IpAddr;

use super::auth::{AuthRules, auth};
use super::file::{AccessTable, Auth, Route};
use super::network::Network;
use super::report::Report;
use super::spanned::{Span, Spanned};

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

    /// Checks the keys `allow` and `deny`; `None` if neither is there.
    pub(crate) fn read(
        allowed: &Option<Networks>,
        denied: &Option<Networks>,
        report: Report<'_>,
    ) -> Option<Self> {
        if allowed.is_none() && denied.is_none() {
            return None;
        }
        if let Some(list) = allowed.as_ref().filter(|list| list.is_empty()) {
            let what = "allow: the list is empty, so that every client is rejected";
            report(&list.span, what.into());
        }
        let allow = networks("allow", list(allowed), report);
        Some(Self::new(&allow, &networks("deny", list(denied), report)))
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

/// A list of networks as it is written.
type Networks = Spanned<Vec<Spanned<String>>>;

/// Conditions of access that must all hold: one entry of `any`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Alternative {
    /// Allowed and denied networks.
    pub access: Option<AccessRules>,
    /// Authentication.
    pub auth: Option<AuthRules>,
}

impl Alternative {
    /// Checks the key `any` of a route. Those without authentication come first, since they take no time.
    pub(crate) fn read_all(route: &Route, report: Report<'_>) -> Vec<Self> {
        let tables = route.any.iter().flat_map(|list| &list.value);
        let mut all: Vec<_> = tables.filter_map(|table| Self::read(table, report)).collect();
        all.sort_by_key(|one| one.auth.is_some());
        all
    }

    fn read(table: &Spanned<AccessTable>, report: Report<'_>) -> Option<Self> {
        let AccessTable { allow, deny, auth: at } = &table.value;
        if allow.is_none() && deny.is_none() && at.is_none() {
            let what = "any: the table has no condition; write `allow`, `deny` or `auth`";
            report(&table.span, what.into());
        }
        let mut within = |place: &Span, what: String| report(place, format!("any: {what}"));
        let access = AccessRules::read(allow, deny, &mut within);
        let rules = at.as_ref().and_then(|at| auth(at, &mut within));
        if let Some(at) = at.as_ref().filter(|at| at.value == Auth::Off) {
            within(&at.span, "`auth = false` is no condition; remove it".into());
        }
        (access.is_some() || rules.is_some()).then_some(Self { access, auth: rules })
    }

    /// Describes the conditions.
    pub(crate) fn describe(&self) -> String {
        let access = self.access.iter().flat_map(AccessRules::describe);
        let access = access.filter(|(_, list)| !list.is_empty());
        let access = access.map(|(key, list)| format!("{key} {list}"));
        let auth = self.auth.iter().map(AuthRules::describe);
        access.chain(auth).collect::<Vec<_>>().join(" and ")
    }
}

fn list(texts: &Option<Networks>) -> &[Spanned<String>] {
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
