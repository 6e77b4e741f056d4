//! Directives as a tree: words, quotes, blocks, snippets, and the files that `import` names.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use crate::directive::{Directive, Place, SourceError};
use crate::includes;

/// Deepest nesting of blocks and of imports.
const MAX_DEPTH: usize = 64;
/// Maximum number of words of all files together.
const MAX_WORDS: usize = 1 << 20;
/// Maximum size of a file.
const MAX_BYTES: u64 = 16 << 20;

/// A word of a file.
#[derive(Debug, Clone)]
struct Word {
    text: String,
    place: Place,
    /// It is the first of its line.
    is_first: bool,
    is_quoted: bool,
}

impl Word {
    fn is(&self, text: &str) -> bool {
        !self.is_quoted && self.text == text
    }
}

/// Reads a file and all that it imports.
pub(super) struct Parser {
    /// The files that have been read.
    pub(super) files: Vec<PathBuf>,
    snippets: HashMap<String, Vec<Word>>,
    count: usize,
    words: usize,
}

impl Parser {
    pub(super) fn new() -> Self {
        Self { files: Vec::new(), snippets: HashMap::new(), count: 0, words: 0 }
    }

    /// Reads the main file.
    ///
    /// # Errors
    /// The file cannot be read, or is no Caddyfile.
    pub(super) fn file(&mut self, path: &Path) -> Result<Vec<Directive>, SourceError> {
        let words = self.read(path)?;
        let words = self.without_snippets(words)?;
        let words = self.expanded(words, 0)?;
        let mut at = 0;
        let all = self.block(&words, &mut at, 0)?;
        if at < words.len() {
            return Err(wrong(&words[at], "a `}` has no `{`"));
        }
        Ok(all)
    }

    fn read(&mut self, path: &Path) -> Result<Vec<Word>, SourceError> {
        let whole =
            |what: String| SourceError { place: Place { file: path.into(), line: 0 }, what };
        let size = path.metadata().map_err(|error| whole(error.to_string()))?.len();
        if size > MAX_BYTES {
            return Err(whole("the file is too large".into()));
        }
        let content = std::fs::read(path).map_err(|error| whole(error.to_string()))?;
        self.files.push(path.to_owned());
        let words = words(&with_environment(&String::from_utf8_lossy(&content)), &path.into())?;
        self.words += words.len();
        if self.words > MAX_WORDS {
            return Err(whole("the configuration is too large".into()));
        }
        Ok(words)
    }

    /// Keeps the snippets, and returns all other words.
    fn without_snippets(&mut self, words: Vec<Word>) -> Result<Vec<Word>, SourceError> {
        let mut rest = Vec::new();
        let mut at = 0;
        while at < words.len() {
            let word = &words[at];
            let name = word.text.strip_prefix('(').and_then(|text| text.strip_suffix(')'));
            let opens = words.get(at + 1).is_some_and(|next| next.is("{"));
            let (Some(name), true, true) = (name, word.is_first, opens) else {
                rest.push(word.clone());
                at += 1;
                continue;
            };
            let end = closing(&words, at + 1).ok_or_else(|| wrong(word, "a snippet has no end"))?;
            self.snippets.insert(name.to_owned(), words[at + 2..end].to_vec());
            at = end + 1;
        }
        Ok(rest)
    }

    /// Returns the words with those of imports in their places.
    fn expanded(&mut self, words: Vec<Word>, depth: usize) -> Result<Vec<Word>, SourceError> {
        let mut all = Vec::new();
        let mut at = 0;
        while at < words.len() {
            let word = &words[at];
            if !(word.is_first && word.is("import")) {
                all.push(word.clone());
                at += 1;
                continue;
            }
            let end = words[at + 1..]
                .iter()
                .position(|word| word.is_first)
                .map_or(words.len(), |n| at + 1 + n);
            let arguments: Vec<String> = words[at + 1..end]
                .iter()
                .filter(|word| !word.is("{"))
                .map(|word| word.text.clone())
                .collect();
            if depth >= MAX_DEPTH {
                return Err(wrong(word, "too many imports are nested"));
            }
            let Some(name) = arguments.first() else {
                return Err(wrong(word, "`import` names no snippet and no file"));
            };
            let found = self.imported(name, word)?;
            let found: Vec<Word> =
                found.into_iter().flat_map(|word| with_arguments(word, &arguments[1..])).collect();
            let found = self.expanded(found, depth + 1)?;
            self.words += found.len();
            if self.words > MAX_WORDS {
                return Err(wrong(word, "the configuration is too large"));
            }
            all.extend(found);
            at = end;
        }
        Ok(all)
    }

    fn imported(&mut self, name: &str, word: &Word) -> Result<Vec<Word>, SourceError> {
        if let Some(snippet) = self.snippets.get(name) {
            return Ok(snippet.clone());
        }
        let folder = word.place.file.parent().unwrap_or(Path::new("."));
        let path = folder.join(name);
        let is_pattern = includes::is_pattern(&path.to_string_lossy());
        if !is_pattern && !path.is_file() {
            return Err(wrong(word, &format!("there is no snippet and no file {name}")));
        }
        let mut all = Vec::new();
        for path in includes::matching(&path) {
            let words = self.read(&path)?;
            all.extend(self.without_snippets(words)?);
        }
        Ok(all)
    }

    /// Returns the directives up to the `}` of their block.
    fn block(
        &mut self,
        words: &[Word],
        at: &mut usize,
        depth: usize,
    ) -> Result<Vec<Directive>, SourceError> {
        let mut all = Vec::new();
        while let Some(first) = words.get(*at) {
            if first.is("}") {
                return Ok(all);
            }
            if depth >= MAX_DEPTH {
                return Err(wrong(first, "too many blocks are nested"));
            }
            self.count += 1;
            let mut directive = Directive {
                id: self.count,
                name: first.text.clone(),
                words: Vec::new(),
                block: None,
                place: first.place.clone(),
            };
            let is_block = first.is("{");
            if is_block {
                directive.name = String::new();
            } else {
                *at += 1;
                // Addresses of sites go on behind a comma.
                let goes_on = |directive: &Directive| {
                    depth == 0 && directive.words.last().unwrap_or(&directive.name).ends_with(',')
                };
                while let Some(word) =
                    words.get(*at).filter(|word| !word.is_first || goes_on(&directive))
                {
                    if word.is("{") || word.is("}") {
                        break;
                    }
                    directive.words.push(word.text.clone());
                    *at += 1;
                }
            }
            let opens =
                words.get(*at).is_some_and(|word| word.is("{") && (is_block || !word.is_first));
            if opens {
                *at += 1;
                directive.block = Some(self.block(words, at, depth + 1)?);
                if words.get(*at).is_none() {
                    return Err(wrong(first, "a block has no `}`"));
                }
                *at += 1;
            }
            all.push(directive);
        }
        Ok(all)
    }
}

fn wrong(word: &Word, what: &str) -> SourceError {
    SourceError { place: word.place.clone(), what: what.to_owned() }
}

/// Returns the position of the `}` that ends the block at `open`.
fn closing(words: &[Word], open: usize) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, word) in words.iter().enumerate().skip(open) {
        if word.is("{") {
            depth += 1;
        } else if word.is("}") {
            depth -= 1;
            if depth == 0 {
                return Some(at);
            }
        }
    }
    None
}

/// Returns a word with the arguments of an import in it; `{args[:]}` stands for all of them.
fn with_arguments(word: Word, arguments: &[String]) -> Vec<Word> {
    if matches!(word.text.as_str(), "{args[:]}" | "{args.*}") {
        return arguments
            .iter()
            .map(|text| Word { text: text.clone(), is_first: false, ..word.clone() })
            .collect();
    }
    let mut text = word.text.clone();
    for (at, argument) in arguments.iter().enumerate() {
        for form in [format!("{{args[{at}]}}"), format!("{{args.{at}}}")] {
            text = text.replace(&form, argument);
        }
    }
    vec![Word { text, ..word }]
}

/// Returns the text with the values of `{$NAME}` and `{$NAME:default}`.
fn with_environment(text: &str) -> String {
    let mut done = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("{$") {
        let Some(length) = rest[at..].find('}') else { break };
        let inner = &rest[at + 2..at + length];
        let (name, default) = inner.split_once(':').unwrap_or((inner, ""));
        let value = std::env::var(name).ok().filter(|value| !value.is_empty());
        done.push_str(&rest[..at]);
        done.push_str(&value.unwrap_or_else(|| default.to_owned()));
        rest = &rest[at + length + 1..];
    }
    done + rest
}

/// Splits a file into words.
fn words(text: &str, file: &Rc<Path>) -> Result<Vec<Word>, SourceError> {
    let mut all: Vec<Word> = Vec::new();
    let mut chars = text.trim_start_matches('\u{feff}').chars().peekable();
    let mut line = 1;
    let mut is_first = true;
    while let Some(c) = chars.next() {
        let place = Place { file: Rc::clone(file), line };
        match c {
            '\n' => {
                line += 1;
                is_first = true;
            }
            '\\' if matches!(chars.peek(), Some('\n')) => {
                chars.next();
                line += 1;
            }
            c if c.is_whitespace() => {}
            '#' => while chars.next_if(|c| *c != '\n').is_some() {},
            '"' | '`' => {
                let mut word = String::new();
                loop {
                    match chars.next() {
                        Some('\\') if c == '"' && matches!(chars.peek(), Some('"' | '\\')) => {
                            word.extend(chars.next());
                        }
                        Some(next) if next == c => break,
                        Some(next) => {
                            line += usize::from(next == '\n');
                            word.push(next);
                        }
                        None => {
                            return Err(SourceError {
                                place,
                                what: format!("a {c} is not closed"),
                            });
                        }
                    }
                }
                all.push(Word { text: word, place, is_first, is_quoted: true });
                is_first = false;
            }
            c => {
                let mut word = String::from(c);
                while let Some(next) = chars.next_if(|next| !next.is_whitespace()) {
                    word.push(next);
                }
                if let Some(mark) = word.strip_prefix("<<").filter(|mark| {
                    mark.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') && !mark.is_empty()
                }) {
                    let (text, lines) = heredoc(mark, &mut chars);
                    line += lines;
                    all.push(Word { text, place, is_first, is_quoted: true });
                } else {
                    all.push(Word { text: word, place, is_first, is_quoted: false });
                }
                is_first = false;
            }
        }
    }
    Ok(all)
}

/// Returns the text up to a line with the mark alone, without the indentation of that line.
fn heredoc(mark: &str, chars: &mut std::iter::Peekable<std::str::Chars<'_>>) -> (String, usize) {
    let mut lines: Vec<String> = Vec::new();
    let mut count = 0;
    let mut line = String::new();
    for c in chars.by_ref() {
        if c != '\n' {
            line.push(c);
            continue;
        }
        count += 1;
        if line.trim() == mark {
            line.clear();
            break;
        }
        lines.push(std::mem::take(&mut line));
    }
    // The first line is the rest of the one with the mark.
    let inner = lines.get(1..).unwrap_or_default();
    let indent = inner
        .iter()
        .filter(|line| !line.trim().is_empty())
        .map(|line| line.len() - line.trim_start().len())
        .min()
        .unwrap_or(0);
    let inner: Vec<&str> = inner.iter().map(|line| line.get(indent..).unwrap_or("")).collect();
    (inner.join("\n"), count)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Vec<Directive>, SourceError> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("Caddyfile");
        std::fs::write(&file, text).unwrap();
        Parser::new().file(&file)
    }

    #[test]
    fn snippets_and_addresses_are_expanded() {
        let tree = parse(
            "{\n\temail a@b.test\n}\n(common) {\n\tencode {args[0]} zstd\n\theader X \"a \\\"b\\\"\"\n}\na.test,\nb.test {\n\timport common gzip\n\thandle /x/* {\n\t\trespond `{\"a\": 1}` 200\n\t}\n}\n",
        )
        .unwrap();
        assert_eq!(tree.len(), 2);
        assert_eq!((tree[0].name.as_str(), tree[0].children()[0].name.as_str()), ("", "email"));
        assert_eq!(
            (tree[1].name.as_str(), &tree[1].words[..]),
            ("a.test,", &["b.test".to_owned()][..])
        );
        let inner = tree[1].children();
        assert_eq!(inner[0].words, ["gzip", "zstd"]);
        assert_eq!(inner[1].words, ["X", "a \"b\""]);
        assert_eq!(inner[2].children()[0].words, ["{\"a\": 1}", "200"]);
        assert_eq!(inner[2].place.line, 11);
        for wrong in ["a {\n", "}\n", "a {\n b \"c\n}\n", "a {\n import none\n}\n"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
