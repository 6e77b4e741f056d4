//! Groups for unit tests.

use std::path::Path;

use dunlin_config::{Config, Overrides};

use crate::group::Group;

/// A group with further keys of the table and an upstream for each weight.
pub(crate) fn group(keys: &str, weights: &[u32]) -> Group {
    let upstreams = weights.iter().enumerate();
    let upstreams =
        upstreams.map(|(at, weight)| format!("{{ url = 'http://{at}.test', weight = {weight} }}"));
    let upstreams = upstreams.collect::<Vec<_>>().join(", ");
    let text = format!(
        "[[listen]]\naddress = ':1'\n[[site]]\n[[site.route]]\npath = '/*'\n\
         proxy = {{ to = [{upstreams}], {keys} }}"
    );
    let config = Config::parse(&text, Path::new("/d.toml"), &Overrides::default()).unwrap();
    let site = config.sites.iter().next().unwrap();
    Group::new(site.route(b"/").handler.proxy().unwrap())
}
