//! Server-side includes: the directives that nginx, Apache and lighttpd have in common.
//!
//! A directive is `<!--#name parameter="value" … -->`. What stands between `if` and `endif` is sent if its condition holds.
//! There is no directive that runs a program.

mod directive;
mod expression;
mod text;
mod time;

use std::collections::BTreeMap;

use bytes::{Bytes, BytesMut};

use self::directive::Directive;
use super::{Part, Transform, push_bytes};

/// The variables of a request.
pub trait Environment {
    /// Returns the value of a variable.
    fn variable(&self, name: &str) -> Option<String>;

    /// Returns the names of all variables, for `printenv`.
    fn names(&self) -> Vec<String>;

    /// Returns the current time in seconds since 1970.
    fn now(&self) -> u64;

    /// Returns when the document was changed, in seconds since 1970.
    fn last_modified(&self) -> Option<u64>;
}

/// A part of a body that is got elsewhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Include {
    /// The document.
    pub target: Target,
    /// What is included of it.
    pub what: What,
    /// What is sent if there is no such document.
    pub error: Bytes,
}

/// The document that a directive names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// A path of the site, or one relative to the document; with a query.
    Virtual(String),
    /// A path beneath the directory of the document.
    File(String),
}

/// A property of a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// Its content.
    Content,
    /// Its size.
    Size {
        /// In units of 1024, instead of the number of bytes.
        is_abbreviated: bool,
    },
    /// The time of its last change, in a format of `strftime`.
    Modified(String),
}

impl What {
    /// Returns the text for a document of this size, and changed at this time.
    pub fn text(&self, size: u64, modified: u64) -> String {
        match self {
            Self::Content => String::new(),
            Self::Size { is_abbreviated: true } => text::abbreviated(size),
            Self::Size { is_abbreviated: false } => size.to_string(),
            Self::Modified(format) => time::format(format, modified),
        }
    }
}

/// The includes of one body.
pub struct Ssi {
    environment: Box<dyn Environment>,
    state: State,
    /// Bytes of a directive, or with which one may begin.
    held: BytesMut,
    /// Blocks of `if` whose `endif` was not read, the innermost last.
    blocks: Vec<Block>,
}

/// What directives have set.
#[derive(Debug)]
struct State {
    variables: BTreeMap<String, String>,
    /// The groups of the last regular expression that has matched.
    groups: Vec<String>,
    error: String,
    time_format: String,
    is_abbreviated: bool,
}

/// A block of `if`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Block {
    /// Its content is sent.
    Sent,
    /// A later part of it may be sent.
    NotYet,
    /// No later part of it is sent.
    Over,
}

const START: &[u8] = b"<!--#";
const END: &[u8] = b"-->";
/// The maximum length of a directive.
const MAX_DIRECTIVE: usize = 8 * 1024;
/// The maximum depth of blocks.
const MAX_BLOCKS: usize = 32;
/// The maximum size of all variables that a document sets.
const MAX_VARIABLES: usize = 64 * 1024;

impl std::fmt::Debug for Ssi {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ssi").field("state", &self.state).finish_non_exhaustive()
    }
}

impl Ssi {
    /// Starts with a body.
    pub fn new(environment: Box<dyn Environment>) -> Self {
        let state = State {
            variables: BTreeMap::new(),
            groups: Vec::new(),
            error: "[an error occurred while processing the directive]".into(),
            time_format: "%A, %d-%b-%Y %H:%M:%S %Z".into(),
            is_abbreviated: true,
        };
        Self { environment, state, held: BytesMut::new(), blocks: Vec::new() }
    }

    fn is_sent(&self) -> bool {
        self.blocks.iter().all(|block| *block == Block::Sent)
    }

    fn send(&self, bytes: Bytes, parts: &mut Vec<Part>) {
        if self.is_sent() {
            push_bytes(bytes, parts);
        }
    }

    fn fail(&self, parts: &mut Vec<Part>) {
        self.send(self.state.error.clone().into(), parts);
    }

    /// Runs what is complete of the bytes that are held.
    fn run(&mut self, has_ended: bool, parts: &mut Vec<Part>) {
        loop {
            let Some(start) = find(&self.held, START) else {
                // The beginning of a directive may be cut.
                let kept = match has_ended {
                    true => 0,
                    false => (1..START.len())
                        .rev()
                        .find(|&length| self.held.ends_with(&START[..length]))
                        .unwrap_or(0),
                };
                let text = self.held.split_to(self.held.len() - kept).freeze();
                return self.send(text, parts);
            };
            let text = self.held.split_to(start).freeze();
            self.send(text, parts);
            let Some(length) = directive::end(&self.held[START.len()..]) else {
                if has_ended || self.held.len() > MAX_DIRECTIVE {
                    // What follows is no directive.
                    self.fail(parts);
                    drop(self.held.split_to(START.len()));
                    continue;
                }
                return;
            };
            let directive = self.held.split_to(START.len() + length + END.len());
            let directive = &directive[START.len()..START.len() + length];
            if directive.len() > MAX_DIRECTIVE {
                self.fail(parts);
                continue;
            }
            let text = String::from_utf8_lossy(directive).into_owned();
            if self.perform(&text, parts).is_none() {
                self.fail(parts);
            }
        }
    }

    /// Performs a directive. Returns `None` if it is malformed.
    fn perform(&mut self, text: &str, parts: &mut Vec<Part>) -> Option<()> {
        let directive = Directive::parse(text)?;
        match &*directive.name {
            "if" | "elif" | "else" | "endif" => {
                let is_visible = self.decides(&directive.name);
                if self.branch(&directive).is_none() && is_visible {
                    push_bytes(self.state.error.clone(), parts);
                }
            }
            _ if !self.is_sent() => return Some(()),
            "include" => self.include(&directive, What::Content, parts)?,
            "fsize" => {
                let is_abbreviated = self.state.is_abbreviated;
                self.include(&directive, What::Size { is_abbreviated }, parts)?;
            }
            "flastmod" => {
                let format = self.state.time_format.clone();
                self.include(&directive, What::Modified(format), parts)?;
            }
            "echo" => self.echo(&directive, parts)?,
            "set" => self.set(&directive)?,
            "config" => self.configure(&directive)?,
            "printenv" => self.print(parts),
            _ => return None,
        }
        Some(())
    }

    /// Returns `true` if a branch with this name decides what is sent.
    fn decides(&self, name: &str) -> bool {
        let is_sent = |block: &Block| *block == Block::Sent;
        match (self.blocks.split_last(), name) {
            (Some((Block::NotYet, outer)), "elif") => outer.iter().all(is_sent),
            _ => self.is_sent(),
        }
    }

    fn branch(&mut self, directive: &Directive) -> Option<()> {
        let outer_is_sent = |blocks: &[Block]| blocks.iter().all(|block| *block == Block::Sent);
        match &*directive.name {
            "if" => {
                if self.blocks.len() >= MAX_BLOCKS {
                    return None;
                }
                let block = match self.is_sent() {
                    true => self.decide(directive),
                    false => Some(Block::Over),
                };
                // A condition that is malformed does not hold.
                self.blocks.push(block.unwrap_or(Block::NotYet));
                block.map(|_| ())
            }
            "endif" => self.blocks.pop().map(|_| ()),
            name => {
                let (last, outer) = self.blocks.split_last()?;
                let next = match (*last, name) {
                    (Block::NotYet, "else") if outer_is_sent(outer) => Some(Block::Sent),
                    (Block::NotYet, _) if outer_is_sent(outer) => self.decide(directive),
                    _ => Some(Block::Over),
                };
                *self.blocks.last_mut()? = next.unwrap_or(Block::NotYet);
                next.map(|_| ())
            }
        }
    }

    fn decide(&mut self, directive: &Directive) -> Option<Block> {
        let text = directive.parameter("expr")?;
        let variable = |name: &str| self.state.value(name, &*self.environment);
        let (holds, groups) = expression::holds(text, &variable)?;
        if let Some(groups) = groups {
            self.state.groups = groups;
        }
        Some(if holds { Block::Sent } else { Block::NotYet })
    }

    fn include(&self, directive: &Directive, what: What, parts: &mut Vec<Part>) -> Option<()> {
        let mut has_any = false;
        for (name, value) in &directive.parameters {
            let value = self.expanded(value);
            let target = match &**name {
                "virtual" => Target::Virtual(value),
                "file" => Target::File(value),
                // Each document is waited for.
                "wait" => continue,
                _ => return None,
            };
            has_any = true;
            let error = Bytes::from(self.state.error.clone());
            parts.push(Part::Include(Box::new(Include { target, what: what.clone(), error })));
        }
        has_any.then_some(())
    }

    fn echo(&self, directive: &Directive, parts: &mut Vec<Part>) -> Option<()> {
        let name = directive.parameter("var")?;
        let encoding = directive.parameter("encoding").unwrap_or("entity");
        let default = directive.parameter("default").unwrap_or("(none)");
        let value = self.state.value(name, &*self.environment);
        let value = value.unwrap_or_else(|| default.to_owned());
        push_bytes(text::encoded(&value, encoding)?, parts);
        Some(())
    }

    fn set(&mut self, directive: &Directive) -> Option<()> {
        let value = self.expanded(directive.parameter("value")?);
        let name = directive.parameter("var")?;
        let size: usize =
            self.state.variables.iter().map(|(name, value)| name.len() + value.len()).sum();
        if name.is_empty() || size + name.len() + value.len() > MAX_VARIABLES {
            return None;
        }
        self.state.variables.insert(name.to_owned(), value);
        Some(())
    }

    fn configure(&mut self, directive: &Directive) -> Option<()> {
        for (name, value) in &directive.parameters {
            match &**name {
                "errmsg" => self.state.error.clone_from(value),
                "timefmt" => self.state.time_format.clone_from(value),
                "sizefmt" if value == "bytes" => self.state.is_abbreviated = false,
                "sizefmt" if value == "abbrev" => self.state.is_abbreviated = true,
                _ => return None,
            }
        }
        (!directive.parameters.is_empty()).then_some(())
    }

    fn print(&self, parts: &mut Vec<Part>) {
        let mut names = self.environment.names();
        names.extend(self.state.variables.keys().cloned());
        names.sort();
        names.dedup();
        let mut out = String::new();
        for name in names {
            if let Some(value) = self.state.value(&name, &*self.environment) {
                out.push_str(&text::entities(&format!("{name}={value}\n")));
            }
        }
        push_bytes(out, parts);
    }

    fn expanded(&self, value: &str) -> String {
        text::expanded(value, &|name| self.state.value(name, &*self.environment))
    }
}

impl State {
    fn value(&self, name: &str, environment: &dyn Environment) -> Option<String> {
        if let Ok(number) = name.parse::<usize>() {
            return self.groups.get(number).cloned();
        }
        if let Some(value) = self.variables.get(name) {
            return Some(value.clone());
        }
        match name {
            "DATE_GMT" | "date_gmt" | "DATE_LOCAL" | "date_local" => {
                Some(time::format(&self.time_format, environment.now()))
            }
            "LAST_MODIFIED" => {
                environment.last_modified().map(|at| time::format(&self.time_format, at))
            }
            _ => environment.variable(name),
        }
    }
}

impl Transform for Ssi {
    fn push(&mut self, bytes: Bytes, parts: &mut Vec<Part>) {
        self.held.extend_from_slice(&bytes);
        self.run(false, parts);
    }

    fn end(&mut self, parts: &mut Vec<Part>) {
        self.run(true, parts);
    }
}

/// Returns where a text begins.
fn find(bytes: &[u8], text: &[u8]) -> Option<usize> {
    bytes.windows(text.len()).position(|window| window == text)
}

#[cfg(test)]
mod tests;
