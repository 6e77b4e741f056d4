//! Upstreams of proxies whose names have no address.

use dunlin_config::{Config, Problem};
use futures_util::future::join_all;
use tokio::runtime::Builder;

/// Returns warnings about names of upstreams that have no address, and services without records, by the name servers that
/// the server uses. Resolving them may take seconds, so that a start and a reload do not wait for it.
pub fn unresolved_upstreams(config: &Config) -> Vec<Problem> {
    let named = config.named_upstreams();
    if named.is_empty() {
        return Vec::new();
    }
    let servers = &config.server.resolver;
    let runtime = match Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            let what = format!("proxy: names of upstreams cannot be resolved: {error}");
            return named
                .iter()
                .take(1)
                .map(|(_, problem)| problem.with_message(what.clone()))
                .collect();
        }
    };
    let lookups = named.iter().map(|(address, _)| dunlin_proxy::unresolved(servers, address));
    let results = runtime.block_on(join_all(lookups));
    let warnings = named.iter().zip(results).flat_map(|((_, problem), reasons)| {
        reasons.into_iter().map(|reason| {
            let what = format!("proxy: {reason}; requests get 502 until it can be resolved");
            problem.with_message(what)
        })
    });
    warnings.collect()
}
