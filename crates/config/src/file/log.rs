//! The access log and the error log.

use std::path::PathBuf;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;

use super::Spanned;
use crate::access_log::AccessLog;

/// An access log.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AccessLogTable {
    /// A path, `-` for standard output, or `off`.
    pub path: Spanned<PathBuf>,
    /// `common`, `combined`, `json`, or a text with placeholders. Default: `combined`.
    pub format: Option<Spanned<String>>,
    /// Statuses of responses that are logged: `404`, `"5xx"`, or a list of them. Default: all.
    #[schemars(with = "Option<StatusesSchema>")]
    pub status: Option<Spanned<Statuses>>,
    /// Share of these requests that is logged: `"1%"`. Default: all.
    pub sample: Option<Spanned<String>>,
    /// Further logs of the same requests, each as a path or a table. Default: none.
    #[schemars(with = "Option<Vec<AccessLogSchema>>")]
    pub also: Option<Vec<AccessLogForm>>,
    /// The log, once the table was checked.
    #[serde(skip)]
    #[schemars(skip)]
    pub(crate) checked: Option<Arc<AccessLog>>,
}

/// Statuses, each as a number or as a class such as `5xx`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Statuses(pub Vec<Spanned<String>>);

#[derive(JsonSchema)]
#[schemars(rename = "Statuses", untagged)]
#[expect(dead_code, reason = "only its schema is used")]
pub(super) enum StatusesSchema {
    Number(u16),
    Class(String),
    Many(Vec<StatusSchema>),
}

#[derive(JsonSchema)]
#[schemars(rename = "Status", untagged)]
#[expect(dead_code, reason = "only its schema is used")]
pub(super) enum StatusSchema {
    Number(u16),
    Class(String),
}

/// The access log of a route.
#[derive(Debug, Clone)]
#[expect(clippy::large_enum_variant, reason = "it is there while the file is read")]
pub enum RouteLogValue {
    /// That of the server, or none.
    Switch(bool),
    /// One of its own.
    Own(AccessLogTable),
}

#[derive(JsonSchema)]
#[schemars(rename = "RouteLog", untagged)]
#[expect(dead_code, reason = "only its schema is used")]
pub(super) enum RouteLogSchema {
    Switch(bool),
    Path(String),
    Table(AccessLogTable),
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

impl AccessLogTable {
    /// The log at `path` in the default format.
    pub fn to(path: &str) -> Self {
        Self {
            path: Spanned::detached(path.into()),
            format: None,
            status: None,
            sample: None,
            also: None,
            checked: None,
        }
    }
}

impl AccessLogForm {
    /// The log at `path` in the default format.
    pub fn to(path: &str) -> Self {
        Self(AccessLogTable::to(path))
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
