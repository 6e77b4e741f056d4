//! `log`.

use super::context::Context;
use crate::directive::Directive;
use crate::value::Value;

/// Returns the access log of a site; `None` if it has none.
pub(super) fn access_log(children: &[Directive], context: &mut Context) -> Option<Value> {
    let mut all = children.iter().filter(|child| child.name == "log");
    let first = all.next()?;
    for other in all {
        context.report.lost(other, "requests are in one log: the first one of the site");
        other
            .children()
            .iter()
            .for_each(|child| context.report.not_needed(child, "its log is lost"));
    }
    context.report.carried(first);
    let (mut path, mut format) = ("-".to_owned(), "json".to_owned());
    for child in first.children() {
        match (child.name.as_str(), child.word(0)) {
            ("output", "file") => {
                path = context.in_folder(child.word(1));
                for option in child.children() {
                    context.report.not_needed(
                        option,
                        "logrotate rotates the file, and SIGUSR1 has it opened again",
                    );
                }
            }
            ("output", "stdout" | "stderr") => {}
            ("output", "discard") => {
                context.report.carried(child);
                return Some(Value::Switch(false));
            }
            ("output", other) => {
                context.report.lost(child, format!("{other}: the log is on standard output"));
                continue;
            }
            ("format", "json") => {}
            ("format", "console" | "single_field") => format = "combined".to_owned(),
            ("format", _) => {
                context.report.differs(
                    child,
                    "lines are JSON objects with other field names, and secrets are removed",
                );
                child.children().iter().for_each(|child| {
                    context.report.not_needed(child, "secrets are removed from lines");
                });
            }
            ("level", _) => {}
            ("hostnames", _) => {
                context.report.lost(child, "the log is that of all hosts of the site");
                continue;
            }
            _ => {
                context.report.lost(child, "it has no counterpart");
                continue;
            }
        }
        context.report.carried(child);
    }
    context.report.differs(first, "the fields of log lines have other names");
    let mut log = Value::table([("path", Value::text(path))]);
    if format != "combined" {
        log.set("format", Value::text(format));
    }
    Some(log)
}
