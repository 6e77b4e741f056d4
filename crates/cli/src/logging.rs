//! The error log.

mod json;
mod repeats;

use std::path::Path;
use std::sync::OnceLock;

use dunlin_config::file::{LogFormat, LogLevel};
use dunlin_config::{ErrorLog, ErrorLogTarget};
use dunlin_server::error_log::LogFile;
use tracing::Subscriber;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Registry, reload};

use self::json::Json;
use self::repeats::Repeats;
pub(crate) use self::repeats::finish;

/// Handle to change the level at run time.
static LEVEL: OnceLock<reload::Handle<LevelFilter, Registry>> = OnceLock::new();

/// Starts the error log.
pub(crate) fn start(settings: &ErrorLog) -> Result<(), String> {
    let (level, handle) = reload::Layer::new(level(settings));
    // Cannot fail: called once.
    let _ = LEVEL.set(handle);
    let layer = match &settings.target {
        ErrorLogTarget::Stderr => {
            let terminal = std::io::IsTerminal::is_terminal(&std::io::stderr());
            lines(settings.format, terminal, std::io::stderr)
        }
        ErrorLogTarget::File(path) => {
            let file = LogFile::open(path).map_err(|error| explain(path, &error))?;
            lines(settings.format, false, move || file.clone())
        }
        ErrorLogTarget::Journald => tracing_journald::layer()
            .map_err(|error| format!("error log: cannot connect to journald: {error}"))?
            .with_field_prefix(Some("DUNLIN".into()))
            .with_syslog_identifier("dunlin".into())
            .boxed(),
    };
    let log = tracing_subscriber::registry().with(level).with(layer.with_filter(Repeats));
    log.try_init().map_err(|error| format!("error log: {error}"))
}

/// Applies a change of the level.
pub(crate) fn apply(settings: &ErrorLog) {
    if let Some(handle) = LEVEL.get()
        && let Err(error) = handle.reload(level(settings))
    {
        tracing::error!("the level of the error log was not changed: {error}");
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

fn explain(path: &Path, error: &std::io::Error) -> String {
    format!(
        "error log {}: {error}; check that the directory exists and is writable",
        path.display()
    )
}

fn lines<S, W>(format: LogFormat, colors: bool, writer: W) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(writer)
        .with_ansi(colors)
        .with_target(false)
        // A write error of the log must not end the thread.
        .log_internal_errors(false);
    match format {
        LogFormat::Text => lines.boxed(),
        LogFormat::Json => lines.event_format(Json).boxed(),
    }
}
