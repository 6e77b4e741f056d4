//! Signatures of tokens (RFC 7518 §3, RFC 8037 §3.1).

use aws_lc_rs::signature::{self, RsaParameters, RsaPublicKeyComponents, UnparsedPublicKey};
use aws_lc_rs::{hmac, signature::VerificationAlgorithm};
use dunlin_config::JwtAlgorithm;

use crate::key::Material;

/// Returns the algorithm of that name; `None` if it is unknown, as `none` is.
pub(crate) fn named(name: &str) -> Option<JwtAlgorithm> {
    Some(match name {
        "RS256" => JwtAlgorithm::RS256,
        "RS384" => JwtAlgorithm::RS384,
        "RS512" => JwtAlgorithm::RS512,
        "PS256" => JwtAlgorithm::PS256,
        "PS384" => JwtAlgorithm::PS384,
        "PS512" => JwtAlgorithm::PS512,
        "ES256" => JwtAlgorithm::ES256,
        "ES384" => JwtAlgorithm::ES384,
        "ES512" => JwtAlgorithm::ES512,
        // RFC 9864 names the curve.
        "EdDSA" | "Ed25519" => JwtAlgorithm::EdDSA,
        "HS256" => JwtAlgorithm::HS256,
        "HS384" => JwtAlgorithm::HS384,
        "HS512" => JwtAlgorithm::HS512,
        _ => return None,
    })
}

/// Returns `true` if `signature` is that of `message` by the key. A key of another kind than the algorithm's verifies nothing.
pub(crate) fn verifies(
    material: &Material,
    algorithm: JwtAlgorithm,
    message: &[u8],
    signature: &[u8],
) -> bool {
    match material {
        Material::Rsa { modulus, exponent } => rsa(algorithm).is_some_and(|parameters| {
            let key = RsaPublicKeyComponents { n: modulus, e: exponent };
            key.verify(parameters, message, signature).is_ok()
        }),
        Material::P256(point) if algorithm == JwtAlgorithm::ES256 => {
            is_signed(&signature::ECDSA_P256_SHA256_FIXED, point, message, signature)
        }
        Material::P384(point) if algorithm == JwtAlgorithm::ES384 => {
            is_signed(&signature::ECDSA_P384_SHA384_FIXED, point, message, signature)
        }
        Material::P521(point) if algorithm == JwtAlgorithm::ES512 => {
            is_signed(&signature::ECDSA_P521_SHA512_FIXED, point, message, signature)
        }
        Material::Ed25519(point) if algorithm == JwtAlgorithm::EdDSA => {
            is_signed(&signature::ED25519, point, message, signature)
        }
        Material::Symmetric(key) => symmetric(algorithm).is_some_and(|(algorithm, least)| {
            // RFC 7518 §3.2.
            let key = Some(key).filter(|key| key.len() >= least);
            key.is_some_and(|key| {
                hmac::verify(&hmac::Key::new(algorithm, key), message, signature).is_ok()
            })
        }),
        Material::P256(_) | Material::P384(_) | Material::P521(_) | Material::Ed25519(_) => false,
    }
}

fn is_signed(
    algorithm: &'static dyn VerificationAlgorithm,
    key: &[u8],
    message: &[u8],
    signature: &[u8],
) -> bool {
    UnparsedPublicKey::new(algorithm, key).verify(message, signature).is_ok()
}

fn rsa(algorithm: JwtAlgorithm) -> Option<&'static RsaParameters> {
    Some(match algorithm {
        JwtAlgorithm::RS256 => &signature::RSA_PKCS1_2048_8192_SHA256,
        JwtAlgorithm::RS384 => &signature::RSA_PKCS1_2048_8192_SHA384,
        JwtAlgorithm::RS512 => &signature::RSA_PKCS1_2048_8192_SHA512,
        JwtAlgorithm::PS256 => &signature::RSA_PSS_2048_8192_SHA256,
        JwtAlgorithm::PS384 => &signature::RSA_PSS_2048_8192_SHA384,
        JwtAlgorithm::PS512 => &signature::RSA_PSS_2048_8192_SHA512,
        _ => return None,
    })
}

/// Returns the algorithm, and the least length of its keys in bytes.
fn symmetric(algorithm: JwtAlgorithm) -> Option<(hmac::Algorithm, usize)> {
    Some(match algorithm {
        JwtAlgorithm::HS256 => (hmac::HMAC_SHA256, 32),
        JwtAlgorithm::HS384 => (hmac::HMAC_SHA384, 48),
        JwtAlgorithm::HS512 => (hmac::HMAC_SHA512, 64),
        _ => return None,
    })
}
