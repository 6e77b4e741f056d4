//! What is replaced in references of upstreams to themselves, and the flags of their cookies.

use regex::bytes::{Captures, Regex};

use crate::facts::Facts;
use crate::fields::valid_value;
use crate::file::{CookieFlagsTable, ReplacementTable, SameSiteFlag};
use crate::map::Maps;
use crate::path_regex::compile;
use crate::report::Report;
use crate::spanned::Spanned;
use crate::template::Template;

/// The references that are replaced, and the flags of cookies. Of each list, the first entry that matches holds.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct References {
    /// Replacements in `Location`, `Content-Location` and `Refresh`; `None` for those of the paths.
    pub location: Option<Vec<Replacement>>,
    /// Replacements in the attribute `Domain` of cookies.
    pub cookie_domain: Vec<Replacement>,
    /// Replacements in the attribute `Path` of cookies.
    pub cookie_path: Vec<Replacement>,
    /// Flags of cookies.
    pub cookie_flags: Vec<CookieFlags>,
}

impl References {
    /// Returns `true` if nothing is replaced.
    pub fn is_empty(&self) -> bool {
        let Self { location, cookie_domain, cookie_path, cookie_flags } = self;
        location.is_none()
            && cookie_domain.is_empty()
            && cookie_path.is_empty()
            && cookie_flags.is_empty()
    }
}

/// A text that is replaced.
#[derive(Debug, Clone)]
pub struct Replacement {
    from: Matcher,
    to: Template,
}

#[derive(Debug, Clone)]
enum Matcher {
    /// The beginning of a value.
    Text(Vec<u8>),
    /// The whole value, if the expression matches it.
    Regex(Regex),
}

/// Flags of the cookies of a name.
#[derive(Debug, Clone)]
pub struct CookieFlags {
    name: Matcher,
    /// Whether cookies have `Secure`; `None` if that stays as it is.
    pub secure: Option<bool>,
    /// Whether cookies have `HttpOnly`.
    pub http_only: Option<bool>,
    /// The attribute `SameSite`.
    pub same_site: Option<SameSiteFlag>,
}

impl PartialEq for Matcher {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Text(one), Self::Text(other)) => one == other,
            (Self::Regex(one), Self::Regex(other)) => one.as_str() == other.as_str(),
            _ => false,
        }
    }
}

impl PartialEq for Replacement {
    fn eq(&self, other: &Self) -> bool {
        self.from == other.from && self.to == other.to
    }
}

impl PartialEq for CookieFlags {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
            && (self.secure, self.http_only, self.same_site)
                == (other.secure, other.http_only, other.same_site)
    }
}

impl Matcher {
    fn parse(text: &str, is_caseless: bool) -> Result<Self, String> {
        let Some(expression) = text.strip_prefix('~') else {
            return Ok(Self::Text(text.as_bytes().to_vec()));
        };
        compile(expression, is_caseless)
            .map(Self::Regex)
            .map_err(|_| format!("{text:?} is not a regular expression"))
    }

    /// Returns the names and numbers of the groups.
    fn groups(&self) -> Vec<String> {
        let Self::Regex(regex) = self else { return Vec::new() };
        let numbers = (1..regex.captures_len()).map(|number| number.to_string());
        numbers.chain(regex.capture_names().flatten().map(str::to_owned)).collect()
    }
}

impl Replacement {
    /// Returns the value with what takes the place of its beginning, or of all of it; `None` if it does not match.
    pub fn of_beginning(&self, value: &[u8], facts: &Facts<'_>) -> Option<Vec<u8>> {
        match &self.from {
            Matcher::Text(text) => {
                let rest = value.strip_prefix(&**text)?;
                Some([&*self.text(facts, None), rest].concat())
            }
            Matcher::Regex(regex) => {
                let groups = regex.captures(value)?;
                Some(self.text(facts, Some(&groups)))
            }
        }
    }

    /// Returns what takes the place of the domain, without regard to case and a leading dot; `None` if it does not match.
    pub fn of_domain(&self, domain: &[u8], facts: &Facts<'_>) -> Option<Vec<u8>> {
        let without_dot = |text: &'_ [u8]| text.strip_prefix(b".").unwrap_or(text).to_vec();
        let plain = without_dot(domain);
        let made = match &self.from {
            Matcher::Text(text) if without_dot(text).eq_ignore_ascii_case(&plain) => {
                self.text(facts, None)
            }
            Matcher::Text(_) => return None,
            Matcher::Regex(regex) => self.text(facts, Some(&regex.captures(&plain)?)),
        };
        let dot: &[u8] = if domain.starts_with(b".") { b"." } else { b"" };
        Some([dot, &without_dot(&made)].concat())
    }

    fn text(&self, facts: &Facts<'_>, groups: Option<&Captures<'_>>) -> Vec<u8> {
        let named = |name: &str, text: &mut Vec<u8>| {
            let group = groups.and_then(|groups| match name.parse() {
                Ok(number) => groups.get(number),
                Err(_) => groups.name(name),
            });
            text.extend_from_slice(group.map_or(&[], |group| group.as_bytes()));
        };
        let plain = |value: &[u8], text: &mut Vec<u8>| text.extend_from_slice(value);
        let text = self.to.render(Some(facts), plain, named);
        valid_value(text)
    }
}

impl CookieFlags {
    /// Returns `true` if these are the flags of cookies of that name.
    pub fn are_of(&self, name: &[u8]) -> bool {
        match &self.name {
            Matcher::Text(text) => text == b"*" || text.eq_ignore_ascii_case(name),
            Matcher::Regex(regex) => regex.is_match(name),
        }
    }
}

/// Reads the entries of a key.
pub(super) fn replacements(
    key: &str,
    table: &Spanned<Vec<ReplacementTable>>,
    maps: &Maps,
    report: Report<'_>,
) -> Vec<Replacement> {
    let mut found = Vec::new();
    for ReplacementTable { from, to } in &table.value {
        let is_domain = key == "replace_cookie_domain";
        let read = Matcher::parse(from, is_domain).map_err(|what| (&from.span, what)).and_then(
            |matcher| {
                let groups = matcher.groups();
                let known: Vec<&str> = groups.iter().map(String::as_str).collect();
                let to = Template::in_text(to, &known, maps).map_err(|what| (&to.span, what))?;
                Ok(Replacement { from: matcher, to })
            },
        );
        match read {
            Ok(replacement) => found.push(replacement),
            Err((span, what)) => report(span, format!("proxy: {key}: {what}")),
        }
    }
    found
}

/// Reads the entries of the key `cookie_flags`.
pub(super) fn cookie_flags(
    table: &Spanned<Vec<CookieFlagsTable>>,
    report: Report<'_>,
) -> Vec<CookieFlags> {
    let mut found = Vec::new();
    for flags in &table.value {
        match Matcher::parse(&flags.cookie, true) {
            Ok(name) => found.push(CookieFlags {
                name,
                secure: flags.secure,
                http_only: flags.http_only,
                same_site: flags.same_site,
            }),
            Err(what) => report(&flags.cookie.span, format!("proxy: cookie_flags: {what}")),
        }
    }
    found
}
