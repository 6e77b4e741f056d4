//! The files of a configuration: the main one and those that it includes, with their bounds.

use std::path::{Path, PathBuf};

use crate::directive::{Place, SourceError};

/// Deepest nesting of files.
const MAX_DEPTH: usize = 64;
/// Maximum number of files, and of their bytes.
const MAX_FILES: usize = 2_000;
const MAX_BYTES: usize = 64 << 20;

/// Reads the files of a configuration.
#[derive(Debug, Default)]
pub(crate) struct Sources {
    /// The files that have been read.
    pub(crate) files: Vec<PathBuf>,
    /// The files that include the present one, and itself.
    stack: Vec<PathBuf>,
    bytes: usize,
}

impl Sources {
    /// Returns the text of a file. What it includes is read before [`Sources::leave`].
    ///
    /// # Errors
    /// The file cannot be read, includes itself, or is one too many.
    pub(crate) fn enter(&mut self, path: &Path) -> Result<String, SourceError> {
        let whole =
            |what: String| SourceError { place: Place { file: path.into(), line: 0 }, what };
        let content = std::fs::read(path).map_err(|error| whole(error.to_string()))?;
        let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        self.bytes += content.len();
        if self.stack.contains(&real) {
            return Err(whole("the file includes itself".into()));
        }
        if self.files.len() >= MAX_FILES || self.bytes > MAX_BYTES || self.stack.len() >= MAX_DEPTH
        {
            return Err(whole("too many files are included".into()));
        }
        self.files.push(path.to_owned());
        self.stack.push(real);
        Ok(String::from_utf8(content)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
    }

    /// Ends the reading of the file that was entered last.
    pub(crate) fn leave(&mut self) {
        self.stack.pop();
    }
}
