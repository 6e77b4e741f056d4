//! Failed log-ins, keyed by a hash of the login and the address.

use std::time::Duration;

use redis::Script;

use crate::connection::Store;
use crate::error::StoreError;
use crate::limits::hex;

/// The attempts of all servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Total {
    /// Attempts within the period.
    pub count: u32,
    /// Time until the period ends.
    pub left: Duration,
}

const COUNT: &str = r"
local total = redis.call('INCRBY', KEYS[1], ARGV[1])
if total < 0 then
    total = 0
    redis.call('SET', KEYS[1], 0, 'KEEPTTL')
end
if redis.call('PTTL', KEYS[1]) < 0 then
    redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return {total, redis.call('PTTL', KEYS[1])}
";

impl Store {
    /// Adds attempts of this server, or takes some back. `period` is the time in which they are counted, from the first one on.
    ///
    /// # Errors
    /// When the store does not respond.
    pub fn count_attempts(
        &mut self,
        id: &[u8; 16],
        change: i32,
        period: Duration,
    ) -> Result<Total, StoreError> {
        let script = Script::new(COUNT);
        let mut call = script.key(self.key(format_args!("attempts:{}", hex(id))));
        call.arg(change).arg(period.as_millis() as u64);
        let (count, left): (i64, i64) = self.invoke(&call)?;
        let left = Duration::from_millis(u64::try_from(left).unwrap_or_default());
        Ok(Total { count: u32::try_from(count).unwrap_or_default(), left })
    }
}
