//! `dunlin load`

mod plan;
mod search;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, mpsc};

use clap::Args;
use dunlin_load::conclude::conclude;
use dunlin_load::engine::{self, Job, Measured};
use dunlin_load::fail_if::FailIf;
use dunlin_load::outcome::Outcome;
use dunlin_load::progress::Progress;
use dunlin_load::show::{self, Live};
use dunlin_load::{merge, preflight, self_test};
use signal_hook::consts::SIGINT;

/// What `dunlin load` is told.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// What to ask for; all on one server
    #[arg(value_name = "URL")]
    urls: Vec<String>,
    /// More URLs from a file, one a line; paths are taken against the first URL
    #[arg(long, value_name = "FILE")]
    urls_file: Option<PathBuf>,
    #[command(flatten)]
    extent: Extent,
    #[command(flatten)]
    model: Model,
    #[command(flatten)]
    request: Request,
    #[command(flatten)]
    check: Check,
    #[command(flatten)]
    search: Search,
    #[command(flatten)]
    output: Output,
    /// Measure the generator itself, and let it notice a faulty server's faults
    #[arg(long, exclusive = true)]
    self_test: bool,
    /// Merge what --json wrote in several runs of one plan, made one after the other or at the same time;
    /// nothing is sent
    #[arg(long, value_name = "FILE", num_args = 2.., conflicts_with_all = ["urls", "urls_file", "Extent", "Model", "Request", "Check", "Search"])]
    merge: Vec<PathBuf>,
}

#[derive(Args)]
#[command(next_help_heading = "How much")]
struct Extent {
    /// Connections at a time
    #[arg(long, short, value_name = "N", default_value_t = 10)]
    connections: u32,
    /// How long to count, such as 10s or 500ms; 10s when neither this nor -n is given
    #[arg(long, short, value_name = "TIME", conflicts_with = "requests")]
    duration: Option<String>,
    /// End after this many requests
    #[arg(long, short = 'n', value_name = "N")]
    requests: Option<u64>,
    /// Loops, each on a thread of its own
    #[arg(long, short, value_name = "N", default_value_t = 1)]
    threads: u32,
    /// Load without counting before it
    #[arg(long, value_name = "TIME", default_value = "0s")]
    warmup: String,
    /// Longest wait for a connection or an answer
    #[arg(long, value_name = "TIME", default_value = "10s")]
    timeout: String,
    /// Seed of every random choice
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

#[derive(Args)]
#[command(next_help_heading = "Load model (closed, unless a rate is given)")]
struct Model {
    /// Requests per second whatever the server does: 1000, poisson:1000, or 100:5000 for a ramp
    #[arg(long, value_name = "R", conflicts_with = "connection_rate")]
    rate: Option<String>,
    /// Connections per second, in the same forms; -c is then the most at a time
    #[arg(long, value_name = "R")]
    connection_rate: Option<String>,
    /// Wait between an answer and the next request on its connection
    #[arg(long, value_name = "TIME", conflicts_with_all = ["rate", "connection_rate"])]
    think: Option<String>,
    /// A connection for each request; the client closes it
    #[arg(long, conflicts_with = "requests_per_connection")]
    no_keepalive: bool,
    /// Close a connection after this many requests
    #[arg(long, value_name = "N")]
    requests_per_connection: Option<u32>,
    /// Requests in flight on a connection
    #[arg(long, value_name = "N", default_value_t = 1)]
    pipeline: u32,
    /// Read at the pace of a modem of so many kbit/s, on each connection
    #[arg(long, value_name = "KBIT/S")]
    modem: Option<f64>,
    /// Send what an access log tells, with its timing (common, combined, or Dunlin's JSON)
    #[arg(long, value_name = "LOG", conflicts_with_all = ["rate", "connection_rate", "think", "requests", "duration", "choose", "urls_file"])]
    replay: Option<PathBuf>,
    /// So many times as fast as it was recorded
    #[arg(long, value_name = "X")]
    replay_speed: Option<f64>,
    /// Start connections from these addresses in turn
    #[arg(long, value_name = "ADDR")]
    source: Vec<std::net::IpAddr>,
}

#[derive(Args)]
#[command(next_help_heading = "Requests")]
struct Request {
    /// Method; POST when there is a body
    #[arg(long, short = 'X', value_name = "METHOD")]
    method: Option<String>,
    /// A field, as `Name: value`; may be given more than once
    #[arg(long = "header", short = 'H', value_name = "FIELD")]
    fields: Vec<String>,
    /// Body, as text
    #[arg(long, value_name = "TEXT", conflicts_with = "body")]
    data: Option<String>,
    /// Body, from a file
    #[arg(long, value_name = "FILE")]
    body: Option<PathBuf>,
    /// Send head and body in two writes
    #[arg(long)]
    split_body: bool,
    /// Leave Nagle's algorithm on
    #[arg(long)]
    no_nodelay: bool,
    /// How the next URL is chosen: in-order, random, or zipf:1.1
    #[arg(long, value_name = "HOW")]
    choose: Option<String>,
    /// Speak HTTP/1.0
    #[arg(long = "http1.0")]
    http10: bool,
    /// Speak HTTP/2: by ALPN over TLS, with prior knowledge in the clear
    #[arg(long, conflicts_with_all = ["http10", "pipeline", "no_keepalive", "requests_per_connection", "connection_rate", "modem", "split_body", "replay", "source"])]
    http2: bool,
    /// Requests in flight on a connection of HTTP/2
    #[arg(long, value_name = "N", requires = "http2", default_value_t = 1)]
    streams: u32,
    /// Accept any certificate
    #[arg(long)]
    insecure: bool,
    /// Allow a target that is not this machine
    #[arg(long)]
    i_own_this_host: bool,
}

#[derive(Args)]
#[command(next_help_heading = "Checks (status and length always)")]
struct Check {
    /// Compare every body: with the file of its path in DIR, or with the first that came
    #[arg(long, value_name = "DIR", num_args = 0..=1, require_equals = true)]
    verify: Option<Option<PathBuf>>,
    /// Statuses that are right; all of 2xx when absent
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    expect_status: Vec<u16>,
}

#[derive(Args)]
#[command(next_help_heading = "Searches")]
struct Search {
    /// Find the most users at --modem's pace of whom each gets at least 95 % of it; -c is where to begin
    #[arg(long, conflicts_with_all = ["find_rate", "rate", "connection_rate", "replay"])]
    find_users: bool,
    /// Find the highest rate of requests that keeps the 99th percentile below --p99
    #[arg(long, conflicts_with_all = ["replay", "think"])]
    find_rate: bool,
    /// Limit of the 99th percentile of the response time, for --find-rate
    #[arg(long, value_name = "TIME", requires = "find_rate")]
    p99: Option<String>,
    /// How near to the limit a search has to come: 0.02, two in a hundred, when absent
    #[arg(long, value_name = "SHARE")]
    precision: Option<f64>,
    /// Highest level that a search tries
    #[arg(long, value_name = "N")]
    most: Option<f64>,
}

#[derive(Args)]
#[command(next_help_heading = "Output")]
struct Output {
    /// Write everything as JSON
    #[arg(long, value_name = "FILE|-")]
    json: Option<PathBuf>,
    /// Write the main figures as CSV, and the run second by second to FILE.series.csv
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// End with status 3 when this holds, such as p99>20ms or errors>0; may be given more than once
    #[arg(long, value_name = "CONDITION")]
    fail_if: Vec<String>,
    /// Print the JSON Schema of --json
    #[arg(long, exclusive = true)]
    schema: bool,
    /// Say nothing but errors
    #[arg(long, short)]
    quiet: bool,
}

const EXAMPLES: &str = "\
Examples:
  dunlin load http://127.0.0.1:8080/ -c 32 -d 10s
  dunlin load http://127.0.0.1:8080/ --rate poisson:500 -c 100 -d 30s --fail-if 'p99>20ms'
  dunlin load http://127.0.0.1:8080/a.css http://127.0.0.1:8080/b.js --choose random --verify=public
  dunlin load http://127.0.0.1:8080/big.iso --modem 33.6 --find-users

Exit status: 0 fine, 1 failed or a wrong answer, 2 wrong use, 3 a --fail-if holds.";

/// Runs a load.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    if arguments.output.schema {
        put(&show::schema());
        return ExitCode::SUCCESS;
    }
    if arguments.self_test {
        let proof = self_test::run();
        put(&proof.text);
        return if proof.sound { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    if !arguments.merge.is_empty() {
        return merged(arguments);
    }
    let (job, conditions) = match prepare(arguments) {
        Ok(prepared) => prepared,
        Err(error) => {
            eprintln!("dunlin: {error}");
            return ExitCode::from(2);
        }
    };
    if !arguments.output.quiet {
        eprint!("{}", show::plan(&job.plan));
    }
    let outcome = job.probe().map_err(|error| error.to_string());
    let outcome = outcome.and_then(|()| measure(arguments, job));
    match outcome {
        Ok(outcome) => tell(arguments, &outcome, &conditions),
        Err(error) => {
            eprintln!("dunlin: {error}");
            ExitCode::FAILURE
        }
    }
}

/// `--merge`: tells of several runs as of one.
fn merged(arguments: &Arguments) -> ExitCode {
    let outcomes: Result<Vec<Outcome>, String> =
        arguments.merge.iter().map(|file| merge::read(file)).collect();
    let merged = outcomes.and_then(|outcomes| merge::merge(&outcomes));
    match conditions(arguments).and_then(|conditions| Ok((merged?, conditions))) {
        Ok((outcome, conditions)) => tell(arguments, &outcome, &conditions),
        Err(error) => {
            eprintln!("dunlin: {error}");
            ExitCode::from(2)
        }
    }
}

fn conditions(arguments: &Arguments) -> Result<Vec<FailIf>, String> {
    arguments.output.fail_if.iter().map(|text| FailIf::parse(text)).collect()
}

/// Everything that can be wrong before anything is sent.
fn prepare(arguments: &Arguments) -> Result<(Job, Vec<FailIf>), String> {
    let conditions = conditions(arguments)?;
    let (plan, extras, reference) = plan::read(arguments)?;
    let mut job = Job::new(plan, extras, reference).map_err(|error| error.to_string())?;
    if !job.address.ip().is_loopback() && !arguments.request.i_own_this_host {
        return Err(format!("{} is not this machine; --i-own-this-host allows it", job.address));
    }
    preflight::prepare(&mut job.plan, job.address)?;
    Ok((job, conditions))
}

/// One run, or the runs of a search and the outcome of the last one that held.
fn measure(arguments: &Arguments, job: Job) -> Result<Outcome, String> {
    if arguments.search.find_users || arguments.search.find_rate {
        return search::run(arguments, job);
    }
    let progress = Progress::new(job.plan.threads as usize);
    stop_on_interrupt(&progress)?;
    Ok(conclude(&job, &run_once(&job, &progress, arguments.output.quiet)?))
}

/// Runs `job`, with a view of it unless `quiet`.
fn run_once(job: &Job, progress: &Progress, quiet: bool) -> Result<Measured, String> {
    let measured = std::thread::scope(|scope| {
        let (ended, watch) = mpsc::channel::<()>();
        if !quiet {
            let mut live = Live::new(&job.plan, progress, job.address);
            scope.spawn(move || {
                while watch.recv_timeout(live.interval()) == Err(mpsc::RecvTimeoutError::Timeout) {
                    live.show();
                }
                live.clear();
            });
        }
        let measured = engine::run(job, progress);
        drop(ended);
        measured
    });
    measured.map_err(|error| error.to_string())
}

fn tell(arguments: &Arguments, outcome: &Outcome, conditions: &[FailIf]) -> ExitCode {
    let Output { json, csv, quiet, .. } = &arguments.output;
    // What is shown comes first, so that a file that cannot be written loses nothing.
    if json.as_deref() == Some(Path::new("-")) {
        put(&show::json(outcome));
    } else if !quiet {
        put(&show::text(outcome));
    }
    let mut failed = false;
    for error in write_files(json.as_deref(), csv.as_deref(), outcome) {
        eprintln!("dunlin: {error}");
        failed = true;
    }
    let broken: Vec<String> =
        conditions.iter().filter_map(|condition| condition.check(outcome)).collect();
    for condition in &broken {
        eprintln!("dunlin: {condition}");
    }
    // A search has done what it should when some level held.
    let found = outcome.search.as_ref().is_some_and(|search| search.found > 0.0);
    match (outcome.errors, outcome.requests, broken.is_empty()) {
        (_, _, false) => ExitCode::from(3),
        _ if found && !failed => ExitCode::SUCCESS,
        (0, 1.., true) if !failed => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

/// Writes to standard output; that nobody reads it any more is no failure.
fn put(text: &str) {
    let _ = std::io::stdout().write_all(text.as_bytes());
}

/// Writes the files that were asked for: what went wrong with each.
fn write_files(json: Option<&Path>, csv: Option<&Path>, outcome: &Outcome) -> Vec<String> {
    let mut files = Vec::new();
    if let Some(file) = json.filter(|file| *file != Path::new("-")) {
        files.push((file.to_owned(), show::json(outcome)));
    }
    if let Some(file) = csv {
        let mut series = file.as_os_str().to_owned();
        series.push(".series.csv");
        files.push((file.to_owned(), show::csv(outcome)));
        files.push((series.into(), show::csv_series(outcome)));
    }
    let write = |(file, text): (PathBuf, String)| {
        std::fs::write(&file, text).err().map(|error| format!("{}: {error}", file.display()))
    };
    files.into_iter().filter_map(write).collect()
}

/// Has SIGINT end the run early, of which what was measured is told; a second one ends everything.
fn stop_on_interrupt(progress: &Progress) -> Result<(), String> {
    let stop = progress.stop_flag();
    signal_hook::flag::register_conditional_shutdown(SIGINT, 130, Arc::clone(&stop))
        .and_then(|_| signal_hook::flag::register(SIGINT, stop))
        .map(|_| ())
        .map_err(|error| format!("receiving signals: {error}"))
}
