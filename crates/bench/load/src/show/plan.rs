//! The plan as text.

use super::layout::fill;
use crate::plan::{Arrivals, Choice, End, Model, Plan, Reuse, Verify};

/// Formats the plan in a few lines.
#[must_use]
pub fn plan(plan: &Plan) -> String {
    let first = plan.urls.first().map_or("", String::as_str);
    let more = match plan.urls.len() {
        0 | 1 => String::new(),
        count => format!(" and {} more, {}", count - 1, choice(&plan.choice)),
    };
    let mut lines = vec![
        format!("{} {first}{more}", plan.request.method),
        format!("{}, {}, {}", model(plan), reuse(plan), end(plan)),
    ];
    let mut rest = Vec::new();
    if plan.request.body_bytes > 0 {
        let split = if plan.request.split_body { " in a separate write" } else { "" };
        rest.push(format!("a body of {} bytes{split}", plan.request.body_bytes));
    }
    if !plan.request.no_delay {
        rest.push("Nagle's algorithm on".to_owned());
    }
    if let Some(bits) = plan.modem_bits_per_second {
        rest.push(format!("read at {} kbit/s", bits as f64 / 1000.0));
    }
    rest.push(match &plan.verify {
        Verify::Status => "status and length checked".to_owned(),
        Verify::FirstResponse => "every body compared with the first".to_owned(),
        Verify::Directory(directory) => format!("every body compared with {}", directory.display()),
    });
    rest.push(format!("seed {}", plan.seed));
    if let Some(segment) = plan.segment {
        rest.push(format!("of which this is segment {segment}"));
    }
    lines.push(rest.join(", "));
    lines.iter().map(|line| fill("", line, 2)).collect()
}

fn requests(count: impl Into<u64>) -> String {
    match count.into() {
        1 => "1 request".to_owned(),
        count => format!("{count} requests"),
    }
}

fn choice(choice: &Choice) -> String {
    match choice {
        Choice::InOrder => "in order".to_owned(),
        Choice::Random => "at random".to_owned(),
        Choice::Zipf { exponent } => format!("by Zipf's law with exponent {exponent}"),
        Choice::Replay { log, speed } => format!("as in {}, {speed} times as fast", log.display()),
    }
}

fn model(plan: &Plan) -> String {
    let connections = match plan.connections {
        1 => "1 connection".to_owned(),
        count => format!("{count} connections"),
    };
    match &plan.model {
        Model::Closed { think_seconds } if *think_seconds > 0.0 => {
            format!("{connections}, {} ms between response and request", think_seconds * 1e3)
        }
        Model::Closed { .. } => connections,
        Model::OpenRequests(arrivals) => format!("{} requests/s on {connections}", rate(arrivals)),
        Model::OpenConnections(arrivals) => {
            format!("{} connections/s, at most {} at a time", rate(arrivals), plan.connections)
        }
    }
}

fn rate(arrivals: &Arrivals) -> String {
    match arrivals {
        Arrivals::Constant { rate } => format!("{rate}"),
        Arrivals::Poisson { rate } => format!("{rate} (Poisson)"),
        Arrivals::Ramp { from, to } => format!("{from} to {to}"),
    }
}

fn reuse(plan: &Plan) -> String {
    let reuse = match plan.reuse {
        Reuse::Never => "a connection for each request".to_owned(),
        Reuse::Requests(count) => format!("{} on each", requests(count)),
        Reuse::Kept => "keep-alive".to_owned(),
    };
    if plan.pipeline > 1 { format!("{reuse}, {} pipelined", plan.pipeline) } else { reuse }
}

fn end(plan: &Plan) -> String {
    let warmup = match plan.warmup_seconds {
        0.0 => String::new(),
        seconds => format!(" after {seconds} s of warm-up"),
    };
    let threads =
        if plan.threads > 1 { format!(", {} threads", plan.threads) } else { String::new() };
    match plan.end {
        End::Seconds(seconds) => format!("{seconds} s{warmup}{threads}"),
        End::Requests(count) => format!("{}{warmup}{threads}", requests(count)),
    }
}
