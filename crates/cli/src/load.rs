//! `dunlin load`

mod fields;
mod kubernetes;
mod machines;
mod plan;
mod runner;
mod search;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use dunlin_load::engine::Job;
use dunlin_load::fail_if::FailIf;
use dunlin_load::generators::protocol::Task;
use dunlin_load::outcome::Outcome;
use dunlin_load::plan::Plan;
use dunlin_load::progress::Progress;
use dunlin_load::show::{self, Paint, TextOptions};
use dunlin_load::{merge, preflight, self_test};
use machines::Machines;
use runner::Runner;
use signal_hook::consts::{SIGINT, SIGTERM};

/// The arguments of `dunlin load`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct LoadArguments {
    /// URLs to request; all on one server
    #[arg(value_name = "URL")]
    urls: Vec<String>,
    /// File with the URLs to request, one per line, or - for standard input; URL then only names the server of paths
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
    machines: Machines,
    #[command(flatten)]
    output: Output,
    /// Test the generator: its highest rate, its timers, and the detection of a server's faults
    #[arg(long, exclusive = true)]
    self_test: bool,
    /// Merge the --json files of several runs of one plan, sequential or concurrent; no requests are sent
    #[arg(long, value_name = "FILE", num_args = 2.., conflicts_with_all = ["urls", "urls_file", "Extent", "Model", "Request", "Check", "Search", "Machines"])]
    merge: Vec<PathBuf>,
}

#[derive(Args)]
#[command(next_help_heading = "Amount")]
struct Extent {
    /// Concurrent connections
    #[arg(long, short, value_name = "N", default_value_t = 10)]
    connections: u32,
    /// Duration of the measurement, such as 10s or 1h30m; with -n, the longest one [default without -n: 10s]
    #[arg(long, short, value_name = "TIME")]
    duration: Option<String>,
    /// End after this many requests
    #[arg(long, short = 'n', value_name = "N")]
    requests: Option<u64>,
    /// Worker threads of each generator
    #[arg(long, short, value_name = "N", default_value_t = 1)]
    threads: u32,
    /// Duration of the load before the measurement
    #[arg(long, value_name = "TIME", default_value = "0s")]
    warmup: String,
    /// Timeout of a connection and of a response
    #[arg(long, value_name = "TIME", default_value = "10s")]
    timeout: String,
    /// Seed of all random choices
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

#[derive(Args)]
#[command(next_help_heading = "Load model (closed, unless a rate is given)")]
struct Model {
    /// Requests per second, independent of the server: 1000, poisson:1000, or 100:5000 for a ramp
    #[arg(long, value_name = "R", conflicts_with = "connection_rate")]
    rate: Option<String>,
    /// Connections per second, in the same forms; -c then limits concurrent connections
    #[arg(long, value_name = "R")]
    connection_rate: Option<String>,
    /// Think time between a response and the next request on its connection
    #[arg(long, value_name = "TIME", conflicts_with_all = ["rate", "connection_rate"])]
    think: Option<String>,
    /// Open a connection for each request, and close it after the response
    #[arg(long, conflicts_with = "requests_per_connection")]
    no_keepalive: bool,
    /// Close a connection after this many requests
    #[arg(long, value_name = "N")]
    requests_per_connection: Option<u32>,
    /// Requests in flight on a connection
    #[arg(long, value_name = "N", default_value_t = 1)]
    pipeline: u32,
    /// Read at the pace of a modem with this rate, on each connection
    #[arg(long, value_name = "KBIT/S")]
    modem: Option<f64>,
    /// Send the requests of an access log with their timing (common, combined, or Dunlin's JSON)
    #[arg(long, value_name = "LOG", conflicts_with_all = ["rate", "connection_rate", "think", "requests", "duration", "choose", "urls_file"])]
    replay: Option<PathBuf>,
    /// Speed of the replay relative to the recording
    #[arg(long, value_name = "X")]
    replay_speed: Option<f64>,
    /// Local addresses of connections, used in turn
    #[arg(long, value_name = "ADDR")]
    source: Vec<std::net::IpAddr>,
}

#[derive(Args)]
#[command(next_help_heading = "Requests")]
struct Request {
    /// Method [default: GET, or POST with a body]
    #[arg(long, short = 'X', value_name = "METHOD")]
    method: Option<String>,
    /// Request header, as `Name: value`; can be repeated
    #[arg(long = "header", short = 'H', value_name = "FIELD")]
    fields: Vec<String>,
    /// Request body as text
    #[arg(long, value_name = "TEXT", conflicts_with = "body")]
    data: Option<String>,
    /// File with the request body, or - for standard input
    #[arg(long, value_name = "FILE")]
    body: Option<PathBuf>,
    /// File to use as the client's dictionary (RFC 9842); --verify decodes bodies with it
    #[arg(long, value_name = "FILE")]
    dictionary: Option<PathBuf>,
    /// Send head and body in two writes
    #[arg(long)]
    split_body: bool,
    /// Do not disable Nagle's algorithm
    #[arg(long)]
    no_nodelay: bool,
    /// Choice of the next URL: in-order, random, or zipf:1.1
    #[arg(long, value_name = "HOW")]
    choose: Option<String>,
    /// Use HTTP/1.0
    #[arg(long = "http1.0")]
    http10: bool,
    /// Use HTTP/2: by ALPN over TLS, with prior knowledge without TLS
    #[arg(long, group = "with_streams", conflicts_with_all = ["http10", "pipeline", "connection_rate", "modem", "split_body", "replay", "source"])]
    http2: bool,
    /// Use HTTP/3
    #[arg(long, group = "with_streams", conflicts_with_all = ["http10", "pipeline", "connection_rate", "modem", "split_body", "replay", "source", "no_nodelay"])]
    http3: bool,
    /// Begin each connection that resumes a session with its request (0-RTT); with --no-keepalive or --requests-per-connection
    #[arg(long, requires = "http3")]
    early_data: bool,
    /// Requests in flight on an HTTP/2 or HTTP/3 connection
    #[arg(long, value_name = "N", requires = "with_streams", default_value_t = 1)]
    streams: u32,
    /// Accept any certificate
    #[arg(long)]
    insecure: bool,
    /// Name for TLS (SNI) and the certificate [default: the host of the URL]
    #[arg(long, value_name = "NAME")]
    sni: Option<String>,
    /// Permit a target that is not this machine
    #[arg(long)]
    i_own_this_host: bool,
}

#[derive(Args)]
#[command(next_help_heading = "Checks (status and length always)")]
struct Check {
    /// Compare every body with the file of its path in DIR, or else with the first body of its URL
    #[arg(long, value_name = "DIR", num_args = 0..=1, require_equals = true)]
    verify: Option<Option<PathBuf>>,
    /// Expected statuses [default: all of 2xx]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    expect_status: Vec<u16>,
}

#[derive(Args)]
#[command(next_help_heading = "Searches")]
struct Search {
    /// Find the highest number of users that each receive at least 95 % of the rate of --modem; -c is the first level
    #[arg(long, conflicts_with_all = ["find_rate", "rate", "connection_rate", "replay"])]
    find_users: bool,
    /// Find the highest rate of requests with a 99th percentile below --p99
    #[arg(long, conflicts_with_all = ["replay", "think"])]
    find_rate: bool,
    /// Limit of the 99th percentile of the response time, for --find-rate
    #[arg(long, value_name = "TIME", requires = "find_rate")]
    p99: Option<String>,
    /// Precision of the search [default: 0.02, for two percent]
    #[arg(long, value_name = "SHARE")]
    precision: Option<f64>,
    /// Highest level of the search
    #[arg(long, value_name = "N")]
    most: Option<f64>,
}

#[derive(Args)]
#[command(next_help_heading = "Output")]
struct Output {
    /// Show the distribution of response times, and more percentiles
    #[arg(long)]
    histogram: bool,
    /// Also show context switches and the rate of each sample
    #[arg(long)]
    verbose: bool,
    /// Write all results as JSON
    #[arg(long, value_name = "FILE|-")]
    json: Option<PathBuf>,
    /// Write the main figures as CSV, and a time series to FILE.series.csv
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Exit with status 3 if this condition holds, such as p99>20ms or errors>0; can be repeated
    #[arg(long, value_name = "CONDITION")]
    fail_if: Vec<String>,
    /// Print the JSON Schema of --json
    #[arg(long, exclusive = true)]
    schema: bool,
    /// Print errors only
    #[arg(long, short)]
    quiet: bool,
}

const EXAMPLES: &str = "\
Examples:
  dunlin load http://127.0.0.1:8080/ -c 32 -d 10s
  dunlin load http://127.0.0.1:8080/ --rate poisson:500 -c 100 -d 30s --fail-if 'p99>20ms'
  dunlin load http://127.0.0.1:8080/a.css http://127.0.0.1:8080/b.js --choose random --verify=public
  dunlin load http://127.0.0.1:8080/big.iso --modem 33.6 --find-users
  dunlin load http://127.0.0.1:8080/ --find-rate --p99 20ms
  dunlin load https://www.example.com/ --i-own-this-host --from host1,host2,host3 -c 3000 -d 1m

Times have a unit (500ms, 10s, 2m); a number without a unit is in seconds.
Exit status: 0 success, 1 failure, an invalid response or the verdict RATE-NOT-HELD or INCOMPLETE, 2 usage error, 3 a --fail-if condition holds.";

/// Runs a load.
pub(crate) fn run(arguments: &LoadArguments) -> ExitCode {
    if arguments.output.schema {
        put(&show::schema());
        return ExitCode::SUCCESS;
    }
    if arguments.self_test {
        let report = self_test::run();
        put(&report.text);
        return if report.passed { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    if let Some(served) = arguments.machines.serve() {
        return served;
    }
    if !arguments.merge.is_empty() {
        return merged(arguments);
    }
    let prepared = match prepare(arguments) {
        Ok(Prepared::Printed(text)) => {
            put(&text);
            return ExitCode::SUCCESS;
        }
        Ok(prepared) => prepared,
        Err(error) => {
            eprintln!("dunlin: {error}");
            return ExitCode::from(2);
        }
    };
    let conditions = match conditions(arguments) {
        Ok(conditions) => conditions,
        Err(error) => {
            eprintln!("dunlin: {error}");
            return ExitCode::from(2);
        }
    };
    match connect(arguments, prepared).and_then(|runner| measure(arguments, runner)) {
        Ok(outcome) => report(arguments, &outcome, &conditions),
        Err(error) => {
            eprintln!("dunlin: {error}");
            ExitCode::FAILURE
        }
    }
}

/// `--merge`: reports several runs as one.
fn merged(arguments: &LoadArguments) -> ExitCode {
    let parts = merge::read_all(&arguments.merge);
    let merged = parts.and_then(|parts| merge::merge(&parts, false));
    match conditions(arguments).and_then(|conditions| Ok((merged?, conditions))) {
        Ok((outcome, conditions)) => report(arguments, &outcome, &conditions),
        Err(error) => {
            eprintln!("dunlin: {error}");
            ExitCode::from(2)
        }
    }
}

fn conditions(arguments: &LoadArguments) -> Result<Vec<FailIf>, String> {
    arguments.output.fail_if.iter().map(|text| FailIf::parse(text)).collect()
}

/// A run that was checked.
enum Prepared {
    /// A run of this process.
    Local(Box<Job>),
    /// A run of generators.
    Remote(Box<Task>),
    /// A manifest instead of a run.
    Printed(String),
}

/// Checks everything that can be checked before the run.
fn prepare(arguments: &LoadArguments) -> Result<Prepared, String> {
    conditions(arguments)?;
    let machines = &arguments.machines;
    machines.check()?;
    let (plan, extras, reference) = plan::read(arguments)?;
    if machines.print.is_some() {
        let words: Vec<String> = std::env::args().skip(2).collect();
        let manifest = kubernetes::job(arguments, machines.count()?, &words)?;
        return Ok(Prepared::Printed(manifest));
    }
    let permitted = arguments.request.i_own_this_host;
    if machines.are_remote() {
        return Ok(Prepared::Remote(Box::new(Task { plan, extras, reference, permitted })));
    }
    let mut job = Job::new(plan, extras, reference).map_err(|error| error.to_string())?;
    if !job.is_local() && !permitted {
        return Err(job.not_permitted());
    }
    preflight::prepare(&mut job.plan, job.address)?;
    Ok(Prepared::Local(Box::new(job)))
}

/// Connects to the server or to the generators, and prints the plan.
fn connect(arguments: &LoadArguments, prepared: Prepared) -> Result<Runner, String> {
    let (machines, quiet) = (&arguments.machines, arguments.output.quiet);
    let show = |plan: &Plan| {
        if !quiet {
            eprint!("{}", show::plan(plan));
        }
    };
    match prepared {
        Prepared::Local(mut job) => {
            show(&job.plan);
            job.probe().map_err(|error| error.to_string())?;
            if !quiet && job.addresses.len() > 1 {
                eprintln!("to {}, of {} addresses of the name", job.address, job.addresses.len());
            }
            Ok(Runner::Local(job, machines.start()?))
        }
        Prepared::Remote(task) => {
            show(&task.plan);
            let progress = Progress::new(0);
            stop_on_signal(&progress)?;
            let session = machines.connect(&progress, quiet)?;
            Ok(Runner::Remote(task, session))
        }
        Prepared::Printed(_) => Err("a manifest is not run".to_owned()),
    }
}

/// Runs the plan or a search. The outcome of a search is that of the last level that held.
fn measure(arguments: &LoadArguments, mut runner: Runner) -> Result<Outcome, String> {
    if arguments.search.find_users || arguments.search.find_rate {
        return search::run(arguments, runner);
    }
    Ok(runner.run(!arguments.output.quiet)?.outcome)
}

/// Prints and writes the outcome, and determines the exit status.
fn report(arguments: &LoadArguments, outcome: &Outcome, conditions: &[FailIf]) -> ExitCode {
    if let Some(columns) = crate::watch::width() {
        show::fit(columns);
    }
    let Output { json, csv, quiet, histogram, verbose, .. } = &arguments.output;
    // Print first, so that nothing is lost if a file cannot be written.
    if json.as_deref() == Some(Path::new("-")) {
        put(&show::json(outcome));
    } else if !quiet {
        let paint = Paint::new(crate::color::suits(&std::io::stdout()));
        let (histogram, verbose) = (*histogram, *verbose);
        put(&show::text(outcome, TextOptions { paint, histogram, verbose }));
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
    if !broken.is_empty() {
        return ExitCode::from(3);
    }
    // At a modem's pace a response may take longer than a level of a search.
    let found = outcome.search.as_ref().is_some_and(|search| search.found > 0.0);
    let measured = found || outcome.failures() == 0 && outcome.requests > 0;
    match measured && !failed && !outcome.verdict.is_failure() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

/// Writes to standard output. A closed pipe is not an error.
fn put(text: &str) {
    let _ = std::io::stdout().write_all(text.as_bytes());
}

/// Writes the requested files. Returns the errors.
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

/// Lets SIGINT and SIGTERM end the run early, with a report of what was measured. A second one ends the process.
fn stop_on_signal(progress: &Progress) -> Result<(), String> {
    let failed = |error| format!("receiving signals: {error}");
    for (signal, status) in [(SIGINT, 130), (SIGTERM, 143)] {
        let stop = progress.stop_flag();
        signal_hook::flag::register_conditional_shutdown(signal, status, Arc::clone(&stop))
            .map_err(failed)?;
        signal_hook::flag::register(signal, stop).map_err(failed)?;
    }
    Ok(())
}
