//! Indexes of sites by host.

use std::collections::HashMap;

use super::Site;

/// Indexes of sites by host.
#[derive(Debug, Default)]
pub(super) struct Hosts {
    /// By lower-case name.
    exact: HashMap<Vec<u8>, usize>,
    /// By the lower-case name after the `*`, including its dot.
    wildcard: HashMap<Vec<u8>, usize>,
    /// By the lower-case name before a `*` at the end, including its dot.
    any_end: HashMap<Vec<u8>, usize>,
    pub(super) default: Option<usize>,
}

impl Hosts {
    /// Adds a site, except for hosts that it has. `is_better` returns `true` if the site at an index gives way.
    pub(super) fn add(&mut self, site: &Site, is_better: impl Fn(usize) -> bool) {
        let index = site.index;
        let put = |entry: &mut usize| {
            if is_better(*entry) {
                *entry = index;
            }
        };
        if site.is_default {
            put(self.default.get_or_insert(index));
        }
        for host in &site.hosts {
            let (names, name) = match (host.strip_prefix('*'), host.strip_suffix('*')) {
                (Some(rest), _) => (&mut self.wildcard, rest),
                (None, Some(start)) => (&mut self.any_end, start),
                (None, None) => (&mut self.exact, &**host),
            };
            put(names.entry(name.as_bytes().to_vec()).or_insert(index));
        }
    }

    /// Returns `true` if a site has this host, as the file names it.
    pub(super) fn has(&self, host: &str) -> bool {
        match (host.strip_prefix('*'), host.strip_suffix('*')) {
            (Some(rest), _) => self.wildcard.contains_key(rest.as_bytes()),
            (None, Some(start)) => self.any_end.contains_key(start.as_bytes()),
            (None, None) => self.exact.contains_key(host.as_bytes()),
        }
    }

    /// Returns `true` if the site at an index has a host here.
    pub(super) fn has_site(&self, index: usize) -> bool {
        let mut named = self.exact.values().chain(self.wildcard.values());
        self.default == Some(index) || named.any(|other| *other == index)
    }

    pub(super) fn find(&self, host: &[u8]) -> Option<usize> {
        self.named(host).map(|(index, _)| index).or(self.default)
    }

    /// Returns the index of the site that names the host, and whether a wildcard matched.
    pub(super) fn named(&self, host: &[u8]) -> Option<(usize, bool)> {
        let host = host.strip_suffix(b".").unwrap_or(host);
        // No host name (RFC 1035 §2.3.4) or address is longer.
        let mut lower = [0; 255];
        let lower = lower.get_mut(..host.len())?;
        lower.copy_from_slice(host);
        lower.make_ascii_lowercase();
        let lower = &*lower;
        if let Some(&index) = self.exact.get(lower) {
            return Some((index, false));
        }
        if self.wildcard.is_empty() && self.any_end.is_empty() {
            return None;
        }
        let by_end = memchr::memchr_iter(b'.', lower)
            .filter(|&dot| dot > 0)
            .find_map(|dot| self.wildcard.get(&lower[dot..]));
        let by_start = || {
            memchr::memrchr_iter(b'.', lower)
                .filter(|&dot| dot + 1 < lower.len())
                .find_map(|dot| self.any_end.get(&lower[..=dot]))
        };
        by_end.or_else(by_start).map(|&index| (index, true))
    }
}
