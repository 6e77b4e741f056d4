//! `dunlin watch`

use std::fmt::Write as _;
use std::io::{self, BufRead, IsTerminal, Write};
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use dunlin_server::{Filter, PHASES};
use serde_json::Value;

use crate::remote::{Admin, expect_ok};

/// The arguments of `dunlin watch`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    #[command(flatten)]
    admin: Admin,
    /// Details of each request
    #[arg(long, short, value_enum, default_value = "line")]
    level: Level,
    /// Show requests also as they begin, so that requests that hang are visible
    #[arg(long, short)]
    begins: bool,
    /// Stop after this many requests have ended
    #[arg(long, short = 'n', value_name = "N")]
    count: Option<u64>,
    /// Print the server's events: one JSON object per line
    #[arg(long)]
    json: bool,
    /// Use of colours
    #[arg(long, value_enum, default_value = "auto")]
    color: Color,
    /// Filter of requests: comparisons of status, ms, bytes, connection (== != < <= > >=) and of address,
    /// method, path, host, site, route, protocol, cache, user (==, !=, ~ contains, !~), joined by
    /// &&, ||, ! and parentheses
    #[arg(value_name = "FILTER")]
    filter: Vec<String>,
}

const EXAMPLES: &str = "\
Examples:
  dunlin watch                                        every request, as it ends
  dunlin watch 'status>=500 && path~\"/api\" && ms>100' slow failures of one part of a site
  dunlin watch --begins path~app                       also as they begin
  dunlin watch --level phases address==192.0.2.7      where one client's time goes
  dunlin watch --admin http://127.0.0.1:8080/status/  through a status route";

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Level {
    /// One line
    Line,
    /// Also the time of each phase
    Phases,
    /// Also the fields of the request
    Heads,
    /// Only requests with a status of 400 or more, or aborted ones
    Errors,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Color {
    Auto,
    Always,
    Never,
}

/// Prints requests until the command is stopped.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    match watch(arguments) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("dunlin: {error}");
            ExitCode::FAILURE
        }
    }
}

fn watch(arguments: &Arguments) -> Result<ExitCode, String> {
    let filter = arguments.filter.join(" ");
    if let Err(error) = Filter::parse(&filter) {
        eprintln!("dunlin: {error}\n  {filter}\n  {:>1$}", '^', error.at + 1);
        return Ok(ExitCode::from(2));
    }
    let server = match arguments.admin.server() {
        // Minutes may pass between two requests; the server sends an empty line each 15 s.
        Ok((server, _)) => server.with_limit(std::time::Duration::from_secs(60)),
        Err(code) => return Ok(code),
    };
    let level =
        arguments.level.to_possible_value().map_or_else(String::new, |v| v.get_name().into());
    let (begins, filter) = (arguments.begins, encode(&filter));
    let response = server.get(&format!("/watch?level={level}&begins={begins}&filter={filter}"));
    let mut lines = expect_ok(response)?;
    let show = Show { level: arguments.level, colored: arguments.is_colored() };
    let (mut line, mut out, mut left) = (Vec::new(), io::stdout(), arguments.count);
    while left != Some(0) {
        line.clear();
        match lines.read_until(b'\n', &mut line) {
            Ok(0) => {
                eprintln!("dunlin: the server has stopped");
                break;
            }
            Ok(_) if line == b"\n" => continue,
            Ok(_) => {}
            Err(error) => return Err(error.to_string()),
        }
        let event: Value = serde_json::from_slice(&line).map_err(|error| error.to_string())?;
        if event.get("lost").is_none() && event.get("begins").is_none() {
            left = left.map(|left| left - 1);
        }
        let written = match arguments.json {
            true => out.write_all(&line),
            false => out.write_all(show.event(&event).as_bytes()),
        };
        match written {
            // The reader has closed the pipe.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => break,
            written => written.map_err(|error| error.to_string())?,
        }
    }
    Ok(ExitCode::SUCCESS)
}

impl Arguments {
    fn is_colored(&self) -> bool {
        match self.color {
            Color::Always => true,
            Color::Never => false,
            Color::Auto => io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none(),
        }
    }
}

/// Format of events.
struct Show {
    level: Level,
    colored: bool,
}

const DIM: &str = "2";
const BOLD: &str = "1";
const RED: &str = "31";
const GREEN: &str = "32";
const YELLOW: &str = "33";
const CYAN: &str = "36";

impl Show {
    fn event(&self, event: &Value) -> String {
        if let Some(lost) = event.get("lost") {
            let note = format!("-- {lost} requests were not shown: there were too many to show");
            return self.paint(YELLOW, &note) + "\n";
        }
        let text = |key: &str| printable(event[key].as_str().unwrap_or("-"));
        let number = |key: &str| event[key].as_u64().unwrap_or(0);
        let status = number("status");
        let color = match status {
            0 => DIM,
            200..=299 => GREEN,
            300..=399 => CYAN,
            400..=498 => YELLOW,
            _ => RED,
        };
        let time = text("time");
        let clock = time.split_once('T').map_or(&*time, |(_, clock)| clock.trim_end_matches('Z'));
        let (status, took_, size_) = match event.get("begins") {
            Some(_) => ("...".to_owned(), String::new(), String::new()),
            None => (status.to_string(), took(number("duration_us")), size(number("bytes"))),
        };
        let mut line = format!(
            "{} {:<9} {} {took_:>8} {size_:>8} {} {}{}",
            self.paint(DIM, clock),
            text("remote"),
            self.paint(color, &status),
            self.paint(BOLD, &text("method")),
            self.paint(DIM, &host(event)),
            text("target"),
        );
        let mut notes = format!("  {}", text("protocol"));
        for (name, key) in [("site", "site"), ("cache", "cache"), ("route", "route")] {
            match event[key].as_str() {
                None | Some("" | "-") => {}
                Some(value) => {
                    let _ = write!(notes, " {name}={}", printable(value));
                }
            }
        }
        line.push_str(&self.paint(DIM, &notes));
        if event.get("broken_off").is_some() {
            line.push_str(&self.paint(RED, "  broken off"));
        }
        line.push('\n');
        let phases = phases(&event["phases"]);
        if matches!(self.level, Level::Phases | Level::Heads) && !phases.is_empty() {
            let _ = writeln!(line, "    {}", self.paint(CYAN, &phases));
        }
        for field in event["fields"].as_array().into_iter().flatten() {
            let part = |at: usize| printable(field[at].as_str().unwrap_or_default());
            let _ = writeln!(line, "    {}: {}", self.paint(DIM, &part(0)), part(1));
        }
        line
    }

    fn paint(&self, color: &str, text: &str) -> String {
        if self.colored { format!("\x1b[{color}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

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

/// The phases in order of time, which a JSON object does not preserve.
fn phases(phases: &Value) -> String {
    let phase = |name: &&str| {
        let micros = phases[format!("{name}_us")].as_u64()?;
        Some(format!("{name} {}", took(micros)))
    };
    PHASES.iter().filter_map(phase).collect::<Vec<_>>().join(" · ")
}

/// Replaces control characters, since clients must not control the terminal.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// Formats microseconds.
pub(crate) fn took(micros: u64) -> String {
    match micros {
        0..1_000 => format!("{micros} µs"),
        1_000..1_000_000 => format!("{:.1} ms", micros as f64 / 1e3),
        _ => format!("{:.2} s", micros as f64 / 1e6),
    }
}

/// Formats bytes.
pub(crate) fn size(bytes: u64) -> String {
    match bytes {
        0..1_000 => format!("{bytes} B"),
        1_000..1_000_000 => format!("{:.1} KB", bytes as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} MB", bytes as f64 / 1e6),
        _ => format!("{:.2} GB", bytes as f64 / 1e9),
    }
}

/// Encodes text for a query (RFC 3986 §2.1).
fn encode(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() {
            encoded.push(byte.into());
        } else {
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_of_clients_are_replaced() {
        let event = serde_json::json!({
            "time": "2025-01-02T03:04:05.678Z", "remote": "192.0.2.7", "method": "GET",
            "target": "/\u{1b}[2J\r\n", "status": 200, "bytes": 1500, "duration_us": 1234,
            "fields": [["x\u{7}", "\u{9b}31m"]],
        });
        let line = Show { level: Level::Heads, colored: false }.event(&event);
        assert!(line.starts_with("03:04:05.678 192.0.2.7 200   1.2 ms   1.5 KB GET"));
        assert_eq!(line.chars().filter(|c| c.is_control()).count(), 2, "two line feeds: {line:?}");
    }

    #[test]
    fn phases_are_in_order_of_time() {
        let event = serde_json::json!({
            "send_us": 7, "gate_us": 1, "tls_us": 2_000, "head_us": 3, "handler_us": 1_500_000,
        });
        assert_eq!(
            phases(&event),
            "tls 2.0 ms · head 3 µs · gate 1 µs · handler 1.50 s · send 7 µs"
        );
    }
}
