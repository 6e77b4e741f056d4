//! Upstreams of proxies, and workers of scripts, whose names have no address.

use dunlin_config::{Config, Problem};
use futures_util::future::join_all;
use tokio::runtime::Builder;

/// Returns warnings about names of upstreams and workers that have no address, and services without records, by the name servers that
/// the server uses. Resolving them may take seconds, so that a start and a reload do not wait for it.
pub fn unresolved_names(config: &Config) -> Vec<Problem> {
    let names = config.resolved_names();
    let Some(first) = names.first() else { return Vec::new() };
    let servers = &config.server.resolver;
    let runtime = match Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            let what = format!("{}: names cannot be resolved: {error}", first.key);
            return vec![first.problem.with_message(what)];
        }
    };
    let lookups = names.iter().map(|it| dunlin_dns::unresolved(servers, &it.name, it.port));
    let results = runtime.block_on(join_all(lookups));
    let warnings = names.iter().zip(results).flat_map(|(it, reasons)| {
        reasons.into_iter().map(|reason| {
            let what = format!("{}: {reason}; requests get 502 until it can be resolved", it.key);
            it.problem.with_message(what)
        })
    });
    warnings.collect()
}
