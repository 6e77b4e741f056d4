//! The replicas of a service, by its SRV records.

use std::net::SocketAddr;

use tokio::runtime::Builder;

/// The addresses of the servers that the SRV records of `name` have, such as `_http._tcp.web.example.com`. `resolvers` are the
/// name servers, or those of the system if there are none. It blocks for seconds if they do not respond.
///
/// # Errors
/// The name has no records, or no name server has responded.
pub fn replicas(name: &str, resolvers: &[SocketAddr]) -> Result<Vec<SocketAddr>, String> {
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| format!("resolving {name} failed: {error}"))?;
    runtime.block_on(dunlin_proxy::replicas(resolvers, name))
}
