//! The syntax of PCRE that expressions in linear time do not have.

use crate::groups::{closing, split_top};

/// Removes the `+` of possessive quantifiers, which changes the speed of PCRE, and rarely the result.
pub(crate) fn without_possessives(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut is_escaped = false;
    let mut before = None;
    let mut in_class = false;
    for c in text.chars() {
        let is_possessive =
            c == '+' && !in_class && !is_escaped && matches!(before, Some('+' | '*' | '?' | '}'));
        if !is_possessive {
            plain.push(c);
        }
        let is_special = !is_escaped && c != '\\';
        in_class = match c {
            '[' if is_special => true,
            ']' if is_special => false,
            _ => in_class,
        };
        before = (is_special && !is_possessive).then_some(c);
        is_escaped = c == '\\' && !is_escaped;
    }
    // A slash needs no escape.
    plain.replace("\\/", "/").replace("(?>", "(?:")
}

/// Escapes the braces that PCRE takes for themselves: those that are no number of repetitions.
pub(crate) fn with_plain_braces(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let (mut before, mut in_class, mut is_escaped) = (None, false, false);
    for (at, c) in text.char_indices() {
        let is_special = !is_escaped;
        let of_escape = is_escaped_letter(before) && !in_class;
        if c == '{' && is_special && !in_class && !of_escape && !is_repetition(&text[at..]) {
            plain.push('\\');
        }
        plain.push(c);
        in_class = match c {
            '[' if is_special => true,
            ']' if is_special => false,
            _ => in_class,
        };
        before = if is_escaped { Some(c) } else { None };
        is_escaped = c == '\\' && !is_escaped;
    }
    plain
}

/// Returns `true` if a brace may follow the letter of an escape: `\x{2f}`, `\p{L}`.
fn is_escaped_letter(letter: Option<char>) -> bool {
    matches!(letter, Some('x' | 'p' | 'P' | 'u'))
}

/// Returns `true` if the text begins with a number of repetitions: `{2}`, `{2,}`, `{2,4}`.
fn is_repetition(text: &str) -> bool {
    let inner = text[1..].split_once('}').map_or("", |(inner, _)| inner);
    let (least, most) = inner.split_once(',').unwrap_or((inner, "0"));
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    !least.is_empty() && is_number(least) && is_number(most)
}

/// Splits around the only `(?!…)` that is in no group.
pub(crate) fn split_lookahead(text: &str) -> Option<(&str, &str, &str)> {
    let (before, after) = text.split_once("(?!")?;
    let is_nested = before.matches('(').count() != before.matches(')').count();
    if is_nested || after.contains("(?!") || before.contains('|') {
        return None;
    }
    let mut depth = 1;
    for (at, c) in after.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            let rest = &after[at + 1..];
            return (!rest.contains("|")).then_some((before, &after[..at], rest));
        }
    }
    None
}

/// Returns the expression without its `(?!…)`, where these exclude texts alone, and nothing but the end or one other character
/// follows; `None` for others.
pub(crate) fn without_lookaheads(text: &str) -> Option<String> {
    let mut text = text.to_owned();
    while let Some(at) = text.find("(?!") {
        let end = at + closing(&text[at..])?;
        let words: Vec<Vec<char>> =
            split_top(&text[at + 3..end], '|').into_iter().map(literal).collect::<Option<_>>()?;
        let after = text[end + 1..].trim_start_matches(')').to_owned();
        let next = after.chars().next();
        let is_other =
            |c: char| words.iter().all(|word| word.first().is_some_and(|first| *first != c));
        let instead = match next {
            _ if words.iter().any(Vec::is_empty) => return None,
            None => differing(&words, 0)?,
            _ if matches!(&*after, ".*" | ".*$") => differing(&words, 0)?,
            Some('$') if after == "$" => String::new(),
            Some(c) if (c.is_ascii_alphanumeric() || "/-_".contains(c)) && is_other(c) => {
                let optional = after[1..].starts_with(['?', '*', '{']);
                (!optional).then(String::new)?
            }
            Some(_) => return None,
        };
        text.replace_range(at..=end, &instead);
    }
    Some(text)
}

/// Returns the characters of an expression that is a text; `None` for others.
fn literal(text: &str) -> Option<Vec<char>> {
    let mut word = Vec::new();
    let mut all = text.chars();
    while let Some(c) = all.next() {
        match c {
            '\\' => word.push(all.next().filter(char::is_ascii_punctuation)?),
            c if c.is_ascii_alphanumeric() || "_-/".contains(c) => word.push(c),
            _ => return None,
        }
    }
    Some(word)
}

/// Returns an expression for what begins with none of these words; `None` if everything does.
fn differing(words: &[Vec<char>], at: usize) -> Option<String> {
    if words.iter().any(|word| word.len() == at) {
        return None;
    }
    let mut letters: Vec<char> = words.iter().map(|word| word[at]).collect();
    letters.sort_unstable();
    letters.dedup();
    let class: String = letters.iter().map(|c| regex::escape(&c.to_string())).collect();
    let mut alternatives = vec!["$".to_owned(), format!("[^{class}]")];
    for letter in letters {
        let own: Vec<Vec<char>> = words.iter().filter(|word| word[at] == letter).cloned().collect();
        if let Some(rest) = differing(&own, at + 1) {
            alternatives.push(format!("{}{rest}", regex::escape(&letter.to_string())));
        }
    }
    Some(format!("(?:{})", alternatives.join("|")))
}

pub(crate) fn reason(text: &str) -> String {
    let what = if text.contains("(?=") || text.contains("(?!") {
        "look-ahead"
    } else if text.contains("(?<=") || text.contains("(?<!") {
        "look-behind"
    } else if text.contains("\\1") || text.contains("\\2") {
        "back-references"
    } else {
        "this form"
    };
    format!("expressions match in linear time, without {what}")
}
