//! Checks of the table `[shared]`.

use std::time::Duration;

use super::Checker;
use crate::file::{SharedTable, SiteTable};
use crate::shared::{Shared, Topology};
use crate::spanned::Spanned;

/// The schemes that the client of the store knows.
const SCHEMES: [&str; 5] = ["redis://", "rediss://", "valkey://", "valkeys://", "redis+unix://"];

impl Checker<'_> {
    /// Reports limits that several servers share where the file names no store.
    pub(super) fn reject_shared_limits(&mut self, sites: &[Spanned<SiteTable>]) {
        let routes = sites.iter().flat_map(|site| &site.value.route);
        let limits = routes.flat_map(|route| route.limit.iter().flat_map(|limits| &limits.0));
        let shared = limits.filter_map(|limit| limit.shared.as_ref());
        for at in shared.filter(|shared| shared.value) {
            let what = "limit: shared = true needs a store; write [shared] with url = \"redis://HOST:6379\"";
            self.problem(&at.span, what);
        }
    }

    pub(super) fn shared(&mut self, table: &Spanned<SharedTable>) -> Shared {
        let SharedTable { url, sentinel, cluster, authority, prefix, timeout } = &table.value;
        for url in &url.value.0 {
            if !SCHEMES.iter().any(|scheme| url.value.starts_with(scheme)) {
                self.problem(&url.span, "shared: a url begins with redis:// or rediss://");
            }
        }
        let is_cluster = *cluster == Some(true);
        let topology = match sentinel {
            Some(name) if is_cluster => {
                self.problem(&name.span, "shared: the store has either sentinel or cluster");
                Topology::Cluster
            }
            Some(name) => Topology::Sentinel(name.value.clone()),
            None if is_cluster => Topology::Cluster,
            None => Topology::Single,
        };
        match url.value.0.len() {
            0 => self.problem(&url.span, "shared: the list of urls is empty"),
            2.. if topology == Topology::Single => self.problem(
                &url.span,
                "shared: several urls need sentinel = \"NAME\", or cluster = true",
            ),
            _ => {}
        }
        let is_clean = |prefix: &str| {
            let legal = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte);
            !prefix.is_empty() && prefix.bytes().all(legal)
        };
        if let Some(prefix) = prefix.as_ref().filter(|prefix| !is_clean(&prefix.value)) {
            let what = "shared: prefix has letters, digits and `-_.:` only, and at least one";
            self.problem(&prefix.span, what);
        }
        let timeout = match timeout {
            Some(_) => self.timeout("timeout", timeout, 1),
            None => Duration::from_secs(1),
        };
        Shared {
            urls: url.value.0.iter().map(|url| url.value.clone()).collect(),
            topology,
            authority: authority.as_ref().map(|path| self.authority("shared", "authority", path)),
            prefix: prefix.as_ref().map_or_else(|| "dunlin".to_owned(), |text| text.value.clone()),
            timeout,
            problem: self.source.problem(table.span.as_ref(), String::new()),
        }
    }
}
