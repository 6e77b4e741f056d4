//! What a rule does with the requests that it is for.

use super::builder::{Builder, EndKind, Front, Pass, comment, redirect, respond, simple};
use super::required::Required;
use super::rule::Rule;
use super::rule_paths::without;
use super::target::{Groups, References, target};
use super::whole::Place;
use crate::expression::{Expression, of_prefix};
use crate::keys::Keys;
use crate::model::{Matching, Route};
use crate::regions::{Paths, Region};
use crate::value::Value;

/// What `try` does that Apache does not.
pub(super) const PASSED_OVER: &str =
    "a directory without an index file is passed over, for the next path of the list";

/// Paths that are tried before others, and whether files of the path itself come first.
pub(super) type Prior = Vec<(String, bool)>;

impl<'t> Builder<'_, 't> {
    pub(super) fn apply(
        &mut self,
        rule: &Rule<'t>,
        place: &Place,
        order: usize,
        required: Required,
        prior: &mut Prior,
    ) -> Result<(), String> {
        let (paths, groups) = self.paths(rule, place, &required)?;
        let conditions = self.captures(rule, &required)?;
        let base = place.prefix.trim_end_matches('/').to_owned();
        let references = References { groups, conditions: &conditions, base: &base };
        let region =
            Region { comment: comment(rule.directive), paths, when: required.when.clone() };
        let kind = |keys: Keys| match place.is_directory {
            true => EndKind::Checked(keys),
            false => EndKind::Fixed(keys),
        };
        self.context.report.carried(rule.directive);
        let is_tried = !required.absent.is_empty();
        if required.absent.contains(&'d') {
            self.context.report.differs(rule.directive, PASSED_OVER);
        }
        if let Some(status) = rule.flags.status {
            if is_tried {
                return self.tried(place, order, region, &required, prior, format!("={status}"));
            }
            let mut keys = Keys::default();
            keys.set("respond", respond(status));
            self.end(order, region, kind(keys));
            return Ok(());
        }
        if rule.substitution == "-" {
            self.end(order, region, EndKind::Pass);
            return Ok(());
        }
        let text = rule.substitution.replace("http%1://", "%{REQUEST_SCHEME}://");
        let is_url = text.contains("://") && !text.starts_with('/');
        if rule.flags.is_proxy {
            return self.passed(rule, order, region, &text, groups);
        }
        let text = match () {
            () if is_url || text.starts_with(['/', '%', '$']) && !text.starts_with("$1") => text,
            () if groups == Groups::WholePath => text,
            () => format!("{}{text}", place.base),
        };
        if is_url || rule.flags.redirect.is_some() {
            let to = with_query(target(&text, &references)?, rule, true);
            // A host that a client chooses ends with a slash.
            let to = match to.contains("://{map.") && region.paths == Paths::All {
                true => to.replacen("}{path}", "}/{rest}", 1),
                false => to,
            };
            let mut keys = Keys::default();
            keys.set("redirect", redirect(to, rule.flags.redirect.unwrap_or(302)));
            if is_tried {
                let page = self.page(rule, &region, keys);
                return self.tried(place, order, region, &required, prior, page);
            }
            let region = self.outside_of_fronts(rule, region);
            let (region, keys) = rooted(region, keys);
            self.end(order, region, kind(keys));
            return Ok(());
        }
        let text = self.without_root(&text);
        let to = with_query(target(&text, &references)?, rule, false);
        if !required.exists.is_empty() {
            return self.existing(&region, &required, prior, &to);
        }
        if is_tried {
            return self.tried(place, order, region, &required, prior, to);
        }
        let region = without_itself(region, &to);
        let mut keys = Keys::default();
        keys.set("rewrite", Value::text(to));
        self.end(order, region, EndKind::Fixed(keys));
        Ok(())
    }

    /// Adds a list of paths that are tried.
    fn tried(
        &mut self,
        place: &Place,
        order: usize,
        region: Region,
        required: &Required,
        prior: &mut Prior,
        last: String,
    ) -> Result<(), String> {
        let is_whole = region.paths == Paths::beneath(&place.prefix)
            || matches!(&region.paths, Paths::Regex(regex) if regex.except.is_some() && (regex.text == of_prefix(&place.prefix)));
        let absent = required.absent.clone();
        if is_whole && region.when.is_none() {
            let except = match &region.paths {
                Paths::Regex(Expression { except: Some(_), .. }) => required
                    .except
                    .iter()
                    .map(|text| simple(Expression { text: text.clone(), except: None }))
                    .collect(),
                _ => Vec::new(),
            };
            self.front(place, except, prior, absent, last);
            return Ok(());
        }
        let tries = steps(&absent, &Prior::new(), last);
        self.end(order, region, EndKind::Tries(tries));
        Ok(())
    }

    pub(super) fn front(
        &mut self,
        place: &Place,
        except: Vec<Paths>,
        prior: &mut Prior,
        absent: Vec<char>,
        last: String,
    ) {
        let tries = steps(&absent, prior, last);
        prior.clear();
        self.fronts.push(Front { directory: place.prefix.clone(), tries, except, is_rule: true });
    }

    /// A rule for a file that exists elsewhere: it is tried before or after the path itself.
    fn existing(
        &mut self,
        region: &Region,
        required: &Required,
        prior: &mut Prior,
        to: &str,
    ) -> Result<(), String> {
        let is_general = matches!(&region.paths, Paths::All) && region.when.is_none();
        let path = to.split('?').next().unwrap_or_default().to_owned();
        if !is_general || required.exists.iter().any(|file| *file != path) {
            return Err("it depends on a file that exists elsewhere".into());
        }
        prior.push((path, !required.absent.is_empty()));
        Ok(())
    }

    fn passed(
        &mut self,
        rule: &Rule<'t>,
        order: usize,
        region: Region,
        text: &str,
        groups: Groups,
    ) -> Result<(), String> {
        let is_socket = text.starts_with("ws://") || text.starts_with("wss://");
        if is_socket && region.when.as_ref().and_then(|when| when.get("header")).is_some() {
            self.context
                .report
                .not_needed(rule.directive, "WebSockets are forwarded without a setting");
            return Ok(());
        }
        let ends = ["/$1", "$1", "%{REQUEST_URI}"];
        let Some((url, end)) = ends.iter().find_map(|end| Some((text.strip_suffix(end)?, *end)))
        else {
            return Err("the URL depends on the request".into());
        };
        if url.contains(['$', '%']) || groups == Groups::Expression && end != "%{REQUEST_URI}" {
            return Err("the URL depends on the request".into());
        }
        let prefix = match (&region.paths, end) {
            (Paths::Pattern(before, _), "/$1" | "$1") => before.clone(),
            _ => "/".to_owned(),
        };
        let url = format!("{}/", url.trim_end_matches('/'));
        let pass =
            Pass { directive: rule.directive, prefix, url, options: Vec::new(), is_whole: false };
        self.end(order, region, EndKind::Proxy(pass));
        Ok(())
    }

    /// Returns the path of an internal route that redirects, beneath which the path of the request follows.
    fn page(&mut self, rule: &Rule<'t>, region: &Region, keys: Keys) -> String {
        let name = format!("/@rewrite-{}", self.pages.len() + 1);
        let whole = Region {
            paths: Paths::Regex(Expression { text: "^(/.*)$".into(), except: None }),
            ..region.clone()
        };
        let region = if matches!(region.paths, Paths::Regex(_)) { region.clone() } else { whole };
        let mut keys = keys;
        let redirect = keys.get("redirect").map(|value| match value {
            Value::Text(text) => Value::Text(text.replace("{path}", "{1}")),
            table => {
                let path = |value: &Value| match value {
                    Value::Text(text) => Value::Text(text.replace("{path}", "{1}")),
                    value => value.clone(),
                };
                Value::Table(
                    table.entries().iter().map(|(key, value)| (key.clone(), path(value))).collect(),
                )
            }
        });
        if let Some(redirect) = redirect {
            keys.set("redirect", redirect);
        }
        let (region, keys) = rooted(region, keys);
        let regex = match &region.paths {
            Paths::Regex(expression) if expression.text.starts_with('^') => {
                expression.text.replacen('^', &format!("^{name}"), 1)
            }
            Paths::Regex(expression) => format!("^{name}.*?{}", expression.text),
            _ => format!("^{name}(/.*)$"),
        };
        self.context.report.differs(rule.directive, format!("clients reach it at {name}/, too"));
        let (comment, matching) = (comment(rule.directive), Matching::Regex(regex));
        self.pages.push(Route { comment, matching, when: None, keys });
        format!("{name}{{path}}")
    }

    /// Front controllers get requests that a redirect away from them must not lead back.
    fn outside_of_fronts(&mut self, rule: &Rule<'t>, region: Region) -> Region {
        let Paths::Regex(expression) = &region.paths else { return region };
        if !expression.matches("/index.php")
            || region.paths == Paths::All
            || expression.text == "^/"
        {
            return region;
        }
        if !expression.begins_with("/index.php") {
            return region;
        }
        self.context.report.differs(
            rule.directive,
            "/index.php itself is not redirected: the front controller responds there",
        );
        without(region, r"^/index\.php$")
    }

    /// Returns a target without the document root at its begin.
    fn without_root(&self, text: &str) -> String {
        let root = self.document_root.as_deref().filter(|root| *root != "/");
        match root.and_then(|root| text.strip_prefix(root)).filter(|rest| rest.starts_with('/')) {
            Some(rest) => rest.to_owned(),
            None => text.to_owned(),
        }
    }
}

/// Returns the steps of a list for what is no file and no directory.
fn steps(absent: &[char], prior: &Prior, last: String) -> Vec<String> {
    let of = |is_after: bool| {
        prior.iter().filter(move |(_, after)| *after == is_after).map(|(path, _)| path.clone())
    };
    let mut steps: Vec<String> = of(false).collect();
    if absent.contains(&'f') || absent.is_empty() {
        steps.push("{path}".to_owned());
    }
    if absent.contains(&'d') {
        steps.push("{path}/".to_owned());
    }
    steps.extend(of(true));
    steps.push(last);
    steps
}

/// Returns the target with the query that the flags keep.
fn with_query(to: String, rule: &Rule<'_>, is_redirect: bool) -> String {
    let to = match to.strip_suffix('?') {
        Some(plain) if is_redirect => return plain.to_owned(),
        Some(_) => return to,
        None => to,
    };
    match (to.contains('?'), rule.flags.adds_query) {
        (true, true) => format!("{to}&{{query}}"),
        (true, false) => to,
        (false, _) if rule.flags.drops_query && is_redirect => to,
        (false, _) if rule.flags.drops_query => format!("{to}?"),
        (false, _) if is_redirect => format!("{to}{{query}}"),
        (false, _) => to,
    }
}

/// Returns a redirect whose target begins with a slash where it would begin with a group that has one.
fn rooted(region: Region, mut keys: Keys) -> (Region, Keys) {
    let to = match keys.get("redirect") {
        Some(Value::Text(to)) => to.clone(),
        Some(table) => match table.get("to") {
            Some(Value::Text(to)) => to.clone(),
            _ => return (region, keys),
        },
        None => return (region, keys),
    };
    let Paths::Regex(expression) = &region.paths else { return (region, keys) };
    if !to.starts_with("{1}") {
        return (region, keys);
    }
    let starts = [("^(/.", "^/(."), ("^(.", "^/(."), ("(.", "^/(.")];
    let Some(text) = starts.iter().find_map(|(start, rooted)| {
        Some(format!("{rooted}{}", expression.text.strip_prefix(start)?))
    }) else {
        return (region, keys);
    };
    let to = Value::text(format!("/{to}"));
    match keys.remove("redirect") {
        Some(mut table @ Value::Table(_)) => {
            table.set("to", to);
            keys.set("redirect", table);
        }
        _ => keys.set("redirect", to),
    }
    let paths = Paths::Regex(Expression { text, except: expression.except.clone() });
    (Region { paths, ..region }, keys)
}

/// Returns the region without the paths to which the rule leads, which it would match again.
fn without_itself(region: Region, to: &str) -> Region {
    let path = to.split('?').next().unwrap_or_default();
    let start = path.split('{').next().unwrap_or_default();
    let is_exact = start == path;
    let example =
        if is_exact { Paths::Exact(path.to_owned()) } else { Paths::Exact(format!("{start}x")) };
    if start == "/" && !is_exact || !region.paths.contains(&example) {
        return region;
    }
    let end = if is_exact { "$" } else { "" };
    without(region, &format!("{}{end}", of_prefix(start)))
}
