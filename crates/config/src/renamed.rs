//! Keys that had another name in earlier versions.

/// A table, the former name of one of its keys, and the name that replaces it.
pub(super) const RENAMED: [(&str, &str, &str); 9] = [
    ("limit", "tell", "send_headers"),
    ("script", "tell_request_id", "send_request_id"),
    ("server", "connections_soft", "evict_idle_above"),
    ("throttle", "concurrent", "max_concurrent"),
    ("throttle", "most", "burst_concurrent"),
    ("throttle", "per", "client_by"),
    ("throttle", "refuse_after", "queue_timeout"),
    ("throttle", "share", "max_per_client"),
    ("throttle", "wait", "burst_after"),
];

/// Returns the name that replaces the former name `key` in `table`.
pub(super) fn replacement(table: &str, key: &str) -> Option<&'static str> {
    let renamed = RENAMED.iter().find(|(of, former, _)| *of == table && *former == key);
    renamed.map(|(_, _, name)| *name)
}
