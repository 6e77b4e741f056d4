//! Servers whose certificate is itself one of the trusted ones. That of `openssl req -x509` is one of an authority, which webpki
//! accepts as an issuer alone.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, OtherError, SignatureScheme};
use x509_parser::prelude::X509Certificate;

/// Verifies certificates as webpki does, and accepts one of an authority if exactly this certificate is trusted.
#[derive(Debug)]
pub(crate) struct TrustedItself {
    pub(crate) chains: Arc<WebPkiServerVerifier>,
    pub(crate) trusted: Vec<CertificateDer<'static>>,
}

impl ServerCertVerifier for TrustedItself {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verified =
            self.chains.verify_server_cert(certificate, intermediates, name, ocsp_response, now);
        let Err(error) = verified else { return verified };
        if !is_authority(&error) || !self.trusted.contains(certificate) {
            return Err(error);
        }
        verify_server_name(&ParsedCertificate::try_from(certificate)?, name)?;
        check(certificate, now)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chains.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chains.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.chains.supported_verify_schemes()
    }
}

fn is_authority(error: &Error) -> bool {
    let Error::InvalidCertificate(CertificateError::Other(OtherError(error))) = error else {
        return false;
    };
    matches!(error.downcast_ref(), Some(webpki::Error::CaUsedAsEndEntity))
}

/// Checks the time and the use of a certificate.
fn check(certificate: &[u8], now: UnixTime) -> Result<(), Error> {
    let (_, parsed): (_, X509Certificate<'_>) = x509_parser::parse_x509_certificate(certificate)
        .map_err(|_| CertificateError::BadEncoding)?;
    let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    let validity = parsed.validity();
    if now < validity.not_before.timestamp() {
        return Err(CertificateError::NotValidYet.into());
    }
    if now > validity.not_after.timestamp() {
        return Err(CertificateError::Expired.into());
    }
    let usage = parsed.extended_key_usage().map_err(|_| CertificateError::BadEncoding)?;
    if usage.is_some_and(|usage| !usage.value.any && !usage.value.server_auth) {
        return Err(CertificateError::InvalidPurpose.into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair, date_time_ymd};

    use super::super::certificate::provider;
    use super::*;

    fn made(name: &str, is_authority: bool) -> CertificateDer<'static> {
        let mut params = CertificateParams::new([name.to_owned()]).unwrap();
        params.not_before = date_time_ymd(2025, 1, 1);
        params.not_after = date_time_ymd(2026, 1, 1);
        if is_authority {
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        }
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().clone()
    }

    /// Verifies `certificate` at a time after 1970 if `trusted` is trusted.
    fn verify(
        trusted: &CertificateDer<'static>,
        certificate: &CertificateDer<'static>,
        name: &'static str,
        day: u64,
    ) -> Result<(), Error> {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(trusted.clone()).unwrap();
        let chains =
            WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider()).build();
        let verifier = TrustedItself { chains: chains.unwrap(), trusted: vec![trusted.clone()] };
        let now = UnixTime::since_unix_epoch(Duration::from_secs(day * 86_400));
        let name = ServerName::try_from(name).unwrap();
        verifier.verify_server_cert(certificate, &[], &name, &[], now).map(drop)
    }

    /// Days from 1970 to a day within the time of the certificates.
    const WITHIN: u64 = 55 * 365 + 100;

    #[test]
    fn a_certificate_that_is_trusted_itself_is_accepted() {
        for is_authority in [false, true] {
            let own = made("a.test", is_authority);
            assert_eq!(verify(&own, &own, "a.test", WITHIN), Ok(()), "{is_authority}");
            assert!(verify(&own, &own, "b.test", WITHIN).is_err(), "another name");
            assert!(verify(&own, &own, "a.test", WITHIN + 365).is_err(), "later");
            assert!(verify(&own, &own, "a.test", WITHIN - 365).is_err(), "earlier");
            let other = made("a.test", is_authority);
            assert!(verify(&own, &other, "a.test", WITHIN).is_err(), "another certificate");
        }
    }
}
