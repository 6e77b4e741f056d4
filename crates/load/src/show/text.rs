//! The report on a terminal.

use std::fmt::Write;

use crate::outcome::{ErrorKind, Latency, Outcome, ProcessUse, Search};
use crate::plan::Model;

/// The outcome as text.
#[must_use]
pub fn text(outcome: &Outcome) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = write(&mut text, outcome);
    text
}

fn write(text: &mut String, o: &Outcome) -> std::fmt::Result {
    writeln!(text, "{}", o.verdict)?;
    for reason in &o.reasons {
        writeln!(text, "  {reason}")?;
    }
    writeln!(text)?;
    row(
        text,
        "requests",
        &format!("{}/s", number(o.requests_per_second)),
        &format!("{} in {:.2} s", count(o.requests), o.duration_seconds),
    )?;
    row(text, "received", &format!("{}/s", bytes(o.bytes_per_second)), &bytes(o.bytes as f64))?;
    let statuses: Vec<String> =
        o.status.iter().map(|(status, n)| format!("{status}: {}", count(*n))).collect();
    row(text, "status", &statuses.join(", "), "")?;
    if o.errors > 0 {
        let kinds: Vec<String> = o
            .errors_by_kind
            .iter()
            .map(|(kind, n)| format!("{} {}", count(*n), words(*kind)))
            .collect();
        row(text, "errors", &count(o.errors), &kinds.join(", "))?;
    }
    times(text, o)?;
    connections(text, o)?;
    if let Some(server) = &o.server {
        process(text, "server", server)?;
    }
    process(text, "client", &o.client)?;
    if let Some(search) = &o.search {
        found(text, search)?;
    }
    for finding in &o.findings {
        writeln!(text, "\n{}: {}", finding.kind, finding.text)?;
    }
    Ok(())
}

fn row(text: &mut String, name: &str, value: &str, detail: &str) -> std::fmt::Result {
    writeln!(text, "{}", format!("{name:<12}{value:<16} {detail}").trim_end())
}

fn times(text: &mut String, o: &Outcome) -> std::fmt::Result {
    writeln!(
        text,
        "\n{:<14}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}",
        "ms", "mean", "50 %", "90 %", "99 %", "99.9 %", "max"
    )?;
    let open = !matches!(o.plan.model, Model::Closed { .. });
    let mut line = |name: &str, l: &Latency| {
        let cell = |value: f64| format!("{:>10}", milliseconds(value));
        let cells: String =
            [l.mean, l.p50, l.p90, l.p99, l.p999, l.max].into_iter().map(cell).collect();
        writeln!(text, "{name:<14}{cells}")
    };
    line("response", &o.latency_ms)?;
    if open {
        line("service", &o.service_ms)?;
    }
    let others = [
        ("first byte", &o.first_byte_ms),
        ("connect", &o.connect_ms),
        ("TLS", &o.tls_ms),
        ("connection", &o.connection_ms),
        ("lag", &o.lag_ms),
    ];
    for (name, latency) in others {
        if let Some(latency) = latency {
            line(name, latency)?;
        }
    }
    writeln!(text)
}

fn connections(text: &mut String, o: &Outcome) -> std::fmt::Result {
    let c = &o.connections;
    let mut detail = format!("{:.1} requests each, {}", c.requests_each, c.protocol);
    if c.closed_by_server > 0 {
        let _ = write!(detail, ", {} closed by the server", count(c.closed_by_server));
    }
    if let Some(fairness) = c.fairness {
        let _ = write!(detail, ", fairness {fairness:.3}");
    }
    row(text, "connections", &count(c.opened), &detail)?;
    if let Some(bits) = o.plan.modem_bits_per_second {
        let detail = match c.receive_window {
            Some(window) => format!("the server can send {} bytes ahead", count(u64::from(window))),
            None => "what the server can send ahead is not told by this system".to_owned(),
        };
        row(text, "modem", &format!("{} kbit/s", bits as f64 / 1000.0), &detail)?;
    }
    if o.plan.pipeline > 1 {
        let short =
            if c.depth_mean < f64::from(o.plan.pipeline) * 0.9 { ": NOT reached" } else { "" };
        row(
            text,
            "pipeline",
            &format!("{:.1} deep", c.depth_mean),
            &format!("{} asked for{short}", o.plan.pipeline),
        )?;
    }
    if let Some(rate) = o.reply_rate.as_ref().filter(|rate| rate.samples > 1) {
        let spread = format!(
            "min {} max {} stddev {}",
            number(rate.min),
            number(rate.max),
            number(rate.stddev)
        );
        row(
            text,
            "reply rate",
            &format!("{}/s", number(rate.mean)),
            &format!("{spread} ({} samples of {} s)", rate.samples, rate.sample_seconds),
        )?;
    }
    Ok(())
}

fn process(text: &mut String, name: &str, p: &ProcessUse) -> std::fmt::Result {
    let switches = format!(
        "{} + {} context switches",
        count(p.voluntary_switches),
        count(p.involuntary_switches)
    );
    let detail = format!(
        "{} × {}, {:.0} % of its processors, {}, {switches}",
        p.processes,
        p.name,
        p.cpu_share * 100.0,
        bytes(p.memory_bytes as f64)
    );
    row(text, name, &format!("{:.2} µs/request", p.cpu_us_per_request), &detail)
}

fn found(text: &mut String, search: &Search) -> std::fmt::Result {
    let bounded = if search.bounded {
        " (the generator, or the bound of the search, was the limit)"
    } else if search.unfinished {
        " (given up after so many trials; results vary too much from trial to trial)"
    } else {
        ""
    };
    writeln!(text, "\nfound        {} {}{bounded}", number(search.found), search.of)?;
    writeln!(text, "{:>12}{:>12}{:>12}  ", "tried", "achieved", "99 % ms")?;
    for level in &search.levels {
        let why = if level.held { "held" } else { &level.why };
        writeln!(
            text,
            "{:>12}{:>12}{:>12}  {why}",
            number(level.level),
            number(level.achieved),
            milliseconds(level.p99_ms)
        )?;
    }
    Ok(())
}

/// What a kind of failure is called.
fn words(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::Refused => "connections refused",
        ErrorKind::Reset => "connections reset",
        ErrorKind::Closed => "cut short by a closed connection",
        ErrorKind::Timeout => "timed out",
        ErrorKind::NoAddress => "without a free local port",
        ErrorKind::NoDescriptor => "without a free descriptor",
        ErrorKind::Tls => "TLS handshakes failed",
        ErrorKind::Protocol => "not HTTP",
        ErrorKind::Status => "with another status",
        ErrorKind::Length => "with another length",
        ErrorKind::Hash => "with other content",
        ErrorKind::Other => "other",
    }
}

fn milliseconds(value: f64) -> String {
    match value {
        v if v >= 1000.0 => format!("{v:.0}"),
        v if v >= 10.0 => format!("{v:.1}"),
        v => format!("{v:.3}"),
    }
}

fn number(value: f64) -> String {
    if value >= 1000.0 { count(value.round() as u64) } else { format!("{value:.1}") }
}

/// With a comma between each three digits.
fn count(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// In decimal units: 1 MB is a million bytes.
fn bytes(value: f64) -> String {
    let units = ["B", "kB", "MB", "GB", "TB"];
    let (mut value, mut unit) = (value, 0);
    while value >= 1000.0 && unit + 1 < units.len() {
        value /= 1000.0;
        unit += 1;
    }
    if unit == 0 { format!("{value:.0} B") } else { format!("{value:.1} {}", units[unit]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_easily() {
        assert_eq!(
            (count(1_234_567), count(12), count(123_456)),
            ("1,234,567".into(), "12".into(), "123,456".into())
        );
        assert_eq!((bytes(999.0), bytes(1_500_000.0)), ("999 B".into(), "1.5 MB".into()));
        assert_eq!(
            (milliseconds(0.1234), milliseconds(12.34), milliseconds(1234.5)),
            ("0.123".into(), "12.3".into(), "1234".into())
        );
    }
}
