//! The result of a search as text.

use super::layout::{Color, Paint, fill};
use super::number::{NONE, count, milliseconds, number};
use crate::outcome::Search;

/// Formats the result, and a line for each level that was tried.
pub(super) fn found(text: &mut String, search: &Search, paint: Paint) {
    let limit = if let Some(limit) = &search.limit {
        &format!("; {limit} were the limit")
    } else if search.bounded {
        "; the generator, or the bound of the search, was the limit"
    } else if search.unfinished {
        "; the search stopped at its limit of trials: results vary too much between them"
    } else {
        ""
    };
    let result = match search.found {
        0.0 => format!("no level held{limit}"),
        level_found => format!("{} {}{limit}", level(search, level_found), search.of),
    };
    text.push('\n');
    let line = fill("found       ", &result, 12);
    text.push_str(&line.replacen("found", &paint.apply(Color::Bold, "found"), 1));
    text.push_str(&format!("{:>12}{:>12}{:>12}\n", "tried", "achieved", "p99 ms"));
    for tried in &search.levels {
        let why = if tried.held { "held" } else { &tried.why };
        let p99 = if tried.p99_ms > 0.0 { milliseconds(tried.p99_ms) } else { NONE.to_owned() };
        let (level_tried, achieved) = (level(search, tried.level), level(search, tried.achieved));
        text.push_str(&fill(&format!("{level_tried:>12}{achieved:>12}{p99:>12}  "), why, 38));
    }
}

/// Formats a level of a search. Users are integers.
fn level(search: &Search, level: f64) -> String {
    if search.of == "users" { count(level.round() as u64) } else { number(level) }
}
