//! The time limits of a script.

use std::time::{Duration, Instant};

use dunlin_config::Script;
use dunlin_telemetry::ScriptContext;

/// Returns the next time limit of a script and its description. `is_first`: its response has not begun. `active`: when it
/// last read or wrote; `None` if it may be idle.
pub(super) fn next_limit(
    rules: &Script,
    script_context: &ScriptContext,
    is_first: bool,
    active: Option<Instant>,
) -> Option<(Instant, &'static str)> {
    let after = |from: Option<Instant>, limit: Option<Duration>, what| {
        from.zip(limit).map(|(from, limit)| (from + limit, what))
    };
    let request_sent = script_context.request_sent.get().filter(|_| is_first);
    let limits = [
        after(Some(script_context.started()), rules.timeout, "it ran longer than `timeout`"),
        after(request_sent, rules.first_byte_timeout, "no header came within `first_byte_timeout`"),
        after(active, rules.idle_timeout, "it neither read nor wrote within `idle_timeout`"),
    ];
    limits.into_iter().flatten().min()
}
