//! The table `redirect`: sends the client to another URL.

use dunlin_http::semantics::path::encode;

use super::captures::Captures;
use super::facts::Facts;
use super::file::RedirectTable;
use super::map::Maps;
use super::pattern::Pattern;
use super::report::{Report, field_value};
use super::spanned::Spanned;
use super::template::{Template, push_query, push_value, with_groups};

/// A redirect.
#[derive(Debug, Clone, PartialEq)]
pub struct Redirect {
    /// The status.
    pub status: u16,
    /// The path, or the URL up to its path.
    path: Template,
    query: Option<Template>,
    /// From its `#` on.
    fragment: Option<Template>,
    pattern: Pattern,
    /// `{rest}` follows a slash.
    after_slash: bool,
    /// It begins with `//` and a host.
    names_host: bool,
}

/// The parts of a request that a target may contain.
pub(super) const PLACEHOLDERS: [&str; 5] = ["path", "query", "host", "rest", "target"];

/// Characters of values that need not be encoded in the query of a target.
const PLAIN: &[u8] = b"=";

impl Redirect {
    pub(super) fn parse(
        to: &str,
        status: u16,
        pattern: &Pattern,
        maps: &Maps,
    ) -> Result<Self, String> {
        let groups = pattern.capture_names();
        let known = with_groups(&PLACEHOLDERS, &groups);
        let parse = |text: &str| Template::with_values(text, &known, maps);
        // All of it is parsed first, so that errors name the placeholder that is written there.
        let whole = parse(to)?;
        match whole.leading_map() {
            // A map has complete targets.
            Some(map) => map
                .values()
                .iter()
                .try_for_each(|value| check_target(&value.to_string(), &value.chosen_names()))?,
            None => check_target(to, &whole.chosen_names())?,
        }
        let (after_slash, names_host) = (to.contains("/{rest}"), to.starts_with("//"));
        let (to, fragment) = match to.find('#') {
            Some(at) => (&to[..at], Some(parse(&to[at..])?)),
            None => (to, None),
        };
        // `/a{query}` is `/a?{query}`.
        let to = &match to.split_once("{query}") {
            Some((before, after)) if !before.contains('?') => format!("{before}?{{query}}{after}"),
            _ => to.to_owned(),
        };
        let (path, query) = match to.split_once('?') {
            Some((path, query)) => (path, Some(parse(query)?)),
            None => (&**to, None),
        };
        let path = parse(path)?;
        let pattern = pattern.clone();
        Ok(Self { status, path, query, fragment, pattern, after_slash, names_host })
    }

    /// Returns the templates of the parts of the URL.
    pub(super) fn templates(&self) -> impl Iterator<Item = &Template> {
        [&self.path].into_iter().chain(&self.query).chain(&self.fragment)
    }

    /// Returns the value of `Location` for a decoded path, in which encoded slashes are NULs. Each value is encoded for the
    /// place where it stands.
    /// `host` is the value of the field. Without facts, values of the request besides these are empty. The value is empty if a map has
    /// no value for the request.
    pub fn location(
        &self,
        (path, query): (&[u8], Option<&[u8]>),
        host: &[u8],
        facts: Option<&Facts<'_>>,
    ) -> Vec<u8> {
        let captures = self.pattern.captures(path);
        let encoded =
            |value: &[u8], text: &mut Vec<u8>| text.extend_from_slice(encode(value).as_bytes());
        let in_path = |name: &str, text: &mut Vec<u8>| match name {
            "path" => text.extend_from_slice(encode(path).as_bytes()),
            "rest" => text.extend_from_slice(encode(self.rest(&captures)).as_bytes()),
            "host" => text.extend_from_slice(host),
            "target" => text.extend_from_slice(&target(path, query)),
            "query" => push_query(query, text),
            group => {
                let value = captures.group(group).unwrap_or_default();
                text.extend_from_slice(encode(value).as_bytes());
            }
        };
        let mut location = self.path.render(facts, encoded, in_path);
        // `/{path}` must not become `//a`, which names the host `a`.
        let slashes = location.iter().take_while(|&&byte| byte == b'/').count();
        if slashes > 1 && !self.names_host {
            location.drain(..slashes - 1);
        }
        if let Some(template) = &self.query {
            let rendered = self.render_query(template, (path, query, &captures), host, facts);
            // `{target}` in the path has brought a question mark.
            let has_query = memchr::memchr(b'?', &location).is_some();
            // An empty query of the request is carried on.
            if !rendered.is_empty() || query.is_some() && !has_query {
                location.push(if has_query { b'&' } else { b'?' });
                location.extend(rendered);
            }
        }
        if let Some(fragment) = &self.fragment {
            location.extend(fragment.render(facts, encoded, in_path));
        }
        location
    }

    fn render_query(
        &self,
        template: &Template,
        (path, query, captures): (&[u8], Option<&[u8]>, &Captures<'_, '_>),
        host: &[u8],
        facts: Option<&Facts<'_>>,
    ) -> Vec<u8> {
        let encode = |value: &[u8], text: &mut Vec<u8>| push_value(value, PLAIN, text);
        let mut text = template.render(facts, encode, |name, text| match (name, query) {
            ("path", _) => push_value(path, PLAIN, text),
            ("rest", _) => push_value(self.rest(captures), PLAIN, text),
            ("host", _) => push_value(host, PLAIN, text),
            ("target", _) => push_value(&target(path, query), PLAIN, text),
            (group, _) if group != "query" => {
                push_value(captures.group(group).unwrap_or_default(), PLAIN, text);
            }
            (_, None) if text.ends_with(b"&") => drop(text.pop()),
            (_, None) => {}
            // The value of a parameter.
            (_, Some(query)) if text.ends_with(b"=") => push_value(query, PLAIN, text),
            (_, Some(query)) => {
                if !matches!(text.last(), None | Some(b'&' | b'?')) {
                    text.push(b'&');
                }
                text.extend_from_slice(query);
            }
        });
        // `{query}&a=b` without a query.
        if query.is_none_or(<[u8]>::is_empty) && text.starts_with(b"&") {
            text.remove(0);
        }
        text
    }

    /// Returns the part of `path` that the route's `*` matches. If `{rest}` follows a slash, a slash at its start is
    /// removed: `/old*` to `/{rest}` must not send `/old/a.example` to the host `a.example`.
    fn rest<'p>(&self, captures: &Captures<'_, 'p>) -> &'p [u8] {
        let rest = captures.rest();
        match rest {
            [b'/', after @ ..] if self.after_slash => after,
            _ => rest,
        }
    }
}

/// Returns the path and the query of a request as a URL has them.
fn target(path: &[u8], query: Option<&[u8]>) -> Vec<u8> {
    let mut target = encode(path).into_bytes();
    push_query(query, &mut target);
    target
}

/// Checks `table` and fills in its defaults; `None` if the target is invalid.
pub(super) fn read(
    table: &Spanned<RedirectTable>,
    pattern: &Pattern,
    maps: &Maps,
    report: Report<'_>,
) -> Option<Redirect> {
    let status = table.status.as_deref().copied().unwrap_or(302);
    if !matches!(status, 301 | 302 | 303 | 307 | 308) {
        let place = table.status.as_ref().and_then(|status| status.span.clone());
        let what = format!("redirect: {status} is not one of 301, 302, 303, 307, 308");
        report(&place, what);
    }
    let to = field_value("redirect", Some(&table.to), report)?;
    if to.is_empty() {
        report(&table.to.span, "redirect: `to` is empty".into());
    }
    Redirect::parse(&to, status, pattern, maps)
        .inspect_err(|what| report(&table.to.span, format!("redirect: {what}")))
        .ok()
}

/// Rejects a `to` with which a client could choose scheme or host: the configuration has to name both. `groups` are placeholders that a
/// client chooses.
fn check_target(to: &str, groups: &[String]) -> Result<(), String> {
    let with_scheme = to.strip_prefix("{scheme}").map(|rest| format!("https{rest}"));
    let to = with_scheme.as_deref().unwrap_or(to);
    let has_group = |text: &str| groups.iter().any(|group| text.contains(&format!("{{{group}}}")));
    let is_chosen = |authority: &str| authority.contains("{rest}") || has_group(authority);
    if to.is_empty() {
        // The caller reports this error.
        return Ok(());
    }
    // What follows `./` is a path, relative to that of the request (RFC 3986 §4.2).
    if ["/", "./", "{path}", "{target}"].iter().any(|start| to.starts_with(start)) {
        // `//host` names a host, and so does `/` before a value that begins with a slash, which `{rest}` never does.
        let authority = to.strip_prefix("//").map(until_path);
        return match authority {
            Some("") => Err(NO_HOST.into()),
            Some(authority) if is_chosen(authority) => Err(REST_IN_HOST.into()),
            _ => Ok(()),
        };
    }
    let scheme = to.split_once(':').map(|(scheme, _)| scheme).filter(|scheme| {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.');
        scheme.starts_with(|c: char| c.is_ascii_alphabetic()) && scheme.chars().all(plain)
    });
    let Some(scheme) = scheme else {
        return Err(format!(
            "{to:?} begins neither with `/` or `./` nor with a scheme such as \"https://\", so that a client could choose one"
        ));
    };
    if ["javascript", "data", "vbscript"].iter().any(|other| scheme.eq_ignore_ascii_case(other)) {
        return Err(format!("{to:?} is not a valid target: browsers execute it"));
    }
    let rest = &to[scheme.len() + 1..];
    match rest.strip_prefix("//").map(until_path) {
        Some("") => Err(NO_HOST.into()),
        Some(authority) if is_chosen(authority) => Err(REST_IN_HOST.into()),
        // Browsers take `https:/a.example` and `https:a.example` for `https://a.example`.
        None if scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https") => {
            Err(NO_HOST.into())
        }
        _ => Ok(()),
    }
}

const NO_HOST: &str = "there is no host behind `//`, so that a client could choose one";

const REST_IN_HOST: &str = "a part of the path would be part of the host, which a client could choose; write a `/` before it";

/// Returns the text before the path of a URL.
fn until_path(text: &str) -> &str {
    let ends = ["/", "?", "#", "{path}", "{query}", "{target}"]
        .into_iter()
        .filter_map(|end| text.find(end));
    &text[..ends.min().unwrap_or(text.len())]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn location(to: &str, path: &str, query: Option<&str>) -> String {
        let pattern = Pattern::parse("/old/*").unwrap();
        let redirect = Redirect::parse(to, 302, &pattern, &Maps::default()).unwrap();
        let target = (path.as_bytes(), query.map(str::as_bytes));
        let location = redirect.location(target, b"a.example:81", None);
        String::from_utf8(location).unwrap()
    }

    #[test]
    fn a_value_is_encoded_for_its_place() {
        for (to, path, query, expected) in [
            ("/login?next={path}", "/old/a&b=c", None, "/login?next=/old/a%26b=c"),
            ("/login?next={path}", "/old/x+y", Some("a=1"), "/login?next=/old/x%2By"),
            ("/login?next={rest}", "/old/a;b#?%", None, "/login?next=a%3Bb%23%3F%25"),
            ("/new{path}", "/old/a&b+c?d", None, "/new/old/a&b+c%3Fd"),
            ("/new/{rest}", "/old/a\0b", None, "/new/a%2Fb"),
            ("/n?u={rest}", "/old/a\0b", None, "/n?u=a%2Fb"),
            ("/?host={host}", "/old/", None, "/?host=a.example:81"),
            ("/#{path}", "/old/a#b", None, "/#/old/a%23b"),
        ] {
            assert_eq!(location(to, path, query), expected, "{to} {path}");
        }
    }

    #[test]
    fn no_client_chooses_the_host() {
        for (to, path, expected) in [
            ("/{path}", "/evil.example", "/evil.example"),
            ("/{target}", "/evil.example", "/evil.example"),
            ("/{rest}", "/old//evil.example", "/evil.example"),
            ("//a.example{path}", "/x", "//a.example/x"),
            // Relative to the path of the request.
            ("./{path}", "//evil.example", ".//%2Fevil.example"),
            ("./wait?{query}", "/old/a", "./wait"),
        ] {
            assert_eq!(location(to, path, None), expected, "{to}");
        }
        for to in [
            "//{path}",
            "https://{path}",
            "https://{target}",
            "https:///x",
            "//",
            "{header.X}",
            "https://{cookie.host}/x",
            "https://a.{query.host}",
        ] {
            assert!(
                Redirect::parse(to, 302, &Pattern::EVERYTHING, &Maps::default()).is_err(),
                "{to}"
            );
        }
    }

    #[test]
    fn a_query_is_joined() {
        for (to, query, expected) in [
            ("/find?from=old{query}", Some("a=1"), "/find?from=old&a=1"),
            ("/find?from=old{query}", None, "/find?from=old"),
            ("/find?from=old&{query}", Some("a=1"), "/find?from=old&a=1"),
            ("/find?from=old&{query}", None, "/find?from=old"),
            ("/find?{query}&from=old", Some("a=1"), "/find?a=1&from=old"),
            ("/find?{query}&from=old", None, "/find?from=old"),
            ("/find{query}&from=old", None, "/find?from=old"),
            ("/find{query}", Some("a=1&b=%26"), "/find?a=1&b=%26"),
            ("/find{query}", Some(""), "/find?"),
            ("/find{query}", None, "/find"),
            ("/find?{query}", None, "/find"),
            ("/find?q={query}", Some("a=1&b"), "/find?q=a=1%26b"),
            ("/find{query}#top", Some("a=1"), "/find?a=1#top"),
        ] {
            assert_eq!(location(to, "/old/x", query), expected, "{to} {query:?}");
        }
    }

    #[test]
    fn the_target_is_the_path_with_its_query() {
        for (to, path, query, expected) in [
            (
                "/in?next={target}",
                "/old/a b",
                Some("x=1&y=%26"),
                "/in?next=/old/a%2520b%3Fx=1%26y=%2526",
            ),
            ("/in?next={target}&l=de", "/old/", None, "/in?next=/old/&l=de"),
            (
                "https://b.example{target}",
                "/old/a b",
                Some("x=1"),
                "https://b.example/old/a%20b?x=1",
            ),
            ("{target}", "/old/a", None, "/old/a"),
            ("/v2{target}?v=2", "/old/a", Some("x=1"), "/v2/old/a?x=1&v=2"),
        ] {
            assert_eq!(location(to, path, query), expected, "{to}");
        }
    }
}
