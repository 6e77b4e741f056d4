//! Access logs as load: requests with their times.

use std::fmt;

use dunlin_http::semantics::date;
use serde::Deserialize;

use crate::time::{instant, nanos_of};

/// A request in a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Nanoseconds after the first request.
    pub offset: u64,
    /// The method of the request.
    pub method: String,
    /// The target as sent.
    pub target: String,
}

/// The requests of a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Replay {
    /// Requests in order of time.
    pub entries: Vec<Entry>,
    /// Number of lines that are no requests.
    pub skipped: u64,
}

/// The log contains no request.
#[derive(Debug, PartialEq, Eq)]
pub struct NoRequests {
    /// Number of its lines.
    pub lines: u64,
}

impl fmt::Display for NoRequests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "none of {} lines is a request in the common, the combined or Dunlin's JSON format",
            self.lines
        )
    }
}

/// The required keys of a line in Dunlin's JSON format.
#[derive(Deserialize)]
struct Line {
    time: String,
    method: String,
    target: String,
}

/// Parses a log. `speed` is the speed of the replay relative to the recording.
///
/// If a log has a resolution of seconds, the requests of a second are spread evenly over it.
///
/// # Errors
/// [`NoRequests`] if no line is a request.
pub fn read(log: &str, speed: f64) -> Result<Replay, NoRequests> {
    let mut found: Vec<(u64, bool, String, String)> = Vec::new();
    let (mut lines, mut skipped) = (0, 0);
    for line in log.lines().filter(|line| !line.trim().is_empty()) {
        lines += 1;
        let entry = if line.starts_with('{') { of_json(line) } else { of_common(line) };
        match entry {
            Some(entry) => found.push(entry),
            None => skipped += 1,
        }
    }
    if found.is_empty() {
        return Err(NoRequests { lines });
    }
    found.sort_by_key(|(at, ..)| *at);
    spread(&mut found);
    found.sort_by_key(|(at, ..)| *at);
    let first = found[0].0;
    let entries = found
        .into_iter()
        .map(|(at, _, method, target)| Entry {
            offset: ((at - first) as f64 / speed) as u64,
            method,
            target,
        })
        .collect();
    Ok(Replay { entries, skipped })
}

const SECOND: u64 = 1_000_000_000;

/// Spreads the requests of a second over it, if the log has no fraction.
fn spread(found: &mut [(u64, bool, String, String)]) {
    for group in found.chunk_by_mut(|a, b| a.0 == b.0 && !a.1 && !b.1) {
        let count = group.len() as u64;
        if count > 1 {
            for (index, entry) in group.iter_mut().enumerate() {
                entry.0 += index as u64 * SECOND / count;
            }
        }
    }
}

fn of_json(line: &str) -> Option<(u64, bool, String, String)> {
    let Line { time, method, target } = serde_json::from_str(line).ok()?;
    Some((nanos_of(time.trim_end_matches('Z'))?, true, sound(&method)?, sound(&target)?))
}

/// `host ident user [day/month/year:time zone] "request" ...`
fn of_common(line: &str) -> Option<(u64, bool, String, String)> {
    let (_, rest) = line.split_once('[')?;
    let (time, rest) = rest.split_once(']')?;
    let (_, rest) = rest.split_once('"')?;
    let (request, _) = rest.split_once('"')?;
    let mut parts = request.split(' ');
    let (method, target, version) = (parts.next()?, parts.next()?, parts.next()?);
    if !version.starts_with("HTTP/") {
        return None;
    }
    let (stamp, zone) = time.split_once(' ')?;
    let mut stamp = stamp.splitn(2, ':');
    let (day_month_year, clock) = (stamp.next()?, stamp.next()?);
    let mut parts = day_month_year.splitn(3, '/');
    let (day, month, year) = (parts.next()?, parts.next()?, parts.next()?);
    let month = date::MONTHS.iter().position(|name| *name == month)? as u64 + 1;
    let at = instant(year.parse().ok()?, month, day.parse().ok()?, clock)?;
    let zone: i64 = Some(zone).filter(|zone| zone.len() == 5)?.parse().ok()?;
    let east = (zone / 100 * 3600 + zone % 100 * 60) * SECOND as i64;
    Some((at.checked_add_signed(-east)?, false, sound(method)?, sound(target)?))
}

/// Returns the text, if it is valid in a request line: logs contain what attackers have sent.
fn sound(text: &str) -> Option<String> {
    let visible = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
    visible.then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn common_and_json_lines_are_parsed_with_relative_times() {
        let log = "\
            127.0.0.1 - - [10/Oct/2000:13:55:36 -0700] \"GET /b HTTP/1.0\" 200 2326\n\
            127.0.0.1 - - [10/Oct/2000:20:55:36 +0000] \"GET /c HTTP/1.0\" 200 2326 \"-\" \"x \\\" y\"\n\
            {\"time\":\"2000-10-10T20:55:37.250Z\",\"method\":\"HEAD\",\"target\":\"/d?x=1\"}\n\
            127.0.0.1 - - [10/Oct/2000:20:55:40 +0000] \"\\x16\\x03\" 400 0\n\
            nonsense\n";
        let replay = read(log, 2.0).unwrap();
        let requests: Vec<_> =
            replay.entries.iter().map(|e| (e.offset, &*e.method, &*e.target)).collect();
        assert_eq!(
            requests,
            [(0, "GET", "/b"), (250_000_000, "GET", "/c"), (625_000_000, "HEAD", "/d?x=1")]
        );
        assert_eq!(replay.skipped, 2);
    }

    #[test]
    fn a_file_without_requests_is_an_error() {
        assert_eq!(read("a\nb\n\n", 1.0), Err(NoRequests { lines: 2 }));
    }
}
