//! `dunlin watch`

mod event;

use std::fmt::Write as _;
use std::io::{self, BufRead, IsTerminal, Write};
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use dunlin_telemetry::live::Filter;
use ratatui::crossterm::terminal;
use serde_json::Value;

use self::event::Format;
use crate::remote::Admin;

/// The arguments of `dunlin watch`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct WatchArguments {
    #[command(flatten)]
    admin: Admin,
    /// Details of each request: `line`, `phases` (also the time of each phase), `heads` (also the headers of the request),
    /// `errors` (only requests with a status of 400 or more, or aborted ones)
    #[arg(long, short, value_enum, default_value = "line", hide_possible_values = true)]
    level: Level,
    /// Also show requests as they begin, so that hanging requests are visible
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
    Line,
    Phases,
    Heads,
    Errors,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Color {
    Auto,
    Always,
    Never,
}

/// Prints requests until the command is stopped.
pub(crate) fn run(arguments: &WatchArguments) -> ExitCode {
    match watch(arguments) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("dunlin: {error}");
            ExitCode::FAILURE
        }
    }
}

fn watch(arguments: &WatchArguments) -> Result<ExitCode, String> {
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
    let mut lines =
        server.status(&format!("/watch?level={level}&begins={begins}&filter={filter}"))?;
    let mut format =
        Format { level: arguments.level, colored: arguments.is_colored(), width: None };
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
            false => {
                format.width = width();
                out.write_all(format.text(&event).as_bytes())
            }
        };
        match written {
            // The reader has closed the pipe.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => break,
            written => written.map_err(|error| error.to_string())?,
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the width of the terminal, which can change; `None` if standard output is none.
pub(crate) fn width() -> Option<usize> {
    let is_terminal = io::stdout().is_terminal();
    let (width, _) = is_terminal.then(|| terminal::size().ok()).flatten()?;
    (width > 0).then_some(width.into())
}

impl WatchArguments {
    fn is_colored(&self) -> bool {
        match self.color {
            Color::Always => true,
            Color::Never => false,
            Color::Auto => crate::color::suits(&io::stdout()),
        }
    }
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
