//! What the whole conversion knows.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::assignments::Assignment;
use super::parse::Directive;
use super::variables::{Constants, constant};
use crate::model::Document;
use crate::report::Report;

/// What the whole conversion knows.
pub(super) struct Context<'t> {
    pub(super) report: Report,
    pub(super) document: Document,
    /// The directory of the main file.
    folder: PathBuf,
    /// The directory of `nginx -p`.
    prefix: PathBuf,
    pub(super) upstreams: HashMap<&'t str, &'t Directive>,
    /// The variables that `map`, `geo` and `split_clients` define.
    pub(super) maps: HashMap<&'t str, &'t Directive>,
    /// Zones of `limit_req_zone` and `limit_conn_zone`, by name.
    pub(super) request_zones: HashMap<String, &'t Directive>,
    pub(super) connection_zones: HashMap<String, &'t Directive>,
    pub(super) log_formats: HashMap<&'t str, &'t Directive>,
    pub(super) cache_paths: HashMap<String, &'t Directive>,
    /// Variables that have the same value in all servers.
    pub(super) common: Constants,
    /// The name of the machine, in lower case.
    pub(super) hostname: Option<String>,
    /// What `set` gives variables, in the server and the location at hand.
    pub(super) assignments: Vec<Assignment<'t>>,
    /// The maps whose values are being read.
    pub(super) reading: Vec<String>,
    /// The value of a response field is read: maps may follow from responses.
    pub(super) reads_field: bool,
}

fn hostname() -> Option<String> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    Some(name.trim().to_ascii_lowercase()).filter(|name| !name.is_empty())
}

impl<'t> Context<'t> {
    pub(super) fn new(folder: PathBuf, prefix: PathBuf) -> Self {
        Self {
            report: Report::default(),
            document: Document::default(),
            folder,
            prefix,
            upstreams: HashMap::new(),
            maps: HashMap::new(),
            request_zones: HashMap::new(),
            connection_zones: HashMap::new(),
            log_formats: HashMap::new(),
            cache_paths: HashMap::new(),
            common: Constants::new(),
            hostname: hostname(),
            assignments: Vec::new(),
            reading: Vec::new(),
            reads_field: false,
        }
    }

    /// Returns a path that is relative to the prefix: of roots and logs.
    pub(super) fn in_prefix(&self, path: &str) -> String {
        join(&self.prefix, path)
    }

    /// Returns a path that is relative to the main file: of certificates and passwords.
    pub(super) fn in_folder(&self, path: &str) -> String {
        join(&self.folder, path)
    }

    /// Returns the text with the values of constants. A text with another variable is reported as lost.
    pub(super) fn constant(
        &mut self,
        directive: &Directive,
        text: &str,
        constants: &Constants,
        effect: &str,
    ) -> Option<String> {
        constant(text, constants)
            .map_err(|name| {
                self.report.lost(directive, format!("{effect}: {name} depends on the request"));
            })
            .ok()
    }

    /// Returns `true` if a `map`, `geo` or `split_clients` defines the variable.
    pub(super) fn is_map(&self, name: &str) -> bool {
        self.maps.contains_key(name.trim_start_matches('$'))
    }
}

fn join(folder: &Path, path: &str) -> String {
    let joined = folder.join(path);
    let text = joined.to_string_lossy();
    match text.strip_suffix('/') {
        Some(plain) if !plain.is_empty() => plain.to_owned(),
        _ => text.into_owned(),
    }
}
