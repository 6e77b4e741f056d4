//! Directives as a tree: lines, quotes, sections, and the files that `Include` names in their places.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use crate::directive::{Directive, Place, SourceError};
use crate::includes;
use crate::sources::Sources;

/// Deepest nesting of sections.
const MAX_DEPTH: usize = 64;

/// Reads a file and all that it includes.
pub(super) struct Parser {
    /// `ServerRoot`: the directory to which relative names are relative.
    pub(super) root: PathBuf,
    pub(super) sources: Sources,
    /// Directives of `<IfModule !…>` and the like, which are not in force.
    pub(super) skipped: Vec<Directive>,
    /// Names of `Define`, with their values.
    defined: HashMap<String, String>,
    count: usize,
}

/// A section whose end has not been read.
struct Open {
    directive: Directive,
    /// What its directives are for.
    kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    /// Requests.
    Section,
    /// A condition that holds: they stand where the section does.
    Inline,
    /// A condition that does not hold.
    Skipped,
}

impl Parser {
    pub(super) fn new(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
            sources: Sources::default(),
            skipped: Vec::new(),
            defined: HashMap::new(),
            count: 0,
        }
    }

    /// Returns a number that no directive has.
    pub(super) fn next_id(&mut self) -> usize {
        self.count += 1;
        self.count
    }

    /// Reads the main file, or one that another includes.
    ///
    /// # Errors
    /// The file cannot be read, or is not in the syntax of Apache.
    pub(super) fn file(&mut self, path: &Path) -> Result<Vec<Directive>, SourceError> {
        let text = self.sources.enter(path)?;
        let parsed = self.lines(&text, &path.into());
        self.sources.leave();
        parsed
    }

    fn lines(&mut self, text: &str, file: &Rc<Path>) -> Result<Vec<Directive>, SourceError> {
        let mut all = Vec::new();
        let mut open: Vec<Open> = Vec::new();
        let mut lines = text.trim_start_matches('\u{feff}').lines().zip(1..);
        while let Some((first, line)) = lines.next() {
            let place = Place { file: Rc::clone(file), line };
            let mut text = first.trim().to_owned();
            while text.ends_with('\\') && !text.starts_with('#') {
                text.pop();
                let Some((next, _)) = lines.next() else { break };
                text.push_str(next.trim());
            }
            if text.is_empty() || text.starts_with('#') {
                continue;
            }
            let error = |what: String| SourceError { place: place.clone(), what };
            if let Some(name) = text.strip_prefix("</") {
                let name = name.trim_end_matches('>').trim();
                let Some(Open { directive, kind }) = open.pop() else {
                    return Err(error(format!("</{name}> has no begin")));
                };
                if !directive.name.eq_ignore_ascii_case(name) {
                    return Err(error(format!("</{name}> ends <{}>", directive.name)));
                }
                self.close(directive, kind, innermost(&mut open, &mut all));
                continue;
            }
            let is_section = text.starts_with('<');
            let content = if is_section {
                let inner = text.strip_prefix('<').and_then(|text| text.strip_suffix('>'));
                inner.ok_or_else(|| error("a section has no `>`".into()))?.to_owned()
            } else {
                text
            };
            let content = self.with_defined(&content);
            let mut words = words(&content).map_err(error)?;
            if words.is_empty() {
                return Err(SourceError { place, what: "a section has no name".into() });
            }
            self.count += 1;
            let name = words.remove(0);
            let directive = Directive { id: self.count, name, words, block: None, place };
            if is_section {
                if open.len() >= MAX_DEPTH {
                    let what = "too many sections are nested".to_owned();
                    return Err(SourceError { place: directive.place, what });
                }
                let kind = self.kind(&directive);
                open.push(Open {
                    directive: Directive { block: Some(Vec::new()), ..directive },
                    kind,
                });
                continue;
            }
            let is_skipped = open.iter().any(|open| open.kind == Kind::Skipped);
            let included = match is_skipped {
                true => Vec::new(),
                false => self.effect(&directive)?,
            };
            let target = innermost(&mut open, &mut all);
            target.push(directive);
            target.extend(included);
        }
        match open.pop() {
            Some(Open { directive, .. }) => {
                let what = format!("<{}> has no end", directive.name);
                Err(SourceError { place: directive.place, what })
            }
            None => Ok(all),
        }
    }

    /// Adds a section, or what is in it, to what is around it.
    fn close(&mut self, mut directive: Directive, kind: Kind, target: &mut Vec<Directive>) {
        match kind {
            Kind::Section => target.push(directive),
            Kind::Inline => {
                let inner = directive.block.take().unwrap_or_default();
                target.push(directive);
                target.extend(inner);
            }
            Kind::Skipped => self.skipped.push(directive),
        }
    }

    fn kind(&self, section: &Directive) -> Kind {
        let word = section.word(0);
        let (is_negated, name) = match word.strip_prefix('!') {
            Some(name) => (true, name),
            None => (false, word),
        };
        let holds = match section.name.to_ascii_lowercase().as_str() {
            "ifmodule" => true,
            "ifdefine" => self.defined.contains_key(name),
            "iffile" => self.root.join(name).exists(),
            "ifversion" => {
                return if holds_version(&section.words) { Kind::Inline } else { Kind::Skipped };
            }
            "ifdirective" | "ifsection" => true,
            _ => return Kind::Section,
        };
        if holds != is_negated { Kind::Inline } else { Kind::Skipped }
    }

    /// Does what a directive does while the file is read, and returns what it includes.
    fn effect(&mut self, directive: &Directive) -> Result<Vec<Directive>, SourceError> {
        match directive.name.to_ascii_lowercase().as_str() {
            "define" => {
                let value = directive.word(1).to_owned();
                self.defined.insert(directive.word(0).to_owned(), value);
            }
            "undefine" => drop(self.defined.remove(directive.word(0))),
            "serverroot" => self.root = self.root.join(directive.word(0)),
            "include" => return self.include(directive, true),
            "includeoptional" => return self.include(directive, false),
            _ => {}
        }
        Ok(Vec::new())
    }

    fn include(
        &mut self,
        directive: &Directive,
        is_needed: bool,
    ) -> Result<Vec<Directive>, SourceError> {
        let mut path = self.root.join(directive.word(0));
        if path.is_dir() {
            path.push("*");
        }
        let is_pattern = includes::is_pattern(&path.to_string_lossy());
        if is_needed && !is_pattern && !path.is_file() {
            let what = format!("{} cannot be read", path.display());
            return Err(SourceError { place: directive.place.clone(), what });
        }
        let mut all = Vec::new();
        for path in includes::matching(&path) {
            all.extend(self.file(&path)?);
        }
        Ok(all)
    }

    /// Returns the text with the values of `${NAME}`: of `Define`, or of the environment.
    fn with_defined(&self, text: &str) -> String {
        let mut done = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(at) = rest.find("${") {
            let Some(length) = rest[at..].find('}') else { break };
            let name = &rest[at + 2..at + length];
            let value = self.defined.get(name).cloned().or_else(|| debian_default(name));
            done.push_str(&rest[..at]);
            done.push_str(&value.unwrap_or_else(|| rest[at..=at + length].to_owned()));
            rest = &rest[at + length + 1..];
        }
        done + rest
    }
}

fn innermost<'a>(open: &'a mut [Open], all: &'a mut Vec<Directive>) -> &'a mut Vec<Directive> {
    match open.last_mut() {
        Some(Open { directive, .. }) => directive.block.get_or_insert_default(),
        None => all,
    }
}

/// Variables that Debian's Apache has from `/etc/apache2/envvars`.
fn debian_default(name: &str) -> Option<String> {
    let value = match name {
        "APACHE_LOG_DIR" => "/var/log/apache2",
        "APACHE_RUN_DIR" => "/var/run/apache2",
        "APACHE_LOCK_DIR" => "/var/lock/apache2",
        "APACHE_PID_FILE" => "/var/run/apache2/apache2.pid",
        "APACHE_RUN_USER" | "APACHE_RUN_GROUP" => "www-data",
        _ => return None,
    };
    Some(value.to_owned())
}

/// Compares the version with 2.4, as `<IfVersion >= 2.4>` does.
fn holds_version(words: &[String]) -> bool {
    let (sign, text) = match words {
        [text] => ("=", text.as_str()),
        [sign, text, ..] => (sign.as_str(), text.as_str()),
        [] => return true,
    };
    let mut numbers = text.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    let own = (2, 4);
    let (is_negated, sign) = match sign.strip_prefix('!') {
        Some(sign) => (true, sign),
        None => (false, sign),
    };
    let holds = match sign {
        ">" => own > version,
        ">=" => own >= version,
        "<" => own < version,
        "<=" => own <= version,
        _ => own == version,
    };
    holds != is_negated
}

/// Splits a line into words; a word in quotes may have blanks.
fn words(line: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut rest = line.trim_start();
    while let Some(first) = rest.chars().next() {
        let mut word = String::new();
        let mut end = rest.len();
        if matches!(first, '"' | '\'') {
            let mut chars = rest.char_indices().skip(1);
            let mut is_closed = false;
            while let Some((at, c)) = chars.next() {
                match c {
                    '\\' => match chars.next() {
                        Some((_, next)) if next == first || next == '\\' => word.push(next),
                        Some((_, next)) => word.extend(['\\', next]),
                        None => word.push('\\'),
                    },
                    c if c == first => {
                        (is_closed, end) = (true, at + 1);
                        break;
                    }
                    c => word.push(c),
                }
            }
            if !is_closed {
                return Err(format!("a {first} is not closed"));
            }
        } else {
            let mut chars = rest.char_indices().peekable();
            while let Some((at, c)) = chars.next() {
                match c {
                    // A blank after a backslash belongs to the word.
                    '\\' if chars.peek().is_some_and(|(_, next)| matches!(next, ' ' | '\t')) => {
                        chars.next();
                        word.push(' ');
                    }
                    c if c.is_whitespace() => {
                        end = at;
                        break;
                    }
                    c => word.push(c),
                }
            }
        }
        words.push(word);
        rest = rest[end..].trim_start();
    }
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_those_of_apache() {
        for (text, expected) in [
            (r#"Header set A "b \"c\" d""#, vec!["Header", "set", "A", r#"b "c" d"#]),
            (r"RewriteRule ^a\.b\ c$ - [L]", vec!["RewriteRule", r"^a\.b c$", "-", "[L]"]),
            (r#"RewriteRule "^\.(?!x)" - [F]"#, vec!["RewriteRule", r"^\.(?!x)", "-", "[F]"]),
            ("A 'b c'  d", vec!["A", "b c", "d"]),
        ] {
            assert_eq!(words(text).unwrap(), expected, "{text}");
        }
        assert!(words("A \"b").is_err());
    }

    #[test]
    fn conditions_of_reading_are_evaluated() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.conf");
        let text = "Define NAME x\n<IfModule mod_a.c>\nA ${NAME} \\\n  b\n</IfModule>\n<IfModule !mod_b.c>\nB\n</IfModule>\n<IfDefine NAME>\nC\n</IfDefine>\n<IfVersion < 2.4>\nD\n</IfVersion>\n<Location /a>\nE\n</Location>\n";
        std::fs::write(&file, text).unwrap();
        let mut parser = Parser::new(folder.path());
        let tree = parser.file(&file).unwrap();
        let names: Vec<&str> = tree.iter().map(|directive| directive.name.as_str()).collect();
        assert_eq!(names, ["Define", "IfModule", "A", "IfDefine", "C", "Location"]);
        assert_eq!(tree[2].words, ["x", "b"]);
        assert_eq!(tree[2].place.line, 3);
        assert_eq!(tree[5].children()[0].name, "E");
        assert_eq!(parser.skipped.len(), 2);
        for wrong in ["<Location /a>\n", "</Location>\n", "<A\n", "<A>\n</B>\n"] {
            std::fs::write(&file, wrong).unwrap();
            assert!(Parser::new(folder.path()).file(&file).is_err(), "{wrong}");
        }
    }
}
