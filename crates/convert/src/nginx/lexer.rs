//! The words of an nginx configuration: quotes, escapes, comments and variables as `ngx_conf_read_token` reads them.

use std::iter::Peekable;
use std::str::Chars;

/// A part of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Token {
    /// A word, without its quotes.
    Word(String),
    /// `;`
    End,
    /// `{`
    Open,
    /// `}`
    Close,
}

/// A text that is not in the syntax of nginx.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Malformed {
    pub(super) line: usize,
    pub(super) what: String,
}

/// Reads tokens, each with its line.
pub(super) struct Lexer<'t> {
    rest: Peekable<Chars<'t>>,
    line: usize,
}

impl<'t> Lexer<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        Self { rest: text.trim_start_matches('\u{feff}').chars().peekable(), line: 1 }
    }

    pub(super) fn malformed(&self, what: impl Into<String>) -> Malformed {
        Malformed { line: self.line, what: what.into() }
    }

    fn take(&mut self) -> Option<char> {
        let next = self.rest.next();
        self.line += usize::from(next == Some('\n'));
        next
    }

    /// Returns the next token with its line; `None` at the end of the file.
    pub(super) fn next(&mut self) -> Result<Option<(Token, usize)>, Malformed> {
        while let Some(&c) = self.rest.peek() {
            match c {
                ' ' | '\t' | '\r' | '\n' => drop(self.take()),
                '#' => {
                    while self.rest.peek().is_some_and(|&c| c != '\n') && self.take().is_some() {}
                }
                _ => break,
            }
        }
        let line = self.line;
        let Some(&first) = self.rest.peek() else { return Ok(None) };
        let sign = match first {
            ';' => Token::End,
            '{' => Token::Open,
            '}' => Token::Close,
            '"' | '\'' => {
                self.take();
                return self.quoted(first).map(|word| Some((Token::Word(word), line)));
            }
            _ => return self.plain().map(|word| Some((Token::Word(word), line))),
        };
        self.take();
        Ok(Some((sign, line)))
    }

    fn quoted(&mut self, quote: char) -> Result<String, Malformed> {
        let mut word = String::new();
        loop {
            match self.take() {
                None => return Err(self.malformed(format!("a {quote} is not closed"))),
                Some('\\') => self.escaped(&mut word),
                Some(c) if c == quote => break,
                Some(c) => word.push(c),
            }
        }
        match self.rest.peek().copied() {
            None | Some(' ' | '\t' | '\r' | '\n' | ';' | '{' | ')') => Ok(word),
            Some(c) => Err(self.malformed(format!("unexpected {c:?} after a quoted word"))),
        }
    }

    fn plain(&mut self) -> Result<String, Malformed> {
        let mut word = String::new();
        let mut after_dollar = false;
        while let Some(&c) = self.rest.peek() {
            match c {
                ' ' | '\t' | '\r' | '\n' | ';' => break,
                // `${name}` is a variable.
                '{' if !after_dollar => break,
                '\\' => {
                    self.take();
                    self.escaped(&mut word);
                }
                _ => {
                    self.take();
                    word.push(c);
                }
            }
            after_dollar = c == '$';
        }
        Ok(word)
    }

    /// Reads what follows a backslash. It disappears before quotes, backslashes and the letters of control characters.
    fn escaped(&mut self, word: &mut String) {
        match self.take() {
            Some(c @ ('"' | '\'' | '\\')) => word.push(c),
            Some('t') => word.push('\t'),
            Some('r') => word.push('\r'),
            Some('n') => word.push('\n'),
            Some(c) => word.extend(['\\', c]),
            None => word.push('\\'),
        }
    }

    /// Skips the text of another language, up to the brace that closes it. The opening one has been read.
    pub(super) fn skip_block(&mut self) -> Result<(), Malformed> {
        let mut depth = 1;
        while let Some(c) = self.take() {
            match c {
                '{' => depth += 1,
                '}' => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                return Ok(());
            }
        }
        Err(self.malformed("a `{` is not closed"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        let mut lexer = Lexer::new(text);
        let mut all = Vec::new();
        while let Some((token, _)) = lexer.next().unwrap() {
            all.push(match token {
                Token::Word(word) => word,
                Token::End => ";".into(),
                Token::Open => "{".into(),
                Token::Close => "}".into(),
            });
        }
        all
    }

    #[test]
    fn words_are_those_of_nginx() {
        for (text, expected) in [
            ("a b;", vec!["a", "b", ";"]),
            ("a#b c # d\n;", vec!["a#b", "c", ";"]),
            ("r \"a b{;\" 'c\"d' ;", vec!["r", "a b{;", "c\"d", ";"]),
            (r"r ^/a\.b\\.c$ \x;", vec!["r", r"^/a\.b\.c$", r"\x", ";"]),
            ("x ${a}b {y z}", vec!["x", "${a}b", "{", "y", "z}"]),
            ("x{ }", vec!["x", "{", "}"]),
            ("if ($a = \"b\") {", vec!["if", "($a", "=", "b", ")", "{"]),
        ] {
            assert_eq!(words(text), expected, "{text}");
        }
    }

    #[test]
    fn errors_have_lines() {
        let mut lexer = Lexer::new("a\n\"b");
        assert!(lexer.next().is_ok());
        assert_eq!(
            lexer.next().unwrap_err(),
            Malformed { line: 2, what: "a \" is not closed".into() }
        );
        assert!(Lexer::new("\"a\"b").next().is_err());
    }
}
