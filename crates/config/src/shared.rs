//! The table `[shared]`: the store of the state that several servers share.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use super::error::Problem;

/// The store, with every default filled in.
#[derive(Clone)]
pub struct Shared {
    /// URLs of the store, of its sentinels, or of nodes of the cluster; at least one. They may contain a password.
    pub urls: Vec<String>,
    /// The topology that the URLs name.
    pub topology: Topology,
    /// Trusted authorities of the store's certificate; those of the system if `None`.
    pub authority: Option<PathBuf>,
    /// Begin of all keys.
    pub prefix: String,
    /// Maximum wait for a response.
    pub timeout: Duration,
    /// Position in the file, with an empty message.
    pub problem: Problem,
}

/// The topology that the URLs of a store name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Topology {
    /// The store.
    Single,
    /// Sentinels that know the master of the group with this name.
    Sentinel(String),
    /// Nodes of a cluster.
    Cluster,
}

impl Shared {
    /// Returns the hosts of the URLs, without credentials.
    pub fn hosts(&self) -> String {
        let hosts: Vec<&str> = self.urls.iter().map(|url| host_of(url)).collect();
        hosts.join(", ")
    }
}

impl PartialEq for Shared {
    fn eq(&self, other: &Self) -> bool {
        let terms = |it: &Self| {
            (
                it.urls.clone(),
                it.topology.clone(),
                it.authority.clone(),
                it.prefix.clone(),
                it.timeout,
            )
        };
        terms(self) == terms(other)
    }
}

/// Leaves out credentials.
impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("hosts", &self.hosts())
            .field("topology", &self.topology)
            .field("prefix", &self.prefix)
            .finish_non_exhaustive()
    }
}

/// Returns the host and port of a URL, or the path of a socket.
fn host_of(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let end = if url.contains("unix:") {
        rest.len()
    } else {
        rest.find(['/', '?']).unwrap_or(rest.len())
    };
    let authority = &rest[..end];
    authority.rsplit_once('@').map_or(authority, |(_, host)| host)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::{Config, Overrides};

    fn parse(table: &str, limit: &str) -> Result<Config, String> {
        let text = format!(
            "[[listen]]\naddress = ':1'\n{table}\n[[site]]\nroot = '/'\n[[site.route]]\npath = '/*'\nlimit = {{ requests = '1/s'{limit} }}\n"
        );
        Config::parse(&text, Path::new("/d.toml"), &Overrides::default()).map_err(|problems| {
            problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
        })
    }

    #[test]
    fn credentials_are_not_in_what_is_logged() {
        let table = "[shared]\nurl = 'rediss://ann:secret@store.example:6380/2'";
        let config = parse(table, ", shared = true").unwrap();
        let shared = config.shared.unwrap();
        assert_eq!(shared.hosts(), "store.example:6380");
        assert!(!format!("{shared:?}").contains("secret"));
    }

    #[test]
    fn mistakes_are_errors_with_their_reason() {
        let wrong = |table: &str, limit: &str| parse(table, limit).unwrap_err();
        assert!(wrong("", ", shared = true").contains("shared = true needs a store"));
        assert!(wrong("[shared]", "").contains("lacks the key `url`"));
        assert!(wrong("[shared]\nurl = 'http://a'", "").contains("redis://"));
        assert!(wrong("[shared]\nurl = []", "").contains("empty"));
        assert!(wrong("[shared]\nurl = ['redis://a', 'redis://b']", "").contains("cluster = true"));
        let both = "[shared]\nurl = 'redis://a'\nsentinel = 'm'\ncluster = true";
        assert!(wrong(both, "").contains("either sentinel or cluster"));
        assert!(wrong("[shared]\nurl = 'redis://a'\nprefix = 'a{b'", "").contains("prefix"));
        assert!(wrong("[shared]\nurl = 'redis://a'\ntimeout = '0s'", "").contains("timeout is 0"));
    }
}
