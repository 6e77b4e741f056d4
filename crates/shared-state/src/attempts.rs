//! Failed log-ins, by the name of the login and the address.

use std::time::Duration;

use dunlin_limits::names::ClientId;
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
local totals = {}
for i, key in ipairs(KEYS) do
    local total = redis.call('INCRBY', key, ARGV[i + 1])
    if total < 0 then
        total = 0
        redis.call('SET', key, 0, 'KEEPTTL')
    end
    if redis.call('PTTL', key) < 0 then
        redis.call('PEXPIRE', key, ARGV[1])
    end
    totals[2 * i - 1] = total
    totals[2 * i] = redis.call('PTTL', key)
end
return totals
";

impl Store {
    /// Adds attempts of this server, or takes some back: of at most [`BATCH`](crate::limits::BATCH) logins and addresses. `period` is
    /// the time in which they are counted, from the first one on.
    ///
    /// # Errors
    /// When the store does not respond.
    pub fn count_attempts(
        &mut self,
        changes: &[(ClientId, i32)],
        period: Duration,
    ) -> Result<Vec<Total>, StoreError> {
        let script = Script::new(COUNT);
        let mut call = script.prepare_invoke();
        call.arg(period.as_millis() as u64);
        for (id, change) in changes {
            let name = hex(&self.names.name(id));
            // The tag is for a cluster, whose scripts have keys of one node.
            call.key(self.key(format_args!("attempts:{{all}}:{name}"))).arg(change);
        }
        let totals: Vec<i64> = self.invoke(&call)?;
        if totals.len() != 2 * changes.len() {
            return Err(StoreError::new("the store did not respond to every attempt"));
        }
        let total = |pair: &[i64]| Total {
            count: u32::try_from(pair[0]).unwrap_or_default(),
            left: Duration::from_millis(u64::try_from(pair[1]).unwrap_or_default()),
        };
        Ok(totals.chunks_exact(2).map(total).collect())
    }
}
