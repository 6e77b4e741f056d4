//! The keys of the file, and error messages about them in the terms of the file.

use super::deserialize::ErrorKind;
use super::error::nearest;
use super::other_servers;
use super::renamed;
use super::schema::schema;

/// Describes an error about the entry at `keys`.
pub(super) fn explain(kind: &ErrorKind, keys: &[&str]) -> String {
    match kind {
        ErrorKind::UnknownKey(key, known) => {
            unknown_key(key, known, keys.split_last().map_or(keys, |(_, section)| section))
        }
        ErrorKind::UnknownName(value, known) => {
            let list = known.join("`, `");
            let kinds = [
                ("php", "fastcgi"),
                ("python", "wsgi"),
                ("perl", "psgi"),
                ("flask", "wsgi"),
                ("django", "wsgi"),
            ];
            let kind = kinds.iter().find(|(name, _)| *name == value.to_ascii_lowercase());
            if let Some((_, kind)) = kind.filter(|(_, kind)| known.contains(kind)) {
                return format!(
                    "`{value}` is not one of `{list}`; {value} is run with kind = \"{kind}\""
                );
            }
            match nearest(value, known) {
                Some(nearest) => {
                    format!("`{value}` is not one of `{list}`; did you mean `{nearest}`?")
                }
                None => format!("`{value}` is not one of `{list}`"),
            }
        }
        ErrorKind::MissingKey(key) => format!("{} lacks the key `{key}`", section(keys)),
        ErrorKind::Other(text) => match keys.last() {
            Some(key) => format!("{key}: {text}"),
            None => text.clone(),
        },
    }
}

fn unknown_key(key: &str, known: &[&str], keys: &[&str]) -> String {
    // Files do not have the key of routes that are made for the values of maps.
    let known: Vec<&str> = known.iter().copied().filter(|key| !key.contains(' ')).collect();
    let known = known.as_slice();
    let here = section(keys);
    if let Some(name) = keys.last().and_then(|table| renamed::replacement(table, key)) {
        return format!("there is no key `{key}` in {here}; it was renamed to `{name}`");
    }
    // A key of this table is meant, whatever another server means by the name.
    if let Some(same) = known.iter().find(|known| plain(known) == plain(key)) {
        return format!("there is no key `{key}` in {here}; did you mean `{same}`?");
    }
    // A site refers to listeners by this key; an address is meant here.
    let is_address = keys == ["server"] && key == "listen";
    if let Some(hint) = other_servers::hint(if is_address { "port" } else { key }) {
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

/// Returns a key without what others write in another way.
fn plain(key: &str) -> String {
    key.replace(['_', '-'], "").to_ascii_lowercase()
}

/// The tables of a file, and the schema's definition of each.
pub(super) const SECTIONS: [(&str, &str); 10] = [
    ("[server]", "Server"),
    ("[server.error_log]", "ErrorLog"),
    ("[server.http1]", "Http1"),
    ("[server.http3]", "Http3"),
    ("[server.cache]", "Cache"),
    ("[server.reverse_dns]", "ReverseDns"),
    ("[shared]", "SharedTable"),
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
