//! The condition of an `if` as a test of a map.

use super::condition::{Condition, terms};
use super::context::Context;
use super::expression::Expression;
use super::variables::Constants;
use crate::value::Value;

impl Context<'_> {
    /// Reads the words of an `if` about a variable that `map`, `geo` or `split_clients` defines, or whose value is a
    /// placeholder; `None` for others.
    pub(super) fn map_condition(
        &mut self,
        words: &[String],
        constants: &Constants,
    ) -> Option<Condition> {
        let words = terms(words);
        let (variable, sign, text) = match words[..] {
            [variable] => (variable, "", ""),
            [variable, sign @ ("=" | "!=")] => (variable, sign, ""),
            [variable, sign, text] => (variable, sign, text),
            _ => return None,
        };
        let name = variable.strip_prefix('$')?.trim_matches(|c| matches!(c, '{' | '}'));
        if constants.contains_key(name) || text.contains('$') && !sign.contains('~') {
            return None;
        }
        let expression = match sign.trim_start_matches('!') {
            "~" | "~*" => {
                let read = Expression::whole(text, sign.ends_with('*')).ok()?;
                // A value in which an excluded text is matched by nothing else.
                read.except.is_none().then_some(read.text)?
            }
            "=" => format!("(?s)^{}$", regex::escape(text)),
            "" => "(?s)^([^0]|..)".to_owned(),
            _ => return None,
        };
        let is_name = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        let (map, test) = match self.is_map(name) {
            true => self.of_map(name, sign, text, &expression)?,
            // A text of several variables.
            false if !is_name => {
                let from = self.template(variable, constants, |_| None).ok()?;
                (self.test(from, &expression), Value::Switch(true))
            }
            false => {
                let from = self.placeholder(name).ok()?;
                (self.test(from, &expression), Value::Switch(true))
            }
        };
        let holds = Value::table([("map", Value::Table(vec![(map, test)]))]);
        Some(Condition::When(match sign.starts_with('!') {
            true => Value::table([("not", holds)]),
            false => holds,
        }))
    }

    fn of_map(
        &mut self,
        name: &str,
        sign: &str,
        text: &str,
        expression: &str,
    ) -> Option<(String, Value)> {
        let map = self.map(name).ok()?;
        let is_pattern = text.contains('*') || text.starts_with('~');
        let test = match sign.trim_start_matches('!') {
            "" => map.truth(),
            "=" if text.is_empty() => Value::Switch(false),
            "=" if !is_pattern => Value::text(text),
            _ => Value::text(format!("~{expression}")),
        };
        Some((map.name, test))
    }
}
