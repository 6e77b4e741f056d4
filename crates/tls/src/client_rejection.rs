//! Why a client certificate was rejected.

use std::io;

use dunlin_client::describe_certificate_error;
use rustls::{CertificateError, Error};

/// Describes why the certificate of the client made the handshake fail, in a sentence about it. Returns `None` if the
/// handshake failed for another reason; a client without a certificate is another reason.
pub fn client_rejection(error: &io::Error) -> Option<String> {
    let Error::InvalidCertificate(reason) = error.get_ref()?.downcast_ref::<Error>()? else {
        return None;
    };
    Some(match reason {
        CertificateError::UnknownIssuer => {
            "no authority in `client_authority` has issued it".to_owned()
        }
        CertificateError::UnknownRevocationStatus => {
            "`client_revoked` has no list of its issuer".to_owned()
        }
        reason => describe_certificate_error(reason),
    })
}
