//! Routes that the configuration does not permit, whatever the reason is: they are lost, and their requests get an error, so that
//! all others are served.

use std::path::Path;

use dunlin_config::{Config, Overrides, Problem};

use crate::directive::Place;
use crate::report::Report;

/// Most rounds; each one replaces or removes at least one route.
const ROUNDS: usize = 50;

/// What a route responds with that cannot be carried over. Nothing is served that its location may have restricted.
const FAILURE: &str = "respond = { status = 500 }";

/// What a route responds with that has no files.
const MISSING: &str = "respond = { status = 404 }";

/// What a route for all paths matches.
const ALL: &str = "regex = \"^/\"";
/// What a route has in place of its restrictions of access.
const CLOSED: &str = "deny = [\"0.0.0.0/0\", \"::/0\"]";

/// Returns `true` if the line of a route restricts access.
fn restricts(line: &str) -> bool {
    let keys = ["deny =", "allow =", "auth =", "any =", "signed =", "internal = true", "close ="];
    keys.iter().any(|key| line.starts_with(key)) && !line.ends_with("= false")
        || line.starts_with("respond = { status = 4")
}

/// The lines from a header to the next empty line.
struct Block {
    /// The line of the problem.
    at: usize,
    /// The header.
    start: usize,
    /// The empty line, or the end of the text.
    end: usize,
}

impl Block {
    /// Finds the block that has the line with that number, from 1; `None` if no header with that begin precedes it.
    fn of(lines: &[&str], number: usize, header: &str) -> Option<Self> {
        let at = number.checked_sub(1).filter(|at| *at < lines.len())?;
        let start = lines[..=at].iter().rposition(|line| line.starts_with(header))?;
        let length = lines[start..].iter().position(|line| line.is_empty());
        let end = length.map_or(lines.len(), |length| start + length);
        Some(Self { at, start, end })
    }
}

/// Returns the text without its invalid routes.
pub(crate) fn repaired(mut text: String, main: &Path, report: &mut Report) -> String {
    for _ in 0..ROUNDS {
        let name = Path::new("dunlin.toml");
        let Err(problems) = Config::parse(&text, name, &Overrides::default()) else { break };
        let Some(changed) = changed(&text, &problems, main, report) else { break };
        text = changed;
    }
    text
}

/// Returns the text without the cause of the first of these problems that has one in a route, a root or the cache; `None` if
/// none has.
pub(crate) fn changed(
    text: &str,
    problems: &[Problem],
    main: &Path,
    report: &mut Report,
) -> Option<String> {
    problems.iter().find_map(|problem| {
        let (line, what) = (problem.line()?, problem.message());
        without_cache(text, line, what, main, report)
            .or_else(|| without_files(text, line, what, main, report))
            .or_else(|| without(text, line, what, main, report))
            .or_else(|| closed(text, line, what, main, report))
    })
}

/// Returns the text without the directory of cached responses that has the line.
fn without_cache(
    text: &str,
    line: usize,
    what: &str,
    main: &Path,
    report: &mut Report,
) -> Option<String> {
    let lines: Vec<&str> = text.lines().collect();
    let Block { at, start, end } = Block::of(&lines, line, "[")?;
    (lines[start] == "[server.cache]" && lines[at].starts_with("directory =")).then_some(())?;
    let is_left = |(at, line): &(usize, &&str)| {
        !(start..end).contains(at)
            || !["directory =", "disk ="].iter().any(|key| line.starts_with(key))
    };
    let kept: Vec<&str> = lines.iter().enumerate().filter(is_left).map(|(_, line)| *line).collect();
    let place = Place { file: main.into(), line: 0 };
    let what = format!("responses are kept in memory alone: {what}");
    report.lost_at(place, "cache_path".to_owned(), what);
    Some(kept.join("\n") + "\n")
}

/// Returns the text with 404 in place of files whose directory is not there.
fn without_files(
    text: &str,
    line: usize,
    what: &str,
    main: &Path,
    report: &mut Report,
) -> Option<String> {
    let mut lines: Vec<&str> = text.lines().collect();
    let Block { at, start, end } = Block::of(&lines, line, "[[")?;
    (lines[at].starts_with("root =") && what.starts_with("root")).then_some(())?;
    let has = |key: &str| lines[start..end].iter().any(|line| line.starts_with(key));
    let has_handler = ["script =", "proxy =", "redirect =", "respond =", "rewrite =", "dav ="];
    let has_handler = has_handler.iter().any(|key| has(key));
    let of_files = ["root =", "try =", "index =", "listing ="];
    match has_handler {
        true => drop(lines.remove(at)),
        false => {
            lines[at] = MISSING;
            let mut number = 0;
            lines.retain(|line| {
                number += 1;
                !(start + 1..=end).contains(&number)
                    || !of_files.iter().any(|key| line.starts_with(key))
            });
        }
    }
    let (place, name) = match text.lines().nth(start)?.strip_prefix("[[site.route]]  # ") {
        Some(header) => origin(header, main),
        None => (Place { file: main.into(), line: 0 }, "root".to_owned()),
    };
    report.lost_at(place, name, format!("its files are not there, requests get 404: {what}"));
    Some(lines.join("\n") + "\n")
}

/// Returns the text with an error in place of the route that has the line; `None` if no route has it.
fn without(
    text: &str,
    line: usize,
    what: &str,
    main: &Path,
    report: &mut Report,
) -> Option<String> {
    let lines: Vec<&str> = text.lines().collect();
    let Block { at, start, end } = Block::of(&lines, line, "[[")?;
    let header = lines[start].strip_prefix("[[site.route]]  # ")?;
    let is_matching =
        |line: &&&str| ["path =", "regex =", "when ="].iter().any(|key| line.starts_with(key));
    let is_failed = lines[start..end].contains(&FAILURE);
    let is_closed = lines[start..end].iter().any(|line| restricts(line));
    let is_lost = is_failed || is_matching(&&lines[at]) || at == start;
    let mut kept: Vec<&str> = lines[..start].to_vec();
    // A route for all paths has no text that could be wrong.
    let is_whole = lines[start..end].contains(&ALL) && is_failed;
    let is_kept = !is_lost || is_closed && !is_whole;
    if is_kept {
        kept.push(lines[start]);
        match is_lost {
            true => kept.push(ALL),
            false => kept.extend(lines[start + 1..end].iter().filter(is_matching)),
        }
        if is_closed {
            kept.push(CLOSED);
        }
        kept.push(FAILURE);
    }
    kept.extend(&lines[end..]);
    let (place, name) = origin(header, main);
    let effect = match (is_kept, is_lost) {
        (false, _) => "its requests get what is more general",
        (true, false) if is_closed => "its requests get 403",
        (true, false) => "its requests get 500",
        (true, true) => "it restricts access: requests for all paths get 403",
    };
    report.lost_at(place, name, format!("{effect}: {what}"));
    Some(kept.join("\n") + "\n")
}

/// Returns the text with a site that rejects all requests, in place of what restricts access to it and has the line.
fn closed(text: &str, line: usize, what: &str, main: &Path, report: &mut Report) -> Option<String> {
    let lines: Vec<&str> = text.lines().collect();
    let Block { at, start, .. } = Block::of(&lines, line, "[")?;
    (lines[start] == "[[site]]" && restricts(lines[at])).then_some(())?;
    let length = lines[start + 1..].iter().position(|line| *line == "[[site]]");
    let end = length.map_or(lines.len(), |length| start + 1 + length);
    // No network of the site or of a route of it remains.
    let is_left = |(number, line): (usize, &&str)| {
        number != at
            && !((start..end).contains(&number)
                && ["allow =", "deny =", "any ="].iter().any(|key| line.starts_with(key)))
    };
    let kept = |range: std::ops::Range<usize>| {
        range.filter(|number| is_left((*number, &lines[*number]))).map(|number| lines[number])
    };
    let all: Vec<&str> =
        kept(0..start + 1).chain([CLOSED]).chain(kept(start + 1..lines.len())).collect();
    let place = Place { file: main.into(), line: 0 };
    report.lost_at(place, "server".to_owned(), format!("its requests get 403: {what}"));
    Some(all.join("\n") + "\n")
}

/// Returns the line of nginx that a comment names, and the name of the directive.
fn origin(comment: &str, main: &Path) -> (Place, String) {
    let mut parts = comment.splitn(3, ':');
    let _file = parts.next();
    let line = parts.next().and_then(|line| line.trim().parse().ok()).unwrap_or(0);
    let name = parts.next().unwrap_or_default().split_whitespace().next().unwrap_or("location");
    (Place { file: main.into(), line }, name.trim_end_matches(':').to_owned())
}
