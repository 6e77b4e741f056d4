//! `mod_rewrite`: rules become rules that end the search, or lists of paths that are tried.

use super::builder::{Builder, EndKind, OF_DIRECTORY, OF_REWRITE, comment, respond, simple};
use super::rule::{Rule, rules};
use super::rule_effect::Prior;
use super::scope::is;
use super::whole::{Place, full, is_whole};
use crate::directive::Directive;
use crate::expression::Expression;
use crate::keys::Keys;
use crate::regions::{Paths, Region};

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
}

/// Returns the beginning of the paths of a directory.
fn prefix(paths: &Paths) -> Option<String> {
    match paths {
        Paths::All => Some("/".to_owned()),
        Paths::Pattern(before, behind) if behind.is_empty() => Some(before.clone()),
        _ => None,
    }
}
