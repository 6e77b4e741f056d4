//! Named content, such as certificates, and locks with an owner and an end: only the owner of a name's lock can write it, also
//! if another server has taken the lock since.

use std::time::Duration;

use redis::{Script, cmd};

use crate::connection::Store;
use crate::error::StoreError;

/// The outcome of an attempt to take a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Locked {
    /// The lock belongs to the caller. Its number is higher than that of every owner before.
    Owned(u64),
    /// It belongs to another owner, for that time at most.
    Other(Duration),
}

const LOCK: &str = r"
local held = redis.call('GET', KEYS[1])
if held then
    local owner, fence = string.match(held, '^(%S+) (%d+)$')
    if owner ~= ARGV[1] then
        return {0, redis.call('PTTL', KEYS[1])}
    end
    redis.call('PEXPIRE', KEYS[1], ARGV[2])
    return {tonumber(fence), 0}
end
local fence = redis.call('INCR', KEYS[2])
redis.call('SET', KEYS[1], ARGV[1] .. ' ' .. fence, 'PX', ARGV[2])
return {fence, 0}
";

const UNLOCK: &str = r"
if redis.call('GET', KEYS[1]) == ARGV[1] .. ' ' .. ARGV[2] then
    return redis.call('DEL', KEYS[1])
end
return 0
";

const WRITE: &str = r"
if redis.call('GET', KEYS[1]) ~= ARGV[1] .. ' ' .. ARGV[2] then
    return 0
end
if ARGV[4] == '0' then
    redis.call('SET', KEYS[2], ARGV[3])
else
    redis.call('SET', KEYS[2], ARGV[3], 'PX', ARGV[4])
end
return 1
";

impl Store {
    /// Takes the lock of `name` for `lease`, or extends it if it belongs to `owner` already.
    ///
    /// # Errors
    /// When the store does not respond.
    pub fn lock(&mut self, name: &str, owner: &str, lease: Duration) -> Result<Locked, StoreError> {
        let script = Script::new(LOCK);
        let mut call = script.key(self.lock_key(name));
        call.key(self.key(format_args!("fence:{{{name}}}")))
            .arg(owner)
            .arg(lease.as_millis() as u64);
        let (fence, left): (u64, i64) = self.invoke(&call)?;
        let left = Duration::from_millis(u64::try_from(left).unwrap_or_default());
        Ok(if fence == 0 { Locked::Other(left) } else { Locked::Owned(fence) })
    }

    /// Releases the lock of `name` if it still belongs to `owner` with the number `fence`.
    ///
    /// # Errors
    /// When the store does not respond.
    pub fn unlock(&mut self, name: &str, owner: &str, fence: u64) -> Result<(), StoreError> {
        let script = Script::new(UNLOCK);
        let mut call = script.key(self.lock_key(name));
        call.arg(owner).arg(fence);
        self.invoke::<i64>(&call).map(drop)
    }

    /// Writes the content of `name`, for `lifetime` if there is one. Returns `false`, and writes nothing, if the lock does not belong
    /// to `owner` with the number `fence` any more.
    ///
    /// # Errors
    /// When the store does not respond.
    pub fn write(
        &mut self,
        name: &str,
        content: &[u8],
        lifetime: Option<Duration>,
        (owner, fence): (&str, u64),
    ) -> Result<bool, StoreError> {
        let script = Script::new(WRITE);
        let mut call = script.key(self.lock_key(name));
        call.key(self.object_key(name)).arg(owner).arg(fence).arg(content);
        call.arg(lifetime.map_or(0, |time| time.as_millis().max(1) as u64));
        Ok(self.invoke::<i64>(&call)? == 1)
    }

    /// Writes content that needs no lock, because no two servers write the same name.
    ///
    /// # Errors
    /// When the store does not respond.
    pub fn publish(
        &mut self,
        name: &str,
        content: &[u8],
        lifetime: Duration,
    ) -> Result<(), StoreError> {
        let key = self.object_key(name);
        let millis = lifetime.as_millis().max(1) as u64;
        let mut command = cmd("SET");
        command.arg(key).arg(content).arg("PX").arg(millis);
        Ok(command.query(&mut *self.connection)?)
    }

    /// Removes the content of `name`.
    ///
    /// # Errors
    /// When the store does not respond.
    pub fn remove(&mut self, name: &str) -> Result<(), StoreError> {
        let key = self.object_key(name);
        Ok(cmd("DEL").arg(key).query::<i64>(&mut *self.connection).map(drop)?)
    }

    /// Reads the content of `name`.
    ///
    /// # Errors
    /// When the store does not respond.
    pub fn read(&mut self, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let key = self.object_key(name);
        Ok(cmd("GET").arg(key).query(&mut *self.connection)?)
    }

    fn lock_key(&self, name: &str) -> String {
        self.key(format_args!("lock:{{{name}}}"))
    }

    fn object_key(&self, name: &str) -> String {
        self.key(format_args!("object:{{{name}}}"))
    }
}
