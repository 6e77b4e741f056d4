//! What is wrong with a configuration, and where.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    file: PathBuf,
    /// Line and column, from 1.
    place: Option<(usize, usize)>,
    what: String,
}

impl Problem {
    /// A problem with the file as a whole.
    pub fn of_file(file: &Path, what: &str) -> Self {
        Self { file: file.to_owned(), place: None, what: what.to_owned() }
    }

    /// A problem at a place in the file.
    pub(super) fn at(file: &Path, text: &str, span: &Range<usize>, what: String) -> Self {
        let place = (!text.is_empty()).then(|| line_and_column(text, span.start));
        Self { file: file.to_owned(), place, what }
    }

    /// What the TOML reader says, with the nearest known key for one that is not known.
    pub(super) fn from_toml(file: &Path, text: &str, error: &toml::de::Error) -> Self {
        let mut what = error.message().trim().replace('\n', ", ");
        if let Some((key, known)) = unknown_key(&what) {
            what = match nearest(key, &known) {
                Some(nearest) => format!("there is no key `{key}` here; did you mean `{nearest}`?"),
                None => format!("there is no key `{key}` here; the keys are: {}", known.join(", ")),
            };
        }
        Self::at(file, text, &error.span().unwrap_or(0..0), what)
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
        f.write_str(&self.what)
    }
}

/// Of all candidates the one with the fewest differences, if they are few.
pub(crate) fn nearest<'a>(word: &str, candidates: &[&'a str]) -> Option<&'a str> {
    candidates
        .iter()
        .map(|candidate| (strsim::damerau_levenshtein(word, candidate), *candidate))
        .filter(|(distance, candidate)| *distance <= (candidate.len() / 3).max(2))
        .min()
        .map(|(_, candidate)| candidate)
}

/// Takes serde's "unknown field `x`, expected one of `a`, `b`" apart.
fn unknown_key(message: &str) -> Option<(&str, Vec<&str>)> {
    let rest = message.strip_prefix("unknown field `")?;
    let (key, rest) = rest.split_once('`')?;
    let known = rest.split('`').skip(1).step_by(2).collect();
    Some((key, known))
}

fn line_and_column(text: &str, offset: usize) -> (usize, usize) {
    let before = &text[..text.floor_char_boundary(offset)];
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    (line, column)
}
