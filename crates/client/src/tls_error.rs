//! Errors of TLS as sentences.

use std::io;

use rustls::{CertificateError, Error, OtherError};

/// Describes why a TLS handshake with a server failed.
#[must_use]
pub fn describe_tls_error(error: &io::Error) -> String {
    match error.get_ref().and_then(|inner| inner.downcast_ref()) {
        Some(Error::InvalidCertificate(reason)) => {
            format!("the certificate is rejected: {}", describe_certificate_error(reason))
        }
        Some(Error::InvalidMessage(_)) => "the server did not respond with TLS".to_owned(),
        Some(Error::AlertReceived(alert)) => {
            format!("the server sent the TLS alert {}", snake_case(&format!("{alert:?}")))
        }
        _ => error.to_string(),
    }
}

/// Describes why a certificate was rejected, in a sentence about it.
#[must_use]
pub fn describe_certificate_error(reason: &CertificateError) -> String {
    let text = match reason {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => "it has expired",
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "it is not valid yet"
        }
        CertificateError::Revoked => "it is revoked",
        CertificateError::UnknownIssuer => "no known authority has issued it",
        CertificateError::UnknownRevocationStatus => "no revocation list covers it",
        CertificateError::ExpiredRevocationList
        | CertificateError::ExpiredRevocationListContext { .. } => {
            "the revocation list that covers it has expired"
        }
        CertificateError::BadEncoding => "its encoding is invalid",
        CertificateError::BadSignature => "its signature is invalid",
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "its extended key usage does not permit this use"
        }
        CertificateError::UnhandledCriticalExtension => "it has an unknown critical extension",
        CertificateError::NotValidForNameContext { expected, .. } => {
            return format!("it is not valid for {}", expected.to_str());
        }
        CertificateError::Other(error) if is(error, &webpki::Error::CaUsedAsEndEntity) => {
            "it is a CA certificate, as many self-signed certificates are"
        }
        CertificateError::Other(error) if is(error, &webpki::Error::UnsupportedCertVersion) => {
            "its X.509 version is not 3"
        }
        other => return format!("it is invalid ({other})"),
    };
    text.to_owned()
}

fn is(error: &OtherError, wanted: &webpki::Error) -> bool {
    error.0.downcast_ref() == Some(wanted)
}

/// Returns the name of a variant in snake case: `HandshakeFailure` is `handshake_failure` in RFC 8446. For enumerations of
/// other crates that have no text but that of `Debug`.
#[must_use]
pub fn snake_case(name: &str) -> String {
    let mut text = String::new();
    for c in name.chars() {
        if c.is_ascii_uppercase() && !text.is_empty() {
            text.push('_');
        }
        text.push(c.to_ascii_lowercase());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::{AlertDescription, InvalidMessage};

    #[test]
    fn errors_are_sentences_without_names_of_types() {
        let describe = |error| describe_tls_error(&io::Error::other::<Error>(error));
        assert_eq!(
            describe(Error::InvalidCertificate(CertificateError::UnknownIssuer)),
            "the certificate is rejected: no known authority has issued it"
        );
        assert_eq!(
            describe(Error::AlertReceived(AlertDescription::HandshakeFailure)),
            "the server sent the TLS alert handshake_failure"
        );
        assert_eq!(
            describe(Error::InvalidMessage(InvalidMessage::InvalidContentType)),
            "the server did not respond with TLS"
        );
        let reset = io::Error::from(io::ErrorKind::ConnectionReset);
        assert_eq!(describe_tls_error(&reset), "connection reset");
    }
}
