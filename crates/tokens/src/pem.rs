//! Public keys in PEM form (RFC 7468 §13).

use rustls::pki_types::SubjectPublicKeyInfoDer;
use rustls::pki_types::pem::PemObject;
use x509_parser::prelude::FromDer;
use x509_parser::public_key::PublicKey;
use x509_parser::x509::SubjectPublicKeyInfo;

use crate::key::{Key, Material};

/// The curve Ed25519 as an algorithm (RFC 8410 §3), and the curves of RFC 5480 §2.1.1.1.
const ED25519: &str = "1.3.101.112";
const P256: &str = "1.2.840.10045.3.1.7";
const P384: &str = "1.3.132.0.34";
const P521: &str = "1.3.132.0.35";

/// Returns the public keys of a text.
///
/// # Errors
/// The text has none, or one of an unknown kind.
pub(crate) fn keys(text: &[u8]) -> Result<Vec<Key>, String> {
    let mut keys = Vec::new();
    for der in SubjectPublicKeyInfoDer::pem_slice_iter(text) {
        let der = der.map_err(|_| "it is malformed")?;
        let material = material(&der)?;
        keys.push(Key { id: None, algorithm: None, material });
    }
    if !keys.is_empty() {
        return Ok(keys);
    }
    let has = |part: &str| contains(text, part.as_bytes());
    if has("PRIVATE KEY-----") {
        return Err(
            "it has a private key; `openssl pkey -in FILE -pubout` prints the public one".into()
        );
    }
    if has("BEGIN CERTIFICATE-----") {
        return Err(
            "it has a certificate; `openssl x509 -in FILE -noout -pubkey` prints its public key"
                .into(),
        );
    }
    Err("it is neither a public key in PEM form (BEGIN PUBLIC KEY) nor a JSON Web Key Set".into())
}

/// Returns `true` if the text has that part.
fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

fn material(der: &[u8]) -> Result<Material, String> {
    let (_, info) = SubjectPublicKeyInfo::from_der(der).map_err(|_| "its key is malformed")?;
    let bits = info.subject_public_key.data.to_vec();
    if info.algorithm.algorithm.to_id_string() == ED25519 {
        return Ok(Material::Ed25519(bits));
    }
    match info.parsed() {
        Ok(PublicKey::RSA(key)) => Ok(Material::Rsa {
            modulus: without_zeros(key.modulus),
            exponent: without_zeros(key.exponent),
        }),
        Ok(PublicKey::EC(_)) => {
            let curve = info.algorithm.parameters.as_ref();
            let curve = curve.and_then(|curve| curve.as_oid().ok()).map(|oid| oid.to_id_string());
            match curve.as_deref() {
                Some(P256) => Ok(Material::P256(bits)),
                Some(P384) => Ok(Material::P384(bits)),
                Some(P521) => Ok(Material::P521(bits)),
                _ => Err("the curve of its key is not P-256, P-384 or P-521".into()),
            }
        }
        _ => Err("its key is not of RSA, an elliptic curve or Ed25519".into()),
    }
}

/// Returns an unsigned number without leading zeros.
pub(crate) fn without_zeros(number: &[u8]) -> Vec<u8> {
    let zeros = number.iter().take_while(|&&byte| byte == 0).count();
    number[zeros..].to_vec()
}
