//! The servers that share the store.

use std::time::Duration;

use redis::Script;

use crate::connection::Store;
use crate::error::StoreError;

/// Time after which a server that has not reported is not counted.
pub const ABSENT_AFTER: Duration = Duration::from_secs(5);

const REPORT: &str = r"
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZADD', KEYS[1], now, ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - ARGV[2])
redis.call('PEXPIRE', KEYS[1], 10 * ARGV[2])
return redis.call('ZCARD', KEYS[1])
";

impl Store {
    /// Reports that the server with this ID is there. Returns the number of servers.
    ///
    /// # Errors
    /// When the store does not respond.
    pub fn report_presence(&mut self, server: &str) -> Result<u32, StoreError> {
        let script = Script::new(REPORT);
        let mut call = script.key(self.key("servers"));
        call.arg(server).arg(ABSENT_AFTER.as_millis() as u64);
        self.invoke(&call)
    }

    /// Removes a server that stops, so that the others do not wait for it.
    ///
    /// # Errors
    /// When the store does not respond.
    pub fn leave(&mut self, server: &str) -> Result<(), StoreError> {
        let key = self.key("servers");
        redis::cmd("ZREM").arg(key).arg(server).query::<i64>(&mut *self.connection)?;
        let key = self.key("seen");
        redis::cmd("HDEL").arg(key).arg(server).query::<i64>(&mut *self.connection)?;
        Ok(())
    }

    /// Returns the IDs of the servers.
    ///
    /// # Errors
    /// When the store does not respond.
    pub fn servers(&mut self) -> Result<Vec<String>, StoreError> {
        let key = self.key("servers");
        Ok(redis::cmd("ZRANGE").arg(key).arg(0).arg(-1).query(&mut *self.connection)?)
    }
}
