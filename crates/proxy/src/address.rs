//! The client's view of an upstream.

use std::sync::Arc;

use dunlin_client::Origin;
use dunlin_config::{Proxy, UpstreamAddress};

use crate::tls::Outcome;

/// Returns the origin of an upstream. `tls` is for one with TLS.
///
/// # Errors
/// The upstream needs TLS, and there is no configuration of it: the reason.
pub(crate) fn origin(
    address: &UpstreamAddress,
    rules: &Proxy,
    tls: &Outcome,
) -> Result<Origin, String> {
    let (url, protocol) = match address {
        UpstreamAddress::Unix(path) => return Ok(Origin::unix(path)),
        UpstreamAddress::Url(url) => (url, &b"http/1.1"[..]),
        UpstreamAddress::Http2(url) => (url, &b"h2"[..]),
        UpstreamAddress::Service(_) => return Err("a service is not a server".into()),
    };
    let mut origin = Origin::tcp(url.host(), url.port());
    if url.is_secure() {
        let mut config = dunlin_tls::ClientConfig::clone(tls.as_ref().map_err(String::clone)?);
        config.alpn_protocols = vec![protocol.to_vec()];
        let config = Arc::new(config);
        origin = match &rules.server_name {
            Some(name) => origin.with_tls_name(config, name)?,
            None => origin.with_tls(config)?,
        };
    }
    Ok(if address.is_http2() { origin.with_prior_knowledge() } else { origin })
}

/// Host and port of an upstream, as its requests name them if they do not name the client's.
pub(crate) fn authority(address: &UpstreamAddress) -> &str {
    address.url().map_or("localhost", |url| url.authority())
}
