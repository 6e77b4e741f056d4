//! Servers whose certificates are not verified.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature,
    verify_tls13_signature_with_raw_key,
};
use rustls::pki_types::{
    CertificateDer, ServerName, SignatureVerificationAlgorithm, SubjectPublicKeyInfoDer, UnixTime,
};
use rustls::{CertificateError, DigitallySignedStruct, Error, PeerMisbehaved, SignatureScheme};
use x509_parser::x509::X509Version;

/// Accepts every certificate, of any issuer and for any name, whose key the server has.
#[derive(Debug)]
pub struct AnyCertificate(Arc<CryptoProvider>);

impl AnyCertificate {
    /// Creates a verifier that checks signatures with the algorithms of `provider`.
    pub fn new(provider: Arc<CryptoProvider>) -> Self {
        Self(provider)
    }
}

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        match key_of_version_1(certificate) {
            Some(key) => verify_with_key(message, &key, signed, algorithms),
            None => verify_tls12_signature(message, certificate, signed, algorithms),
        }
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        match key_of_version_1(certificate) {
            Some(key) => verify_tls13_signature_with_raw_key(message, &key, signed, algorithms),
            None => verify_tls13_signature(message, certificate, signed, algorithms),
        }
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// Returns the public key of a certificate of version 1, which webpki does not read; `None` for others.
fn key_of_version_1(certificate: &CertificateDer<'_>) -> Option<SubjectPublicKeyInfoDer<'static>> {
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate).ok()?;
    (parsed.version() == X509Version::V1)
        .then(|| SubjectPublicKeyInfoDer::from(parsed.public_key().raw.to_vec()))
}

/// Verifies a signature of TLS 1.2 by a public key.
///
/// # Errors
/// The signature is not that of the key, or of a scheme that was not offered.
fn verify_with_key(
    message: &[u8],
    key: &SubjectPublicKeyInfoDer<'_>,
    signed: &DigitallySignedStruct,
    algorithms: &WebPkiSupportedAlgorithms,
) -> Result<HandshakeSignatureValid, Error> {
    let key = webpki::RawPublicKeyEntity::try_from(key)
        .map_err(|_| Error::InvalidCertificate(CertificateError::BadEncoding))?;
    let (_, algorithms) = algorithms
        .mapping
        .iter()
        .find(|(scheme, _)| *scheme == signed.scheme)
        .ok_or(PeerMisbehaved::SignedHandshakeWithUnadvertisedSigScheme)?;
    let is_valid = |algorithm: &&dyn SignatureVerificationAlgorithm| {
        key.verify_signature(*algorithm, message, signed.signature()).is_ok()
    };
    match algorithms.iter().any(is_valid) {
        true => Ok(HandshakeSignatureValid::assertion()),
        false => Err(CertificateError::BadSignature.into()),
    }
}
