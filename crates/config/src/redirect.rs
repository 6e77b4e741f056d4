//! The table `redirect`: sends the client to another URL.

use super::file::RedirectTable;
use super::pattern::Pattern;
use super::report::{Report, field_value};
use super::spanned::Spanned;
use super::template::Template;

/// A redirect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Redirect {
    /// Value of `Location`.
    pub to: Template,
    /// The status.
    pub status: u16,
    pattern: Pattern,
    /// `{rest}` follows a slash.
    after_slash: bool,
}

impl Redirect {
    /// Returns the part of `path` that the route's `*` matches. If `{rest}` follows a slash, a slash at its start is
    /// removed: `/old*` to `/{rest}` must not send `/old/a.example` to the host `a.example`.
    pub fn rest<'p>(&self, path: &'p [u8]) -> &'p [u8] {
        let rest = self.pattern.rest(path);
        match rest {
            [b'/', after @ ..] if self.after_slash => after,
            _ => rest,
        }
    }
}

/// Checks `table` and fills in its defaults; `None` if the target is invalid.
pub(super) fn read(
    table: &Spanned<RedirectTable>,
    pattern: &Pattern,
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
    let parsed = Template::parse(&to, &["path", "query", "host", "rest"]);
    match parsed.and_then(|template| check_target(&to).map(|()| template)) {
        Ok(template) => Some(Redirect {
            to: template,
            status,
            pattern: pattern.clone(),
            after_slash: to.contains("/{rest}"),
        }),
        Err(what) => {
            report(&table.to.span, format!("redirect: {what}"));
            None
        }
    }
}

/// Rejects a `to` with which a client could choose scheme or host: the configuration has to name both.
fn check_target(to: &str) -> Result<(), String> {
    if to.is_empty() {
        // The caller reports this error.
        return Ok(());
    }
    if to.starts_with('/') || to.starts_with("{path}") {
        // `//host` names a host, and so does `/` before a value that begins with a slash, which `{rest}` never does.
        let authority = to.strip_prefix("//").map(until_path);
        return match authority {
            Some(authority) if authority.contains("{rest}") => Err(REST_IN_HOST.into()),
            _ => Ok(()),
        };
    }
    let scheme = to.split_once(':').map(|(scheme, _)| scheme).filter(|scheme| {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.');
        scheme.starts_with(|c: char| c.is_ascii_alphabetic()) && scheme.chars().all(plain)
    });
    let Some(scheme) = scheme else {
        return Err(format!(
            "{to:?} begins neither with `/` nor with a scheme such as \"https://\", so that a client could choose one"
        ));
    };
    if ["javascript", "data", "vbscript"].iter().any(|other| scheme.eq_ignore_ascii_case(other)) {
        return Err(format!("{to:?} is not a valid target: browsers execute it"));
    }
    let rest = &to[scheme.len() + 1..];
    match rest.strip_prefix("//").map(until_path) {
        Some(authority) if authority.contains("{rest}") => Err(REST_IN_HOST.into()),
        _ => Ok(()),
    }
}

const REST_IN_HOST: &str =
    "{rest} would be part of the host, which a client could choose; write a `/` before it";

/// Returns the text before the path of a URL.
fn until_path(text: &str) -> &str {
    let ends = ["/", "?", "#", "{path}", "{query}"].into_iter().filter_map(|end| text.find(end));
    &text[..ends.min().unwrap_or(text.len())]
}
