//! The error log: what the server has to tell, on standard error.

use dunlin_server::config::file::{ErrorLog, LogFormat, LogLevel};
use tracing::level_filters::LevelFilter;

/// Starts it.
pub(crate) fn start(settings: &ErrorLog) {
    let level = match settings.level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    let terminal = std::io::IsTerminal::is_terminal(&std::io::stderr());
    let log = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(std::io::stderr)
        .with_ansi(terminal)
        .with_target(false);
    match settings.format {
        LogFormat::Text => log.init(),
        LogFormat::Json => log.json().init(),
    }
}
