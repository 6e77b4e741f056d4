//! The number of servers that share their state.

use std::sync::LazyLock;

use dunlin_limits::shared_rate::Servers;

/// The number of servers, for the limits of this process.
static SERVERS: LazyLock<Servers> = LazyLock::new(Servers::default);

/// Returns the number of servers that share the state.
pub(crate) fn servers() -> &'static Servers {
    &SERVERS
}
