//! The names of clients in the store: their hashes, keyed by a secret of the fleet.

use aws_lc_rs::rand;
use dunlin_limits::names::NameKey;
use redis::Script;

use crate::connection::Store;
use crate::error::StoreError;

/// The first server makes the secret.
const READ: &str = r"
local secret = redis.call('GET', KEYS[1])
if not secret or #secret ~= 32 then
    secret = ARGV[1]
    redis.call('SET', KEYS[1], secret)
end
return secret
";

impl Store {
    /// Reads the secret again: a store that has lost its content has another one.
    ///
    /// # Errors
    /// When the store does not respond.
    pub fn read_names(&mut self) -> Result<(), StoreError> {
        let mut fresh = [0; 32];
        rand::fill(&mut fresh)
            .map_err(|_| StoreError::new("the system provides no random numbers"))?;
        let script = Script::new(READ);
        let mut call = script.key(self.key("names"));
        call.arg(&fresh);
        let secret: Vec<u8> = self.invoke(&call)?;
        let secret = secret.try_into();
        let secret = secret.map_err(|_| StoreError::new("the secret of names is malformed"))?;
        self.names = NameKey::new(&secret);
        Ok(())
    }

    /// Returns what clients are named by.
    pub fn names(&self) -> &NameKey {
        &self.names
    }
}
