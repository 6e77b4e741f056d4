//! Splits a worker's output by its marks into text, callouts and the end of the response. No I/O.

use std::fs::File;
use std::io::{self, Read};
use std::sync::Arc;

use bytes::{Buf, Bytes};
use memchr::memmem::Finder;

/// Length of the prefix that all marks of a worker share, so that one search finds each of them.
const SHARED: usize = 16;
/// Length of a mark: the shared prefix and 128 random bits.
const LENGTH: usize = SHARED + 32;
/// Size of the longest callout.
const CALLOUT: usize = 64 * 1024;

/// The marks of one worker. They are random, so that no text can contain one by accident or malice.
#[derive(Debug)]
pub(in super::super) struct Marks {
    finder: Finder<'static>,
    texts: [String; 3],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mark {
    EndOfResponse,
    Callout,
    EndOfCallout,
}

const MARKS: [Mark; 3] = [Mark::EndOfResponse, Mark::Callout, Mark::EndOfCallout];

/// The result of a search for a mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hit {
    Mark(usize, Mark),
    /// The bytes from here on may be the beginning of a mark.
    Begun(usize),
    Nothing,
}

impl Marks {
    /// Creates random marks.
    pub(in super::super) fn new() -> io::Result<Self> {
        let mut random = [0; SHARED / 2 + 3 * 16];
        File::open("/dev/urandom")?.read_exact(&mut random)?;
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let (shared, own) = random.split_at(SHARED / 2);
        let shared = hex(shared);
        let text = |at: usize| format!("{shared}{}", hex(&own[at * 16..at * 16 + 16]));
        let texts = [text(0), text(1), text(2)];
        Ok(Self { finder: Finder::new(shared.as_bytes()).into_owned(), texts })
    }

    /// Returns the variables that give a worker its marks.
    pub(in super::super) fn variables(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let names = ["CGIPLUSEOF", "CGIPLUSESC", "CGIPLUSEOT"];
        names.into_iter().zip(self.texts.iter().map(String::as_str))
    }

    fn find(&self, bytes: &[u8]) -> Hit {
        let mut from = 0;
        while let Some(at) = self.finder.find(&bytes[from..]).map(|at| from + at) {
            let rest = &bytes[at..];
            for (text, mark) in self.texts.iter().zip(MARKS) {
                if rest.starts_with(text.as_bytes()) {
                    return Hit::Mark(at, mark);
                }
                if rest.len() < LENGTH && text.as_bytes().starts_with(rest) {
                    return Hit::Begun(at);
                }
            }
            from = at + 1;
        }
        let shared = self.finder.needle();
        let tail = bytes.len().saturating_sub(SHARED - 1).max(from);
        let begun = (tail..bytes.len()).find(|&at| shared.starts_with(&bytes[at..]));
        begun.map_or(Hit::Nothing, Hit::Begun)
    }
}

/// The next part of the output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Part {
    Text(Bytes),
    Callout(Bytes),
    /// The end of the response.
    End,
    /// More input is needed.
    More,
}

/// Scans the response to one request.
#[derive(Debug)]
pub(super) struct Scanner {
    marks: Arc<Marks>,
    unread: Bytes,
    /// There was text.
    begun: bool,
    in_callout: bool,
    ended: bool,
}

impl Scanner {
    pub(super) fn new(marks: Arc<Marks>) -> Self {
        Self { marks, unread: Bytes::new(), begun: false, in_callout: false, ended: false }
    }

    /// Adds output of the worker.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.unread = match self.unread.is_empty() {
            true => Bytes::copy_from_slice(bytes),
            false => [&self.unread, bytes].concat().into(),
        };
    }

    /// Returns `true` if any output was read.
    pub(super) fn has_begun(&self) -> bool {
        self.begun
    }

    /// Returns `true` if the response has ended, and nothing but the end of a line follows it.
    pub(super) fn is_clean(&self) -> bool {
        self.ended && self.unread.iter().all(|byte| matches!(byte, b'\r' | b'\n'))
    }

    /// Returns `true` if the response has ended.
    pub(super) fn has_ended(&self) -> bool {
        self.ended
    }

    /// Returns the next part of the output.
    ///
    /// # Errors
    /// When marks are out of place, or a callout is too long.
    pub(super) fn next(&mut self) -> Result<Part, &'static str> {
        if self.ended {
            return Ok(Part::End);
        }
        if self.in_callout {
            return self.callout();
        }
        if !self.begun {
            // The end of the line of the previous mark.
            let ends = self.unread.iter().take_while(|byte| matches!(byte, b'\r' | b'\n'));
            let count = ends.count();
            self.unread.advance(count);
        }
        match self.marks.find(&self.unread) {
            Hit::Begun(0) => Ok(Part::More),
            Hit::Mark(0, Mark::EndOfResponse) => {
                self.unread.advance(LENGTH);
                self.ended = true;
                Ok(Part::End)
            }
            Hit::Mark(0, Mark::Callout) => {
                self.unread.advance(LENGTH);
                self.in_callout = true;
                self.callout()
            }
            Hit::Mark(0, Mark::EndOfCallout) => Err("it ended a callout that it had not begun"),
            Hit::Mark(at, _) | Hit::Begun(at) => Ok(self.text(at)),
            Hit::Nothing if self.unread.is_empty() => Ok(Part::More),
            Hit::Nothing => Ok(self.text(self.unread.len())),
        }
    }

    fn text(&mut self, length: usize) -> Part {
        self.begun = true;
        Part::Text(self.unread.split_to(length))
    }

    fn callout(&mut self) -> Result<Part, &'static str> {
        match self.marks.find(&self.unread) {
            Hit::Mark(at, Mark::EndOfCallout) => {
                let text = self.unread.split_to(at);
                self.unread.advance(LENGTH);
                self.in_callout = false;
                Ok(Part::Callout(text))
            }
            Hit::Mark(..) => Err("a callout has no end"),
            _ if self.unread.len() > CALLOUT => Err("a callout is too long"),
            _ => Ok(Part::More),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(scanner: &mut Scanner) -> Vec<Part> {
        let mut parts = Vec::new();
        loop {
            let part = scanner.next().unwrap();
            let over = matches!(part, Part::End | Part::More);
            match (&part, parts.last_mut()) {
                (Part::Text(text), Some(Part::Text(before))) => {
                    *before = [&before[..], text].concat().into();
                }
                (Part::More, _) => {}
                _ => parts.push(part),
            }
            if over {
                return parts;
            }
        }
    }

    #[test]
    fn a_response_is_read_at_every_split() {
        let marks = Arc::new(Marks::new().unwrap());
        let [eof, esc, eot] = &marks.texts;
        // A prefix of a mark is text.
        let near = format!("{}{}", &eof[..SHARED], "x".repeat(40));
        let all = format!("\r\nA: b\n\n{esc}\n!CGIPLUS: struct\n{eot}{near}{}{eof}\n", &esc[..20]);
        let expected = vec![
            Part::Text("A: b\n\n".into()),
            Part::Callout("\n!CGIPLUS: struct\n".into()),
            Part::Text(format!("{near}{}", &esc[..20]).into()),
            Part::End,
        ];
        for cut in 0..=all.len() {
            let mut scanner = Scanner::new(Arc::clone(&marks));
            let mut parts: Vec<Part> = Vec::new();
            for piece in [&all[..cut], &all[cut..]] {
                scanner.push(piece.as_bytes());
                for part in read(&mut scanner) {
                    match (&part, parts.last_mut()) {
                        (Part::Text(text), Some(Part::Text(before))) => {
                            *before = [&before[..], text].concat().into();
                        }
                        (Part::End, Some(Part::End)) => {}
                        _ => parts.push(part),
                    }
                }
            }
            assert_eq!(parts, expected, "cut at {cut}");
            assert!(scanner.is_clean());
        }
    }

    #[test]
    fn text_that_cannot_become_a_mark_is_not_held_back() {
        let marks = Arc::new(Marks::new().unwrap());
        let mut scanner = Scanner::new(Arc::clone(&marks));
        scanner.push(b"data: 1\n\n");
        assert_eq!(scanner.next().unwrap(), Part::Text("data: 1\n\n".into()));
        scanner.push(marks.texts[0].as_bytes());
        scanner.push(b"more");
        assert_eq!(scanner.next().unwrap(), Part::End);
        assert!(!scanner.is_clean());
    }

    #[test]
    fn marks_out_of_place_are_errors() {
        let marks = Arc::new(Marks::new().unwrap());
        let [eof, esc, eot] = &marks.texts;
        let long = format!("{esc}{}", "x".repeat(CALLOUT + 1));
        for text in [eot.clone(), format!("{esc}a{eof}"), long] {
            let mut scanner = Scanner::new(Arc::clone(&marks));
            scanner.push(text.as_bytes());
            assert!(scanner.next().is_err());
        }
    }
}
