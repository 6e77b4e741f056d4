//! The buckets of shared rate limits. The rule is the one of `dunlin_limits::ledger`.

use dunlin_limits::lease::{Granted, Terms};
use dunlin_limits::shared_rate::ClientReport;
use redis::Script;

use crate::connection::Store;
use crate::error::StoreError;

/// Maximum of clients in one call of a script, which blocks the store while it runs.
pub const BATCH: usize = 500;

const NANOS_PER_MILLI: f64 = 1e6;

const EXCHANGE: &str = r"
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local rate, burst = tonumber(ARGV[1]), tonumber(ARGV[2])
local capacity, servers = tonumber(ARGV[3]), tonumber(ARGV[4])
local granted = {}
for i, key in ipairs(KEYS) do
    local owed, needed = tonumber(ARGV[3 + 2 * i]), tonumber(ARGV[4 + 2 * i])
    local level = burst
    local held = redis.call('GET', key)
    if held then
        local before, at = string.match(held, '^(%S+) (%S+)$')
        level = tonumber(before) + math.max(now - tonumber(at), 0) * rate
    end
    level = math.min(math.max(math.min(level, capacity) - owed, -capacity), capacity)
    local missing = needed - math.max(level, 0) / servers
    local tokens = 0
    if level >= 1 and missing > 0 then
        tokens = math.min(math.ceil(missing), math.floor(level))
    end
    level = level - tokens
    local full = math.max(math.ceil((burst - level) / rate), 0) + 1000
    redis.call('SET', key, string.format('%.6f %.0f', level, now), 'PX', string.format('%.0f', full))
    granted[i] = string.format('%.6f %d', level, tokens)
end
return granted
";

impl Store {
    /// Reports what was spent of a limit by at most [`BATCH`] clients, and takes what is granted for each report. `name` is the
    /// limit's name in the store, and `servers` the number of servers that share it.
    ///
    /// # Errors
    /// When the store does not respond.
    pub fn exchange(
        &mut self,
        name: &str,
        terms: &Terms,
        servers: u32,
        reports: &[ClientReport],
    ) -> Result<Vec<Granted>, StoreError> {
        let script = Script::new(EXCHANGE);
        let mut call = script.prepare_invoke();
        call.arg(terms.rate * NANOS_PER_MILLI).arg(terms.burst).arg(terms.capacity()).arg(servers);
        for report in reports {
            let client = hex(&self.names.name(&report.client));
            call.key(self.key(format_args!("limit:{{{name}}}:{client}")));
            call.arg(report.report.owed).arg(report.report.needed);
        }
        let lines: Vec<String> = self.invoke(&call)?;
        if lines.len() != reports.len() {
            return Err(StoreError::new("the store did not respond to every report"));
        }
        let parse =
            |line: &String| parse(line).ok_or_else(|| StoreError::new("the grant is malformed"));
        lines.iter().map(parse).collect()
    }
}

fn parse(line: &str) -> Option<Granted> {
    let (level, tokens) = line.split_once(' ')?;
    Some(Granted { level: level.parse().ok()?, tokens: tokens.parse().ok()? })
}

/// Returns the bytes in hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
