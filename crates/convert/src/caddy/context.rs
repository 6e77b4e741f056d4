//! What the whole conversion knows.

use std::path::{Path, PathBuf};

use crate::map::Map;
use crate::model::Document;
use crate::report::Report;

/// What the whole conversion knows.
pub(super) struct Context {
    pub(super) report: Report,
    pub(super) document: Document,
    /// The directory of the main file.
    pub(super) folder: PathBuf,
    /// The file of users that the configuration names, if there is to be one.
    pub(super) users_file: Option<PathBuf>,
    /// Users with the hashes of their passwords.
    pub(super) users: Vec<(String, String)>,
    /// Address of `email`.
    pub(super) email: Option<String>,
    pub(super) http_port: u16,
    pub(super) https_port: u16,
    /// `auto_https`: certificates are obtained, and requests without TLS redirected.
    pub(super) has_certificates: bool,
    pub(super) redirects: bool,
}

impl Context {
    pub(super) fn new(folder: PathBuf, users_file: Option<&Path>) -> Self {
        Self {
            report: Report::default(),
            document: Document::default(),
            folder,
            users_file: users_file.map(Path::to_owned),
            users: Vec::new(),
            email: None,
            http_port: 80,
            https_port: 443,
            has_certificates: true,
            redirects: true,
        }
    }

    /// Returns a path that is relative to the main file, without a slash at its end.
    pub(super) fn in_folder(&self, path: &str) -> String {
        let joined = self.folder.join(path);
        let text = joined.to_string_lossy();
        match text.strip_suffix('/') {
            Some(plain) if !plain.is_empty() => plain.to_owned(),
            _ => text.into_owned(),
        }
    }

    /// Returns the name of a map with one expression.
    pub(super) fn map(&mut self, from: &str, expression: &str, value: &str) -> String {
        let entries = vec![(format!("~{expression}"), value.to_owned())];
        let known =
            self.document.maps.iter().find(|map| map.from == from && map.entries == entries);
        if let Some(known) = known {
            return known.name.clone();
        }
        let stem: String = from
            .trim_matches(|c| matches!(c, '{' | '}'))
            .trim_start_matches("header.")
            .to_ascii_lowercase()
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() { c } else { '_' })
            .collect();
        let is_free = |name: &String| self.document.maps.iter().all(|map| map.name != *name);
        let name = (1..).map(|number| format!("{stem}_{number}")).find(is_free).unwrap_or(stem);
        self.document.maps.push(Map::with(&name, from.to_owned(), entries));
        name
    }
}
