//! `handle_errors`: pages by status.

use super::builder::Builder;
use super::entry::comment;
use crate::directive::Directive;
use crate::keys::Keys;
use crate::model::{Matching, Route};
use crate::value::Value;

/// Statuses of a block for all errors.
const ALL: [&str; 11] =
    ["400", "401", "403", "404", "405", "410", "429", "500", "502", "503", "504"];

/// Reads the pages of a site.
pub(super) fn read(children: &[Directive], builder: &mut Builder<'_, '_>) {
    for directive in children.iter().filter(|child| child.name == "handle_errors") {
        let statuses: Vec<String> = match directive.words.is_empty() {
            true => ALL.map(str::to_owned).to_vec(),
            false => directive.words.iter().flat_map(|word| expanded(word)).collect(),
        };
        block(directive, directive.children(), &statuses, builder);
        builder.context.report.carried(directive);
    }
}

fn expanded(word: &str) -> Vec<String> {
    match word.strip_suffix("xx") {
        Some(class) => {
            ALL.iter().filter(|status| status.starts_with(class)).map(ToString::to_string).collect()
        }
        None => vec![word.to_owned()],
    }
}

fn block(
    outer: &Directive,
    level: &[Directive],
    statuses: &[String],
    builder: &mut Builder<'_, '_>,
) {
    let mut matchers: Vec<(&str, Option<Vec<String>>)> = Vec::new();
    for directive in level {
        let name = directive.name.as_str();
        if name.starts_with('@') {
            let found = statuses_of(directive);
            match &found {
                Some(_) => builder.context.report.carried(directive),
                None => builder.context.report.lost(directive, "pages depend on the status alone"),
            }
            matchers.push((name, found));
            continue;
        }
        let first = directive.word(0);
        let own = match first.strip_prefix('@') {
            Some(_) => matchers
                .iter()
                .find(|(name, _)| *name == first)
                .and_then(|(_, found)| found.clone()),
            None => Some(statuses.to_vec()),
        };
        let Some(own) = own else {
            builder
                .context
                .report
                .lost(directive, "pages depend on the status alone: it does not apply");
            continue;
        };
        let words =
            if is_matcher(first) { directive.words.get(1..) } else { Some(&directive.words[..]) };
        let words = words.unwrap_or_default();
        match name {
            "handle" | "route" => {
                builder.context.report.carried(directive);
                block(directive, directive.children(), &own, builder);
            }
            "rewrite" | "try_files" => rewrite(directive, words, &own, builder),
            "respond" => respond(directive, words, &own, builder),
            "redir" => redir(directive, words, &own, builder),
            "root" => {
                let is_same = builder.context.in_folder(words.first().map_or("", String::as_str));
                builder.context.report.differs(
                    directive,
                    format!("pages are files of the site: {is_same} is not read"),
                );
            }
            "file_server" | "templates" | "header" | "encode" => {
                builder
                    .context
                    .report
                    .differs(directive, "pages are paths of the site, with its own settings");
            }
            _ => builder.context.report.lost(directive, "errors have pages alone"),
        }
    }
    let _ = outer;
}

fn is_matcher(word: &str) -> bool {
    word == "*" || word.starts_with('@')
}

/// `@404 expression {err.status_code} == 404`, `in [404, 410]`, or `` `{err.status_code} >= 500` ``.
fn statuses_of(directive: &Directive) -> Option<Vec<String>> {
    let words = [
        &directive.words[..],
        &directive
            .children()
            .first()
            .map(|child| [vec![child.name.clone()], child.words.clone()].concat())
            .unwrap_or_default(),
    ]
    .concat();
    if words.first().map(String::as_str) != Some("expression") {
        return None;
    }
    let text = words[1..].join(" ");
    let text = text.replace("{http.error.status_code}", "{err.status_code}");
    let rest = text.trim().strip_prefix("{err.status_code}")?.trim();
    if let Some(status) = rest.strip_prefix("==") {
        return Some(vec![status.trim().to_owned()]);
    }
    if let Some(list) = rest.strip_prefix("in") {
        let list = list.trim().trim_start_matches('[').trim_end_matches(']');
        return Some(list.split(',').map(|status| status.trim().to_owned()).collect());
    }
    let bound: u32 = rest.strip_prefix(">=")?.trim().parse().ok()?;
    let is_above = |status: &&&str| status.parse::<u32>().is_ok_and(|status| status >= bound);
    Some(ALL.iter().filter(is_above).map(ToString::to_string).collect())
}

fn set(status: &str, path: String, builder: &mut Builder<'_, '_>) {
    if builder.error_pages.get(status).is_none() {
        builder.error_pages.set(status, Value::Text(path));
    }
}

fn rewrite(
    directive: &Directive,
    words: &[String],
    statuses: &[String],
    builder: &mut Builder<'_, '_>,
) {
    let Some(path) = words.first() else { return };
    builder.context.report.carried(directive);
    if words.len() > 1 {
        builder.context.report.differs(directive, "the first path is that of the page");
    }
    let path = path.replace("{http.error.status_code}", "{err.status_code}");
    for status in statuses {
        let own = path.replace("{err.status_code}", status);
        if own.contains('{') || !own.starts_with('/') {
            return builder
                .context
                .report
                .lost(directive, "the page depends on the request: it is not sent");
        }
        set(status, own, builder);
    }
}

fn respond(
    directive: &Directive,
    words: &[String],
    statuses: &[String],
    builder: &mut Builder<'_, '_>,
) {
    let is_status = |word: &&String| word.len() == 3 && word.parse::<u64>().is_ok();
    let body = words.first().filter(|word| !is_status(word) && !word.is_empty());
    builder.context.report.carried(directive);
    let Some(body) = body else { return };
    if words.get(1).is_some_and(|word| !word.contains("err.status_code")) {
        builder.context.report.differs(directive, "the status is that of the error");
    }
    let body = body.replace("{http.error.", "{err.");
    let is_same = !body.contains("{err.");
    for status in statuses {
        let reason = reason(status);
        let own = body
            .replace("{err.status_code}", status)
            .replace("{err.status_text}", reason)
            .replace("{err.message}", "");
        if own.contains("{err.") {
            return builder.context.report.lost(
                directive,
                "the body names what is not known: the page is that of the server",
            );
        }
        let path = if is_same {
            format!("/@error-{}", directive.place.line)
        } else {
            format!("/@error-{status}")
        };
        let matching = Matching::Paths(vec![path.clone()]);
        if builder.error_pages.get(status).is_none()
            && !builder.pages.iter().any(|page| page.matching == matching)
        {
            let mut keys = Keys::default();
            keys.set("internal", Value::Switch(true));
            keys.set("respond", Value::table([("body", Value::text(own))]));
            builder.pages.push(Route { comment: comment(directive), matching, when: None, keys });
        }
        set(status, path, builder);
    }
}

fn redir(
    directive: &Directive,
    words: &[String],
    statuses: &[String],
    builder: &mut Builder<'_, '_>,
) {
    let Some(to) = words.first().filter(|to| !to.contains('{')) else {
        return builder
            .context
            .report
            .lost(directive, "the target depends on the error: the page is that of the server");
    };
    builder.context.report.carried(directive);
    let path = format!("/@error-{}", directive.place.line);
    let mut keys = Keys::default();
    keys.set("internal", Value::Switch(true));
    keys.set("redirect", Value::text(to));
    let matching = Matching::Paths(vec![path.clone()]);
    builder.pages.push(Route { comment: comment(directive), matching, when: None, keys });
    statuses.iter().for_each(|status| set(status, path.clone(), builder));
}

fn reason(status: &str) -> &'static str {
    match status {
        "400" => "Bad Request",
        "401" => "Unauthorized",
        "403" => "Forbidden",
        "404" => "Not Found",
        "405" => "Method Not Allowed",
        "410" => "Gone",
        "429" => "Too Many Requests",
        "500" => "Internal Server Error",
        "502" => "Bad Gateway",
        "503" => "Service Unavailable",
        "504" => "Gateway Timeout",
        _ => "Error",
    }
}
