//! What is known of a server while its site is made.

use super::context::Context;
use super::scope::Scope;
use crate::directive::Directive;
use crate::expression::{Expression, globs};
use crate::keys::Keys;
use crate::model::Route;
use crate::regions::{Paths, Region};
use crate::value::Value;

/// Positions of rules in the order in which Apache applies them: `mod_rewrite` of the server, `mod_proxy`, `mod_alias`, then
/// what belongs to directories.
pub(super) const OF_REWRITE: usize = 1_000_000;
pub(super) const OF_PROXY: usize = 2_000_000;
pub(super) const OF_ALIAS: usize = 3_000_000;
pub(super) const OF_DIRECTORY: usize = 4_000_000;

/// Makes the site of a server.
pub(super) struct Builder<'c, 't> {
    pub(super) context: &'c mut Context,
    /// The levels outside of all sections.
    pub(super) server: Scope<'t>,
    pub(super) document_root: Option<String>,
    pub(super) aliases: Vec<Alias<'t>>,
    pub(super) sections: Vec<Section<'t>>,
    pub(super) ends: Vec<End<'t>>,
    /// Front controllers.
    pub(super) fronts: Vec<Front>,
    /// Workers that run PHP files.
    pub(super) php: Vec<Php<'t>>,
    /// Routes that only error pages lead to.
    pub(super) pages: Vec<Route>,
    /// `true` if a rule passes `Authorization` on to scripts.
    pub(super) has_authorization: bool,
    /// Variables that rules set for scripts.
    pub(super) env: Vec<(String, String)>,
}

/// `Alias` or `ScriptAlias`.
#[derive(Debug)]
pub(super) struct Alias<'t> {
    pub(super) directive: &'t Directive,
    pub(super) paths: Vec<Paths>,
    /// The path of the URL.
    pub(super) url: String,
    pub(super) target: String,
    pub(super) is_script: bool,
}

/// A rule after which no other applies.
#[derive(Debug, Clone)]
pub(super) struct End<'t> {
    pub(super) order: usize,
    pub(super) region: Region,
    pub(super) kind: EndKind<'t>,
}

#[derive(Debug, Clone)]
pub(super) enum EndKind<'t> {
    /// A response, or another path.
    Fixed(Keys),
    /// The same, for those who have access.
    Checked(Keys),
    /// Requests are passed on.
    Proxy(Pass<'t>),
    /// Rules after this one do not apply.
    Pass,
    /// Paths that are tried in turn.
    Tries(Vec<String>),
}

/// Paths that are tried in turn beneath a directory.
#[derive(Debug)]
pub(super) struct Front {
    /// The path of the URL, with a slash at its end.
    pub(super) directory: String,
    pub(super) tries: Vec<String>,
    /// Paths for which it does not hold.
    pub(super) except: Vec<Paths>,
    /// It is a rule of `mod_rewrite`, and no `FallbackResource`.
    pub(super) is_rule: bool,
}

/// A worker of PHP.
#[derive(Debug)]
pub(super) struct Php<'t> {
    /// `None` if nothing names one: PHP files are never sent.
    pub(super) directive: Option<&'t Directive>,
    /// The section around it; `None` for the server.
    pub(super) within: Option<usize>,
    /// The address of the workers; `None` for programs that the server starts.
    pub(super) connect: Option<String>,
    pub(super) extensions: Vec<String>,
}

/// A section.
#[derive(Debug)]
pub(super) struct Section<'t> {
    pub(super) directive: &'t Directive,
    pub(super) phase: Phase,
    /// The paths of which its requests are.
    pub(super) paths: Vec<Paths>,
    /// The directory in the file system; `None` if the paths alone decide.
    pub(super) directory: Option<String>,
    pub(super) when: Option<Value>,
    /// The section around it, by its position.
    pub(super) within: Option<usize>,
    pub(super) level: &'t [Directive],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    Directory,
    Files,
    Location,
    If,
}

impl Section<'_> {
    /// Returns `true` if it is not for requests that are passed on.
    pub(super) fn is_of_files(&self) -> bool {
        matches!(self.phase, Phase::Directory | Phase::Files)
    }

    /// Returns `true` if it is for PHP files.
    pub(super) fn is_php(&self) -> bool {
        self.phase == Phase::Files && !self.php_extensions().is_empty()
    }

    pub(super) fn php_extensions(&self) -> Vec<String> {
        let known = ["php", "phtml", "phar", "php7", "php8"];
        let has = |name: &&str| {
            let path = Paths::Exact(format!("/x.{name}"));
            self.paths.iter().any(|paths| *paths != Paths::All && paths.contains(&path))
        };
        known.iter().filter(|name| has(name)).map(ToString::to_string).collect()
    }
}

/// Requests that are passed on.
#[derive(Debug, Clone)]
pub(super) struct Pass<'t> {
    pub(super) directive: &'t Directive,
    /// The beginning of paths that the path of the URL takes the place of.
    pub(super) prefix: String,
    pub(super) url: String,
    /// `timeout=30` and the like.
    pub(super) options: Vec<(String, String)>,
    /// The whole path is sent as it is.
    pub(super) is_whole: bool,
}

/// Returns the comment that names a directive.
pub(super) fn comment(directive: &Directive) -> String {
    let sign = if directive.block.is_some() { ("<", ">") } else { ("", "") };
    let words = directive.words.join(" ");
    format!("{}: {}{} {words}{}", directive.place.short(), sign.0, directive.name, sign.1)
}

/// Returns extensions without their dots.
pub(super) fn extensions(words: &[String]) -> Vec<String> {
    words.iter().map(|word| word.trim_start_matches('.').to_owned()).collect()
}

/// Returns `true` if the path is that of the directory, or beneath it.
pub(super) fn is_beneath(path: &str, directory: &str) -> bool {
    let directory = directory.trim_end_matches('/');
    path.strip_prefix(directory).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Returns an expression as a pattern, if it is one.
pub(super) fn simple(expression: Expression) -> Paths {
    if expression.except.is_none() {
        match globs(&expression.text).as_deref() {
            Some([only]) if only.starts_with('/') || only.starts_with("*.") => {
                if let Some(paths) = Paths::glob(only) {
                    return paths;
                }
            }
            _ => {}
        }
    }
    Paths::Regex(expression)
}

/// Returns a redirect.
pub(super) fn redirect(to: String, status: u64) -> Value {
    match status {
        302 => Value::text(to),
        status => Value::table([("to", Value::text(to)), ("status", Value::Number(status))]),
    }
}

/// Returns a response without content.
pub(super) fn respond(status: u64) -> Value {
    Value::table([("status", Value::Number(status))])
}
