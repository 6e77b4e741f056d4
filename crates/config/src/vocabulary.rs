//! The keys of the file, and error messages about them in the terms of the file.

use super::error::nearest;
use super::foreign;
use super::renamed;
use super::schema::schema;

/// Translates an error of serde about the entry at `keys` into the terms of the file.
pub(super) fn explain(message: &str, keys: &[&str]) -> String {
    if let Some((key, known)) = quoted_list(message, "unknown field `") {
        return unknown_key(key, &known, keys.split_last().map_or(keys, |(_, section)| section));
    }
    if let Some((value, known)) = quoted_list(message, "unknown variant `") {
        let list = known.join("`, `");
        return match nearest(value, &known) {
            Some(nearest) => {
                format!("`{value}` is none of `{list}`; did you mean `{nearest}`?")
            }
            None => format!("`{value}` is none of `{list}`"),
        };
    }
    if let Some(key) = missing_key(message) {
        return format!("{} lacks the key `{key}`", section(keys));
    }
    let message = in_plain_terms(message);
    match keys.last() {
        Some(key) => format!("{key}: {message}"),
        None => message,
    }
}

/// Returns the key of serde's error "unknown field".
pub(super) fn unknown_name(message: &str) -> Option<&str> {
    message.trim().strip_prefix("unknown field `")?.split('`').next()
}

/// Returns the key of serde's error "missing field".
pub(super) fn missing_key(message: &str) -> Option<&str> {
    message.trim().strip_prefix("missing field `")?.split('`').next()
}

/// Describes the expected value without names of Rust types.
fn in_plain_terms(message: &str) -> String {
    let Some((found, expected)) = message.split_once("expected ") else {
        return message.to_owned();
    };
    let kind = expected.split([',', ' ']).next().unwrap_or_default();
    let plain = match expected {
        _ if ["usize", "u64", "u32", "u16", "u8", "i64", "i32", "i16"].contains(&kind) => {
            "a whole number"
        }
        _ if ["f64", "f32"].contains(&kind) => "a number",
        "a sequence" => "a list such as [\"...\"]",
        "a map" => "a table such as { key = \"value\" }",
        "a string" | "path string" => "a text in quotes",
        "a boolean" => "true or false",
        "socket address" => "an address such as \"127.0.0.1:53\"",
        _ if kind == "struct" => "a table such as { key = \"value\" }",
        expected => expected,
    };
    format!("{found}expected {plain}")
}

fn unknown_key(key: &str, known: &[&str], keys: &[&str]) -> String {
    let here = section(keys);
    if let Some(name) = keys.last().and_then(|table| renamed::replacement(table, key)) {
        return format!("there is no key `{key}` in {here}; it was renamed to `{name}`");
    }
    if let Some(hint) = foreign::hint(key) {
        return format!("there is no key `{key}` in {here}: {hint}");
    }
    if let Some(nearest) = nearest(key, known) {
        return format!("there is no key `{key}` in {here}; did you mean `{nearest}`?");
    }
    let elsewhere: Vec<_> = SECTIONS
        .iter()
        .filter(|(_, definition)| keys_of(definition).iter().any(|known| known == key))
        .map(|(section, _)| *section)
        .collect();
    if elsewhere.is_empty() {
        format!("there is no key `{key}` in {here}; the keys are: {}", known.join(", "))
    } else {
        format!("there is no key `{key}` in {here}; it belongs in {}", elsewhere.join(" or "))
    }
}

/// The tables of a file, and the schema's definition of each.
pub(super) const SECTIONS: [(&str, &str); 8] = [
    ("[server]", "Server"),
    ("[server.error_log]", "ErrorLog"),
    ("[server.http1]", "Http1"),
    ("[server.cache]", "Cache"),
    ("[server.reverse_dns]", "ReverseDns"),
    ("[[listen]]", "Listen"),
    ("[[site]]", "Site"),
    ("[[site.route]]", "Route"),
];

/// Returns the keys of a definition of the schema.
pub(super) fn keys_of(definition: &str) -> Vec<String> {
    let schema = schema();
    let properties = &schema["$defs"][definition]["properties"];
    properties.as_object().map(|keys| keys.keys().cloned().collect()).unwrap_or_default()
}

/// Returns the syntax of the table at `keys`.
fn section(keys: &[&str]) -> String {
    match keys {
        [] => "the file".to_owned(),
        ["listen" | "site"] | ["site", "route"] => format!("[[{}]]", keys.join(".")),
        ["site", "route", rest @ ..] => format!("`{}`", rest.join(".")),
        _ => format!("[{}]", keys.join(".")),
    }
}

/// Parses serde's "unknown ... `x`, expected one of `a`, `b`".
fn quoted_list<'m>(message: &'m str, start: &str) -> Option<(&'m str, Vec<&'m str>)> {
    let (key, rest) = message.strip_prefix(start)?.split_once('`')?;
    Some((key, rest.split('`').skip(1).step_by(2).collect()))
}
