//! Passes whose upstream a variable names: a route for each upstream that it can name.

use regex::Regex;

use super::assemble::{Draft, Paths};
use super::condition::field_name;
use super::flow::Rest;
use super::location::passes;
use super::server::{Builder, Location};
use super::variables::{Part, parts, with_constants};
use crate::expression::Expression;
use crate::groups::group_of;
use crate::value::Value;

/// Most upstreams among which a request chooses.
const MAX_UPSTREAMS: usize = 64;

impl<'t> Builder<'_, 't> {
    /// Returns a route for each upstream that the variable of a pass can name.
    pub(super) fn of_upstreams(&mut self, location: &Location<'t>, rest: &Rest<'t>) -> Vec<Draft> {
        let Some((pass, _)) = passes(&location.scope) else { return Vec::new() };
        let text = with_constants(pass.word(0), &self.constants(&location.scope));
        let authority = text.split_once("://").map_or(&*text, |(_, rest)| rest);
        let authority = authority.split('/').next().unwrap_or_default();
        let all = parts(authority);
        let variables = all.iter().filter_map(|part| match part {
            Part::Variable(name) => Some(*name),
            Part::Text(_) => None,
        });
        let [variable] = variables.collect::<Vec<_>>()[..] else { return Vec::new() };
        let (before, after) = authority.split_once(&format!("${{{variable}}}")).unwrap_or_default();
        let mut names: Vec<&str> = self.context.upstreams.keys().copied().collect();
        names.sort_unstable();
        names.truncate(MAX_UPSTREAMS);
        let mut drafts = Vec::new();
        for name in names {
            let value = name.strip_prefix(before).and_then(|name| name.strip_suffix(after));
            let Some(value) = value.filter(|value| !value.is_empty()) else { continue };
            let Some((paths, when)) = self.choice(location, variable, value) else { continue };
            self.chosen.insert(variable.to_owned(), value.to_owned());
            let keys = self.settings_after(&location.scope, &paths, rest);
            self.chosen.clear();
            let comment = format!("{} for {name}", location.comment());
            drafts.push(Draft::new(comment, paths, when, keys));
        }
        drafts
    }

    /// Returns the paths and the conditions of requests for which a variable has a value.
    fn choice(
        &mut self,
        location: &Location<'t>,
        variable: &str,
        value: &str,
    ) -> Option<(Paths, Option<Value>)> {
        let named = |kind: &str, name: String| {
            Some(Value::table([(kind, Value::Table(vec![(name, Value::text(value))]))]))
        };
        let paths = location.paths.clone();
        if let Paths::Regex(own) = &paths
            && own.has_group(variable)
        {
            let text = with_group(&own.text, variable, value)?;
            return Some((Paths::Regex(Expression { text, ..own.clone() }), None));
        }
        let when = match variable.split_once('_') {
            _ if self.context.is_map(variable) => {
                let map = self.context.map(variable).ok()?;
                // A fixed value that is another one is not compared.
                let is_possible = map.fixed().is_none_or(|values| values.contains(&value));
                is_possible.then_some(())?;
                named("map", map.name)
            }
            _ if matches!(variable, "host" | "http_host") => named("header", "Host".to_owned()),
            Some(("arg", name)) => named("query", name.to_owned()),
            Some(("cookie", name)) => named("cookie", name.to_owned()),
            Some(("http", name)) => named("header", field_name(name)),
            _ => return None,
        };
        Some((paths, when))
    }
}

/// Returns an expression in which a group matches one text alone; `None` if the group does not match it.
fn with_group(text: &str, group: &str, value: &str) -> Option<String> {
    let (start, end) = group_of(text, group)?;
    let inner = &text[start..end];
    let flags = if text.starts_with("(?i)") { "(?i)" } else { "" };
    let matches = Regex::new(&format!("{flags}^(?:{inner})$")).ok()?.is_match(value);
    matches.then(|| format!("{}{}{}", &text[..start], regex::escape(value), &text[end..]))
}

#[cfg(test)]
mod tests {
    use super::with_group;

    #[test]
    fn a_group_matches_one_text() {
        for (text, group, value, expected) in [
            ("^/(a|b)/(.*)$", "1", "a", Some("^/(a)/(.*)$")),
            ("^/(?:x)([a-z(]+)$", "1", "up", Some("^/(?:x)(up)$")),
            ("^/(?<name>\\w+)", "name", "u.1", None),
            ("^/(?P<name>[\\w.]+)", "name", "u.1", Some("^/(?P<name>u\\.1)")),
            ("^/(a(b))", "2", "b", Some("^/(a(b))")),
            ("^/(a)", "2", "b", None),
        ] {
            assert_eq!(with_group(text, group, value).as_deref(), expected, "{text}");
        }
    }
}
