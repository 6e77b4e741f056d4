//! Directives as a tree, with the files that `include` names in their places.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::lexer::{Lexer, Malformed, Token};
use super::stock;
use crate::directive::SourceError;
pub(super) use crate::directive::{Directive, Place};
use crate::includes;
use crate::sources::Sources;

/// Directories above that of the main file in which included files are looked for.
const MAX_OUTER: usize = 2;

/// Deepest nesting of braces.
const MAX_DEPTH: usize = 64;

/// Reads a file and all that it includes.
pub(super) struct Parser {
    /// Directory to which relative names of files are relative.
    folder: PathBuf,
    pub(super) sources: Sources,
    /// The numbers of `include` directives whose file is not here, but comes with nginx.
    pub(super) stock: Vec<usize>,
    count: usize,
}

impl Parser {
    pub(super) fn new(folder: &Path) -> Self {
        let folder = folder.to_owned();
        Self { folder, sources: Sources::default(), stock: Vec::new(), count: 0 }
    }

    /// Reads the main file, or one that another includes.
    ///
    /// # Errors
    /// The file cannot be read, or is not in the syntax of nginx.
    pub(super) fn file(&mut self, path: &Path) -> Result<Vec<Directive>, SourceError> {
        let file: Rc<Path> = path.into();
        let text = self.sources.enter(path)?;
        let mut lexer = Lexer::new(&text);
        let parsed = self.block(&mut lexer, &file, 0);
        self.sources.leave();
        parsed
    }

    fn block(
        &mut self,
        lexer: &mut Lexer<'_>,
        file: &Rc<Path>,
        depth: usize,
    ) -> Result<Vec<Directive>, SourceError> {
        let error = |Malformed { line, what }| SourceError {
            place: Place { file: Rc::clone(file), line },
            what,
        };
        let mut all = Vec::new();
        let mut words: Vec<String> = Vec::new();
        let (mut start, mut id) = (0, 0);
        loop {
            let Some((token, line)) = lexer.next().map_err(error)? else {
                return match (words.is_empty(), depth) {
                    (true, 0) => Ok(all),
                    (true, _) => Err(error(lexer.malformed("a `{` is not closed"))),
                    (false, _) => Err(error(lexer.malformed(format!("`{}` has no `;`", words[0])))),
                };
            };
            match token {
                Token::Word(word) => {
                    if words.is_empty() {
                        self.count += 1;
                        (start, id) = (line, self.count);
                    }
                    words.push(word);
                }
                Token::End if words.is_empty() => {
                    return Err(error(lexer.malformed("unexpected `;`")));
                }
                Token::Open if words.is_empty() => {
                    return Err(error(lexer.malformed("unexpected `{`")));
                }
                Token::Close if !words.is_empty() => {
                    return Err(error(Malformed {
                        line: start,
                        what: format!("`{}` has no `;`", words[0]),
                    }));
                }
                Token::Close if depth == 0 => {
                    return Err(error(lexer.malformed("unexpected `}`")));
                }
                Token::Close => return Ok(all),
                Token::End => {
                    let place = Place { file: Rc::clone(file), line: start };
                    let directive = directive(id, std::mem::take(&mut words), None, place);
                    let includes =
                        (directive.name == "include").then(|| directive.word(0).to_owned());
                    let place = directive.place.clone();
                    all.push(directive);
                    if let Some(pattern) = includes {
                        self.include(&pattern, (id, &place), &mut all)?;
                    }
                }
                Token::Open => {
                    let place = Place { file: Rc::clone(file), line: start };
                    let (words, start_id) = (std::mem::take(&mut words), id);
                    let block = if words[0].ends_with("_by_lua_block") {
                        lexer.skip_block().map_err(error)?;
                        Vec::new()
                    } else if depth >= MAX_DEPTH {
                        return Err(error(lexer.malformed("too many braces are nested")));
                    } else {
                        self.block(lexer, file, depth + 1)?
                    };
                    all.push(directive(start_id, words, Some(block), place));
                }
            }
        }
    }

    /// Returns the path of an included file. The main file may be one of `sites-enabled`, whose names are relative to the
    /// directory of `nginx.conf`.
    fn path_of(&self, pattern: &str) -> PathBuf {
        let own = self.folder.join(pattern);
        if includes::is_pattern(pattern) || own.is_file() {
            return own;
        }
        let outer = self.folder.ancestors().skip(1).take(MAX_OUTER);
        outer.map(|folder| folder.join(pattern)).find(|path| path.is_file()).unwrap_or(own)
    }

    fn include(
        &mut self,
        pattern: &str,
        (id, place): (usize, &Place),
        all: &mut Vec<Directive>,
    ) -> Result<(), SourceError> {
        let path = self.path_of(pattern);
        if !includes::is_pattern(pattern) && !path.is_file() {
            if let Some(text) = stock::text(pattern) {
                self.stock.push(id);
                let file: Rc<Path> = path.as_path().into();
                all.extend(self.block(&mut Lexer::new(&text), &file, 0)?);
                return Ok(());
            }
            let what = format!("{} cannot be read", path.display());
            return Err(SourceError { place: place.clone(), what });
        }
        for path in includes::matching(&path) {
            all.extend(self.file(&path)?);
        }
        Ok(())
    }
}

fn directive(
    id: usize,
    mut words: Vec<String>,
    block: Option<Vec<Directive>>,
    place: Place,
) -> Directive {
    let name = words.remove(0);
    Directive { id, name, words, block, place }
}
