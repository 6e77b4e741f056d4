//! The conditions of `if` and `elif`.
//!
//! Operators are `=`, `==`, `!=`, `<`, `<=`, `>`, `>=`, `!`, `&&`, `||` and parentheses. A text without an operator holds if it is not
//! empty. `/…/` on the right of `=` or `!=` is a regular expression.

use regex::RegexBuilder;

use super::text::expanded;

/// The maximum depth of parentheses and negations.
const MAX_DEPTH: usize = 32;
/// The maximum size of a regular expression in memory.
const MAX_REGEX: usize = 64 * 1024;

/// The groups of a regular expression that has matched.
pub(super) type Groups = Option<Vec<String>>;

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    Text(String),
    Regex(String),
    Operator(&'static str),
}

/// Operators, the longer ones first.
const OPERATORS: [&str; 12] = ["&&", "||", "!=", "==", "<=", ">=", "=", "!", "<", ">", "(", ")"];

/// Returns whether a condition holds, and the groups of its last regular expression that has matched. `None` if it is malformed.
pub(super) fn holds(
    text: &str,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Option<(bool, Groups)> {
    let tokens = tokens(text)?;
    let mut evaluation = Evaluation { tokens: &tokens, at: 0, variable, groups: None };
    let holds = evaluation.any(0, true)?;
    (evaluation.at == tokens.len()).then_some((holds, evaluation.groups))
}

/// Reads the tokens. Words behind each other are one text, with a space between them.
fn tokens(text: &str) -> Option<Vec<Token>> {
    let mut tokens: Vec<Token> = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let behind_comparison = matches!(tokens.last(), Some(Token::Operator("=" | "==" | "!=")));
        if first == '/' && behind_comparison {
            let length = closing(&rest[1..], '/')?;
            tokens.push(Token::Regex(rest[1..=length].replace("\\/", "/")));
            rest = rest[length + 2..].trim_start();
            continue;
        }
        if let Some(operator) = OPERATORS.iter().find(|operator| rest.starts_with(**operator)) {
            tokens.push(Token::Operator(operator));
            rest = rest[operator.len()..].trim_start();
            continue;
        }
        let (word, behind) = match first {
            '"' | '\'' => {
                let length = closing(&rest[1..], first)?;
                (&rest[1..=length], &rest[length + 2..])
            }
            _ => rest.split_at(word_length(rest)),
        };
        match tokens.last_mut() {
            Some(Token::Text(before)) => {
                before.push(' ');
                before.push_str(word);
            }
            _ => tokens.push(Token::Text(word.to_owned())),
        }
        rest = behind.trim_start();
    }
    (!tokens.is_empty()).then_some(tokens)
}

/// Returns where a quote closes that no backslash stands before.
fn closing(text: &str, quote: char) -> Option<usize> {
    let mut is_escaped = false;
    text.char_indices().find_map(|(at, char)| {
        let closes = char == quote && !is_escaped;
        is_escaped = char == '\\' && !is_escaped;
        closes.then_some(at)
    })
}

/// Returns the length of a word without quotes. A `${name}` is part of it.
fn word_length(text: &str) -> usize {
    let ends = |char: char| {
        char.is_whitespace()
            || matches!(char, '=' | '!' | '<' | '>' | '(' | ')' | '&' | '|' | '"' | '\'')
    };
    // A single `&` or `|` is a word.
    text.char_indices().skip(1).find(|&(_, char)| ends(char)).map_or(text.len(), |(at, _)| at)
}

struct Evaluation<'a> {
    tokens: &'a [Token],
    at: usize,
    variable: &'a dyn Fn(&str) -> Option<String>,
    groups: Groups,
}

impl<'a> Evaluation<'a> {
    fn takes(&mut self, operator: &str) -> bool {
        let is_it = self.tokens.get(self.at)
            == Some(&Token::Operator(match operator {
                "&&" => "&&",
                "||" => "||",
                "!" => "!",
                "(" => "(",
                _ => ")",
            }));
        self.at += usize::from(is_it);
        is_it
    }

    /// Evaluates `a || b`. Without `is_needed`, regular expressions are not matched.
    fn any(&mut self, depth: usize, is_needed: bool) -> Option<bool> {
        let mut holds = self.all(depth, is_needed)?;
        while self.takes("||") {
            let other = self.all(depth, is_needed && !holds)?;
            holds |= other;
        }
        Some(holds)
    }

    fn all(&mut self, depth: usize, is_needed: bool) -> Option<bool> {
        let mut holds = self.one(depth, is_needed)?;
        while self.takes("&&") {
            let other = self.one(depth, is_needed && holds)?;
            holds &= other;
        }
        Some(holds)
    }

    fn one(&mut self, depth: usize, is_needed: bool) -> Option<bool> {
        if depth > MAX_DEPTH {
            return None;
        }
        if self.takes("!") {
            return Some(!self.one(depth + 1, is_needed)?);
        }
        if self.takes("(") {
            let holds = self.any(depth + 1, is_needed)?;
            return self.takes(")").then_some(holds);
        }
        let left = self.text()?;
        let Some(Token::Operator(operator)) = self.tokens.get(self.at) else {
            return Some(!left.is_empty());
        };
        if !matches!(*operator, "=" | "==" | "!=" | "<" | "<=" | ">" | ">=") {
            return Some(!left.is_empty());
        }
        self.at += 1;
        if let Some(Token::Regex(pattern)) = self.tokens.get(self.at) {
            self.at += 1;
            let matches = self.matches(pattern, &left, is_needed)?;
            return Some(matches == (*operator != "!="));
        }
        // Nothing stands for an empty text: `$a = `.
        let right = self.text().unwrap_or_default();
        Some(match *operator {
            "!=" => left != right,
            "<" => left < right,
            "<=" => left <= right,
            ">" => left > right,
            ">=" => left >= right,
            _ => left == right,
        })
    }

    fn text(&mut self) -> Option<String> {
        let Some(Token::Text(text)) = self.tokens.get(self.at) else { return None };
        self.at += 1;
        Some(expanded(text, self.variable))
    }

    fn matches(&mut self, pattern: &str, text: &str, is_needed: bool) -> Option<bool> {
        if !is_needed {
            return Some(false);
        }
        let mut builder = RegexBuilder::new(pattern);
        let regex = builder.size_limit(MAX_REGEX).dfa_size_limit(MAX_REGEX).build().ok()?;
        let Some(captures) = regex.captures(text) else { return Some(false) };
        let group = |group: Option<regex::Match<'_>>| {
            group.map_or_else(String::new, |group| group.as_str().to_owned())
        };
        self.groups = Some(captures.iter().map(group).collect());
        Some(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Option<bool> {
        let variable = |name: &str| match name {
            "a" => Some("x".to_owned()),
            "b" => Some("some text".to_owned()),
            _ => None,
        };
        holds(text, &variable).map(|(holds, _)| holds)
    }

    #[test]
    fn conditions_are_those_of_nginx_and_apache() {
        for (text, expected) in [
            ("$a", true),
            ("$none", false),
            ("!$none", true),
            ("$a = x", true),
            ("$a == x", true),
            ("$a != x", false),
            ("\"$b\" = 'some text'", true),
            ("$b = some text", true),
            ("$b = /^some/", true),
            ("$b = /^SOME/", false),
            ("$b = /(?i)^SOME/", true),
            ("$b != /^x/", true),
            ("$a = y || $a = x", true),
            ("$a = x && $b = y", false),
            ("$none || ($a = x && !($b = /q/))", true),
            ("$none = ", true),
            ("$a < y && $a >= x", true),
            ("${a} = \"${a}\"", true),
            ("$a = /a\\/b/", false),
        ] {
            assert_eq!(of(text), Some(expected), "{text}");
        }
        for text in ["", "(", "($a", "$a )", "= x", "$a = /x", "$a = \"x", "$a &&", "$a = /(/"] {
            assert_eq!(of(text), None, "{text}");
        }
        assert_eq!(of(&("(".repeat(40) + "x" + &")".repeat(40))), None);
        let large = format!("$a = /{}/", "(x{50}){50}");
        assert_eq!(of(&large), None);
    }

    #[test]
    fn groups_are_those_of_the_expression_that_has_matched() {
        let variable = |_: &str| Some("ab".to_owned());
        let (_, groups) =
            holds("$a = /(x)/ || $a = /(a)(b)?(c)?/", &variable).expect("a condition");
        assert_eq!(groups, Some(["ab", "a", "b", ""].map(str::to_owned).to_vec()));
    }
}
