//! The paths that a rule is for, and what the groups of its expressions stand for.

use super::builder::{Builder, simple};
use super::required::Required;
use super::rule::Rule;
use super::target::Groups;
use super::whole::{Place, full, is_whole};
use crate::expression::{Expression, of_prefix};
use crate::regions::{Paths, Region};

impl<'t> Builder<'_, 't> {
    /// Returns the paths of a rule, and what `$1` is.
    pub(super) fn paths(
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

    /// Returns what `%0` to `%9` stand for.
    pub(super) fn captures(
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

/// Returns the region without the paths that an expression matches.
pub(super) fn without(region: Region, except: &str) -> Region {
    Region { paths: region.paths.without(except), ..region }
}
