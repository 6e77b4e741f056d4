//! Groups for unit tests.

use std::path::Path;
use std::sync::Arc;

use dunlin_config::{Config, Overrides, Proxy};

use crate::group::Group;

/// Returns a group with further keys of the table and an upstream for each weight.
pub(crate) fn group(keys: &str, weights: &[u32]) -> Group {
    let upstreams = weights.iter().enumerate();
    let upstreams =
        upstreams.map(|(at, weight)| format!("{{ url = 'http://{at}.test', weight = {weight} }}"));
    let upstreams = upstreams.collect::<Vec<_>>().join(", ");
    Group::new(&rules(&format!("to = [{upstreams}], {keys}")))
}

/// Returns the table with these keys.
pub(crate) fn rules(keys: &str) -> Arc<Proxy> {
    let text = format!(
        "[[listen]]\naddress = ':1'\n[[site]]\n[[site.route]]\npath = '/*'\nproxy = {{ {keys} }}"
    );
    let config = Config::parse(&text, Path::new("/d.toml"), &Overrides::default()).unwrap();
    let site = config.sites.iter().next().unwrap();
    Arc::clone(site.route(b"/").handler.proxy().unwrap())
}
