//! The steps of a `try` list.

use std::fmt;

use super::captures::Captures;
use super::pattern::Pattern;
use super::template::{Template, push_query, push_value, with_groups};

/// One step of a `try` list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TryStep {
    /// A path to search for.
    Path(TryPath),
    /// The status at the end of the search.
    Status(u16),
    /// The proxy of the route responds.
    Proxy,
}

/// A path of a `try` list and its query.
#[derive(Debug, Clone, PartialEq, Eq)]
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

const IN_PATHS: [&str; 2] = ["path", "rest"];
const IN_QUERIES: [&str; 3] = ["path", "query", "rest"];

impl TryStep {
    /// Parses a step; `pattern` belongs to the route that has the list.
    ///
    /// # Errors The step is invalid.
    pub(super) fn parse(step: &str, pattern: &Pattern) -> Result<Self, String> {
        if step == PROXY {
            return Ok(Self::Proxy);
        }
        if let Some(status) = step.strip_prefix('=') {
            let status = status.parse().ok().filter(|status| (400..600).contains(status));
            return status.map(Self::Status).ok_or_else(|| {
                format!("{step:?} is neither an error status such as \"=404\" nor \"=proxy\"")
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
    pub(super) fn parse(step: &str, pattern: &Pattern) -> Result<Self, String> {
        let groups = pattern.capture_names();
        let in_paths = with_groups(&IN_PATHS, &groups);
        let in_queries = with_groups(&IN_QUERIES, &groups);
        // Parse all of it first, so that errors name the variable that is written there.
        Template::parse(step, &in_queries)?;
        if !step.starts_with("{path}") && !step.starts_with('/') {
            return Err(format!("{step:?} begins neither with {{path}} nor with `/`"));
        }
        // `/index.php{query}` is `/index.php?{query}`.
        let step = &match step.split_once("{query}") {
            Some((before, after)) if !before.contains('?') => format!("{before}?{{query}}{after}"),
            _ => step.to_owned(),
        };
        let (path, query) = match step.split_once('?') {
            Some((path, query)) => (path, Some(Template::parse(query, &in_queries)?)),
            None => (&**step, None),
        };
        let after_slash = path.contains("/{rest}");
        let is_directory = path.ends_with("{rest}/") || path.ends_with("{path}/");
        let path = Template::parse(path, &in_paths)?;
        let pattern = pattern.clone();
        Ok(Self { path, query, pattern, after_slash, is_directory, is_internal: false })
    }

    /// Returns the same path, which may be that of an `internal` route whatever the request is.
    pub(super) fn into_internal(self) -> Self {
        Self { is_internal: true, ..self }
    }

    /// Returns path and query for a request; `None` if the values of the request make the path invalid. If the step has
    /// no query, the request's is kept.
    pub fn expand(&self, path: &[u8], query: Option<&[u8]>) -> Option<Candidate> {
        let captures = self.pattern.captures(path);
        let rest = captures.rest();
        let mut text = self.path.render(|name, text| match name {
            "rest" if self.after_slash => text.extend(rest.strip_prefix(b"/").unwrap_or(rest)),
            "rest" => text.extend_from_slice(rest),
            "path" => text.extend_from_slice(path),
            group => text.extend_from_slice(captures.group(group).unwrap_or_default()),
        });
        text.dedup_by(|byte, before| (*byte, *before) == (b'/', b'/'));
        let dots = |segment: &[u8]| matches!(segment, b"." | b"..");
        if text.split(|&byte| byte == b'/').any(dots) {
            return None;
        }
        let query = match &self.query {
            None => query.map(<[u8]>::to_vec),
            Some(template) => Some(query_of(template, path, &captures, query)),
        };
        let is_fixed = self.is_internal || self.path.is_fixed();
        let is_directory = self.is_directory;
        Some(Candidate { path: text, query, is_fixed, is_directory })
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
    query: Option<&[u8]>,
) -> Vec<u8> {
    let mut text = template.render(|name, text| match name {
        "rest" => push_value(captures.rest(), b"", text),
        "path" => push_value(path, b"", text),
        "query" => {
            // The template begins after the question mark.
            let mut whole = [b"?", &text[..]].concat();
            push_query(query, &mut whole);
            *text = whole.split_off(1);
        }
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
        let found = step.expand(path.as_bytes(), query.map(str::as_bytes)).unwrap();
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
        assert_eq!(step.expand(b"/a..", None), None);
        assert_eq!(step.expand(b"/a.", None), None);
    }

    #[test]
    fn malformed_steps_are_rejected() {
        for step in ["=200", "=x", "index.php", "{rest}", "/{host}", "/a?$args", "$uri", "{path"] {
            assert!(TryStep::parse(step, &Pattern::EVERYTHING).is_err(), "{step}");
        }
    }
}
