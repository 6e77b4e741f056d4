//! The keys of TLS session tickets.

use std::fmt;
use std::time::Duration;

use redis::Script;

use crate::connection::Store;
use crate::error::StoreError;
use crate::limits::hex;

/// A secret of which the keys of all sites are derived.
#[derive(Clone, PartialEq, Eq)]
pub struct TicketSecret {
    /// The name of the key.
    pub id: [u8; 16],
    /// The secret.
    pub secret: [u8; 32],
    /// Time since it is used for new tickets, negative if it is not yet: milliseconds.
    pub age: i64,
}

/// The rules by which keys change.
#[derive(Debug, Clone, Copy)]
pub struct Rotation {
    /// Time for which a key is used for new tickets.
    pub period: Duration,
    /// Time before its use in which a key is in the store, so that all servers have it.
    pub lead: Duration,
    /// Number of keys in the store.
    pub kept: usize,
}

/// Without the secret.
impl fmt::Debug for TicketSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TicketSecret")
            .field("id", &hex(&self.id))
            .field("age", &self.age)
            .finish_non_exhaustive()
    }
}

const ROTATE: &str = r"
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local newest = redis.call('LINDEX', KEYS[1], 0)
local from = now
if newest then
    local since = tonumber(string.match(newest, ':(%d+)$'))
    from = since + ARGV[2] <= now and now + ARGV[3] or nil
end
if from then
    redis.call('LPUSH', KEYS[1], ARGV[1] .. ':' .. string.format('%.0f', from))
    redis.call('LTRIM', KEYS[1], 0, ARGV[4] - 1)
    redis.call('PEXPIRE', KEYS[1], ARGV[2] * ARGV[4])
end
return {string.format('%.0f', now), redis.call('LRANGE', KEYS[1], 0, -1)}
";

impl Store {
    /// Returns the secrets, the newest first. If the newest is due, `fresh`, an ID and a secret, becomes the newest. Of all servers
    /// that try, one succeeds.
    ///
    /// # Errors
    /// When the store does not respond.
    pub fn ticket_secrets(
        &mut self,
        (id, secret): (&[u8; 16], &[u8; 32]),
        rotation: &Rotation,
    ) -> Result<Vec<TicketSecret>, StoreError> {
        let script = Script::new(ROTATE);
        let mut call = script.key(self.key("tickets"));
        call.arg(format!("{}:{}", hex(id), hex(secret)));
        call.arg(rotation.period.as_millis() as u64)
            .arg(rotation.lead.as_millis() as u64)
            .arg(rotation.kept);
        let (now, lines): (String, Vec<String>) = self.invoke(&call)?;
        let now: i64 = now.parse().map_err(|_| StoreError::new("the time is malformed"))?;
        // A malformed secret would be one of another program.
        Ok(lines.iter().filter_map(|line| parse(line, now)).collect())
    }
}

fn parse(line: &str, now: i64) -> Option<TicketSecret> {
    let mut parts = line.split(':');
    let id = bytes(parts.next()?)?;
    let secret = bytes(parts.next()?)?;
    let since: i64 = parts.next()?.parse().ok()?;
    Some(TicketSecret { id, secret, age: now - since })
}

/// Returns the bytes of hexadecimal digits.
pub(crate) fn bytes<const N: usize>(text: &str) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    if text.len() != 2 * N || !text.is_ascii() {
        return None;
    }
    for (index, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * index..2 * index + 2)?, 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_malformed_secret_is_not_used() {
        let line = format!("{}:{}:1000", "01".repeat(16), "02".repeat(32));
        let parsed = parse(&line, 1500).unwrap();
        assert_eq!((parsed.id, parsed.secret, parsed.age), ([1; 16], [2; 32], 500));
        assert!(!format!("{parsed:?}").contains("0202"));
        for wrong in ["", ":", "01:02:3", &line.replace('1', "x"), &line.replace(":1000", "")] {
            assert_eq!(parse(wrong, 0), None, "{wrong}");
        }
    }
}
