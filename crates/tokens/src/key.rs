//! A key that verifies tokens.

use std::fmt;

use dunlin_config::JwtAlgorithm;

/// A key that verifies tokens.
#[derive(Debug, Clone)]
pub(crate) struct Key {
    /// Its id (`kid`); `None` if it has none.
    pub(crate) id: Option<String>,
    /// The algorithm that it is for; `None` for all of its kind.
    pub(crate) algorithm: Option<JwtAlgorithm>,
    pub(crate) material: Material,
}

/// The numbers of a key.
#[derive(Clone)]
pub(crate) enum Material {
    Rsa {
        modulus: Vec<u8>,
        exponent: Vec<u8>,
    },
    P256(Vec<u8>),
    P384(Vec<u8>),
    P521(Vec<u8>),
    Ed25519(Vec<u8>),
    /// It makes signatures, too.
    Symmetric(Vec<u8>),
}

impl fmt::Debug for Material {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rsa { .. } => "RSA",
            Self::P256(_) => "P-256",
            Self::P384(_) => "P-384",
            Self::P521(_) => "P-521",
            Self::Ed25519(_) => "Ed25519",
            Self::Symmetric(_) => "symmetric",
        })
    }
}

/// Maximum of keys in a set: each of them may have to be tried.
pub(crate) const MAX_KEYS: usize = 64;
