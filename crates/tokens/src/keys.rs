//! Sets of keys that verify tokens.

use crate::key::{Key, MAX_KEYS, Material};
use crate::{jwk, pem};

/// Keys that verify tokens.
#[derive(Debug, Clone, Default)]
pub struct KeySet {
    pub(crate) keys: Vec<Key>,
}

impl KeySet {
    /// Reads a file: public keys in PEM form, or a JSON Web Key Set. Symmetric keys are accepted.
    ///
    /// # Errors
    /// The reason why it has no usable key, without a part of it.
    pub fn of_file(text: &[u8]) -> Result<Self, String> {
        let is_json = text.trim_ascii_start().first() == Some(&b'{');
        let keys = if is_json { jwk::keys(text)? } else { pem::keys(text)? };
        Self::of(keys)
    }

    /// Reads a JSON Web Key Set that a server publishes. Symmetric keys are left out, as everyone may have read them.
    ///
    /// # Errors
    /// The reason why it has no usable key, without a part of it.
    pub fn published(text: &[u8]) -> Result<Self, String> {
        let keys = jwk::keys(text)?.into_iter();
        Self::of(keys.filter(|key| !matches!(key.material, Material::Symmetric(_))).collect())
    }

    fn of(keys: Vec<Key>) -> Result<Self, String> {
        match keys.len() {
            0 => Err("it has no key for signatures of a known kind".into()),
            1..=MAX_KEYS => Ok(Self { keys }),
            _ => Err(format!("it has more than {MAX_KEYS} keys")),
        }
    }

    /// Returns `true` if there are no keys.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }
}
