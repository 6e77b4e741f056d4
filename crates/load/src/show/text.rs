//! The outcome as text for a terminal.

use std::fmt::Write;

use crate::outcome::{ErrorKind, Latency, Outcome, ProcessUse, Search, Unfinished};
use crate::plan::Model;
use crate::units::{scale_bytes, thousands};

/// Formats an outcome as text.
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
        row(text, "errors", &count(o.errors), &failures(o))?;
        for (kind, reason) in &o.first_errors {
            writeln!(text, "  first {}: {reason}", words(*kind))?;
        }
        for hint in hints(o) {
            writeln!(text, "  {hint}")?;
        }
    }
    if o.unfinished.in_flight > 0 || o.unfinished.waiting > 0 {
        let Unfinished { in_flight, oldest_ms, waiting, .. } = &o.unfinished;
        let mut detail =
            format!("in flight at the end, the oldest for {} ms", milliseconds(*oldest_ms));
        if *waiting > 0 {
            let _ = write!(detail, "; {} more waited for a connection", count(*waiting));
        }
        row(text, "unfinished", &count(*in_flight), &detail)?;
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
        "ms", "mean", "p50", "p90", "p99", "p99.9", "max"
    )?;
    let open = !matches!(o.plan.model, Model::Closed { .. });
    let mut line = |name: &str, l: Option<&Latency>| {
        let Some(l) = l else {
            let none = format!("{:>10}", "–").repeat(6);
            return writeln!(text, "{name:<14}{none}");
        };
        let cell = |value: f64| format!("{:>10}", milliseconds(value));
        let cells: String =
            [l.mean, l.p50, l.p90, l.p99, l.p999, l.max].into_iter().map(cell).collect();
        writeln!(text, "{name:<14}{cells}")
    };
    line("response", o.latency_ms.as_ref())?;
    if open {
        line("service", o.service_ms.as_ref())?;
    }
    let others = [
        ("first byte", &o.first_byte_ms),
        ("connect", &o.connect_ms),
        ("TLS", &o.tls_ms),
        ("connection", &o.connection_ms),
        ("lag", &o.lag_ms),
    ];
    for (name, latency) in others {
        if latency.is_some() {
            line(name, latency.as_ref())?;
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
            None => "the system does not report what the server can send ahead".to_owned(),
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
            &format!("{} requested{short}", o.plan.pipeline),
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
    if p.processes == 0 {
        return row(text, name, "–", "it has ended");
    }
    let cpu = p.cpu_us_per_request.map_or("–".to_owned(), |cpu| format!("{cpu:.2} µs/request"));
    let name_of =
        if p.processes > 1 { format!("{} × {}", p.processes, p.name) } else { p.name.clone() };
    let share = p.cpu_share * 100.0;
    let memory = bytes(p.memory_bytes as f64);
    row(text, name, &cpu, &format!("{name_of}, {share:.0} % of its processors, {memory}"))?;
    let (voluntary, involuntary) = (count(p.voluntary_switches), count(p.involuntary_switches));
    row(
        text,
        "",
        "",
        &format!("context switches: {voluntary} voluntary, {involuntary} involuntary"),
    )
}

fn found(text: &mut String, search: &Search) -> std::fmt::Result {
    let bounded = if search.bounded {
        " (the generator, or the bound of the search, was the limit)"
    } else if search.unfinished {
        " (stopped at the limit of trials; results vary too much between trials)"
    } else {
        ""
    };
    let found = level(search, search.found);
    writeln!(text, "\nfound        {found} {}{bounded}", search.of)?;
    writeln!(text, "{:>12}{:>12}{:>12}  ", "tried", "achieved", "p99 ms")?;
    for tried in &search.levels {
        let why = if tried.held { "held" } else { &tried.why };
        let p99 = if tried.p99_ms > 0.0 { milliseconds(tried.p99_ms) } else { "–".to_owned() };
        writeln!(
            text,
            "{:>12}{:>12}{:>12}  {why}",
            level(search, tried.level),
            level(search, tried.achieved),
            p99
        )?;
    }
    Ok(())
}

/// Formats a level of a search. Users are integers.
fn level(search: &Search, level: f64) -> String {
    if search.of == "users" { count(level.round() as u64) } else { number(level) }
}

/// Advice on failures.
fn hints(o: &Outcome) -> Vec<&'static str> {
    let first = |kind: ErrorKind| o.first_errors.get(&kind).map_or("", String::as_str);
    let tls = first(ErrorKind::Tls);
    let mut hints = Vec::new();
    if tls.contains("UnknownIssuer") || tls.contains("CaUsedAsEndEntity") {
        hints.push("the certificate is not signed by a known authority: --insecure accepts it");
    } else if tls.contains("NotValidForName") || tls.contains("not valid for name") {
        hints.push("the certificate is for another name: --insecure accepts it");
    } else if tls.contains("InvalidContentType") || tls.contains("corrupt message") {
        hints.push("the port does not speak TLS: use http://");
    }
    if o.errors_by_kind.contains_key(&ErrorKind::Status) {
        hints.push("--expect-status accepts other statuses");
    }
    hints
}

/// The number of failures by kind.
pub(crate) fn failures(o: &Outcome) -> String {
    let kinds = o.errors_by_kind.iter().map(|(kind, n)| format!("{} {}", count(*n), words(*kind)));
    kinds.collect::<Vec<_>>().join(", ")
}

/// Description of a kind of failure.
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

/// Formats a number with thousands separators.
fn count(value: u64) -> String {
    thousands(&value.to_string())
}

/// Formats bytes in decimal units: 1 MB is a million bytes.
fn bytes(value: f64) -> String {
    match scale_bytes(value) {
        (value, "B") => format!("{value:.0} B"),
        (value, unit) => format!("{value:.1} {unit}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_formatted_for_readers() {
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
