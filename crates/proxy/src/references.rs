//! Replacements in references of upstreams to themselves, and flags of their cookies, as the configuration has them.

use dunlin_config::{CookieFlags, Facts, References, Replacement, SameSiteFlag};
use dunlin_http::FieldLines;

/// Makes the replacements in the fields of a response.
pub(crate) fn replace(fields: &mut FieldLines, rules: &References, facts: &Facts<'_>) {
    if !fields.iter().any(|(name, _)| kind(name, rules).is_some()) {
        return;
    }
    let mut replaced = FieldLines::default();
    for (name, value) in fields.iter() {
        let changed = match kind(name, rules) {
            Some(Kind::Location) => location(value, rules, facts),
            Some(Kind::Refresh) => refresh(value, rules, facts),
            Some(Kind::Cookie) => cookie(value, rules, facts),
            None => None,
        };
        replaced.push_parsed(name, changed.as_deref().unwrap_or(value));
    }
    *fields = replaced;
}

enum Kind {
    Location,
    Refresh,
    Cookie,
}

/// Returns the kind of a field in which something is replaced.
fn kind(name: &[u8], rules: &References) -> Option<Kind> {
    let is = |other: &str| name.eq_ignore_ascii_case(other.as_bytes());
    if rules.location.is_some() && (is("Location") || is("Content-Location")) {
        return Some(Kind::Location);
    }
    if rules.location.is_some() && is("Refresh") {
        return Some(Kind::Refresh);
    }
    let has_cookies = !rules.cookie_domain.is_empty()
        || !rules.cookie_path.is_empty()
        || !rules.cookie_flags.is_empty();
    (has_cookies && is("Set-Cookie")).then_some(Kind::Cookie)
}

fn location(value: &[u8], rules: &References, facts: &Facts<'_>) -> Option<Vec<u8>> {
    first(rules.location.as_deref().unwrap_or_default(), value, facts)
}

/// Returns what the first replacement that matches makes of the value.
fn first(all: &[Replacement], value: &[u8], facts: &Facts<'_>) -> Option<Vec<u8>> {
    all.iter().find_map(|replacement| replacement.of_beginning(value, facts))
}

/// Replaces the URL of a `Refresh`, such as `5; url=/next`.
fn refresh(value: &[u8], rules: &References, facts: &Facts<'_>) -> Option<Vec<u8>> {
    let start = value.windows(4).position(|part| part.eq_ignore_ascii_case(b"url="))? + 4;
    let (before, url) = value.split_at(start);
    Some([before, &location(url, rules, facts)?].concat())
}

/// Returns the value of a `Set-Cookie` with other attributes (RFC 6265 §4.1); `None` if it stays as it is.
fn cookie(value: &[u8], rules: &References, facts: &Facts<'_>) -> Option<Vec<u8>> {
    let mut attributes = value.split(|&byte| byte == b';').map(<[u8]>::trim_ascii);
    let pair = attributes.next()?;
    let end = pair.iter().position(|&byte| byte == b'=').unwrap_or(pair.len());
    let flags = rules.cookie_flags.iter().find(|flags| flags.are_of(&pair[..end]));
    let mut changed = flags.is_some();
    let mut kept = vec![pair.to_vec()];
    for attribute in attributes {
        if flags.is_some_and(|flags| is_set(flags, attribute)) {
            continue;
        }
        let made = replaced_attribute(attribute, rules, facts);
        changed |= made.is_some();
        kept.push(made.unwrap_or_else(|| attribute.to_vec()));
    }
    kept.extend(flags.into_iter().flat_map(texts).map(|text| text.as_bytes().to_vec()));
    changed.then(|| kept.join(&b"; "[..]))
}

/// Returns the attribute with another value; `None` if it keeps its own.
fn replaced_attribute(attribute: &[u8], rules: &References, facts: &Facts<'_>) -> Option<Vec<u8>> {
    let end = attribute.iter().position(|&byte| byte == b'=')? + 1;
    let (name, value) = (&attribute[..end], attribute[end..].trim_ascii());
    let made = match name.to_ascii_lowercase().as_slice() {
        b"domain=" => rules.cookie_domain.iter().find_map(|rule| rule.of_domain(value, facts))?,
        b"path=" => first(&rules.cookie_path, value, facts)?,
        _ => return None,
    };
    Some([name, &made].concat())
}

/// Returns `true` if the flags have a setting for this attribute.
fn is_set(flags: &CookieFlags, attribute: &[u8]) -> bool {
    let end = attribute.iter().position(|&byte| byte == b'=').unwrap_or(attribute.len());
    match attribute[..end].trim_ascii().to_ascii_lowercase().as_slice() {
        b"secure" => flags.secure.is_some(),
        b"httponly" => flags.http_only.is_some(),
        b"samesite" => flags.same_site.is_some(),
        _ => false,
    }
}

/// Returns the attributes that the flags add.
fn texts(flags: &CookieFlags) -> Vec<&'static str> {
    let same_site = flags.same_site.and_then(|same_site| match same_site {
        SameSiteFlag::Strict => Some("SameSite=Strict"),
        SameSiteFlag::Lax => Some("SameSite=Lax"),
        SameSiteFlag::None => Some("SameSite=None"),
        SameSiteFlag::Off => None,
    });
    let secure = (flags.secure == Some(true)).then_some("Secure");
    let http_only = (flags.http_only == Some(true)).then_some("HttpOnly");
    secure.into_iter().chain(http_only).chain(same_site).collect()
}
