//! The steps of a `try` list.

use std::fmt;

use super::captures::Captures;
use super::facts::Facts;
use super::map::Maps;
use super::pattern::Pattern;
use super::request_value::Piece;
use super::template::{Template, push_query, push_value, with_groups};

/// One step of a `try` list.
#[derive(Debug, Clone, PartialEq)]
pub enum TryStep {
    /// A path to search for.
    Path(TryPath),
    /// The end of the search for the path of a directory, which the response is for, with or without an index file.
    Directory,
    /// The status at the end of the search.
    Status(u16),
    /// The proxy of the route responds.
    Proxy,
}

/// A path of a `try` list and its query.
#[derive(Debug, Clone, PartialEq)]
pub struct TryPath {
    path: Template,
    query: Option<Template>,
    pattern: Pattern,
    /// `{rest}` follows a slash.
    after_slash: bool,
    /// It ends with a variable and a slash: the directory of what the variable stands for.
    is_directory: bool,
    /// It may be that of an `internal` route.
    is_internal: bool,
}

/// A path within the site with its query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// Decoded path, with its leading slash and without empty segments.
    pub path: Vec<u8>,
    /// The encoded query.
    pub query: Option<Vec<u8>>,
    /// The request does not choose the path: it may be that of an `internal` route.
    pub is_fixed: bool,
    /// It is the directory that a variable stands for, as with `/{rest}/`.
    pub is_directory: bool,
}

/// The last step of a list after whose files the proxy of the route responds.
pub(super) const PROXY: &str = "=proxy";

/// The step that ends the list for directories.
const DIRECTORY: &str = "=directory";

const IN_PATHS: [&str; 2] = ["path", "rest"];
const IN_QUERIES: [&str; 4] = ["path", "query", "raw_query", "rest"];

impl TryStep {
    /// Parses a step; `pattern` belongs to the route that has the list.
    ///
    /// # Errors The step is invalid.
    pub(super) fn parse(step: &str, pattern: &Pattern) -> Result<Self, String> {
        match step {
            PROXY => return Ok(Self::Proxy),
            DIRECTORY => return Ok(Self::Directory),
            _ => {}
        }
        if let Some(status) = step.strip_prefix('=') {
            let status = status.parse().ok().filter(|status| (400..600).contains(status));
            return status.map(Self::Status).ok_or_else(|| {
                format!(
                    "{step:?} is not one of \"=directory\", \"=proxy\" and an error status such as \"=404\""
                )
            });
        }
        TryPath::parse(step, pattern).map(Self::Path)
    }
}

impl Candidate {
    /// Returns `true` if this is a directory and a request for `path` should be redirected to the same path with a slash at
    /// its end, so that relative links in the index file work. `is_same_route` returns whether a path belongs to the route
    /// that has the list: otherwise the path with the slash would be another page.
    pub fn lacks_slash(&self, path: &[u8], is_same_route: impl FnOnce(&[u8]) -> bool) -> bool {
        if self.path.strip_suffix(b"/") == Some(path) {
            return true;
        }
        self.is_directory && !path.ends_with(b"/") && is_same_route(&[path, b"/"].concat())
    }
}

impl TryPath {
    /// Parses a path within the site with an optional query; `pattern` belongs to its route.
    ///
    /// # Errors
    /// The text is no such path.
    fn parse(step: &str, pattern: &Pattern) -> Result<Self, String> {
        Self::read(step, pattern, Template::parse)
    }

    /// Parses the path and query of an error page.
    ///
    /// # Errors
    /// The text is no path.
    pub(super) fn of_page(to: &str) -> Result<Self, String> {
        Self::read(to, &Pattern::EVERYTHING, Template::parse)
    }

    /// Returns `true` if the path has a query of its own.
    pub(super) fn has_query(&self) -> bool {
        self.query.is_some()
    }

    /// Parses the path and query by which a request is rewritten. They may have any value of the request, and are those of
    /// an `internal` route, if the text is its path.
    ///
    /// # Errors
    /// The text is no path.
    pub(super) fn of_rewrite(to: &str, pattern: &Pattern, maps: &Maps) -> Result<Self, String> {
        let parsed =
            Self::read(to, pattern, |text, known| Template::with_values(text, known, maps))?;
        Ok(Self { is_internal: true, ..parsed })
    }

    fn read(
        step: &str,
        pattern: &Pattern,
        parse: impl Fn(&str, &[&str]) -> Result<Template, String>,
    ) -> Result<Self, String> {
        let groups = pattern.capture_names();
        let in_paths = with_groups(&IN_PATHS, &groups);
        let in_queries = with_groups(&IN_QUERIES, &groups);
        // Parse all of it first, so that errors name the variable that is written there.
        let whole = parse(step, &in_queries)?;
        let has_start = step.starts_with("{path}")
            || step.starts_with('/')
            || groups.iter().any(|name| {
                step.starts_with(&format!("{{{name}}}")) && pattern.begins_with_group(name)
            });
        if !has_start && whole.leading_map().is_none() {
            return Err(format!("{step:?} begins neither with {{path}} nor with `/`"));
        }
        // `/index.php{query}` is `/index.php?{query}`.
        let step = &match step.split_once("{query}") {
            Some((before, after)) if !before.contains('?') => format!("{before}?{{query}}{after}"),
            _ => step.to_owned(),
        };
        let (path, query) = match step.split_once('?') {
            Some((path, query)) => (path, Some(parse(query, &in_queries)?)),
            None => (&**step, None),
        };
        let after_slash = path.contains("/{rest}");
        let is_directory = path.ends_with("{rest}/") || path.ends_with("{path}/");
        let path = parse(path, &in_paths)?;
        let pattern = pattern.clone();
        Ok(Self { path, query, pattern, after_slash, is_directory, is_internal: false })
    }

    /// Returns `true` if the path or query depends on more of a request than its path and query.
    pub fn has_values(&self) -> bool {
        self.path.has_values() || self.query.as_ref().is_some_and(Template::has_values)
    }

    /// Returns the templates of path and query.
    pub(super) fn templates(&self) -> impl Iterator<Item = &Template> {
        [&self.path].into_iter().chain(&self.query)
    }

    /// Returns path and query for a request; `None` if the values of the request make the path invalid. If the step has
    /// no query, the request's is kept. Without facts, values of the request besides these are empty.
    pub fn expand(
        &self,
        path: &[u8],
        query: Option<&[u8]>,
        facts: Option<&Facts<'_>>,
    ) -> Option<Candidate> {
        let captures = self.pattern.captures(path);
        let (mut text, of_map) = self.expand_path(path, &captures, facts);
        text.dedup_by(|byte, before| (*byte, *before) == (b'/', b'/'));
        let dots = |segment: &[u8]| matches!(segment, b"." | b"..");
        if !text.starts_with(b"/") || text.split(|&byte| byte == b'/').any(dots) {
            return None;
        }
        let own = self.query.as_ref();
        let own = own.map(|template| query_of(template, path, &captures, (query, facts)));
        let query = match (own, of_map) {
            (None, None) => query.map(<[u8]>::to_vec),
            (Some(own), None) => Some(own),
            (None, Some(of_map)) => Some(of_map),
            (Some(own), Some(of_map)) => Some([of_map, own].join(&b'&')),
        };
        let is_fixed = self.is_internal || self.path.is_fixed();
        let is_directory = self.is_directory;
        Some(Candidate { path: text, query, is_fixed, is_directory })
    }

    /// Returns the path, and the query that the value of a map has after a `?`.
    fn expand_path(
        &self,
        path: &[u8],
        captures: &Captures<'_, '_>,
        facts: Option<&Facts<'_>>,
    ) -> (Vec<u8>, Option<Vec<u8>>) {
        let rest = captures.rest();
        let named = |name: &str, add: &mut dyn FnMut(Piece<'_>)| {
            add(Piece::Value(match name {
                "rest" if self.after_slash => rest.strip_prefix(b"/").unwrap_or(rest),
                "rest" => rest,
                "path" => path,
                group => captures.group(group).unwrap_or_default(),
            }));
        };
        let (mut text, mut query) = (Vec::new(), None::<Vec<u8>>);
        let mut add = |piece: Piece<'_>| match (&mut query, piece) {
            (Some(query), piece) => piece.push_encoded(|v, text| push_value(v, b"", text), query),
            (None, Piece::Text(part)) => match part.split_once('?') {
                Some((before, after)) => {
                    text.extend_from_slice(before.as_bytes());
                    query = Some(after.as_bytes().to_vec());
                }
                None => text.extend_from_slice(part.as_bytes()),
            },
            (None, piece) => piece.push_plain(&mut text),
        };
        self.path.pieces(facts, &mut add, named);
        (text, query)
    }
}

impl fmt::Display for TryPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.path)?;
        self.query.as_ref().map_or(Ok(()), |query| write!(f, "?{query}"))
    }
}

fn query_of(
    template: &Template,
    path: &[u8],
    captures: &Captures<'_, '_>,
    (query, facts): (Option<&[u8]>, Option<&Facts<'_>>),
) -> Vec<u8> {
    let encode = |value: &[u8], text: &mut Vec<u8>| push_value(value, b"", text);
    let mut text = template.render(facts, encode, |name, text| match name {
        "rest" => push_value(captures.rest(), b"", text),
        "path" => push_value(path, b"", text),
        "query" => {
            // The template begins after the question mark.
            let mut whole = [b"?", &text[..]].concat();
            push_query(query, &mut whole);
            *text = whole.split_off(1);
        }
        // What stands around it stays, whether there is a query or not.
        "raw_query" => text.extend_from_slice(query.unwrap_or_default()),
        group => push_value(captures.group(group).unwrap_or_default(), b"", text),
    });
    if query.is_none() && text.starts_with(b"&") {
        text.remove(0);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expand(
        step: &str,
        pattern: &str,
        path: &str,
        query: Option<&str>,
    ) -> (String, Option<String>) {
        let Ok(TryStep::Path(step)) = TryStep::parse(step, &Pattern::parse(pattern).unwrap())
        else {
            panic!("{step}: no path");
        };
        let found = step.expand(path.as_bytes(), query.map(str::as_bytes), None).unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (text(found.path), found.query.map(text))
    }

    #[test]
    fn steps_are_paths_with_queries() {
        let some = |path: &str, query: &str| (path.to_owned(), Some(query.to_owned()));
        assert_eq!(expand("{path}", "/*", "/a?b", Some("c")), some("/a?b", "c"));
        assert_eq!(expand("/index.php", "/*", "/a", None), ("/index.php".into(), None));
        assert_eq!(
            expand("/index.php?{query}", "/*", "/a", Some("b=c")),
            some("/index.php", "b=c")
        );
        assert_eq!(expand("/index.php{query}", "/*", "/a", Some("b=c")), some("/index.php", "b=c"));
        assert_eq!(expand("/index.php?{query}", "/*", "/a", None), some("/index.php", ""));
        assert_eq!(
            expand("/i.php?q={path}&{query}", "/*", "/a b&c=d#%\u{e9}/+", Some("x=%20")),
            some("/i.php", "q=/a%20b%26c%3Dd%23%25%C3%A9/%2B&x=%20")
        );
        assert_eq!(
            expand("/wiki/doku.php?id={rest}&{query}", "/wiki/*", "/wiki/a:b", None),
            some("/wiki/doku.php", "id=a:b")
        );
        assert_eq!(
            expand("/w/x.php?{query}&id={rest}", "/w/*", "/w/a", None),
            some("/w/x.php", "id=a")
        );
        assert_eq!(expand("//{path}", "/*", "/a/b", None), ("/a/b".into(), None));
        assert_eq!(expand("/files/{rest}", "/old*", "/old/a/b", None), ("/files/a/b".into(), None));
    }

    #[test]
    fn values_of_the_request_cannot_change_the_path() {
        let Ok(TryStep::Path(step)) = TryStep::parse("/x/{rest}", &Pattern::parse("/a*").unwrap())
        else {
            panic!("no path");
        };
        assert_eq!(step.expand(b"/a..", None, None), None);
        assert_eq!(step.expand(b"/a.", None, None), None);
    }

    #[test]
    fn malformed_steps_are_rejected() {
        for step in ["=200", "=x", "index.php", "{rest}", "/{host}", "/a?$args", "$uri", "{path"] {
            assert!(TryStep::parse(step, &Pattern::EVERYTHING).is_err(), "{step}");
        }
    }
}
