//! The error log: what the server has to tell, on standard error.

use std::sync::OnceLock;

use dunlin_server::config::file::{ErrorLog, LogFormat, LogLevel};
use tracing::level_filters::LevelFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Registry, fmt, reload};

/// By which the level is changed while the server runs.
static LEVEL: OnceLock<reload::Handle<LevelFilter, Registry>> = OnceLock::new();

/// Starts it.
pub(crate) fn start(settings: &ErrorLog) {
    let (level, handle) = reload::Layer::new(level(settings));
    // It is started once.
    let _ = LEVEL.set(handle);
    let terminal = std::io::IsTerminal::is_terminal(&std::io::stderr());
    let lines = fmt::layer().with_writer(std::io::stderr).with_ansi(terminal).with_target(false);
    let log = tracing_subscriber::registry().with(level);
    match settings.format {
        LogFormat::Text => log.with(lines).init(),
        LogFormat::Json => log.with(lines.json()).init(),
    }
}

/// Follows a change of the level.
pub(crate) fn follow(settings: &ErrorLog) {
    if let Some(handle) = LEVEL.get()
        && let Err(error) = handle.reload(level(settings))
    {
        tracing::error!("the level of the error log stays as it was: {error}");
    }
}

fn level(settings: &ErrorLog) -> LevelFilter {
    match settings.level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    }
}
