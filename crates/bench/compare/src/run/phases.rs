//! The phases of a request, as `Server-Timing` reports them, beside the experiments of the report of 1996.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use crate::scenario::RowPlan;

/// Requests before the measurement, for processes that start with the first one.
const WARM_UP: usize = 20;
/// Requests of the measurement: the report averaged as many.
const REQUESTS: usize = 1000;
/// Maximum wait for a response.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The experiments of the report: what it measured, milliseconds of 1996, and the phases that are the same today. Without
/// phases, it is the time at the client. No phase is `read`: no call of the server waits.
const EXPERIMENTS: [(&str, f64, &[&str]); 7] = [
    ("1: at the client", 202.0, &[]),
    ("2: within the server", 183.0, &["head", "route", "handler"]),
    ("3: from the process's start", 140.0, &["start", "body", "script", "instantiate", "guest"]),
    ("4: until it has the body", 133.0, &["start", "body", "instantiate"]),
    ("5: writing the body to it", 124.0, &["body"]),
    ("6: waiting for the body", 122.0, &["wait"]),
    ("7: one call of read()", 110.0, &["read"]),
];

/// Sends the request of a row many times, each on a connection of its own. Returns the mean time of each experiment.
///
/// # Errors
/// A response is missing, is not successful or has no phases.
pub(super) fn measure(
    plan: &RowPlan,
    address: SocketAddr,
) -> Result<BTreeMap<String, String>, String> {
    let mut sums = [0.0; EXPERIMENTS.len()];
    let mut reported = [false; EXPERIMENTS.len()];
    for number in 0..WARM_UP + REQUESTS {
        let begun = Instant::now();
        let response = exchange(plan, address).map_err(|error| error.to_string())?;
        let total = begun.elapsed().as_secs_f64() * 1e3;
        if !response.starts_with("HTTP/1.1 200 ") {
            let status = response.lines().next().unwrap_or_default();
            return Err(format!("the response to a request for phases: {status:?}"));
        }
        let durations = durations(&response);
        if durations.is_empty() {
            return Err("a response has no Server-Timing".to_owned());
        }
        if number < WARM_UP {
            continue;
        }
        for (index, (_, _, phases)) in EXPERIMENTS.into_iter().enumerate() {
            let found: Vec<f64> =
                phases.iter().filter_map(|phase| durations.get(*phase).copied()).collect();
            reported[index] |= phases.is_empty() || !found.is_empty();
            sums[index] += if phases.is_empty() { total } else { found.iter().sum() };
        }
    }
    let means = EXPERIMENTS.into_iter().enumerate().map(|(index, (name, then, _))| {
        let mean = match reported[index] {
            true => format!("{:.3} ms", sums[index] / REQUESTS as f64),
            false => "–".to_owned(),
        };
        (name.to_owned(), format!("{mean} (1996: {then} ms)"))
    });
    Ok(means.collect())
}

/// Sends the request of a row, as `dunlin load` does with the same options, and returns the response.
fn exchange(plan: &RowPlan, address: SocketAddr) -> io::Result<String> {
    let has = |option: &str| plan.load.iter().any(|word| word == option);
    let data = plan.load.iter().position(|word| word == "--data");
    let data = data.and_then(|at| plan.load.get(at + 1)).map_or("", String::as_str);
    let path = plan.paths.first().map_or("/", String::as_str);
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
        data.len()
    );
    let mut stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_nodelay(!has("--no-nodelay"))?;
    if has("--split-body") {
        stream.write_all(head.as_bytes())?;
        stream.write_all(data.as_bytes())?;
    } else {
        stream.write_all(format!("{head}{data}").as_bytes())?;
    }
    let mut response = Vec::new();
    stream.read_to_end(&mut response)?;
    Ok(String::from_utf8_lossy(&response).into_owned())
}

/// Returns the durations in `Server-Timing`, in milliseconds, by phase.
fn durations(response: &str) -> BTreeMap<&str, f64> {
    let head = response.split("\r\n\r\n").next().unwrap_or_default();
    let fields = head.lines().filter_map(|line| line.split_once(':'));
    let timings = fields.filter(|(name, _)| name.eq_ignore_ascii_case("server-timing"));
    let metrics = timings.flat_map(|(_, value)| value.split(','));
    let phases = metrics.filter_map(|metric| {
        let (name, duration) = metric.split_once(";dur=")?;
        Some((name.trim(), duration.trim().parse().ok()?))
    });
    phases.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_are_read_from_all_fields_of_the_head() {
        let response = "HTTP/1.1 200 OK\r\nServer-Timing: wait;dur=0.5, start;dur=2\r\nserver-timing: head;dur=0.250, x;desc=y\r\n\r\nServer-Timing: a;dur=1\r\n";
        let found = durations(response);
        assert_eq!(found, BTreeMap::from([("head", 0.25), ("start", 2.0), ("wait", 0.5)]));
    }
}
