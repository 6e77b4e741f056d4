//! The secret of QUIC endpoints, which stays the same for as long as the store has it.

use redis::Script;

use crate::connection::Store;
use crate::error::StoreError;
use crate::limits::hex;
use crate::tickets::bytes;

const SECRET: &str = r"
redis.call('SET', KEYS[1], ARGV[1], 'NX')
return redis.call('GET', KEYS[1])
";

impl Store {
    /// Returns the secret of the stateless resets, tokens and connection IDs of all servers. If there is none, it is `fresh`.
    ///
    /// # Errors
    /// When the store does not respond, or its secret is malformed.
    pub fn quic_secret(&mut self, fresh: &[u8; 32]) -> Result<[u8; 32], StoreError> {
        let script = Script::new(SECRET);
        let mut call = script.key(self.key("quic"));
        call.arg(hex(fresh));
        let text: String = self.invoke(&call)?;
        bytes(&text).ok_or_else(|| StoreError::new("the secret of QUIC is malformed"))
    }
}
