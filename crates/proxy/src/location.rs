//! References of upstreams to themselves, in the fields of their responses, as clients have to see them.

use dunlin_config::Proxy;
use dunlin_http::FieldLines;

/// Maps the paths that an upstream names in `Location`, `Content-Location` and cookies to those of clients, if a prefix of the
/// path was replaced for it, and removes its own authority.
pub(crate) fn adapt(fields: &mut FieldLines, rules: &Proxy, authorities: Authorities<'_>) {
    let base = rules.base.as_bytes();
    let prefix = rules.strip.as_deref().map_or(base, str::as_bytes);
    let paths = Paths { prefix, base };
    let mut adapted = FieldLines::default();
    for (name, value) in fields.iter() {
        let changed = match kind(name) {
            // Replacements take the place of what follows from the paths.
            Some(Kind::Location) if rules.references.location.is_some() => None,
            Some(Kind::Location) => paths.location(value, authorities),
            Some(Kind::Cookie) if !rules.references.cookie_path.is_empty() => None,
            Some(Kind::Cookie) => paths.cookie(value),
            None => None,
        };
        adapted.push_parsed(name, changed.as_deref().unwrap_or(value));
    }
    *fields = adapted;
}

/// Returns `true` if [`adapt`] may change the fields.
pub(crate) fn concerns(fields: &FieldLines, rules: &Proxy) -> bool {
    rules.rewrites_location && fields.iter().any(|(name, _)| kind(name).is_some())
}

/// The hosts, with their ports, that an upstream may name.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Authorities<'a> {
    /// That of the upstream's URL.
    pub(crate) own: Option<&'a [u8]>,
    /// That of the request to the upstream, if it is neither of the others.
    pub(crate) sent: Option<&'a [u8]>,
    /// That of the client's request.
    pub(crate) client: Option<&'a [u8]>,
}

enum Kind {
    Location,
    Cookie,
}

fn kind(name: &[u8]) -> Option<Kind> {
    let is = |other: &str| name.eq_ignore_ascii_case(other.as_bytes());
    if is("Location") || is("Content-Location") {
        return Some(Kind::Location);
    }
    is("Set-Cookie").then_some(Kind::Cookie)
}

struct Paths<'a> {
    /// The prefix that clients use, without a slash at its end.
    prefix: &'a [u8],
    /// What upstreams have in its place.
    base: &'a [u8],
}

impl Paths<'_> {
    /// Returns the path for clients; `None` if it stays as it is: it is outside of the base, or the upstream knows of the
    /// prefix.
    fn path(&self, path: &[u8]) -> Option<Vec<u8>> {
        if self.prefix == self.base {
            return None;
        }
        let is_beneath = |prefix: &[u8]| {
            let rest = path.strip_prefix(prefix)?;
            matches!(rest.first(), None | Some(b'/' | b'?' | b'#')).then_some(rest)
        };
        let is_base_within = self.base.starts_with(self.prefix);
        if !is_base_within && is_beneath(self.prefix).is_some() {
            return None;
        }
        is_beneath(self.base).map(|rest| [self.prefix, rest].concat())
    }

    fn location(&self, value: &[u8], authorities: Authorities<'_>) -> Option<Vec<u8>> {
        let Authorities { own, sent, client } = authorities;
        if value.starts_with(b"/") && !value.starts_with(b"//") {
            return self.path(value);
        }
        let rest =
            [&b"http://"[..], b"https://"].iter().find_map(|scheme| value.strip_prefix(*scheme))?;
        let end = rest.iter().position(|byte| matches!(byte, b'/' | b'?' | b'#'));
        let (authority, path) = rest.split_at(end.unwrap_or(rest.len()));
        let is =
            |other: Option<&[u8]>| other.is_some_and(|other| other.eq_ignore_ascii_case(authority));
        let absolute = if path.starts_with(b"/") { path.to_vec() } else { [b"/", path].concat() };
        if is(client) {
            // The upstream may send clients to another scheme.
            let origin = &value[..value.len() - path.len()];
            return self.path(&absolute).map(|path| [origin, &path].concat());
        }
        (is(own) || is(sent)).then(|| self.path(&absolute).unwrap_or(absolute))
    }

    /// Returns the value of a `Set-Cookie` with the attribute `Path` of clients (RFC 6265 §4.1.2.4).
    fn cookie(&self, value: &[u8]) -> Option<Vec<u8>> {
        let mut changed = false;
        let attributes = value.split(|&byte| byte == b';').enumerate().map(|(at, attribute)| {
            let name_end = attribute.iter().position(|&byte| byte == b'=');
            let (name, path) = attribute.split_at(name_end.map_or(attribute.len(), |end| end + 1));
            let is_path = at > 0 && name.trim_ascii().eq_ignore_ascii_case(b"path=");
            match is_path.then(|| self.path(path.trim_ascii())).flatten() {
                Some(path) => {
                    changed = true;
                    let path = if path.is_empty() { b"/".to_vec() } else { path };
                    [name, &path].concat()
                }
                None => attribute.to_vec(),
            }
        });
        let all = attributes.collect::<Vec<_>>().join(&b';');
        changed.then_some(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const APP: Paths<'_> = Paths { prefix: b"/app", base: b"/base" };
    const WITHIN: Paths<'_> = Paths { prefix: b"/app", base: b"/app/v2" };
    const PLAIN: Paths<'_> = Paths { prefix: b"", base: b"" };
    const AUTHORITIES: Authorities<'_> =
        Authorities { own: Some(b"up:3000"), sent: Some(b"sent"), client: Some(b"host.test") };
    const STRIPPED: Paths<'_> = Paths { prefix: b"/app", base: b"" };

    fn text(value: Option<Vec<u8>>) -> Option<String> {
        value.map(|value| String::from_utf8(value).unwrap())
    }

    #[test]
    fn locations_are_those_of_clients() {
        for (paths, value, expected) in [
            (&APP, "/base/x?y", Some("/app/x?y")),
            (&APP, "/base", Some("/app")),
            (&APP, "/basement", None),
            (&APP, "/app/x", None),
            (&APP, "x", None),
            (&APP, "//a.test/base/x", None),
            (&APP, "http://up:3000/base/x", Some("/app/x")),
            (&APP, "http://UP:3000", Some("/")),
            (&APP, "http://sent/base", Some("/app")),
            (&APP, "https://host.test/base/x", Some("https://host.test/app/x")),
            (&APP, "https://host.test/x", None),
            (&WITHIN, "/app/v2/login", Some("/app/login")),
            (&WITHIN, "http://up:3000/app/v2/login", Some("/app/login")),
            (&WITHIN, "/app/x", None),
            (&APP, "https://other.test/base/x", None),
            (&STRIPPED, "/login", Some("/app/login")),
            (&STRIPPED, "/app/login", None),
            (&STRIPPED, "http://up:3000/login", Some("/app/login")),
            (&PLAIN, "http://up:3000/login?x", Some("/login?x")),
            (&PLAIN, "https://host.test/login", None),
            (&PLAIN, "/login", None),
        ] {
            let found = text(paths.location(value.as_bytes(), AUTHORITIES));
            assert_eq!(found.as_deref(), expected, "{value}");
        }
    }

    #[test]
    fn paths_of_cookies_are_those_of_clients() {
        for (paths, value, expected) in [
            (&APP, "a=b; Path=/base/; HttpOnly", Some("a=b; Path=/app/; HttpOnly")),
            (&APP, "a=b; path=/base", Some("a=b; path=/app")),
            (&APP, "a=/base; Path=/", None),
            (&STRIPPED, "a=b; Path=/", Some("a=b; Path=/app/")),
            (&STRIPPED, "path=/x", None),
            (&STRIPPED, "a=b; Secure", None),
        ] {
            assert_eq!(text(paths.cookie(value.as_bytes())).as_deref(), expected, "{value}");
        }
    }
}
