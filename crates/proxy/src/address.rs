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
    match address {
        UpstreamAddress::Unix(path) => Ok(Origin::unix(path)),
        UpstreamAddress::Url(url) => Origin::from_url(url, || {
            let mut config = Arc::unwrap_or_clone(dunlin_tls::client_config(authority)?);
            config.alpn_protocols = vec![b"http/1.1".to_vec()];
            Ok(Arc::new(config))
        }),
    }
}

/// Host and port of an upstream, as its requests name them if they do not name the client's.
pub(crate) fn authority(address: &UpstreamAddress) -> &str {
    match address {
        UpstreamAddress::Unix(_) => "localhost",
        UpstreamAddress::Url(url) => url.authority(),
    }
}
