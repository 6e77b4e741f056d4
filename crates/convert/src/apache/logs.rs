//! Access logs and the error log.

use std::collections::HashMap;

use super::context::Context;
use super::scope::{Scope, is};
use crate::directive::Directive;
use crate::value::Value;

/// Formats of Debian's package.
const KNOWN: [(&str, &str); 3] =
    [("combined", "combined"), ("vhost_combined", "combined"), ("common", "common")];

/// Reads the formats of a level.
pub(super) fn formats(level: &[Directive], context: &mut Context) {
    for directive in level.iter().filter(|directive| is(directive, "LogFormat")) {
        match directive.words.get(1) {
            Some(name) => {
                let format = format(directive, directive.word(0), context);
                context.log_formats.insert(name.clone(), format);
            }
            None => {
                let format = format(directive, directive.word(0), context);
                context.log_formats.insert(String::new(), format);
            }
        }
    }
}

/// Returns the log of a server; `None` if it has none.
pub(super) fn access_log(scope: &Scope<'_>, context: &mut Context) -> Option<Value> {
    let all = scope.innermost(&["CustomLog", "TransferLog", "GlobalLog"]);
    let (first, others) = all.split_first()?;
    for other in others {
        context.report.lost(other, "requests are in one log: the first one of the server");
    }
    let path = first.word(0);
    if path.starts_with('|') || path.starts_with("syslog") {
        context.report.lost(
            first,
            format!(
                "{path}: the log is a file or standard output; requests are in that of the server"
            ),
        );
        return None;
    }
    if first.words.iter().any(|word| word.starts_with("env=") || word.starts_with("expr=")) {
        context.report.lost(first, "all requests are logged, without a condition");
    }
    context.report.carried(first);
    let path = match path {
        "/dev/stdout" => "-".to_owned(),
        path => context.in_root(path),
    };
    let name = first.words.get(1).map_or("", String::as_str);
    let known: HashMap<&str, &str> = KNOWN.into_iter().collect();
    let format = match (context.log_formats.get(name), name.contains('%')) {
        (Some(format), _) => format.clone(),
        (None, true) => format(first, name, context),
        (None, false) => known.get(name).map_or("common", |format| format).to_owned(),
    };
    Some(match format.as_str() {
        "combined" => Value::text(path),
        _ => Value::table([("path", Value::text(path)), ("format", Value::text(format))]),
    })
}

/// Returns a format with the placeholders of Dunlin.
fn format(directive: &Directive, text: &str, context: &mut Context) -> String {
    let mut format = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('%') {
        format.push_str(&rest[..at].replace('{', "{{").replace('}', "}}"));
        let (item, after) = item(&rest[at + 1..]);
        rest = after;
        match placeholder(item) {
            Some(placeholder) => format.push_str(&placeholder),
            None => {
                context.report.lost(directive, format!("%{item} is `-` in lines of the log"));
                format.push('-');
            }
        }
    }
    format.push_str(&rest.replace('{', "{{").replace('}', "}}"));
    let format = format.replace("\\\"", "\"").replace("\\t", " ");
    context.report.carried(directive);
    let common = "{remote} - {user} [{time}] \"{method} {target} {protocol}\" {status} {bytes}";
    let combined = format!("{common} \"{{referer}}\" \"{{user_agent}}\"");
    match format.trim_start_matches("{host}:- ") {
        text if text == common => "common".to_owned(),
        text if text == combined => "combined".to_owned(),
        _ => format,
    }
}

/// Splits after one directive of a format: `>s`, `{Referer}i`, `!200,304{User-agent}i`.
fn item(text: &str) -> (&str, &str) {
    let start = text
        .find(|c: char| !matches!(c, '>' | '<' | '!' | ',') && !c.is_ascii_digit())
        .unwrap_or(text.len());
    let end = match text[start..].starts_with('{') {
        true => text[start..].find('}').map_or(text.len(), |end| start + end + 1),
        false => start,
    };
    let end = (end + text[end..].chars().next().map_or(0, char::len_utf8)).min(text.len());
    text.split_at(end)
}

fn placeholder(item: &str) -> Option<String> {
    let item = item.trim_start_matches(['>', '<']);
    if let Some((name, kind)) = item.strip_prefix('{').and_then(|rest| rest.split_once('}')) {
        let lower = name.to_ascii_lowercase();
        return Some(match (kind, lower.as_str()) {
            ("i", "referer") => "{referer}".into(),
            ("i", "user-agent") => "{user_agent}".into(),
            ("i", "cookie" | "authorization" | "proxy-authorization") | ("o", "set-cookie") => {
                return None;
            }
            ("i", "x-forwarded-for") => "{remote}".into(),
            ("i", _) => format!("{{header.{name}}}"),
            ("o", _) => format!("{{response.{name}}}"),
            ("x", "ssl_protocol") => "{tls_protocol}".into(),
            ("x", "ssl_cipher") => "{tls_cipher}".into(),
            ("T", "ms") => "{duration_ms}".into(),
            ("T", "us") => "{duration_us}".into(),
            _ => return None,
        });
    }
    Some(
        match item {
            "h" | "a" => "{remote}",
            "l" => "-",
            "u" => "{user}",
            "t" => "{time}",
            "r" => "{method} {target} {protocol}",
            "s" => "{status}",
            "b" | "B" | "O" => "{bytes}",
            "D" => "{duration_us}",
            "m" => "{method}",
            "U" => "{path}",
            "q" => "{query}",
            "H" => "{protocol}",
            "v" | "V" => "{host}",
            "p" => "-",
            "%" => "%",
            _ => return None,
        }
        .to_owned(),
    )
}

/// The error log.
pub(super) fn error_log(directive: &Directive, context: &mut Context) {
    let path = directive.word(0);
    match path {
        _ if path.starts_with(['|']) => {
            context.report.lost(directive, "the log is on standard error");
        }
        _ if path.starts_with("syslog") => {
            context.report.carried(directive);
            context.document.set("server.error_log", "path", Value::text("journald"));
        }
        "/dev/stderr" => context.report.carried(directive),
        path => {
            context.report.carried(directive);
            let path = context.in_root(path);
            context.document.set("server.error_log", "path", Value::text(path));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_of_formats_are_split() {
        assert_eq!(item(">s %b"), (">s", " %b"));
        assert_eq!(item("{Referer}i\""), ("{Referer}i", "\""));
        assert_eq!(item("h"), ("h", ""));
        assert_eq!(placeholder("{User-Agent}i").as_deref(), Some("{user_agent}"));
        assert_eq!(placeholder("{Cookie}i"), None);
    }
}
