//! Directives that respond, and those that change requests.

use super::builder::{Builder, State};
use super::entry::Entry;
use super::placeholders::template;
use crate::directive::Directive;
use crate::regions::{Paths, Region};
use crate::units::shown_size;
use crate::value::Value;

/// Returns the position that a directive has where it responds.
pub(super) fn position(entry: &Entry<'_>) -> Option<usize> {
    Some(if entry.matcher.is_everything() { usize::MAX } else { entry.at })
}

impl<'t> Builder<'_, 't> {
    /// Runs one directive.
    pub(super) fn handler(&mut self, entry: &Entry<'t>, region: &Region, state: &mut State) {
        let directive = entry.directive;
        if entry.matcher.files.is_some()
            && !matches!(directive.name.as_str(), "rewrite" | "try_files")
        {
            let what =
                "a condition on files is that of `try_files` and `rewrite`: it does not apply";
            return self.context.report.lost(directive, what);
        }
        match directive.name.as_str() {
            "root" => {
                let path = entry.words.first().map_or("", String::as_str);
                if path.contains('{') && !path.contains("{env.") {
                    let what = "directories do not depend on the request: files get 404";
                    return self.context.report.lost(directive, what);
                }
                self.context.report.carried(directive);
                state.root = Some(self.context.in_folder(path));
            }
            "header" => self.header(entry, state),
            "request_header" => self.request_header(entry, state),
            "request_body" => self.request_body(directive, state),
            "redir" => self.redir(entry, state),
            "rewrite" => self.rewrite(entry, region, state),
            "uri" => self.uri(entry, region, state),
            "try_files" => self.try_files(entry, state),
            "basicauth" | "basic_auth" => self.basic_auth(entry, state),
            "forward_auth" => self.forward_auth(entry, state),
            "encode" => self.encode(directive),
            "respond" => self.respond(entry, state),
            "error" => self.error(entry, state),
            "abort" => {
                self.context.report.carried(directive);
                state.keys.set("close", Value::Switch(true));
                state.end = position(entry);
            }
            "metrics" => self.metrics(entry, region, state),
            "skip_log" | "log_skip" => {
                self.context.report.carried(directive);
                state.keys.set("access_log", Value::Switch(false));
            }
            "reverse_proxy" => self.reverse_proxy(entry, region, state),
            "php_fastcgi" => self.php(entry, region, state),
            "file_server" => self.file_server(entry, region, state),
            _ => {}
        }
    }

    fn request_body(&mut self, directive: &'t Directive, state: &mut State) {
        for child in directive.children() {
            match (child.name.as_str(), size(child.word(0))) {
                ("max_size", Some(size)) => {
                    self.context.report.carried(child);
                    state.keys.set("body_size", Value::text(shown_size(size)));
                }
                _ => self.context.report.lost(child, "bodies have a maximum size alone"),
            }
        }
        self.context.report.carried(directive);
    }

    fn redir(&mut self, entry: &Entry<'t>, state: &mut State) {
        let directive = entry.directive;
        let to = entry.words.first().cloned().unwrap_or_default();
        let status = match entry.words.get(1).map(String::as_str) {
            None | Some("temporary") => 302,
            Some("permanent") => 301,
            Some("html") => {
                self.context
                    .report
                    .differs(directive, "it is a redirect with status 302, and no page");
                302
            }
            Some(status) => status.parse().unwrap_or(302),
        };
        match template(&to, &entry.matcher.regexes) {
            Ok(to) if matches!(status, 301 | 302 | 303 | 307 | 308) => {
                self.context.report.carried(directive);
                // The query follows a `?` here.
                let to = to.replace("?{query}", "{query}");
                let value = match status {
                    302 => Value::text(to),
                    status => {
                        Value::table([("to", Value::text(to)), ("status", Value::Number(status))])
                    }
                };
                state.keys.set("redirect", value);
            }
            Ok(_) => {
                self.context.report.differs(directive, "the response has no `Location`");
                state.keys.set("respond", Value::table([("status", Value::Number(status))]));
            }
            Err(what) => {
                self.context.report.lost(directive, format!("{what}: the response is 500"));
                state.keys.set("respond", Value::table([("status", Value::Number(500))]));
            }
        }
        state.end = position(entry);
    }

    fn rewrite(&mut self, entry: &Entry<'t>, region: &Region, state: &mut State) {
        let directive = entry.directive;
        let to = entry.words.first().cloned().unwrap_or_default();
        if let Some(files) = &entry.matcher.files {
            // The first of the files that exists.
            let is_relative = matches!(
                to.as_str(),
                "{file}" | "{http.matchers.file.relative}" | "{file_match.relative}"
            );
            let tried = |file: &String| template(file, &[]).ok();
            match files.iter().map(tried).collect::<Option<Vec<_>>>() {
                Some(mut steps) if is_relative => {
                    self.context.report.carried(directive);
                    steps.push("=404".to_owned());
                    state.tries = Some(steps);
                }
                _ => self
                    .context
                    .report
                    .lost(directive, "it does not apply: only `try_files` depends on files"),
            }
            return;
        }
        let to = match template(&to, &entry.matcher.regexes) {
            Ok(to) if to.starts_with('?') => format!("{{path}}{to}"),
            Ok(to) => to.replace("{target}", "{path}"),
            Err(what) => {
                return self
                    .context
                    .report
                    .lost(directive, format!("{what}: the path stays as it is"));
            }
        };
        let path = to.split('?').next().unwrap_or_default();
        if path == "{path}" || !path.starts_with(['/', '{']) {
            return self
                .context
                .report
                .lost(directive, "only the query is changed: it stays as it is");
        }
        let target = Paths::Exact(path.to_owned());
        if !path.contains('{') && region.paths == target {
            return;
        }
        self.context.report.differs(directive, "the routes of the new path apply");
        if !path.contains('{') && region.paths.contains(&target) {
            // What it leads to would lead there again: files are tried in its place.
            state.tries = Some(vec![to]);
            return;
        }
        state.keys.set("rewrite", Value::text(to));
        state.end = position(entry);
    }

    fn uri(&mut self, entry: &Entry<'t>, region: &Region, state: &mut State) {
        let directive = entry.directive;
        let words: Vec<&str> = entry.words.iter().map(String::as_str).collect();
        match words[..] {
            ["strip_prefix", prefix] if !prefix.contains('{') => {
                let is_there = |paths: &Paths| match paths {
                    Paths::Exact(path) => path.starts_with(prefix),
                    Paths::Pattern(before, _) => before.starts_with(prefix),
                    Paths::All | Paths::Regex(_) => false,
                };
                if is_there(&region.paths) {
                    self.context.report.carried(directive);
                    state.strip = Some(prefix.trim_end_matches('/').to_owned());
                } else {
                    let what =
                        "a prefix is removed where the matcher names it: others keep their path";
                    self.context.report.differs(directive, what);
                }
            }
            _ => self.context.report.lost(directive, "the path stays as it is"),
        }
    }

    fn encode(&mut self, directive: &'t Directive) {
        self.context.report.not_needed(
            directive,
            "text is compressed by default, in the coding that the client prefers",
        );
        for child in directive.children() {
            self.context.report.not_needed(child, "text is compressed by default");
        }
    }

    fn respond(&mut self, entry: &Entry<'t>, state: &mut State) {
        let directive = entry.directive;
        let is_status = |word: &String| word.len() == 3 && word.parse::<u64>().is_ok();
        let (mut body, mut status) = (None, 200);
        match &entry.words[..] {
            [] => {}
            [only] if is_status(only) => status = only.parse().unwrap_or(200),
            [text] => body = Some(text.clone()),
            [text, code, ..] => {
                body = Some(text.clone());
                status = code.parse().unwrap_or(200);
            }
        }
        self.context.report.carried(directive);
        for child in directive.children() {
            match child.name.as_str() {
                "body" => body = Some(child.word(0).to_owned()),
                "close" => {
                    self.context.report.differs(child, "the connection stays open");
                    continue;
                }
                _ => {}
            }
            self.context.report.carried(child);
        }
        let mut value = Value::Table(Vec::new());
        if status != 200 {
            value.set("status", Value::Number(status));
        }
        if let Some(body) = body.filter(|body| !body.is_empty()) {
            match template(&body, &entry.matcher.regexes) {
                Ok(text) if !has_placeholder(&text) => value.set("body", Value::text(body)),
                Ok(text) => value.set("template", Value::text(text)),
                Err(what) => {
                    self.context
                        .report
                        .lost(directive, format!("{what}: it stands in the body as it is"));
                    value.set("body", Value::text(body));
                }
            }
        }
        if value.entries().is_empty() {
            value.set("status", Value::Number(200));
        }
        // The type that `header` has set is that of the body.
        if let Some(Value::Table(fields)) = state.keys.get("set_fields").cloned()
            && let Some((name, Value::Text(kind))) =
                fields.iter().find(|(name, _)| name.eq_ignore_ascii_case("content-type"))
            && value.get("body").or(value.get("template")).is_some()
        {
            value.set("content_type", Value::text(kind));
            let rest: Vec<_> = fields.iter().filter(|(other, _)| other != name).cloned().collect();
            match rest.is_empty() {
                true => drop(state.keys.remove("set_fields")),
                false => state.keys.set("set_fields", Value::Table(rest)),
            }
        }
        state.keys.set("respond", value);
        state.end = position(entry);
    }

    fn error(&mut self, entry: &Entry<'t>, state: &mut State) {
        let directive = entry.directive;
        let status = entry.words.iter().rev().find_map(|word| word.parse::<u64>().ok());
        let status = status.filter(|status| (400..600).contains(status)).unwrap_or(500);
        self.context.report.carried(directive);
        for child in directive.children() {
            self.context.report.not_needed(child, "messages of errors are in no page");
        }
        let folder = self.context.folder.to_string_lossy().into_owned();
        match self.error_pages.get(&status.to_string()) {
            // A response of its own would have no page.
            Some(_) => {
                state.keys.set("root", Value::text(state.root.clone().unwrap_or(folder)));
                state.keys.set("try", Value::list([format!("={status}")]));
            }
            None => state.keys.set("respond", Value::table([("status", Value::Number(status))])),
        }
        state.end = position(entry);
    }

    fn metrics(&mut self, entry: &Entry<'t>, region: &Region, state: &mut State) {
        let what = match &region.paths {
            Paths::Exact(path) if path == "/metrics" => {
                "the route /metrics has no page; write `path = \"/status/*\"` and `status = true`"
            }
            _ => "metrics are beside the page of a route with `status = true`",
        };
        self.context.report.lost(entry.directive, format!("{what}: the response is 404"));
        state.keys.set("respond", Value::table([("status", Value::Number(404))]));
        state.end = position(entry);
    }

    /// Runs `try_files`.
    fn try_files(&mut self, entry: &Entry<'t>, state: &mut State) {
        let directive = entry.directive;
        let mut steps = Vec::new();
        for word in &entry.words {
            match template(word, &[]) {
                Ok(step) if step.starts_with(['/', '{', '=']) => {
                    steps.push(step.replace("{target}", "{path}"));
                }
                Ok(step) => steps.push(format!("/{step}")),
                Err(what) => {
                    self.context
                        .report
                        .lost(directive, format!("{what}: {word} is not looked for"));
                }
            }
        }
        for child in directive.children() {
            self.context.report.lost(child, "the first file of the list that exists is sent");
        }
        self.context.report.differs(
            directive,
            "the last path is not looked for, but routed again; a directory without an index file is passed over",
        );
        if steps.len() == 1 && steps[0].contains("{path}") {
            steps.push("=404".to_owned());
        }
        state.tries = Some(steps);
    }
}

/// Returns `true` if a text has placeholders of Dunlin.
fn has_placeholder(text: &str) -> bool {
    let names = [
        "host}", "path}", "target}", "query}", "scheme}", "method}", "client}", "header.",
        "cookie.", "query.", "map.", "1}", "2}", "3}",
    ];
    names.iter().any(|name| text.contains(&format!("{{{name}")))
}

/// Returns a size in bytes: `10MB`, `1GiB`.
pub(super) fn size(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number: u64 = digits.trim().parse().ok()?;
    let factor = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kb" => 1_000,
        "m" | "mb" => 1_000_000,
        "g" | "gb" => 1_000_000_000,
        "kib" => 1 << 10,
        "mib" => 1 << 20,
        "gib" => 1 << 30,
        _ => return None,
    };
    number.checked_mul(factor).filter(|bytes| *bytes < 1 << 53)
}
