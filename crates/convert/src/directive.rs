//! Directives, their places, and files that have none.

use std::path::Path;
use std::rc::Rc;

/// A directive.
#[derive(Debug)]
pub(crate) struct Directive {
    /// Its number in the order of reading.
    pub(crate) id: usize,
    pub(crate) name: String,
    pub(crate) words: Vec<String>,
    /// What is between its braces; `None` without braces.
    pub(crate) block: Option<Vec<Directive>>,
    pub(crate) place: Place,
}

/// A line of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The file, as the configuration names it.
    pub file: Rc<Path>,
    /// The line, from 1.
    pub line: usize,
}

impl Place {
    /// Returns the line with the name of the file alone.
    pub(crate) fn short(&self) -> String {
        let name = self.file.file_name().unwrap_or_default().to_string_lossy();
        format!("{name}:{}", self.line)
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.file.display(), self.line)
    }
}

/// A file that cannot be read, or is not in the syntax of its server.
#[derive(Debug, Clone)]
pub struct SourceError {
    /// The file and the line; line 0 stands for the whole file.
    pub place: Place,
    /// The reason.
    pub what: String,
}

impl std::fmt::Display for SourceError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.place.line {
            0 => write!(f, "{}: {}", self.place.file.display(), self.what),
            _ => write!(f, "{}: {}", self.place, self.what),
        }
    }
}

impl Directive {
    /// Returns a word by its position.
    pub(crate) fn word(&self, at: usize) -> &str {
        self.words.get(at).map_or("", String::as_str)
    }

    /// Returns the directives between its braces.
    pub(crate) fn children(&self) -> &[Directive] {
        self.block.as_deref().unwrap_or_default()
    }
}
