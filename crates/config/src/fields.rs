//! The keys `set_fields` and `remove_fields`: response fields that a route sets or removes.

use dunlin_http::semantics::{is_field_value, is_token};

use super::file::Route;
use super::report::{Report, field_value};
use super::secrets::is_secret_name;
use super::template::reject_variables;

/// Returns the fields that the route sets.
pub(super) fn set_fields(route: &Route, report: Report<'_>) -> Vec<(String, String)> {
    report_contradictions(route, report);
    let mut fields = Vec::new();
    for (name, value) in route.set_fields.iter().flat_map(|fields| &fields.value) {
        if let Err(what) = may_set(name) {
            report(&name.span, format!("set_fields: {what}"));
        }
        if let Err(what) = reject_variables(value, &[]) {
            report(&value.span, format!("set_fields: {what}"));
        }
        if is_secret_name(name.as_bytes()) && !is_field_value(value.as_bytes()) {
            let what = format!("set_fields: the value of {} holds a control character", name.value);
            report(&value.span, what);
        } else if let Some(value) = field_value("set_fields", Some(value), report) {
            fields.push((name.value.clone(), value));
        }
    }
    fields
}

/// Returns the names of the fields that the route removes.
pub(super) fn remove_fields(route: &Route, report: Report<'_>) -> Vec<String> {
    let names = route.remove_fields.as_ref().map_or(&[][..], |names| &names.value);
    for name in names {
        if let Err(what) = may_remove(name) {
            report(&name.span, format!("remove_fields: {what}"));
        }
    }
    names.iter().map(|name| name.value.clone()).collect()
}

fn report_contradictions(route: &Route, report: Report<'_>) {
    let set = || route.set_fields.iter().flat_map(|fields| fields.keys());
    for (at, name) in set().enumerate() {
        if set().skip(at + 1).any(|other| other.eq_ignore_ascii_case(name)) {
            let what = format!("set_fields: {} stands twice", name.value);
            report(&name.span, what);
        }
        let removed = route.remove_fields.iter().flat_map(|names| &names.value);
        for other in removed.filter(|other| other.eq_ignore_ascii_case(name)) {
            let what = format!("remove_fields: {} is set by the same route", other.value);
            report(&other.span, what);
        }
    }
}

/// Fields that describe framing or encoding of the message: only the server sends them.
const FRAMING: [&str; 12] = [
    "connection",
    "content-encoding",
    "content-length",
    "content-range",
    "date",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "vary",
];

/// Fields that the server generates and evaluates, with the key that configures each: other values would contradict its
/// behaviour.
const MADE: [(&str, &str); 5] = [
    ("accept-ranges", "ranges"),
    ("etag", "etag"),
    ("expires", "expires"),
    ("last-modified", "remove_fields"),
    ("server", "server_field"),
];

fn may_remove(name: &str) -> Result<(), String> {
    if !is_token(name.as_bytes()) {
        return Err(format!("{name:?} is not a field name"));
    }
    if FRAMING.contains(&name.to_ascii_lowercase().as_str()) {
        return Err(format!("{name} is the server's to send"));
    }
    if name.eq_ignore_ascii_case("server") {
        return Err("Server is left out by `server_field = false`".into());
    }
    Ok(())
}

fn may_set(name: &str) -> Result<(), String> {
    may_remove(name)?;
    match MADE.iter().find(|(made, _)| name.eq_ignore_ascii_case(made)) {
        Some((_, key)) => Err(format!("{name} is the server's to set; see `{key}`")),
        None => Ok(()),
    }
}
