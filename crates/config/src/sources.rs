//! The files of a site that are scripts, whose sources are not sent by other routes.

use std::path::PathBuf;

use super::file::ScriptKind;
use super::script::{Mapping, Script, Workers, has_extension};

/// The scripts of a site.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Sources {
    /// The name of the site.
    pub site: String,
    /// One rule for each route with scripts.
    pub rules: Vec<SourceRule>,
}

/// The scripts of one route.
#[derive(Debug, PartialEq, Eq)]
pub struct SourceRule {
    /// The route's pattern.
    pub route: String,
    /// Directory of the scripts; empty if there are only `files`.
    pub directory: PathBuf,
    /// File name extensions of scripts; if empty, every executable file is a script.
    pub extensions: Vec<String>,
    /// Scripts that the configuration names.
    pub files: Vec<PathBuf>,
}

/// Extensions of compressed forms of a file, which contain its source, too.
const CODED: [&str; 3] = [".gz", ".br", ".zst"];

impl SourceRule {
    /// Returns the scripts of the route with that pattern; `None` if they are no files.
    pub(super) fn new(route: &str, script: &Script) -> Option<Self> {
        let mut rule = Self {
            route: route.to_owned(),
            directory: script.directory.clone(),
            extensions: script.extensions.clone(),
            files: Vec::new(),
        };
        if rule.extensions.is_empty() && !rule.directory.as_os_str().is_empty() {
            // It may be a program instead of a directory.
            rule.files.push(rule.directory.clone());
        }
        if let Workers::Local(local) = &script.workers {
            // Arguments of an interpreter are relative to its working directory.
            let words = local.command.iter().filter(|word| !word.starts_with('-'));
            rule.files.extend(words.map(|word| script.directory.join(word)));
        }
        match script.kind {
            ScriptKind::Wsgi | ScriptKind::Asgi => rule.extensions = list(&PYTHON),
            ScriptKind::Psgi => {
                rule.extensions = list(&PERL);
                if let Workers::Local(local) = &script.workers {
                    rule.files.push(script.directory.join(&local.application));
                }
            }
            _ if script.mapping == Mapping::Program => {
                rule.files.push(std::mem::take(&mut rule.directory));
            }
            _ if script.mapping == Mapping::Application => rule.directory = PathBuf::new(),
            _ => {}
        }
        (!rule.directory.as_os_str().is_empty() || !rule.files.is_empty()).then_some(rule)
    }

    /// Returns `true` if the extension of a file beneath the directory is that of a script.
    pub fn has_extension(&self, path: &[u8]) -> bool {
        has_extension(&self.extensions, original(path).unwrap_or(path))
    }
}

/// Returns the name of the original if `path` is the name of a compressed form.
pub fn original(path: &[u8]) -> Option<&[u8]> {
    CODED.iter().find_map(|suffix| path.strip_suffix(suffix.as_bytes()))
}

const PYTHON: [&str; 4] = ["py", "pyc", "pyo", "pyw"];
const PERL: [&str; 4] = ["psgi", "pl", "pm", "t"];

fn list(names: &[&str]) -> Vec<String> {
    names.iter().map(ToString::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compressed_forms_of_a_program_are_programs() {
        let rule = SourceRule {
            route: "/*".into(),
            directory: "/srv".into(),
            extensions: vec!["php".into()],
            files: Vec::new(),
        };
        for name in ["/srv/a.php", "/srv/a.PHP", "/srv/a.php.gz", "/srv/a.php.br", "/a.php.zst"] {
            assert!(rule.has_extension(name.as_bytes()), "{name}");
        }
        for name in ["/srv/a.html", "/srv/php", "/srv/a.php/b", "/srv/a.phps", "/srv/a.gz"] {
            assert!(!rule.has_extension(name.as_bytes()), "{name}");
        }
    }
}
