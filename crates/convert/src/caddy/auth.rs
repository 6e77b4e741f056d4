//! `basic_auth` and `forward_auth`.

use super::builder::{Builder, State};
use super::entry::Entry;
use super::proxy::url;
use crate::value::Value;

impl<'t> Builder<'_, 't> {
    /// Users with their passwords are in a file here.
    pub(super) fn basic_auth(&mut self, entry: &Entry<'t>, state: &mut State) {
        let directive = entry.directive;
        let is_known = entry.words.first().is_none_or(|word| word == "bcrypt");
        let users: Option<Vec<(String, String)>> = directive
            .children()
            .iter()
            .map(|user| Some((user.name.clone(), hash(user.word(0))?)))
            .collect();
        let (Some(file), Some(users), true) = (self.context.users_file.clone(), users, is_known)
        else {
            self.context.report.lost(
                directive,
                "users with their passwords are in a file here: every request gets 403. `--users FILE` of `dunlin convert` writes it",
            );
            for child in directive.children() {
                self.context.report.not_needed(child, "its users are lost");
            }
            return state.keys.close();
        };
        self.context.report.carried(directive);
        directive.children().iter().for_each(|child| self.context.report.carried(child));
        for (name, hash) in users {
            match self.context.users.iter().find(|(other, _)| *other == name) {
                Some((_, other)) if *other != hash => {
                    self.context.report.lost(
                        directive,
                        format!("{name} has two passwords: every request gets 403"),
                    );
                    return state.keys.close();
                }
                Some(_) => {}
                None => self.context.users.push((name, hash)),
            }
        }
        if self.context.users.len() > directive.children().len() {
            self.context.report.differs(directive, "all users of the file have access");
        }
        let mut auth = Value::table([("basic", Value::text(file.to_string_lossy()))]);
        let realm = entry.words.get(1).cloned().unwrap_or_else(|| "restricted".to_owned());
        auth.set("realm", Value::text(realm));
        state.keys.set("auth", auth);
    }

    pub(super) fn forward_auth(&mut self, entry: &Entry<'t>, state: &mut State) {
        let directive = entry.directive;
        let upstream = entry.words.first().and_then(|word| url(word, false));
        let mut path = String::from("/");
        let mut copied = Vec::new();
        let mut is_lost = false;
        for child in directive.children() {
            match child.name.as_str() {
                "uri" => child.word(0).clone_into(&mut path),
                "copy_headers" => {
                    let names =
                        child.words.iter().chain(child.children().iter().map(|name| &name.name));
                    copied.extend(names.cloned());
                    is_lost |= child.children().iter().any(|child| !child.words.is_empty());
                    child.children().iter().for_each(|child| self.context.report.carried(child));
                }
                "header_up" => {
                    self.context.report.lost(
                        child,
                        "the endpoint gets the fields of the client that authentication is about",
                    );
                    continue;
                }
                _ => {
                    self.context.report.lost(child, "it has no counterpart");
                    continue;
                }
            }
            self.context.report.carried(child);
        }
        let is_renamed = copied.iter().any(|name| name.contains('>'));
        if is_lost || is_renamed || path.contains('{') {
            self.context.report.lost(
                directive,
                "fields keep their names, and the endpoint has one path: every request gets 403",
            );
            return state.keys.close();
        }
        let Some(upstream) = upstream else {
            self.context
                .report
                .lost(directive, "the endpoint depends on the request: every request gets 403");
            return state.keys.close();
        };
        self.context.report.differs(
            directive,
            "the endpoint gets the host of its URL, and that of the client as X-Forwarded-Host",
        );
        let forward = match upstream.strip_prefix("unix:") {
            Some(socket) => format!("unix:{socket}:{path}"),
            None => format!("{upstream}{path}"),
        };
        let mut auth = Value::table([("forward", Value::text(forward))]);
        if !copied.is_empty() {
            auth.set("copy_to_request", Value::list(copied));
        }
        state.keys.set("auth", auth);
    }
}

/// Returns the hash of a password; those of old versions are in Base64.
fn hash(text: &str) -> Option<String> {
    if text.starts_with("$2") {
        return Some(text.to_owned());
    }
    let decoded = String::from_utf8(decode(text)?).ok()?;
    decoded.starts_with("$2").then_some(decoded)
}

fn decode(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let (mut bits, mut count) = (0_u32, 0);
    for c in text.trim_end_matches('=').bytes() {
        let value = match c {
            b'A'..=b'Z' => c - b'A',
            b'a'..=b'z' => c - b'a' + 26,
            b'0'..=b'9' => c - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = bits << 6 | u32::from(value);
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
            bits &= (1 << count) - 1;
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_have_two_forms() {
        assert_eq!(hash("$2a$14$x").as_deref(), Some("$2a$14$x"));
        assert_eq!(hash("JDJhJDE0JHg=").as_deref(), Some("$2a$14$x"));
        assert_eq!(hash("eA=="), None);
    }
}
