//! The part of the status that reports components.

use serde::{Deserialize, Serialize};

/// A component.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Component {
    /// The path of its file.
    pub name: String,
    /// The interface that it exports; `none` while no version of it is loaded.
    pub kind: String,
    /// Instances that handle a request or are kept.
    pub live: u64,
    /// Requests that a new instance handled.
    pub fresh: u64,
    /// Requests that a kept instance handled.
    pub reused: u64,
    /// Requests that were rejected because all instances were in use.
    pub rejected: u64,
    /// Requests whose instance was stopped, by reason.
    pub stops: Vec<(String, u64)>,
    /// Largest memory of an instance in bytes.
    pub memory_peak: u64,
    /// Time that its compilation took, in seconds.
    pub compile_seconds: f64,
    /// Versions of the file that replaced another.
    pub swaps: u64,
    /// Why the newest version of the file is not loaded.
    pub error: Option<String>,
}

/// Components that can be described.
pub(crate) trait Describe {
    /// Describes all components.
    fn describe(&self) -> Vec<Component>;
}
