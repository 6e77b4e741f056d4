//! `mod_rewrite`: rules become rules that end the search, or lists of paths that are tried.

use super::builder::Pass;
use super::builder::simple;
use super::builder::{
    Builder, EndKind, Front, OF_DIRECTORY, OF_REWRITE, comment, redirect, respond,
};
use super::condition::{Matcher, Test, and, test};
use super::rule::{Condition, Rule, rules};
use super::scope::is;
use super::target::{Groups, References, target};
use super::whole::{full, is_whole};
use crate::directive::Directive;
use crate::expression::{Expression, of_prefix};
use crate::keys::Keys;
use crate::model::{Matching, Route};
use crate::regions::{Paths, Region};
use crate::value::Value;

/// Most alternatives of the conditions of a rule.
const MAX_ALTERNATIVES: usize = 16;

/// Where rules stand.
pub(super) struct Place {
    /// The path of the URL that patterns begin behind; `/` for a server, whose patterns have it.
    pub(super) prefix: String,
    pub(super) is_directory: bool,
    /// `RewriteBase`, with a slash at its end.
    base: String,
}

impl Place {
    pub(super) fn new(prefix: &str, is_directory: bool) -> Self {
        Self { prefix: prefix.to_owned(), is_directory, base: prefix.to_owned() }
    }
}

/// What `try` does that Apache does not.
pub(super) const PASSED_OVER: &str =
    "a directory without an index file is passed over, for the next path of the list";

/// What the conditions of a rule require.
#[derive(Debug, Clone, Default)]
struct Required {
    path: Option<Expression>,
    except: Vec<String>,
    when: Option<Value>,
    /// `f` and `d`: the path is no file, no directory.
    absent: Vec<char>,
    /// Other files that have to exist.
    exists: Vec<String>,
    /// The path is a file or a directory.
    is_there: bool,
    /// What `%1` is a group of: a text with placeholders, and an expression; without a text, the path.
    captured: Option<(Option<String>, Expression)>,
}

/// Paths that are tried before others, and whether files of the path itself come first.
type Prior = Vec<(String, bool)>;

impl<'t> Builder<'_, 't> {
    /// Reads the rules of the server and of its directories.
    pub(super) fn rewrites(&mut self) {
        let own = self.server.last();
        let has_rules = own.iter().any(|directive| is(directive, "RewriteRule"));
        if has_rules && self.is_engine_on(own) {
            let place = Place::new("/", false);
            self.rules_of(own, &place, OF_REWRITE);
        }
        let mut directories: Vec<(usize, String)> = Vec::new();
        let mut elsewhere = Vec::new();
        for (at, section) in self.sections.iter().enumerate() {
            let level = section.level;
            let is_there = level
                .iter()
                .any(|directive| is(directive, "RewriteEngine") || is(directive, "RewriteRule"));
            if is_there && section.directory.is_some() {
                directories
                    .extend(section.paths.iter().filter_map(prefix).map(|prefix| (at, prefix)));
            } else if is_there {
                elsewhere.push(level);
            }
        }
        elsewhere.into_iter().for_each(|level| self.elsewhere(level));
        // The rules of the deepest directory are the only ones; of one directory, the last ones.
        directories
            .sort_by_key(|(at, prefix)| (std::cmp::Reverse(prefix.len()), std::cmp::Reverse(*at)));
        let mut order = OF_DIRECTORY;
        let mut done: Vec<String> = Vec::new();
        for (at, prefix) in directories {
            let level = self.sections[at].level;
            if done.contains(&prefix) {
                self.superseded(level);
                continue;
            }
            let base = level.iter().rfind(|directive| is(directive, "RewriteBase"));
            let base =
                base.map_or_else(|| prefix.clone(), |directive| directive.word(0).to_owned());
            let base = format!("{}/", base.trim_end_matches('/'));
            if self.is_engine_on(level) {
                let place = Place { base, ..Place::new(&prefix, true) };
                self.rules_of(level, &place, order);
            }
            order += 100_000;
            if prefix != "/" {
                let comment = "rules of other directories do not apply here".to_owned();
                let region = Region { comment, paths: Paths::beneath(&prefix), when: None };
                self.end(order, region, EndKind::Pass);
                order += 1;
            }
            done.push(prefix);
        }
        self.without_fronts();
    }

    fn is_engine_on(&mut self, level: &'t [Directive]) -> bool {
        let Some(engine) = level.iter().rfind(|directive| is(directive, "RewriteEngine")) else {
            return false;
        };
        self.context.report.carried(engine);
        let is_on = engine.word(0).eq_ignore_ascii_case("on");
        if !is_on {
            self.mark_rules(level, "the engine is off");
        }
        is_on
    }

    fn superseded(&mut self, level: &'t [Directive]) {
        self.mark_rules(level, "a later section has the rules of the directory");
    }

    fn mark_rules(&mut self, level: &'t [Directive], why: &str) {
        for directive in level
            .iter()
            .filter(|directive| is(directive, "RewriteRule") || is(directive, "RewriteCond"))
        {
            self.context.report.not_needed(directive, why);
        }
    }

    fn elsewhere(&mut self, level: &'t [Directive]) {
        for rule in rules(level) {
            let what = "rules stand in servers and directories: this one does not apply";
            let restricts = rule.flags.status.is_some();
            self.context.is_closed |= restricts;
            let more = if restricts {
                ": it restricts access, so that every request gets 403"
            } else {
                ""
            };
            self.context.report.lost(rule.directive, format!("{what}{more}"));
        }
    }

    /// A rule that leaves a path as it is is not needed where nothing else would change it.
    fn without_fronts(&mut self) {
        let targets: Vec<String> = self
            .fronts
            .iter()
            .filter_map(|front| front.tries.last())
            .map(|target| target.split('?').next().unwrap_or_default().to_owned())
            .collect();
        self.ends.retain(|end| match (&end.kind, &end.region.paths) {
            (EndKind::Pass, Paths::Exact(path)) => !targets.contains(path),
            _ => true,
        });
    }

    fn rules_of(&mut self, level: &'t [Directive], place: &Place, start: usize) {
        let mut prior = Prior::new();
        let mut is_there = false;
        for (at, rule) in rules(level).into_iter().enumerate() {
            for condition in &rule.conditions {
                self.context.report.carried(condition.directive);
            }
            if let Err((directive, what)) =
                self.rule(&rule, place, start + at, &mut prior, &mut is_there)
            {
                self.lose_rule(&rule, place, start + at, directive, &what);
            }
        }
        for name in ["RewriteBase", "RewriteOptions"] {
            for directive in level.iter().filter(|directive| is(directive, name)) {
                self.context.report.carried(directive);
            }
        }
        if !prior.is_empty() {
            self.front(place, Vec::new(), &mut prior, ['f', 'd'].to_vec(), "=404".into());
        }
    }

    /// A rule without a counterpart. What it rejects is rejected without its conditions.
    fn lose_rule(
        &mut self,
        rule: &Rule<'t>,
        place: &Place,
        order: usize,
        directive: &'t Directive,
        what: &str,
    ) {
        if rule.flags.status.is_none_or(|status| status < 400) {
            let what = format!("{what}: the rule does not apply");
            return self.context.report.lost(directive, what);
        }
        let pattern = full(&rule.pattern, place);
        let paths = match rule.is_negated {
            true => Paths::All,
            false => simple(Expression::wider(&pattern, rule.flags.ignores_case)),
        };
        let what = format!("{what}: the rule rejects all requests of its pattern");
        self.context.report.lost(directive, what);
        let mut keys = Keys::default();
        keys.set("respond", respond(403));
        let region = Region { comment: comment(rule.directive), paths, when: None };
        self.end(order, region, EndKind::Fixed(keys));
    }

    fn rule(
        &mut self,
        rule: &Rule<'t>,
        place: &Place,
        order: usize,
        prior: &mut Prior,
        is_there: &mut bool,
    ) -> Result<(), (&'t Directive, String)> {
        let of_rule = |what: String| (rule.directive, what);
        if let Some(flag) = rule.flags.others.first() {
            return Err(of_rule(format!("the flag {flag} has no counterpart")));
        }
        let is_pass = rule.substitution == "-";
        let has_end = rule.flags.status.is_some() || rule.flags.redirect.is_some();
        if !rule.flags.env.is_empty() {
            self.environment(rule, place);
            if is_pass && !has_end {
                return Ok(());
            }
        }
        if is_pass && !has_end && !rule.flags.is_last {
            self.context.report.not_needed(rule.directive, "it changes nothing");
            return Ok(());
        }
        let alternatives = self.required(rule, place)?;
        if alternatives.is_empty() {
            self.context.report.not_needed(rule.directive, "its conditions never hold here");
        }
        for mut required in alternatives {
            if *is_there {
                // What exists was left as it is by the rule before.
                required.absent.extend(['f', 'd']);
            }
            if is_pass && !has_end && required.is_there {
                if is_whole(&rule.pattern, place).is_none() || required.when.is_some() {
                    return Err(of_rule("files of some paths only are left as they are".into()));
                }
                *is_there = true;
                self.context.report.carried(rule.directive);
                continue;
            }
            if required.is_there && rule.flags.status.is_some() {
                self.context
                    .report
                    .differs(rule.directive, "paths without a file are rejected, too");
            } else if required.is_there {
                return Err(of_rule("it depends on a file that exists".into()));
            }
            self.apply(rule, place, order, required, prior).map_err(of_rule)?;
        }
        Ok(())
    }

    /// `[E=NAME:VALUE]`
    fn environment(&mut self, rule: &Rule<'t>, place: &Place) {
        for (name, value) in &rule.flags.env {
            let upper = name.to_ascii_uppercase();
            let is_plain = !value.contains(['%', '$']);
            if upper.ends_with("AUTHORIZATION") {
                self.has_authorization = true;
                self.context.report.carried(rule.directive);
            } else if upper == "BASE" || upper == "REWRITEBASE" {
                self.context.report.carried(rule.directive);
            } else if is_plain
                && rule.conditions.is_empty()
                && is_whole(&rule.pattern, place).is_some()
            {
                self.context.report.carried(rule.directive);
                self.env.push((name.clone(), value.clone()));
            } else {
                let what = format!("scripts get no {name}: it depends on the request");
                self.context.report.lost(rule.directive, what);
            }
        }
    }

    fn apply(
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

    fn front(
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

    /// Returns a target without the document root at its begin.
    fn without_root(&self, text: &str) -> String {
        let root = self.document_root.as_deref().filter(|root| *root != "/");
        match root.and_then(|root| text.strip_prefix(root)).filter(|rest| rest.starts_with('/')) {
            Some(rest) => rest.to_owned(),
            None => text.to_owned(),
        }
    }

    /// Returns what `%0` to `%9` stand for.
    fn captures(
        &mut self,
        rule: &Rule<'t>,
        required: &Required,
    ) -> Result<Vec<Option<String>>, String> {
        let mut all = vec![None; 10];
        let Some((from, expression)) = &required.captured else { return Ok(all) };
        for (number, place) in all.iter_mut().enumerate() {
            let is_used = rule.substitution.contains(&format!("%{number}"));
            let is_there = number == 0 || expression.has_group(&number.to_string());
            if !is_used || !is_there {
                continue;
            }
            *place = Some(match from {
                None if number == 0 => continue,
                None => format!("{{{number}}}"),
                Some(from) if from == "{host}" => {
                    let name = self.hosts(expression, number)?;
                    format!("{{map.{name}}}")
                }
                Some(from) => {
                    let value = format!("{{{number}}}");
                    format!("{{map.{}}}", self.context.map(from, &expression.text, &value))
                }
            });
        }
        Ok(all)
    }

    /// Returns the name of a map from the hosts of the server to a part of each. A client must not choose the host of a redirect.
    fn hosts(&mut self, expression: &Expression, group: usize) -> Result<String, String> {
        let regex = regex::Regex::new(&expression.text).map_err(|error| error.to_string())?;
        let names =
            self.server.all(&["ServerName", "ServerAlias"]).flat_map(|directive| &directive.words);
        let entries: Vec<(String, String)> = names
            .filter_map(|name| {
                let part = regex.captures(name)?.get(group)?.as_str().to_owned();
                Some((name.clone(), part))
            })
            .collect();
        match entries.is_empty() {
            true => {
                Err("clients would choose the host of the redirect: write one host for another"
                    .into())
            }
            false => Ok(self.context.map_of("{host}", entries)),
        }
    }

    /// Returns the paths of a rule, and what `$1` is.
    fn paths(
        &mut self,
        rule: &Rule<'t>,
        place: &Place,
        required: &Required,
    ) -> Result<(Paths, Groups), String> {
        let uses_groups = rule.substitution.contains('$');
        let uses_captures = rule.substitution.contains('%')
            && required.captured.as_ref().is_some_and(|(from, _)| from.is_none());
        let whole = is_whole(&rule.pattern, place).filter(|_| !rule.is_negated);
        let (paths, groups) = match whole {
            Some(groups) => {
                let is_some_only = matches!(
                    rule.pattern.as_str(),
                    "." | ".+" | "^.+" | "^.+$" | "^(.+)$" | "(.+)"
                ) && place.is_directory;
                match &required.path {
                    Some(path) if uses_groups && place.prefix != "/" => {
                        return Err(format!("$1 and a condition on the path, {}", path.text));
                    }
                    Some(path) if uses_captures => (Paths::Regex(path.clone()), groups),
                    Some(path) => (simple(path.clone()), groups),
                    None if is_some_only
                        && required.absent.is_empty()
                        && required.exists.is_empty() =>
                    {
                        let text = format!("{}(.+)$", of_prefix(&place.prefix));
                        (Paths::Regex(Expression { text, except: None }), Groups::Rest)
                    }
                    None => (Paths::beneath(&place.prefix), groups),
                }
            }
            None if rule.is_negated => {
                let except = Expression::new(&full(&rule.pattern, place), rule.flags.ignores_case)?;
                if required.path.is_some() || uses_groups && rule.pattern.contains('(') {
                    return Err("two conditions on the path".into());
                }
                let paths = Paths::beneath(&place.prefix);
                let region = Region { comment: String::new(), paths, when: None };
                (without(region, &except.text).paths, Groups::Path)
            }
            None => {
                let expression =
                    Expression::new(&full(&rule.pattern, place), rule.flags.ignores_case)?;
                let expression = expression.beneath(&place.prefix);
                let (own, groups) = of_expression(expression, uses_groups);
                match &required.path {
                    None => (own, groups),
                    Some(path) => {
                        let both = own.and(&simple(path.clone()));
                        (both.ok_or("two conditions on the path")?, groups)
                    }
                }
            }
        };
        let mut region = Region { comment: String::new(), paths, when: None };
        for except in &required.except {
            region = without(region, except);
        }
        Ok((region.paths, groups))
    }

    /// Returns the alternatives of which one has to hold.
    fn required(
        &mut self,
        rule: &Rule<'t>,
        place: &Place,
    ) -> Result<Vec<Required>, (&'t Directive, String)> {
        let mut all = vec![Required::default()];
        let mut at = 0;
        while at < rule.conditions.len() {
            let rest = &rule.conditions[at..];
            let length = rest
                .iter()
                .position(|condition| !condition.is_or)
                .map_or(rest.len(), |end| end + 1);
            let group = &rest[..length];
            at += length;
            let mut next = Vec::new();
            for condition in group {
                for known in &all {
                    let more = self.with_condition(known.clone(), condition, place);
                    next.extend(more.map_err(|what| (condition.directive, what))?);
                }
            }
            // `-f`, `-d` and `-l` are one.
            if next.iter().filter(|required| required.is_there).count() > 1 {
                let first = next.iter().position(|required| required.is_there);
                let mut number = 0;
                next.retain(|required| {
                    number += 1;
                    !required.is_there || Some(number - 1) == first
                });
            }
            if next.len() > MAX_ALTERNATIVES {
                return Err((rule.directive, "its conditions have too many alternatives".into()));
            }
            all = next;
        }
        Ok(all)
    }

    /// Adds a condition; `None` if it never holds.
    fn with_condition(
        &mut self,
        mut required: Required,
        condition: &Condition<'t>,
        place: &Place,
    ) -> Result<Option<Required>, String> {
        if let Some(kind) = file_test(&condition.pattern) {
            return self.with_file(required, condition, kind, place).map(Some);
        }
        if condition.test == "%{HTTPS}s" || condition.test.starts_with("%{REQUEST_URI}::") {
            return Ok(Some(required));
        }
        let matcher = match condition.pattern.strip_prefix('=') {
            Some(text) => Matcher::Equal(text.trim_matches('"').to_owned()),
            None if condition.pattern.starts_with(['<', '>'])
                || condition.pattern.starts_with('-') && condition.pattern.len() <= 3 =>
            {
                return Err(format!("{}: this comparison has no counterpart", condition.pattern));
            }
            None => Matcher::Regex {
                text: condition.pattern.clone(),
                ignores_case: condition.ignores_case,
            },
        };
        let (found, from) =
            match condition.test.strip_prefix("%{").and_then(|rest| rest.strip_suffix('}')) {
                Some(name) if !name.contains('}') => {
                    (test(name, &matcher, condition.is_negated, self)?, placeholder(name))
                }
                _ if condition.test.starts_with('$') => {
                    let Matcher::Regex { text, ignores_case } = &matcher else {
                        return Err("a group is compared with an expression".into());
                    };
                    let expression = Expression::new(&full(text, place), *ignores_case)?;
                    (Test::Path { expression, is_negated: condition.is_negated }, None)
                }
                _ => {
                    let references = References { groups: Groups::Path, conditions: &[], base: "" };
                    let from = target(&condition.test, &references)?;
                    let expression = matcher.expression()?;
                    let tested = self.context.tested(&from, &expression.text, condition.is_negated);
                    (Test::When(tested), Some(from))
                }
            };
        let is_path = matches!(found, Test::Path { .. });
        if !condition.is_negated
            && let Ok(expression) = matcher.expression()
        {
            required.captured = match (is_path, from) {
                (true, _) => Some((None, expression)),
                (false, Some(from)) => Some((Some(from), expression)),
                (false, None) => None,
            };
        }
        match found {
            Test::Fixed(true) => {}
            Test::Fixed(false) => return Ok(None),
            Test::When(when) => required.when = and(required.when, when)?,
            Test::Path { expression, is_negated: true } if expression.except.is_none() => {
                required.except.push(expression.text);
            }
            Test::Path { expression, is_negated: false } => match &required.path {
                None => required.path = Some(expression),
                Some(known) if *known == expression => {}
                Some(known) => {
                    let both = known.and(&expression).or_else(|| expression.and(known));
                    required.path = Some(both.ok_or("two conditions on the path")?);
                }
            },
            Test::Path { .. } => {
                return Err("an expression with `(?!…)` that must not match".into());
            }
        }
        Ok(Some(required))
    }

    fn with_file(
        &mut self,
        mut required: Required,
        condition: &Condition<'t>,
        kind: char,
        place: &Place,
    ) -> Result<Required, String> {
        let root = self.document_root.clone().unwrap_or_default();
        let text = condition.test.replace(&root, "%{DOCUMENT_ROOT}");
        let text = if root.is_empty() { condition.test.clone() } else { text };
        let is_own = matches!(
            text.as_str(),
            "%{REQUEST_FILENAME}"
                | "%{SCRIPT_FILENAME}"
                | "%{DOCUMENT_ROOT}%{REQUEST_URI}"
                | "%{DOCUMENT_ROOT}/%{REQUEST_URI}"
                | "%{DOCUMENT_ROOT}%{REQUEST_FILENAME}"
                | "%{DOCUMENT_ROOT}/%{REQUEST_FILENAME}"
                | "%{DOCUMENT_ROOT}%{SCRIPT_FILENAME}"
                | "%{DOCUMENT_ROOT}/$1"
                | "%{DOCUMENT_ROOT}$1"
                | "%{LA-U:REQUEST_FILENAME}"
        );
        if is_own {
            match condition.is_negated {
                true => required.absent.push(kind),
                false => required.is_there = true,
            }
            return Ok(required);
        }
        if condition.is_negated {
            return Err(format!("{text}: another file that must not exist"));
        }
        let references = References { groups: Groups::Path, conditions: &[], base: "" };
        let file = target(&text, &references)?;
        let file = match (file.starts_with(['/', '{']), place.is_directory) {
            (true, _) => file,
            (false, _) => format!("{}{file}", place.prefix),
        };
        required.exists.push(file);
        Ok(required)
    }
}

/// Returns the placeholder of a variable, whose groups conditions have.
fn placeholder(name: &str) -> Option<String> {
    let upper = name.to_ascii_uppercase();
    Some(match upper.as_str() {
        "HTTP_HOST" | "SERVER_NAME" => "{host}".to_owned(),
        "QUERY_STRING" => "{query}".to_owned(),
        "REMOTE_ADDR" => "{client}".to_owned(),
        "HTTP_USER_AGENT" => "{header.User-Agent}".to_owned(),
        "HTTP_REFERER" => "{header.Referer}".to_owned(),
        "HTTP_COOKIE" => "{header.Cookie}".to_owned(),
        _ => format!("{{header.{}}}", name.get(5..).filter(|_| upper.starts_with("HTTP:"))?),
    })
}

fn file_test(pattern: &str) -> Option<char> {
    Some(match pattern {
        "-f" | "-s" | "-l" | "-F" | "-U" | "-h" | "-L" | "-x" => 'f',
        "-d" => 'd',
        _ => return None,
    })
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

/// Returns the region without the paths that an expression matches.
fn without(region: Region, except: &str) -> Region {
    Region { paths: region.paths.without(except), ..region }
}

/// Returns an expression as a pattern, if it is one that has the groups that are used.
fn of_expression(expression: Expression, uses_groups: bool) -> (Paths, Groups) {
    let paths = simple(expression.clone());
    if !uses_groups || matches!(paths, Paths::Regex(_)) {
        return (paths, Groups::Expression);
    }
    let is_rest = expression.text.matches('(').count() == 1 && expression.text.contains("(.*)");
    match (&paths, is_rest) {
        (Paths::Pattern(..), true) => (paths, Groups::Rest),
        _ => (Paths::Regex(expression), Groups::Expression),
    }
}

/// Returns the beginning of the paths of a directory.
fn prefix(paths: &Paths) -> Option<String> {
    match paths {
        Paths::All => Some("/".to_owned()),
        Paths::Pattern(before, behind) if behind.is_empty() => Some(before.clone()),
        _ => None,
    }
}
