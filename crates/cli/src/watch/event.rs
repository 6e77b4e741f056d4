//! The text of an event.

use std::fmt::Write as _;

use dunlin_telemetry::PHASES;
use ratatui::text::Span;
use serde_json::Value;

use super::{Level, size, took};

/// Format of events.
pub(super) struct Format {
    pub(super) level: Level,
    pub(super) colored: bool,
    /// Columns of the terminal; `None` if the text goes elsewhere.
    pub(super) width: Option<usize>,
}

const DIM: &str = "2";
const BOLD: &str = "1";
const RED: &str = "31";
const GREEN: &str = "32";
const YELLOW: &str = "33";
const CYAN: &str = "36";

/// Indentation of the lines below the first.
const INDENT: &str = "    ";

/// Pieces of a line with their colours; an empty colour is the terminal's own.
type Pieces = Vec<(&'static str, String)>;

impl Format {
    /// Returns the lines of an event, each with a line feed.
    pub(super) fn text(&self, event: &Value) -> String {
        if let Some(lost) = event.get("lost") {
            let note = format!("-- {lost} requests were not shown: there were too many to show");
            return self.line(vec![(YELLOW, note)]);
        }
        let mut text = self.line(self.request(event));
        if matches!(self.level, Level::Phases | Level::Heads) {
            for line in self.folded(&phases(&event["phases"])) {
                text += &self.line(vec![("", INDENT.to_owned()), (CYAN, line)]);
            }
        }
        for field in event["fields"].as_array().into_iter().flatten() {
            let part = |at: usize| printable(field[at].as_str().unwrap_or_default());
            let name = (DIM, part(0));
            text += &self.line(vec![("", INDENT.to_owned()), name, ("", format!(": {}", part(1)))]);
        }
        text
    }

    /// Returns the line of a request. Notes that the width of the terminal has no room for are omitted. Scheme and
    /// host are on all lines or on none: the width decides.
    fn request(&self, event: &Value) -> Pieces {
        let text = |key: &str| printable(event[key].as_str().unwrap_or("-"));
        let number = |key: &str| event[key].as_u64().unwrap_or(0);
        let time = text("time");
        let clock = time.split_once('T').map_or(&*time, |(_, clock)| clock.trim_end_matches('Z'));
        let (status, took, size) = match event.get("begins") {
            Some(_) => ("...".to_owned(), String::new(), String::new()),
            None => {
                let status = number("status").to_string();
                (status, took(number("duration_us")), size(number("bytes")))
            }
        };
        let mut notes = notes(event);
        let host = match self.width {
            Some(width) if width < WITH_HOST => String::new(),
            _ => host(event),
        };
        loop {
            let mut pieces = vec![
                (DIM, clock.to_owned()),
                ("", format!(" {:<9} ", text("remote"))),
                (color(number("status")), status.clone()),
                ("", format!(" {took:>8} {size:>8} ")),
                (BOLD, text("method")),
                ("", " ".to_owned()),
                (DIM, host.clone()),
                ("", text("target")),
            ];
            if !notes.is_empty() {
                let notes: Vec<_> = notes.iter().map(|(_, note)| note.as_str()).collect();
                pieces.push((DIM, format!("  {}", notes.join(" "))));
            }
            if event.get("broken_off").is_some() {
                pieces.push((RED, "  broken off".to_owned()));
            }
            let has_room = self.width.is_none_or(|width| columns(&pieces) <= width);
            match (0..notes.len()).min_by_key(|&at| notes[at].0) {
                Some(least) if !has_room => drop(notes.remove(least)),
                _ => return pieces,
            }
        }
    }

    /// Returns the phases in lines that the terminal has room for.
    fn folded(&self, phases: &[String]) -> Vec<String> {
        let room = self.width.map_or(usize::MAX, |width| width.saturating_sub(INDENT.len()));
        let mut lines: Vec<String> = Vec::new();
        for phase in phases {
            match lines.last_mut() {
                Some(line) if line.chars().count() + phase.chars().count() + 3 <= room => {
                    *line += &format!(" · {phase}");
                }
                _ => lines.push(phase.clone()),
            }
        }
        lines
    }

    /// Returns the pieces as a line, shortened to the width of the terminal.
    fn line(&self, pieces: Pieces) -> String {
        let mut left = self.width.filter(|&width| columns(&pieces) > width);
        let mut line = String::new();
        for (color, piece) in pieces.iter().filter(|(_, piece)| !piece.is_empty()) {
            let (shown, is_cut) = match &mut left {
                None => (piece.clone(), false),
                Some(left) => fit(piece, left),
            };
            match (self.colored, *color) {
                (false, _) | (true, "") => line += &shown,
                // Writing to a String cannot fail.
                (true, color) => drop(write!(line, "\x1b[{color}m{shown}\x1b[0m")),
            }
            if is_cut {
                break;
            }
        }
        line.push('\n');
        line
    }
}

/// Returns the colour of a status; that of a request that begins is 0.
fn color(status: u64) -> &'static str {
    match status {
        0 => DIM,
        200..=299 => GREEN,
        300..=399 => CYAN,
        400..=498 => YELLOW,
        _ => RED,
    }
}

/// Columns of the pieces on a terminal.
fn columns(pieces: &Pieces) -> usize {
    pieces.iter().map(|(_, piece)| Span::raw(piece.as_str()).width()).sum()
}

/// Returns the part of `piece` that `left` columns and an ellipsis have room for, and whether it was cut.
fn fit(piece: &str, left: &mut usize) -> (String, bool) {
    let mut shown = String::new();
    for character in piece.chars() {
        let columns = Span::raw(character.to_string()).width();
        if columns >= *left {
            return (shown + "…", true);
        }
        *left -= columns;
        shown.push(character);
    }
    (shown, false)
}

/// Returns what else is known of the request, each with its importance. What does not apply is omitted.
fn notes(event: &Value) -> Vec<(u8, String)> {
    let note = |(importance, key): (u8, &str)| match event[key].as_str() {
        None | Some("" | "-") => None,
        Some(value) if key == "protocol" => Some((importance, printable(value))),
        Some(value) => Some((importance, format!("{key}={}", printable(value)))),
    };
    // The name of the site is mostly the host of the URL.
    let is_host = |site: &str| event["host"].as_str().is_some_and(|host| names(host, site));
    // The name of a site for every host adds nothing to the host.
    let adds_nothing = |site: &&str| is_host(site) || *site == ANY_HOST;
    let site = event["site"].as_str().filter(adds_nothing).map_or("site", |_| "");
    let keys = [(3, "protocol"), (0, site), (2, "cache"), (1, "route")];
    // Only tunnels have it.
    let received = event["received"].as_u64();
    let received = received.map(|bytes| (4, format!("received={}", size(bytes).replace(' ', ""))));
    keys.into_iter().filter_map(note).chain(received).collect()
}

/// The name of a site without a host.
const ANY_HOST: &str = "default";

/// Returns `true` if the host, which may have a port, is that of the site.
fn names(host: &str, site: &str) -> bool {
    let rest = host.strip_prefix(site);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(':'))
}

/// Columns of a terminal whose lines have scheme and host.
const WITH_HOST: usize = 100;

/// Scheme and host of the URL; empty if the target contains them.
fn host(event: &Value) -> String {
    let is_path = event["target"].as_str().is_some_and(|target| target.starts_with('/'));
    match event["host"].as_str() {
        Some(host) if is_path && !matches!(host, "" | "-") => {
            let scheme = if event["tls_protocol"].is_string() { "https" } else { "http" };
            format!("{scheme}://{}", printable(host))
        }
        _ => String::new(),
    }
}

/// Returns the phases in order of time, which a JSON object does not preserve.
fn phases(phases: &Value) -> Vec<String> {
    let phase = |name: &&str| {
        let micros = phases[format!("{name}_us")].as_u64()?;
        Some(format!("{name} {}", took(micros)))
    };
    PHASES.iter().filter_map(phase).collect()
}

/// Replaces control characters, since clients must not control the terminal.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn format(level: Level, width: Option<usize>) -> Format {
        Format { level, colored: false, width }
    }

    #[test]
    fn control_characters_of_clients_are_replaced() {
        let event = serde_json::json!({
            "time": "2025-01-02T03:04:05.678Z", "remote": "192.0.2.7", "method": "GET",
            "target": "/\u{1b}[2J\r\n", "status": 200, "bytes": 1500, "duration_us": 1234,
            "fields": [["x\u{7}", "\u{9b}31m"]],
        });
        let line = format(Level::Heads, None).text(&event);
        assert!(line.starts_with("03:04:05.678 192.0.2.7 200   1.2 ms   1.5 KB GET"));
        assert_eq!(line.chars().filter(|c| c.is_control()).count(), 2, "two line feeds: {line:?}");
    }

    #[test]
    fn phases_are_in_order_of_time() {
        let event = serde_json::json!({
            "send_us": 7, "checks_us": 1, "tls_us": 2_000, "head_us": 3, "handler_us": 1_500_000,
        });
        assert_eq!(
            phases(&event).join(" · "),
            "tls 2.0 ms · head 3 µs · checks 1 µs · handler 1.50 s · send 7 µs"
        );
    }

    #[test]
    fn lines_keep_to_the_width_of_the_terminal() {
        let mut event = serde_json::json!({
            "time": "2025-01-02T03:04:05.678Z", "remote": "192.0.2.7", "method": "GET",
            "host": "example.com", "target": "/a/路径/page.html", "status": 200, "bytes": 1500,
            "duration_us": 1234, "protocol": "HTTP/1.1", "cache": "hit", "route": "", "site": "example.com",
            "phases": { "head_us": 3, "handler_us": 1_500_000, "send_us": 7 },
            "fields": [["User-Agent", "a".repeat(300)]],
        });
        let whole = format(Level::Heads, None).text(&event);
        assert!(whole.contains("  HTTP/1.1 cache=hit\n") && !whole.contains("route="), "{whole}");
        for width in [1, 20, 40, 60, 80, 100, 120] {
            let text = format(Level::Heads, Some(width)).text(&event);
            for line in text.lines() {
                assert!(Span::raw(line).width() <= width, "{width}: {line}");
            }
        }
        event["site"] = "other.example".into();
        assert!(format(Level::Line, None).text(&event).contains(" site=other.example "));
        event["site"] = "default".into();
        assert!(!format(Level::Line, None).text(&event).contains(" site="));
        event["site"] = "example.com".into();
        event["fields"] = Value::Null;
        let narrow = format(Level::Line, Some(80)).text(&event);
        assert!(
            narrow.contains("GET /a/路径/page.html ") && !narrow.contains("http://"),
            "{narrow}"
        );
        // A line that has no room for the address has the same form as the others.
        let long = format!("/{}", "a".repeat(200));
        event["target"] = long.into();
        assert!(!format(Level::Line, Some(80)).text(&event).contains("http://"));
        assert!(format(Level::Line, Some(100)).text(&event).contains("http://example.com/aaa"));
        event["target"] = "/a/路径/page.html".into();
        let wide = format(Level::Line, Some(100)).text(&event);
        assert!(wide.ends_with("GET http://example.com/a/路径/page.html  HTTP/1.1\n"), "{wide}");
    }
}
