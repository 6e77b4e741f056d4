//! The verdict on directives that the conversion has not judged.

use crate::directive::Directive;
use crate::report::Report;

/// Directives that are lost, with what a request sees.
const LOST: [(&str, &str); 13] = [
    ("templates", "pages are sent as they are: templates are not run"),
    ("map", "the placeholders of the map have no value: what uses them is lost"),
    ("vars", "the placeholders have no value: what uses them is lost"),
    ("method", "the method stays that of the client"),
    ("push", "nothing is pushed; `early_hints` of a route names what a page needs"),
    ("acme_server", "the server is no authority"),
    ("tracing", "no spans of this name are sent; `[server.traces]` sends traces"),
    ("invoke", "named routes are not read: it does not apply"),
    ("intercept", "responses are passed on as they are"),
    ("copy_response", "responses of upstreams are passed on as they are"),
    ("copy_response_headers", "responses of upstreams are passed on as they are"),
    ("log_append", "the fields of log lines are fixed"),
    ("fs", "files are those of the root"),
];

/// Directives that run only if no other one has responded.
const KNOWN: [&str; 27] = [
    "root",
    "header",
    "request_body",
    "redir",
    "rewrite",
    "uri",
    "try_files",
    "basicauth",
    "basic_auth",
    "forward_auth",
    "request_header",
    "encode",
    "handle",
    "handle_path",
    "route",
    "abort",
    "error",
    "respond",
    "metrics",
    "reverse_proxy",
    "php_fastcgi",
    "file_server",
    "bind",
    "tls",
    "log",
    "skip_log",
    "log_skip",
];

/// Judges each directive that the conversion has not.
pub(super) fn complete(all: &[Directive], report: &mut Report) {
    for directive in all {
        let name = directive.name.as_str();
        if !report.has(directive) {
            let lost = LOST.iter().find(|(other, _)| *other == name);
            match lost {
                Some((_, what)) => report.lost(directive, *what),
                None if KNOWN.contains(&name) || name.starts_with('@') => {
                    report.not_needed(
                        directive,
                        "requests never get here: another directive responds before it",
                    );
                }
                None => report.lost(directive, "the directive has no counterpart"),
            }
        }
        inner(directive, report);
    }
}

fn inner(directive: &Directive, report: &mut Report) {
    let is_level =
        matches!(directive.name.as_str(), "handle" | "handle_path" | "route" | "handle_errors");
    let is_site = !KNOWN.contains(&directive.name.as_str())
        && !directive.name.starts_with('@')
        && !LOST.iter().any(|(name, _)| *name == directive.name);
    if is_level || is_site {
        return complete(directive.children(), report);
    }
    for child in directive.children() {
        if !report.has(child) {
            report.not_needed(child, "it is part of the directive around it");
        }
        inner(child, report);
    }
}
