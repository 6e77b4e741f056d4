//! The names of clients in the store that servers share.

use std::fmt;

use aws_lc_rs::hmac::{self, HMAC_SHA256};

/// The identity of a client within a server: a hash of its address or user.
pub type ClientId = [u8; 16];

/// The secret of a fleet by which clients have their names in the store. Without it, a reader of the store could find the address by
/// trying all of them.
#[derive(Clone)]
pub struct NameKey(hmac::Key);

impl NameKey {
    /// Makes the key of a secret.
    pub fn new(secret: &[u8; 32]) -> Self {
        Self(hmac::Key::new(HMAC_SHA256, secret))
    }

    /// Returns the name of a client: HMAC-SHA-256 of its ID, truncated.
    pub fn name(&self, client: &ClientId) -> ClientId {
        let mut name = [0; 16];
        name.copy_from_slice(&hmac::sign(&self.0, client).as_ref()[..16]);
        name
    }
}

impl fmt::Debug for NameKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NameKey")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_depends_on_the_secret() {
        let (one, same, other) =
            (NameKey::new(&[1; 32]), NameKey::new(&[1; 32]), NameKey::new(&[2; 32]));
        let client = [7; 16];
        assert_eq!(one.name(&client), same.name(&client));
        assert_ne!(one.name(&client), other.name(&client));
        assert_ne!(one.name(&client), one.name(&[8; 16]));
        assert_ne!(one.name(&client), client);
    }
}
