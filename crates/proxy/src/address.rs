//! The client's view of an upstream.

use std::path::Path;
use std::sync::Arc;

use dunlin_client::Origin;
use dunlin_config::UpstreamAddress;

/// The origin of an upstream. `authority` is the file of the authorities that are trusted.
///
/// # Errors
/// The upstream needs TLS, and no authority can be trusted: the reason.
pub(crate) fn origin(
    address: &UpstreamAddress,
    authority: Option<&Path>,
) -> Result<Origin, String> {
    let (url, protocol) = match address {
        UpstreamAddress::Unix(path) => return Ok(Origin::unix(path)),
        UpstreamAddress::Url(url) => (url, &b"http/1.1"[..]),
        UpstreamAddress::Http2(url) => (url, &b"h2"[..]),
    };
    let origin = Origin::from_url(url, || {
        let mut config = Arc::unwrap_or_clone(dunlin_tls::client_config(authority)?);
        config.alpn_protocols = vec![protocol.to_vec()];
        Ok(Arc::new(config))
    })?;
    Ok(if address.is_http2() { origin.with_prior_knowledge() } else { origin })
}

/// Host and port of an upstream, as its requests name them if they do not name the client's.
pub(crate) fn authority(address: &UpstreamAddress) -> &str {
    address.url().map_or("localhost", |url| url.authority())
}
