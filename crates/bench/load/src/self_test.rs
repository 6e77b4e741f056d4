//! The self-test of the generator: its highest rate, the precision of its timers, and the detection of each fault of a server
//! that is faulty on purpose.

use std::fmt::Write;
use std::time::Duration;

use crate::conclude::conclude;
use crate::engine::{self, Extras, Job};
use crate::faulty::{Fault, FaultyServer};
use crate::outcome::{ErrorKind, Latency, Outcome, Verdict};
use crate::plan::{Arrivals, Choice, End, Model, Plan, Protocol, RequestShape, Reuse, Verify};
use crate::progress::Progress;
use crate::show::failures;
use crate::verify::Reference;

/// Result of the self-test.
pub struct Report {
    /// A line for each case.
    pub text: String,
    /// All cases passed.
    pub passed: bool,
}

type Judge = fn(&Outcome) -> Result<String, String>;

struct Case {
    name: &'static str,
    fault: Fault,
    shape: fn(&mut Plan),
    judge: Judge,
}

/// Runs all cases, which takes about ten seconds.
#[must_use]
pub fn run() -> Report {
    let mut report = Report { text: String::new(), passed: true };
    for case in cases() {
        let result = case.run();
        let (mark, detail) = match &result {
            Ok(detail) => ("ok", detail),
            Err(detail) => ("NOT", detail),
        };
        report.passed &= result.is_ok();
        // Writing to a string cannot fail.
        let _ = writeln!(report.text, "{mark:<4}{:<34}{detail}", case.name);
    }
    report
}

impl Case {
    fn run(&self) -> Result<String, String> {
        trial(self.fault, self.shape).and_then(|outcome| (self.judge)(&outcome))
    }
}

/// Returns a run against a server with that fault.
///
/// # Errors
/// The trial cannot be run.
pub fn trial(fault: Fault, shape: fn(&mut Plan)) -> Result<Outcome, String> {
    let bodies: Vec<Vec<u8>> = (0..2_u8).map(|n| vec![b'a' + n; 64]).collect();
    let server = FaultyServer::start(fault, bodies.clone()).map_err(|error| error.to_string())?;
    let mut plan = plan(&format!("http://{}/", server.address));
    shape(&mut plan);
    let directory = Files::of(&bodies).map_err(|error| error.to_string())?;
    let reference = Reference::of_directory(&directory.0, ["/0", "/1"].into_iter())
        .map_err(|(file, error)| format!("{}: {error}", file.display()))?;
    let job = Job::new(plan, Extras::default(), reference).map_err(|error| error.to_string())?;
    let progress = Progress::new(1);
    let measured = engine::run(&job, &progress, None).map_err(|error| error.to_string())?;
    Ok(conclude(&job, &measured))
}

/// The expected bodies, as files that are removed on drop.
struct Files(std::path::PathBuf);

impl Files {
    fn of(bodies: &[Vec<u8>]) -> std::io::Result<Self> {
        static SERIAL: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let serial = SERIAL.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let name = format!("dunlin-self-test-{}-{serial}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir(&directory)?;
        for (number, body) in bodies.iter().enumerate() {
            std::fs::write(directory.join(number.to_string()), body)?;
        }
        Ok(Self(directory))
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        // The system cleans the directory for temporary files later.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn plan(base: &str) -> Plan {
    Plan {
        urls: vec![format!("{base}0"), format!("{base}1")],
        choice: Choice::Random,
        seed: 1,
        protocol: Protocol::Http11,
        connections: 4,
        threads: 1,
        end: End::Seconds(0.5),
        limit_seconds: None,
        warmup_seconds: 0.0,
        model: Model::Closed { think_seconds: 0.0 },
        reuse: Reuse::Kept,
        pipeline: 1,
        streams: 1,
        request: RequestShape {
            method: "GET".to_owned(),
            fields: Vec::new(),
            body_bytes: 0,
            body_sha256: None,
            split_body: false,
            no_delay: true,
        },
        timeout_seconds: 0.3,
        verify: Verify::Directory(std::path::PathBuf::new()),
        modem_bits_per_second: None,
        source_addresses: Vec::new(),
        insecure: false,
        early_data: false,
        server_name: None,
        segment: None,
    }
}

/// Open model: 500 requests per second.
fn at_a_rate(plan: &mut Plan) {
    plan.model = Model::OpenRequests(Arrivals::Constant { rate: 500.0 });
    plan.end = End::Seconds(3.0);
    plan.timeout_seconds = 5.0;
}

fn unchanged(_: &mut Plan) {}

fn cases() -> Vec<Case> {
    let case = |name, fault, shape, judge| Case { name, fault, shape, judge };
    let pause = Fault::Pause { after: 400, lasting: Duration::from_millis(1400) };
    vec![
        case("top rate, prepared responses", Fault::None, unchanged, |o| {
            no_errors(o)?;
            Ok(format!(
                "{:.0} requests/s, {:.2} µs of CPU each",
                o.requests_per_second,
                o.client.cpu_us_per_request.unwrap_or_default()
            ))
        }),
        case("timers at 500 requests/s", Fault::None, at_a_rate, timers),
        case(
            "a pause of 1.4 s",
            pause,
            |plan| {
                at_a_rate(plan);
                plan.connections = 1;
            },
            shows_the_pause,
        ),
        case("a body that drips", Fault::Drip, |plan| plan.timeout_seconds = 5.0, drips),
        case("a truncated body", Fault::Truncated, unchanged, |o| has(o, &[ErrorKind::Closed])),
        case("a body with another bit", Fault::Corrupt, unchanged, |o| has(o, &[ErrorKind::Hash])),
        case(
            "responses in another order",
            Fault::Misordered,
            |plan| plan.pipeline = 4,
            |o| has(o, &[ErrorKind::Hash]),
        ),
        case(
            "an ignored Connection: close",
            Fault::IgnoresClose,
            |plan| plan.reuse = Reuse::Never,
            closes_itself,
        ),
        case("no response", Fault::Silent, unchanged, |o| has(o, &[ErrorKind::Timeout])),
        case("a reset within the body", Fault::Reset, unchanged, |o| has(o, &[ErrorKind::Reset])),
        case("status 500", Fault::Status, unchanged, |o| has(o, &[ErrorKind::Status])),
        case("fewer bytes than announced", Fault::TooShort, unchanged, |o| {
            has(o, &[ErrorKind::Length, ErrorKind::Timeout, ErrorKind::Protocol])
        }),
        case("more bytes than announced", Fault::TooLong, unchanged, |o| {
            has(o, &[ErrorKind::Length])
        }),
        case("no HTTP", Fault::Garbage, unchanged, |o| has(o, &[ErrorKind::Protocol])),
        case(
            "head and body in two packets",
            Fault::TwoPackets,
            |plan| {
                plan.end = End::Seconds(2.0);
                plan.timeout_seconds = 5.0;
            },
            delayed,
        ),
        case(
            "one response each, then nothing",
            Fault::Stall { after: 4 },
            |plan| {
                plan.end = End::Seconds(1.0);
                plan.timeout_seconds = 5.0;
            },
            stalls,
        ),
        case(
            "silent for 200 ms in each 500",
            Fault::Pauses { each: Duration::from_millis(500), lasting: Duration::from_millis(200) },
            |plan| {
                plan.end = End::Seconds(2.0);
                plan.timeout_seconds = 5.0;
            },
            is_silent,
        ),
        case("an unannounced close", Fault::ClosesUnsaid, unchanged, unannounced),
    ]
}

fn times(latency: &Option<Latency>) -> Latency {
    latency.clone().unwrap_or_default()
}

fn no_errors(o: &Outcome) -> Result<(), String> {
    match (o.errors, o.requests) {
        (0, 1..) => Ok(()),
        _ => Err(right_and_wrong(o)),
    }
}

fn right_and_wrong(o: &Outcome) -> String {
    match o.errors {
        0 => format!("{} right responses", o.requests),
        _ => format!("{} right responses, {}", o.requests, failures(o)),
    }
}

/// Requires a failure of one of these kinds.
fn has(o: &Outcome, kinds: &[ErrorKind]) -> Result<String, String> {
    let detail = right_and_wrong(o);
    if kinds.iter().any(|kind| o.errors_by_kind.contains_key(kind)) {
        Ok(detail)
    } else {
        Err(detail)
    }
}

fn timers(o: &Outcome) -> Result<String, String> {
    no_errors(o)?;
    let lag = o.lag_ms.as_ref().ok_or("no lag was measured")?;
    let detail = format!("late by: p50 {:.3} ms, p99 {:.3} ms", lag.p50, lag.p99);
    if lag.p50 < 1.0 { Ok(detail) } else { Err(detail) }
}

/// Of 1,500 requests, 700 are due within the pause and wait for half of it on average.
fn shows_the_pause(o: &Outcome) -> Result<String, String> {
    no_errors(o)?;
    let detail = format!(
        "p99: response {:.0} ms, service {:.1} ms",
        times(&o.latency_ms).p99,
        times(&o.service_ms).p99
    );
    let shown = times(&o.latency_ms).p99 > 1_300.0
        && times(&o.latency_ms).max < 1_600.0
        && times(&o.service_ms).p50 < 100.0;
    if shown { Ok(detail) } else { Err(detail) }
}

fn drips(o: &Outcome) -> Result<String, String> {
    no_errors(o)?;
    let first = o.first_byte_ms.as_ref().map_or(0.0, |latency| latency.p50);
    let detail =
        format!("first byte after {first:.1} ms, last after {:.1} ms", times(&o.service_ms).p50);
    if times(&o.service_ms).p50 > first + 50.0 { Ok(detail) } else { Err(detail) }
}

fn stalls(o: &Outcome) -> Result<String, String> {
    let report = format!(
        "{}, {} in flight for {:.0} ms, p99 {:.0} ms",
        o.verdict,
        o.unfinished.in_flight,
        o.unfinished.oldest_ms,
        times(&o.latency_ms).p99
    );
    let noticed = o.verdict == Verdict::Stalled
        && o.unfinished.in_flight == 4
        && times(&o.latency_ms).p99 > 500.0;
    if noticed { Ok(report) } else { Err(report) }
}

fn is_silent(o: &Outcome) -> Result<String, String> {
    no_errors(o)?;
    let share = o.silence.as_ref().map_or(0.0, |silence| silence.share);
    let report = format!(
        "{}, silent for {:.0} % of the time, p99 {:.1} ms",
        o.verdict,
        share * 100.0,
        times(&o.latency_ms).p99
    );
    if o.verdict == Verdict::Stalled && share > 0.2 { Ok(report) } else { Err(report) }
}

fn closes_itself(o: &Outcome) -> Result<String, String> {
    no_errors(o)?;
    let detail = format!("{} connections for {} responses", o.connections.opened, o.requests);
    if o.connections.opened >= o.requests && o.connections.closed_by_server == 0 {
        Ok(detail)
    } else {
        Err(detail)
    }
}

fn delayed(o: &Outcome) -> Result<String, String> {
    no_errors(o)?;
    match o.findings.iter().find(|finding| finding.kind == "delayed-ack") {
        Some(_) => Ok(format!("delayed-ack, p99 {:.1} ms", times(&o.service_ms).p99)),
        None => {
            let kinds: Vec<_> = o.findings.iter().map(|finding| finding.kind.as_str()).collect();
            let kinds = kinds.join(", ");
            Err(format!("p99 {:.1} ms, findings: {kinds}", times(&o.service_ms).p99))
        }
    }
}

fn unannounced(o: &Outcome) -> Result<String, String> {
    let not_kept = o.findings.iter().any(|finding| finding.kind == "not-kept");
    let detail = format!("{}, not-kept: {not_kept}", right_and_wrong(o));
    if not_kept || o.errors > 0 { Ok(detail) } else { Err(detail) }
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, PoisonError};

    use super::*;

    /// Cases at a time. Most of them wait.
    const AT_ONCE: usize = 4;

    #[test]
    fn every_fault_is_detected() {
        let cases = Mutex::new(cases().into_iter());
        std::thread::scope(|scope| {
            for _ in 0..AT_ONCE {
                scope.spawn(|| {
                    while let Some(case) = next(&cases) {
                        check(&case);
                    }
                });
            }
        });
    }

    fn next(cases: &Mutex<std::vec::IntoIter<Case>>) -> Option<Case> {
        cases.lock().unwrap_or_else(PoisonError::into_inner).next()
    }

    fn check(case: &Case) {
        // Other tests may disturb the machine too much to recognize a delay of 40 ms, but not each time.
        let mut results = (0..10).map(|_| case.run());
        let mut failures = Vec::new();
        let passed = results.any(|result| result.map_err(|why| failures.push(why)).is_ok());
        assert!(passed, "{}: {failures:?}", case.name);
    }
}
