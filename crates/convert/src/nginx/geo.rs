//! `geo`: values by networks, or by ranges of addresses.

use std::collections::HashMap;
use std::net::Ipv4Addr;

use dunlin_config::Network;

use super::context::Context;
use super::variables::Constants;
use crate::directive::Directive;
use crate::map::{Map, OTHER};

/// Most networks of which the ranges of a `geo` consist.
const MAX_NETWORKS: usize = 65_536;

/// The first and the last address of a range, and its value.
type Range = (u32, u32, String);

impl Context<'_> {
    /// Returns the map of a `geo`.
    ///
    /// # Errors
    /// What has no counterpart.
    pub(super) fn geo(&mut self, name: &str, directive: &Directive) -> Result<Map, String> {
        let from = match &directive.words[..] {
            [_] => "{client}".to_owned(),
            [address, _] => self.values_template(address, &Constants::new(), |_| false)?,
            _ => return Err("it has no variable".to_owned()),
        };
        // The last value of a network holds.
        let mut values: HashMap<String, String> = HashMap::new();
        let children = directive.children();
        let has_ranges = children.iter().any(|entry| entry.name == "ranges");
        let mut ranges = Vec::new();
        for entry in children {
            let value = entry.word(0);
            match entry.name.as_str() {
                "include" | "ranges" | "volatile" => {}
                "proxy" | "proxy_recursive" => return Err(format!("`{}` of geo", entry.name)),
                "delete" if has_ranges => insert(&mut ranges, range(value)?, None),
                "delete" => drop(values.remove(value)),
                _ if value.contains(['{', '}', '$']) => return Err(format!("{value}: a brace")),
                "default" => drop(values.insert(OTHER.to_owned(), value.to_owned())),
                text if has_ranges => insert(&mut ranges, range(text)?, Some(value)),
                network => {
                    network
                        .parse::<Network>()
                        .map_err(|_| format!("{network} is not a network"))?;
                    values.insert(network.to_owned(), value.to_owned());
                }
            }
        }
        for (first, last, value) in ranges {
            values
                .extend(networks(first, last).into_iter().map(|network| (network, value.clone())));
            if values.len() > MAX_NETWORKS {
                return Err(format!("its ranges are more than {MAX_NETWORKS} networks"));
            }
        }
        let mut entries: Vec<(String, String)> = values.into_iter().collect();
        entries.sort();
        Ok(Map { entries, ..Map::new(name, from) })
    }
}

/// Returns the addresses of a range: `192.0.2.0-192.0.2.7`.
fn range(text: &str) -> Result<(u32, u32), String> {
    let address = |text: &str| text.trim().parse::<Ipv4Addr>().ok().map(u32::from);
    let ends = text.split_once('-');
    ends.and_then(|(first, last)| Some((address(first)?, address(last)?)))
        .filter(|(first, last)| first <= last)
        .ok_or_else(|| format!("{text} is not a range of IPv4 addresses"))
}

/// Gives a range of addresses a value, or none, in place of what they have.
fn insert(all: &mut Vec<Range>, (first, last): (u32, u32), value: Option<&str>) {
    let mut kept = Vec::with_capacity(all.len() + 2);
    for (start, end, text) in all.drain(..) {
        if end < first || start > last {
            kept.push((start, end, text));
            continue;
        }
        if start < first {
            kept.push((start, first - 1, text.clone()));
        }
        if end > last {
            kept.push((last + 1, end, text));
        }
    }
    kept.extend(value.map(|value| (first, last, value.to_owned())));
    *all = kept;
}

/// Returns the networks of which a range consists.
fn networks(first: u32, last: u32) -> Vec<String> {
    let mut all = Vec::new();
    let mut at = u64::from(first);
    while at <= u64::from(last) {
        let left = u64::from(last) - at + 1;
        let aligned = if at == 0 { 32 } else { at.trailing_zeros().min(32) };
        let bits = aligned.min(left.ilog2());
        // The range has addresses of 32 bits.
        let address = Ipv4Addr::from(u32::try_from(at).unwrap_or(u32::MAX));
        all.push(format!("{address}/{}", 32 - bits));
        at += 1 << bits;
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(text: &str) -> u32 {
        u32::from(text.parse::<Ipv4Addr>().unwrap())
    }

    #[test]
    fn ranges_are_networks() {
        for (first, last, expected) in [
            ("10.0.0.0", "10.255.255.255", vec!["10.0.0.0/8"]),
            ("0.0.0.0", "255.255.255.255", vec!["0.0.0.0/0"]),
            ("127.0.0.1", "127.0.0.4", vec!["127.0.0.1/32", "127.0.0.2/31", "127.0.0.4/32"]),
            ("255.255.255.255", "255.255.255.255", vec!["255.255.255.255/32"]),
        ] {
            assert_eq!(networks(number(first), number(last)), expected);
        }
    }

    #[test]
    fn later_ranges_take_the_place_of_earlier_ones() {
        let mut all = Vec::new();
        insert(&mut all, (0, 255), Some("a"));
        insert(&mut all, (1, 2), Some("b"));
        insert(&mut all, (250, 300), None);
        insert(&mut all, (1, 1), Some("c"));
        all.sort();
        let shown: Vec<_> =
            all.iter().map(|(first, last, text)| (*first, *last, &**text)).collect();
        assert_eq!(shown, [(0, 0, "a"), (1, 1, "c"), (2, 2, "b"), (3, 249, "a")]);
        assert!(range("10.0.0.2-10.0.0.1").is_err());
        assert!(range("10.0.0.0/8").is_err());
    }
}
