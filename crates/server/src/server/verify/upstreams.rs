//! Upstreams of proxies whose names have no address.

use std::net::ToSocketAddrs;

use dunlin_config::{Config, Problem};

/// Returns warnings about names of upstreams that have no address. Resolving them may take seconds, so that a start and a reload
/// do not wait for it.
pub fn unresolved_upstreams(config: &Config) -> Vec<Problem> {
    let mut warnings = Vec::new();
    for (host, port, problem) in config.upstream_names() {
        let error = match (host.as_str(), port).to_socket_addrs() {
            Ok(addresses) if addresses.len() > 0 => continue,
            Ok(_) => "it has no address".to_owned(),
            Err(error) => error.to_string(),
        };
        let what = format!(
            "proxy: the name {host} cannot be resolved ({error}); requests get 502 until it can"
        );
        warnings.push(problem.with_message(what));
    }
    warnings
}
