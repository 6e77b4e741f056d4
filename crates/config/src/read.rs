//! Deserializes the text of a file and reports all errors of its form.

use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use toml::Spanned as TomlSpanned;
use toml::de::{DeArray, DeTable, DeValue};

use super::deserialize::{Error, ErrorKind, TableAccess};
use super::error::{Problem, Source};
use super::file::File;
use super::includes;
use super::vocabulary;

/// Reads the file. The deserializer stops at the first error. Each error is reported, the faulty entry is removed, and
/// the rest is read again until no error is left.
pub(super) fn read(source: &Source<'_>) -> Result<File, Vec<Problem>> {
    // After a syntax error, further errors are not reliable.
    let mut table = includes::parse(source)?;
    let mut problems = Vec::new();
    let mut taken_out = Vec::new();
    loop {
        let root = MapAccessDeserializer::new(TableAccess::new(table.get_ref()));
        let Error { span, kind } = match File::deserialize(root) {
            Ok(file) if problems.is_empty() => return Ok(file),
            Ok(_) => return Err(problems),
            Err(error) => error,
        };
        let offset = span.as_ref().map(|span| span.start);
        let mut steps =
            offset.and_then(|offset| in_table(table.get_ref(), offset)).unwrap_or_default();
        if let ErrorKind::UnknownKey(key, _) = &kind {
            steps = to_key(steps, key);
        }
        let is_taken_out = |key| taken_out.iter().any(|taken| taken == key);
        if !matches!(kind, ErrorKind::MissingKey(key) if is_taken_out(key)) {
            let what = vocabulary::explain(&kind, &keys(&steps));
            problems.push(source.problem(span.as_ref(), what));
        }
        taken_out.extend(keys(&steps).last().map(|&key| key.to_owned()));
        if steps.is_empty() || problems.len() > MAX || !remove_entry(table.get_mut(), &steps) {
            return Err(problems);
        }
    }
}

/// Maximum number of reported problems.
const MAX: usize = 50;

/// Extends the steps to an entry by the unknown key beneath it.
fn to_key(mut steps: Vec<Step>, unknown: &str) -> Vec<Step> {
    let is_key = |step: &Step| matches!(step, Step::Key(key) if key == unknown);
    if let Some(at) = steps.iter().position(is_key) {
        steps.truncate(at + 1);
    }
    steps
}

/// A step on the path to a value.
#[derive(Clone)]
enum Step {
    Key(String),
    Index(usize),
}

fn keys(steps: &[Step]) -> Vec<&str> {
    let mut keys = Vec::with_capacity(steps.len());
    for step in steps {
        if let Step::Key(key) = step {
            keys.push(key.as_str());
        }
    }
    keys
}

/// Returns the steps to the innermost entry that contains `offset`. The span of a table is that of its header, so
/// nested entries are searched first.
fn in_table(table: &DeTable<'_>, offset: usize) -> Option<Vec<Step>> {
    table.iter().find_map(|(key, value)| {
        let holds = key.span().contains(&offset) || value.span().contains(&offset);
        let inside = in_value(value, offset).or_else(|| holds.then(Vec::new))?;
        Some([vec![Step::Key(key.get_ref().to_string())], inside].concat())
    })
}

fn in_value(value: &TomlSpanned<DeValue<'_>>, offset: usize) -> Option<Vec<Step>> {
    match value.get_ref() {
        DeValue::Table(table) => in_table(table, offset),
        DeValue::Array(array) => array.iter().enumerate().find_map(|(index, value)| {
            let holds = value.span().contains(&offset);
            let inside = in_value(value, offset).or_else(|| holds.then(Vec::new))?;
            Some([vec![Step::Index(index)], inside].concat())
        }),
        _ => None,
    }
}

/// Removes an entry. Returns `false` if there was none.
fn remove_entry(table: &mut DeTable<'_>, steps: &[Step]) -> bool {
    match steps {
        [Step::Key(key)] => table.remove(key.as_str()).is_some(),
        [Step::Key(key), rest @ ..] => {
            table.get_mut(key.as_str()).is_some_and(|value| take_out_of(value.get_mut(), rest))
        }
        _ => false,
    }
}

fn take_out_of(value: &mut DeValue<'_>, steps: &[Step]) -> bool {
    match (value, steps) {
        (DeValue::Table(table), _) => remove_entry(table, steps),
        (DeValue::Array(array), [Step::Index(index)]) => {
            let all = std::mem::replace(array, DeArray::new());
            let rest = all.into_iter().enumerate().filter(|(at, _)| at != index);
            *array = rest.map(|(_, value)| value).collect();
            true
        }
        (DeValue::Array(array), [Step::Index(index), rest @ ..]) => {
            array.get_mut(*index).is_some_and(|value| take_out_of(value.get_mut(), rest))
        }
        _ => false,
    }
}
