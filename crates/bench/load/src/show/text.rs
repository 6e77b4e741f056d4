//! The outcome as text for a terminal.

use std::fmt::Write;

use super::failures::{details, failures};
use super::histogram::histogram;
use super::layout::{Color, Paint, fill};
use super::number::{NONE, bytes, count, milliseconds, number};
use super::search::found;
use crate::outcome::{
    Generators, Latency, Outcome, ProcessUse, SentAgain, Unfinished, Verdict, Warmup,
};
use crate::plan::{Model, Reuse};
use crate::units;

/// Options of the text.
#[derive(Clone, Copy, Debug, Default)]
pub struct TextOptions {
    /// The colours.
    pub paint: Paint,
    /// `true` to show the distribution of response times.
    pub histogram: bool,
    /// `true` to show what explains a result rather than is one: context switches, and the rate of each sample.
    pub verbose: bool,
}

/// Formats an outcome as text of at most 80 columns.
#[must_use]
pub fn text(outcome: &Outcome, options: TextOptions) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = write(&mut text, outcome, options);
    text
}

/// Columns of the name of a row.
const NAME: usize = 12;
/// Columns of the value of a row.
const VALUE: usize = 16;

fn write(text: &mut String, o: &Outcome, options: TextOptions) -> std::fmt::Result {
    let paint = options.paint;
    headline(text, o, paint)?;
    writeln!(text, "{}", paint.apply(color(o.verdict), &o.verdict.to_string()))?;
    for reason in &o.reasons {
        text.push_str(&fill("  ", reason, 4));
    }
    if let Some(search) = &o.search {
        found(text, search, paint);
        let level = if search.found > 0.0 { "held" } else { "was tried" };
        writeln!(text, "\nThe last level that {level}:")?;
    }
    writeln!(text)?;
    requests(text, o);
    if o.errors > 0 {
        let mut kinds = failures(o);
        if o.failed_connections > 0 {
            let of = if o.failed_requests == 0 { "all" } else { "of them" };
            let _ = write!(kinds, "; {of} {} attempts to connect", count(o.failed_connections));
        }
        let row_of_errors = row("errors", &count(o.errors), &kinds);
        text.push_str(&row_of_errors.replacen("errors", &paint.apply(Color::Red, "errors"), 1));
        text.push_str(&details(o));
    }
    if o.unfinished.in_flight > 0 || o.unfinished.waiting > 0 {
        let Unfinished { in_flight, oldest_ms, waiting, .. } = &o.unfinished;
        let mut detail =
            format!("in flight at the end, the oldest for {} ms", milliseconds(*oldest_ms));
        if *waiting > 0 {
            let _ = write!(detail, "; {} more waited for a connection", count(*waiting));
        }
        text.push_str(&row("unfinished", &count(*in_flight), &detail));
    }
    let SentAgain { lost, refused } = o.sent_again;
    if lost + refused > 0 {
        let lost = (lost > 0).then(|| format!("{} lost with their connection", count(lost)));
        let refused = (refused > 0)
            .then(|| format!("{} on streams that the server rejected", count(refused)));
        let causes: Vec<String> = lost.into_iter().chain(refused).collect();
        let total = count(o.sent_again.lost + o.sent_again.refused);
        text.push_str(&row("sent again", &total, &causes.join(", ")));
    }
    if o.warmup != Warmup::default() {
        let detail = format!("responses and {} failures, not counted", count(o.warmup.errors));
        text.push_str(&row("warm-up", &count(o.warmup.requests), &detail));
    }
    times(text, o, paint)?;
    if let Some(latency) = o.latency_ms.as_ref().filter(|_| options.histogram) {
        text.push_str(&histogram(latency, paint));
    }
    writeln!(text)?;
    connections(text, o, options.verbose);
    if let Some(server) = &o.server {
        process(text, "server", server, options.verbose);
    }
    process(text, "client", &o.client, options.verbose);
    if let Some(all) = &o.generators {
        generators(text, all);
    }
    for finding in &o.findings {
        text.push('\n');
        text.push_str(&fill("", &format!("{}: {}", finding.kind, finding.text), 2));
    }
    Ok(())
}

fn color(verdict: Verdict) -> Color {
    match verdict {
        Verdict::Valid => Color::Green,
        Verdict::ClientBound | Verdict::LinkBound | Verdict::Noisy => Color::Yellow,
        Verdict::RateNotHeld | Verdict::Incomplete | Verdict::Stalled | Verdict::WrongResponses => {
            Color::Red
        }
    }
}

/// Returns a row of a name, a value and details, which wrap.
fn row(name: &str, value: &str, detail: &str) -> String {
    let prefix = format!("{name:<NAME$}{value:<VALUE$} ");
    fill(&prefix, detail, NAME + VALUE + 1)
}

fn requests(text: &mut String, o: &Outcome) {
    let rate = match o.requests {
        0 => NONE.to_owned(),
        _ => format!("{}/s", number(o.requests_per_second)),
    };
    let amount = format!("{} in {:.2} s", count(o.requests), o.duration_seconds);
    text.push_str(&row("requests", &rate, &amount));
    let rate = format!("{}/s", bytes(o.bytes_per_second));
    text.push_str(&row("received", &rate, &bytes(o.bytes as f64)));
    let statuses: Vec<String> =
        o.status.iter().map(|(status, n)| format!("{status}: {}", count(*n))).collect();
    let statuses = if statuses.is_empty() { NONE.to_owned() } else { statuses.join(", ") };
    text.push_str(&fill(&format!("{:<NAME$}", "status"), &statuses, NAME));
}

fn times(text: &mut String, o: &Outcome, paint: Paint) -> std::fmt::Result {
    let heading = format!(
        "{:<14}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}",
        "ms", "mean", "p50", "p90", "p99", "p99.9", "max"
    );
    writeln!(text, "\n{}", paint.apply(Color::Bold, &heading))?;
    let open = !matches!(o.plan.model, Model::Closed { .. });
    let mut line = |name: &str, l: Option<&Latency>| {
        let Some(l) = l else {
            let none = format!("{NONE:>10}").repeat(6);
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
    Ok(())
}

/// Writes the two figures that are wanted most.
fn headline(text: &mut String, o: &Outcome, paint: Paint) -> std::fmt::Result {
    let Some(latency) = o.latency_ms.as_ref().filter(|_| o.requests > 0) else { return Ok(()) };
    let rate = format!("{} requests/s", number(o.requests_per_second));
    let p99 = format!("p99 {} ms", milliseconds(latency.p99));
    writeln!(text, "{}, {}", paint.apply(Color::Bold, &rate), paint.apply(Color::Bold, &p99))
}

fn connections(text: &mut String, o: &Outcome, verbose: bool) {
    let c = &o.connections;
    let mut details =
        vec![format!("{} requests each", units::rate(c.requests_each)), c.protocol.clone()];
    if c.closed_by_server > 0 {
        details.push(format!("{} closed by the server", count(c.closed_by_server)));
    }
    if c.closed_by_generator > 0 && o.plan.reuse == Reuse::Kept {
        details.push(format!("{} given up by the generator", count(c.closed_by_generator)));
    }
    if let Some(fairness) = c.fairness {
        details.push(format!("fairness {fairness:.3}"));
    }
    text.push_str(&row("connections", &count(c.opened), &details.join(", ")));
    if let Some(quic) = &c.quic {
        let share = 100.0 * quic.packets_lost as f64 / quic.packets_sent.max(1) as f64;
        let mut details = vec![
            format!("{} of the generator lost ({share:.2} %)", count(quic.packets_lost)),
            format!("round trip {:.2} ms", quic.rtt_ms),
        ];
        if o.plan.early_data {
            let (accepted, rejected) = (quic.early_accepted, quic.early_rejected);
            details.push(format!(
                "early data accepted {}, rejected {}",
                count(accepted),
                count(rejected)
            ));
        }
        text.push_str(&row("packets", &count(quic.packets_sent), &details.join(", ")));
    }
    if let Some(bits) = o.plan.modem_bits_per_second {
        let detail = match c.receive_window {
            Some(window) => format!("the server can send {} bytes ahead", count(u64::from(window))),
            None => "the system does not report what the server can send ahead".to_owned(),
        };
        text.push_str(&row("modem", &format!("{} kbit/s", bits as f64 / 1000.0), &detail));
    }
    let has_streams = o.plan.protocol.has_streams();
    let (name, deep, requested) = match has_streams {
        true => ("streams", "at a time", o.plan.streams),
        false => ("pipeline", "deep", o.plan.pipeline),
    };
    // An open run, or one with think time, does not always have a next request.
    let always = matches!(o.plan.model, Model::Closed { think_seconds: 0.0 });
    if requested > 1 && (always || !has_streams) {
        let short = if c.depth_mean < f64::from(requested) * 0.9 { ": NOT reached" } else { "" };
        let detail = format!("{requested} requested{short}");
        text.push_str(&row(name, &format!("{:.1} {deep}", c.depth_mean), &detail));
    }
    if let Some(rate) = o.reply_rate.as_ref().filter(|rate| verbose && rate.samples > 1) {
        let spread = format!(
            "min {}, max {}, standard deviation {} ({} samples of {} s)",
            number(rate.min),
            number(rate.max),
            number(rate.stddev),
            rate.samples,
            rate.sample_seconds
        );
        text.push_str(&row("reply rate", &format!("{}/s", number(rate.mean)), &spread));
    }
}

/// The generators, and the distance of their starts.
fn generators(text: &mut String, all: &Generators) {
    let known = match all.uncertainty_ms {
        Some(uncertainty) => format!("their clocks are known to ±{uncertainty:.3} ms"),
        None => "each by the clock of its machine".to_owned(),
    };
    let skew = format!("started within {:.3} ms; {known}", all.skew_ms);
    text.push_str(&row("generators", &count(all.each.len() as u64), &skew));
    for one in &all.each {
        let rate = match one.lost {
            Some(_) => NONE.to_owned(),
            None => format!("{}/s", number(one.requests_per_second)),
        };
        let mut details = Vec::new();
        details.extend(one.p99_ms.map(|p99| format!("p99 {} ms", milliseconds(p99))));
        if one.lost.is_none() {
            details.push(format!("{:.0} % of a CPU", one.cpus_busy * 100.0));
        }
        details.extend(one.start_ms.map(|start| format!("start at {start:+.3} ms")));
        details.push(match (&one.lost, one.verdict) {
            (Some(reason), _) => reason.clone(),
            (None, verdict) => verdict.map(|verdict| verdict.to_string()).unwrap_or_default(),
        });
        let name = format!("  {}", one.name);
        text.push_str(&row(&name, &rate, &details.join(", ")));
    }
}

fn process(text: &mut String, name: &str, p: &ProcessUse, verbose: bool) {
    if p.processes == 0 {
        text.push_str(&row(name, NONE, "it has ended"));
        return;
    }
    let cpu = p.cpu_us_per_request.map_or(NONE.to_owned(), |cpu| format!("{cpu:.2} µs/request"));
    let name_of =
        if p.processes > 1 { format!("{} × {}", p.processes, p.name) } else { p.name.clone() };
    let memory = bytes(p.memory_bytes as f64);
    let detail = format!("{name_of}, {:.0} % of a CPU, {memory}", p.cpus_busy * 100.0);
    text.push_str(&row(name, &cpu, &detail));
    if !verbose {
        return;
    }
    let (voluntary, involuntary) = (count(p.voluntary_switches), count(p.involuntary_switches));
    let detail = format!("context switches: {voluntary} voluntary, {involuntary} involuntary");
    text.push_str(&row("", "", &detail));
}
