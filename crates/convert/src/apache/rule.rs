//! One `RewriteRule` with its conditions, as it is written.

use super::scope::is;
use crate::directive::Directive;
use crate::groups::{closing, split_top};

/// A rule.
#[derive(Debug)]
pub(super) struct Rule<'t> {
    pub(super) directive: &'t Directive,
    pub(super) conditions: Vec<Condition<'t>>,
    pub(super) pattern: String,
    pub(super) is_negated: bool,
    pub(super) substitution: String,
    pub(super) flags: Flags,
}

/// A `RewriteCond`.
#[derive(Debug, Clone)]
pub(super) struct Condition<'t> {
    pub(super) directive: &'t Directive,
    pub(super) test: String,
    pub(super) pattern: String,
    pub(super) is_negated: bool,
    pub(super) ignores_case: bool,
    /// This one or the next.
    pub(super) is_or: bool,
}

/// The flags of a rule.
#[derive(Debug, Clone, Default)]
pub(super) struct Flags {
    /// `L` or `END`.
    pub(super) is_last: bool,
    pub(super) redirect: Option<u64>,
    pub(super) status: Option<u64>,
    pub(super) ignores_case: bool,
    pub(super) adds_query: bool,
    pub(super) drops_query: bool,
    pub(super) is_proxy: bool,
    pub(super) env: Vec<(String, String)>,
    /// Those without a counterpart.
    pub(super) others: Vec<String>,
}

/// Returns the rules of a level.
pub(super) fn rules(level: &[Directive]) -> Vec<Rule<'_>> {
    let mut rules = Vec::new();
    let mut conditions = Vec::new();
    for directive in level {
        if is(directive, "RewriteCond") {
            conditions.push(condition(directive));
        } else if is(directive, "RewriteRule") {
            let (is_negated, pattern) = without_sign(directive.word(0));
            let conditions: Vec<Condition<'_>> = std::mem::take(&mut conditions);
            let flags = flags(directive.words.get(2..).unwrap_or_default());
            let patterns = match is_negated || directive.word(1).contains('$') {
                true => vec![pattern.to_owned()],
                false => split_lookaheads(pattern),
            };
            rules.extend(patterns.into_iter().map(|pattern| Rule {
                directive,
                conditions: conditions.clone(),
                pattern,
                is_negated,
                substitution: directive.word(1).to_owned(),
                flags: flags.clone(),
            }));
        }
    }
    rules
}

/// Returns a pattern for each alternative with a `(?!…)` of its own, and one for all others.
fn split_lookaheads(pattern: &str) -> Vec<String> {
    let whole = || vec![pattern.to_owned()];
    let Some(start) = pattern.find('(').filter(|_| pattern.contains("(?!")) else { return whole() };
    let Some(length) = closing(&pattern[start..]) else { return whole() };
    let (before, after) = (&pattern[..start], &pattern[start + length + 1..]);
    let inner = pattern[start + 1..start + length].trim_start_matches("?:");
    let (special, plain): (Vec<&str>, Vec<&str>) =
        split_top(inner, '|').into_iter().partition(|part| part.contains("(?!"));
    if special.is_empty() || plain.is_empty() || after.contains("(?!") {
        return whole();
    }
    let special = special.into_iter().map(|part| format!("{before}{part}{after}"));
    special.chain([format!("{before}(?:{}){after}", plain.join("|"))]).collect()
}

fn condition(directive: &Directive) -> Condition<'_> {
    let (is_negated, pattern) = without_sign(directive.word(1));
    let flags = words(directive.words.get(2..).unwrap_or_default());
    let has = |names: [&str; 2]| {
        flags.iter().any(|flag| names.iter().any(|name| flag.eq_ignore_ascii_case(name)))
    };
    Condition {
        directive,
        test: directive.word(0).to_owned(),
        pattern: pattern.to_owned(),
        is_negated,
        ignores_case: has(["NC", "nocase"]),
        is_or: has(["OR", "ornext"]),
    }
}

fn without_sign(pattern: &str) -> (bool, &str) {
    match pattern.strip_prefix('!') {
        Some(rest) => (true, rest),
        None => (false, pattern),
    }
}

fn words(texts: &[String]) -> Vec<String> {
    let text = texts.join(" ");
    let inner = text.trim().trim_start_matches('[').trim_end_matches(']');
    inner.split(',').map(|flag| flag.trim().to_owned()).filter(|flag| !flag.is_empty()).collect()
}

fn flags(texts: &[String]) -> Flags {
    let mut flags = Flags::default();
    for flag in words(texts) {
        let (name, value) = match flag.split_once('=') {
            Some((name, value)) => (name.to_ascii_uppercase(), value),
            None => (flag.to_ascii_uppercase(), ""),
        };
        match name.as_str() {
            "L" | "LAST" | "END" => flags.is_last = true,
            "R" | "REDIRECT" => {
                let status = match value.to_ascii_lowercase().as_str() {
                    "" | "temp" => 302,
                    "permanent" => 301,
                    "seeother" => 303,
                    value => value.parse().unwrap_or(302),
                };
                if (300..400).contains(&status) {
                    flags.redirect = Some(status);
                } else {
                    flags.status = Some(status);
                }
            }
            "F" | "FORBIDDEN" => flags.status = Some(403),
            "G" | "GONE" => flags.status = Some(410),
            "NC" | "NOCASE" => flags.ignores_case = true,
            "QSA" | "QSAPPEND" => flags.adds_query = true,
            "QSD" | "QSDISCARD" => flags.drops_query = true,
            "P" | "PROXY" => flags.is_proxy = true,
            "E" | "ENV" => {
                let (name, value) = value.split_once(':').unwrap_or((value, ""));
                flags.env.push((name.to_owned(), value.to_owned()));
            }
            // They are about encoding, subrequests and the phases of Apache.
            "NE" | "NOESCAPE" | "PT" | "PASSTHROUGH" | "NS" | "NOSUBREQ" | "DPI"
            | "DISCARDPATH" | "B" | "BNP" | "QSL" | "UNSAFEPREFIXSTAT" => {}
            _ => flags.others.push(flag),
        }
    }
    flags
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alternatives_with_a_lookahead_are_patterns_of_their_own() {
        assert_eq!(
            split_lookaheads(r"^(?:\.(?!well-known)|occ|db_).*"),
            [r"^\.(?!well-known).*", "^(?:occ|db_).*"]
        );
        assert_eq!(split_lookaheads("^(a|b)$"), ["^(a|b)$"]);
        assert_eq!(split_lookaheads("^(?!a)"), ["^(?!a)"]);
    }
}
