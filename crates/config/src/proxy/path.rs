//! The key `path` of `proxy`: the path that upstreams get in place of the request's.

use std::fmt;

use dunlin_http::semantics::path::encode;

use crate::captures::Captures;
use crate::facts::Facts;
use crate::map::Maps;
use crate::pattern::Pattern;
use crate::template::{Template, push_query, push_value, with_groups};

/// The path that upstreams get in place of the request's, with its query.
#[derive(Debug, Clone, PartialEq)]
pub struct UpstreamPath {
    path: Template,
    query: Option<Template>,
    pattern: Pattern,
}

const IN_PATHS: [&str; 2] = ["path", "rest"];
const IN_QUERIES: [&str; 3] = ["path", "query", "rest"];

impl UpstreamPath {
    /// Parses a path with an optional query; `pattern` belongs to its route.
    ///
    /// # Errors
    /// A placeholder is unknown or no part of the URL, or a brace is not closed.
    pub(super) fn parse(text: &str, pattern: &Pattern, maps: &Maps) -> Result<Self, String> {
        let groups = pattern.capture_names();
        let (path, query) = match text.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (text, None),
        };
        if !path.starts_with(['/', '{']) {
            return Err(format!("{text:?} begins neither with `/` nor with a placeholder"));
        }
        let parse = |text: &str, known: &[&str]| {
            Template::with_values(text, &with_groups(known, &groups), maps)
        };
        let path = parse(path, &IN_PATHS)?;
        let query = query.map(|query| parse(query, &IN_QUERIES)).transpose()?;
        let of_query = query.iter().flat_map(Template::chosen_names);
        let mut names = path.chosen_names().into_iter().chain(of_query);
        // Stored responses are found by their URL.
        let is_elsewhere =
            |name: &String| name.starts_with("header.") || name.starts_with("cookie.");
        if let Some(name) = names.find(is_elsewhere) {
            return Err(format!("{{{name}}} is no part of the URL"));
        }
        Ok(Self { path, query, pattern: pattern.clone() })
    }

    /// Returns the templates of path and query.
    pub(crate) fn templates(&self) -> impl Iterator<Item = &Template> {
        [&self.path].into_iter().chain(&self.query)
    }

    /// Returns the request-target for a request with the decoded path `path`, in which encoded slashes are NULs.
    pub fn target(&self, path: &[u8], query: Option<&[u8]>, facts: &Facts<'_>) -> String {
        let captures = self.pattern.captures(path);
        let encoded =
            |value: &[u8], text: &mut Vec<u8>| text.extend_from_slice(encode(value).as_bytes());
        let named = |name: &str, text: &mut Vec<u8>| encoded(value(name, path, &captures), text);
        let mut target = self.path.render(Some(facts), encoded, named);
        if target.first() != Some(&b'/') {
            target.insert(0, b'/');
        }
        match &self.query {
            None => push_query(query, &mut target),
            Some(template) => {
                let own = query_of(template, path, query, (&captures, facts));
                // `/a?` has no query, whatever the request has.
                push_query(Some(&own[..]).filter(|own| !own.is_empty()), &mut target);
            }
        }
        String::from_utf8_lossy(&target).into_owned()
    }
}

fn query_of(
    template: &Template,
    path: &[u8],
    query: Option<&[u8]>,
    (captures, facts): (&Captures<'_, '_>, &Facts<'_>),
) -> Vec<u8> {
    let encoded = |value: &[u8], text: &mut Vec<u8>| push_value(value, b"", text);
    let mut text = template.render(Some(facts), encoded, |name, text| match name {
        "query" => text.extend_from_slice(query.unwrap_or_default()),
        name => encoded(value(name, path, captures), text),
    });
    // `/a?b={path}&{query}` without a query.
    if text.last() == Some(&b'&') {
        text.pop();
    }
    text
}

fn value<'p>(name: &str, path: &'p [u8], captures: &Captures<'_, 'p>) -> &'p [u8] {
    match name {
        "path" => path,
        "rest" => captures.rest(),
        group => captures.group(group).unwrap_or_default(),
    }
}

impl fmt::Display for UpstreamPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.path)?;
        self.query.as_ref().map_or(Ok(()), |query| write!(f, "?{query}"))
    }
}
