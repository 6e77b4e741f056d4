//! The access log and the error log.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;

use super::Spanned;

/// The target of the access log.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AccessLogTable {
    /// A path, `-` for standard output, or `off`.
    pub path: Spanned<PathBuf>,
    /// `common`, `combined`, `json`, or a text with placeholders. Default: `combined`.
    pub format: Option<Spanned<String>>,
}

/// The target of the access log, in either form.
#[derive(Debug, Clone)]
pub struct AccessLogForm(pub AccessLogTable);

#[derive(JsonSchema)]
#[schemars(rename = "AccessLog", untagged)]
#[expect(dead_code, reason = "only its schema is used")]
pub(super) enum AccessLogSchema {
    Path(String),
    Table(AccessLogTable),
}

impl AccessLogForm {
    /// The log at `path` in the default format.
    pub fn to(path: &str) -> Self {
        Self(AccessLogTable { path: Spanned::detached(path.into()), format: None })
    }
}

/// Level, format and target of the error log.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(rename = "ErrorLog")]
pub struct ErrorLogTable {
    /// Least severe level that is logged. Default: `info`.
    pub level: LogLevel,
    /// Format of the messages. Default: `text`.
    pub format: LogFormat,
    /// A path, `-` for standard error, or `journald` for the system's journal. Default: `-`.
    #[schemars(with = "Option<String>")]
    pub path: Option<Spanned<PathBuf>>,
}

/// The severity of a message.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "the usual levels")]
pub enum LogLevel {
    Error,
    Warn,
    #[default]
    Info,
    Debug,
    Trace,
}

/// The format of messages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}
