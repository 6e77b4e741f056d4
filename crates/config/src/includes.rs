//! The files of a configuration: the main one and those that `include` names, and values that stand elsewhere: `{env.NAME}`
//! and `{file.PATH}`.
//!
//! All files form one text, so that a position in it names a file and a line.

use std::borrow::Cow;
use std::collections::HashSet;
use std::ops::Range;
use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

use super::chroot;
use super::error::{Part, Problem, Source};
use super::glob::Glob;
use super::map_routes;
use super::secrets;
use super::syntax;

/// The text of all files.
pub(super) struct Files {
    pub(super) text: String,
    /// The files after the main one.
    pub(super) parts: Vec<Part>,
}

/// Maximum number of files, and of their bytes.
const MAX_FILES: usize = 2_000;
const MAX_BYTES: usize = 64 << 20;

impl Files {
    /// Reads the files that `text`, the content of the file at `path`, and they include.
    ///
    /// # Errors
    /// A file is missing, is not UTF-8, includes itself, or there are too many.
    pub(super) fn gather(path: &Path, text: &str) -> Result<Self, Vec<Problem>> {
        let mut files = Self { text: text.to_owned(), parts: Vec::new() };
        files.include(path, 0, &mut vec![real(path)]).map_err(|problem| vec![problem])?;
        Ok(files)
    }

    /// Adds what the file that begins at `start` includes. `stack` has the files that include it.
    ///
    /// # Errors
    /// A file is missing, is not UTF-8, includes itself, or there are too many.
    fn include(
        &mut self,
        main: &Path,
        start: usize,
        stack: &mut Vec<PathBuf>,
    ) -> Result<(), Problem> {
        let own = self.text[start..].to_owned();
        // Errors of the form are reported when the file is read.
        let (table, _) = DeTable::parse_recoverable(&own);
        let folder = stack.last().and_then(|path| path.parent()).unwrap_or(Path::new("."));
        let folder = folder.to_owned();
        for (pattern, span) in included(table.get_ref()) {
            let place = start + span.start..start + span.end;
            let problem = |files: &Self, what: String| {
                let source = Source { path: main, text: &files.text, parts: &files.parts };
                source.problem(Some(&place), format!("include: {what}"))
            };
            let found = matching(&folder.join(&pattern)).map_err(|what| problem(self, what))?;
            for path in found {
                if stack.contains(&real(&path)) {
                    return Err(problem(self, format!("{} includes itself", path.display())));
                }
                let text = read(&path).map_err(|what| problem(self, what))?;
                if self.parts.len() >= MAX_FILES || self.text.len() + text.len() > MAX_BYTES {
                    let what =
                        format!("there are more than {MAX_FILES} files or {MAX_BYTES} bytes");
                    return Err(problem(self, what));
                }
                self.text.push('\n');
                let start = self.text.len();
                self.text.push_str(&text);
                stack.push(real(&path));
                self.parts.push(Part { start, path });
                self.include(main, start, stack)?;
                stack.pop();
            }
        }
        Ok(())
    }
}

/// Returns the patterns of `include` with their positions.
fn included(table: &DeTable<'_>) -> Vec<(String, Range<usize>)> {
    let Some(value) = table.get("include") else { return Vec::new() };
    let one = |value: &Spanned<DeValue<'_>>| match value.get_ref() {
        DeValue::String(text) => Some((text.to_string(), value.span())),
        _ => None,
    };
    match value.get_ref() {
        DeValue::Array(list) => list.iter().filter_map(one).collect(),
        _ => one(value).into_iter().collect(),
    }
}

/// Returns the files that a path with any number of `*` in its names matches, in the order of their names. A path without `*`
/// names one file.
fn matching(pattern: &Path) -> Result<Vec<PathBuf>, String> {
    let mut found = vec![PathBuf::new()];
    for name in pattern.components() {
        let text = name.as_os_str().to_string_lossy();
        if !text.contains('*') {
            found.iter_mut().for_each(|path| path.push(name));
            continue;
        }
        let glob = Glob::new(&text);
        let mut next = Vec::new();
        for folder in &found {
            let entries =
                chroot::reach(folder).ok().and_then(|folder| std::fs::read_dir(folder).ok());
            let names = entries.into_iter().flatten().flatten().map(|entry| entry.file_name());
            let is_wanted = |name: &std::ffi::OsString| {
                let name = name.to_string_lossy();
                // As in a shell, a pattern does not match hidden files.
                glob.matches(name.as_bytes()) && (!name.starts_with('.') || text.starts_with('.'))
            };
            let mut names: Vec<_> = names.filter(is_wanted).collect();
            names.sort();
            next.extend(names.into_iter().map(|name| folder.join(name)));
        }
        found = next;
    }
    if !pattern.to_string_lossy().contains('*') && found.iter().any(|path| !is_file(path)) {
        return Err(format!("there is no file {}", pattern.display()));
    }
    found.retain(|path| is_file(path));
    Ok(found)
}

fn is_file(path: &Path) -> bool {
    chroot::reach(path).is_ok_and(|path| path.is_file())
}

fn real(path: &Path) -> PathBuf {
    let absolute =
        chroot::reach(path).and_then(|path| path.canonicalize().map_err(|e| e.to_string()));
    absolute.unwrap_or_else(|_| path.to_owned())
}

fn read(path: &Path) -> Result<String, String> {
    let content =
        chroot::reach(path).and_then(|path| std::fs::read(path).map_err(|error| error.to_string()));
    let content = content.map_err(|error| format!("{}: {error}", path.display()))?;
    String::from_utf8(content).map_err(|_| format!("{} is not UTF-8", path.display()))
}

/// Parses all files into one table, and replaces `{env.NAME}` and `{file.PATH}` in it.
///
/// # Errors
/// A file is not TOML, two files set the same key, or a value is not there.
pub(super) fn parse<'t>(source: &Source<'t>) -> Result<Spanned<DeTable<'t>>, Vec<Problem>> {
    let mut problems = Vec::new();
    let mut whole = DeTable::new();
    for (start, text) in source.files() {
        let (table, errors) = DeTable::parse_recoverable(text);
        if let Some(error) = errors.first() {
            let span = error.span().map(|span| start + span.start..start + span.end);
            problems.push(syntax::problem(source, span, error.message()));
            continue;
        }
        let mut values = Values { source, start, problems: &mut problems };
        let table = values.table(table.into_inner());
        merge(&mut whole, table, source, &mut problems);
    }
    map_routes::expand(&mut whole, source, &mut problems);
    if problems.is_empty() { Ok(Spanned::new(0..0, whole)) } else { Err(problems) }
}

/// Adds the tables of a file to those of the files before.
fn merge<'t>(
    whole: &mut DeTable<'t>,
    table: DeTable<'t>,
    source: &Source<'_>,
    problems: &mut Vec<Problem>,
) {
    for (key, value) in table {
        let span = key.span();
        let Some(before) = whole.get_mut(&**key.get_ref()) else {
            whole.insert(key, value);
            continue;
        };
        match (before.get_mut(), value.into_inner()) {
            (DeValue::Array(before), DeValue::Array(more)) => {
                let all = std::mem::replace(before, DeArray::new());
                *before = all.into_iter().chain(more).collect();
            }
            (DeValue::Table(before), DeValue::Table(more)) => {
                for (key, value) in more {
                    if before.get(&**key.get_ref()).is_some() {
                        let what = format!("the key `{}` is in another file, too", key.get_ref());
                        problems.push(source.problem(Some(&key.span()), what));
                    } else {
                        before.insert(key, value);
                    }
                }
            }
            _ if key.get_ref() == "include" => {}
            _ => {
                let what = format!("the key `{}` is in another file, too", key.get_ref());
                problems.push(source.problem(Some(&span), what));
            }
        }
    }
}

/// Puts the values of a file in the place of their names, and its positions into the whole text.
struct Values<'a, 's> {
    source: &'a Source<'s>,
    start: usize,
    problems: &'a mut Vec<Problem>,
}

impl Values<'_, '_> {
    fn table<'t>(&mut self, table: DeTable<'t>) -> DeTable<'t> {
        let entries = table.into_iter().map(|(key, value)| {
            let span = self.moved(key.span());
            (Spanned::new(span, key.into_inner()), self.value(value))
        });
        entries.collect()
    }

    fn value<'t>(&mut self, value: Spanned<DeValue<'t>>) -> Spanned<DeValue<'t>> {
        let span = self.moved(value.span());
        let value = match value.into_inner() {
            DeValue::Table(table) => DeValue::Table(self.table(table)),
            DeValue::Array(list) => {
                DeValue::Array(list.into_iter().map(|value| self.value(value)).collect())
            }
            DeValue::String(text) => match self.replaced(&text, &span) {
                Some(text) => DeValue::String(Cow::Owned(text)),
                None => DeValue::String(text),
            },
            other => other,
        };
        Spanned::new(span, value)
    }

    fn moved(&self, span: Range<usize>) -> Range<usize> {
        self.start + span.start..self.start + span.end
    }

    /// Returns the text with the values; `None` if it names none.
    fn replaced(&mut self, text: &str, span: &Range<usize>) -> Option<String> {
        names(text).next()?;
        let replaced = replace(text, self.source.path);
        replaced
            .inspect_err(|what| self.problems.push(self.source.problem(Some(span), what.clone())))
            .ok()
    }
}

/// What a value is named by.
enum Name<'t> {
    Variable(&'t str),
    File(&'t str),
}

/// Returns the names of values in a text, with their places.
fn names(text: &str) -> impl Iterator<Item = (Range<usize>, Name<'_>)> {
    text.match_indices('{').filter_map(|(start, _)| {
        let end = start + text[start..].find('}')? + 1;
        let (kind, name) = text[start + 1..end - 1].split_once('.')?;
        let is_variable = |name: &str| {
            name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
                && !name.is_empty()
        };
        let name = match kind {
            "env" if is_variable(name) => Name::Variable(name),
            "file" if !name.is_empty() => Name::File(name),
            _ => return None,
        };
        Some((start..end, name))
    })
}

/// Returns the text with the values. They are secret: no message shows them.
fn replace(text: &str, main: &Path) -> Result<String, String> {
    let mut replaced = String::with_capacity(text.len());
    let mut at = 0;
    for (place, name) in names(text) {
        let value = match name {
            Name::Variable(name) => std::env::var(name).map_err(|_| {
                format!("the environment variable {name} is not set, or is not UTF-8")
            })?,
            Name::File(name) => {
                let value = read(&value_file(main, name))?;
                value.trim_end_matches(['\n', '\r']).to_owned()
            }
        };
        secrets::never_show(&value, &text[place.clone()]);
        replaced.push_str(&text[at..place.start]);
        replaced.push_str(&value);
        at = place.end;
    }
    replaced.push_str(&text[at..]);
    Ok(replaced)
}

/// Returns the path of the file that `{file.PATH}` names.
fn value_file(main: &Path, name: &str) -> PathBuf {
    main.parent().unwrap_or(Path::new("")).join(name)
}

/// Returns `true` if the text may name values that stand elsewhere.
pub(super) fn names_values(text: &str) -> bool {
    names(text).next().is_some()
}

/// Returns the files whose content stands in values of a text.
pub(super) fn value_files(main: &Path, text: &str) -> HashSet<PathBuf> {
    let files = names(text).filter_map(|(_, name)| match name {
        Name::File(name) => Some(value_file(main, name)),
        Name::Variable(_) => None,
    });
    files.collect()
}

/// Returns the text of all files as one, in the form of TOML. With `values`, those stand in the place of their names.
pub(super) fn merged(source: &Source<'_>, values: bool) -> String {
    let mut whole = toml::Table::new();
    for (_, text) in source.files() {
        let table: toml::Table = text.parse().unwrap_or_default();
        for (key, value) in table {
            use toml::Value::{Array, Table};
            match (whole.get_mut(&key), value) {
                (_, _) if key == "include" => {}
                (Some(Array(before)), Array(more)) => before.extend(more),
                (Some(Table(before)), Table(more)) => before.extend(more),
                (_, value) => drop(whole.insert(key, value)),
            }
        }
    }
    if values {
        whole.iter_mut().for_each(|(_, value)| with_values(value, source.path));
    }
    whole.to_string()
}

fn with_values(value: &mut toml::Value, main: &Path) {
    match value {
        toml::Value::String(text) => {
            if let Ok(replaced) = replace(text, main) {
                *text = replaced;
            }
        }
        toml::Value::Array(list) => list.iter_mut().for_each(|value| with_values(value, main)),
        toml::Value::Table(table) => {
            table.iter_mut().for_each(|(_, value)| with_values(value, main));
        }
        _ => {}
    }
}
