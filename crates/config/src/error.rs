//! Problems of a configuration, with their positions.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

use super::secrets::message;

/// A problem.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    file: PathBuf,
    /// Line and column, from 1.
    place: Option<(usize, usize)>,
    what: String,
}

impl Problem {
    /// Returns a problem with the file as a whole.
    pub fn of_file(file: &Path, what: &str) -> Self {
        Self { file: file.to_owned(), place: None, what: what.to_owned() }
    }

    /// Returns the text of a warning, in one line.
    pub fn as_warning(&self) -> String {
        self.with_message(format!("warning: {}", self.what)).to_string()
    }

    /// Returns a problem at the same position with another message.
    pub fn with_message(&self, what: String) -> Self {
        Self { what, ..self.clone() }
    }

    /// Returns the line in the file, from 1; `None` for a problem with the file as a whole.
    pub fn line(&self) -> Option<usize> {
        self.place.map(|(line, _)| line)
    }

    /// Returns the message without its position.
    pub fn message(&self) -> &str {
        &self.what
    }

    /// Sorts by position in the file; problems of the whole file are last.
    pub fn sorted(mut problems: Vec<Self>) -> Vec<Self> {
        problems.sort_by_key(|problem| (problem.place.is_none(), problem.place));
        problems
    }

    /// Returns a problem with an option of the command line.
    pub(super) fn of_option(option: &str, what: &str) -> Self {
        Self { file: PathBuf::new(), place: None, what: format!("{option}: {what}") }
    }
}

/// The files that are being checked, as one text.
#[derive(Debug, Clone, Copy)]
pub(super) struct Source<'a> {
    /// The main file.
    pub(super) path: &'a Path,
    pub(super) text: &'a str,
    /// The files after the main one.
    pub(super) parts: &'a [Part],
}

/// A file that another one includes.
#[derive(Debug, Clone)]
pub(crate) struct Part {
    /// Where it begins in the text of all files.
    pub(crate) start: usize,
    pub(crate) path: PathBuf,
}

impl<'a> Source<'a> {
    /// Returns the text of each file, and where it begins in the text of all files.
    pub(super) fn files(&self) -> impl Iterator<Item = (usize, &'a str)> {
        let Self { text, parts, .. } = *self;
        let starts = [0].into_iter().chain(parts.iter().map(|part| part.start));
        // A line break separates the files.
        let ends = parts.iter().map(|part| part.start - 1).chain([text.len()]);
        starts.zip(ends).map(|(start, end)| (start, &text[start..end]))
    }

    /// Returns a problem at `span`, or with the file as a whole.
    pub(super) fn problem(&self, span: Option<&Range<usize>>, what: String) -> Problem {
        let Some(span) = span else {
            return Problem { file: self.path.to_owned(), place: None, what };
        };
        let (path, start) = self.file_at(span.start);
        let place = line_and_column(&self.text[start..], span.start - start);
        Problem { file: path.to_owned(), place: Some(place), what }
    }

    /// Returns file and line of `span`, from 1; `None` without a file.
    pub(super) fn line(&self, span: Option<&Range<usize>>) -> Option<(&Path, usize)> {
        let span = span?;
        let (path, start) = self.file_at(span.start);
        Some((path, line_and_column(&self.text[start..], span.start - start).0))
    }

    /// Returns the file at an offset, and where it begins.
    pub(super) fn file_at(&self, offset: usize) -> (&Path, usize) {
        let after = self.parts.partition_point(|part| part.start <= offset);
        match after.checked_sub(1).and_then(|at| self.parts.get(at)) {
            Some(part) => (&part.path, part.start),
            None => (self.path, 0),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.file.as_os_str().is_empty() {
            write!(f, "{}:", self.file.display())?;
            if let Some((line, column)) = self.place {
                write!(f, "{line}:{column}:")?;
            }
            f.write_str(" ")?;
        }
        f.write_str(&message(&self.what))
    }
}

/// Of all candidates the one with the fewest differences, if they are few.
pub(crate) fn nearest<'a>(word: &str, candidates: &[&'a str]) -> Option<&'a str> {
    candidates
        .iter()
        .map(|candidate| (strsim::damerau_levenshtein(word, candidate), *candidate))
        .filter(|(distance, candidate)| *distance <= (word.len().max(candidate.len()) / 3).max(1))
        .min()
        .map(|(_, candidate)| candidate)
}

fn line_and_column(text: &str, offset: usize) -> (usize, usize) {
    let before = &text[..text.floor_char_boundary(offset)];
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    (line, column)
}
