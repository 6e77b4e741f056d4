//! `dunlin load`

mod plan;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use dunlin_load::conclude::conclude;
use dunlin_load::engine::{self, Job};
use dunlin_load::outcome::Outcome;
use dunlin_load::progress::Progress;
use dunlin_load::show;

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
    output: Output,
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
#[command(next_help_heading = "Output")]
struct Output {
    /// Write everything as JSON
    #[arg(long, value_name = "FILE|-")]
    json: Option<PathBuf>,
    /// Say nothing but errors
    #[arg(long, short)]
    quiet: bool,
}

const EXAMPLES: &str = "\
Examples:
  dunlin load http://127.0.0.1:8080/ -c 32 -d 10s
  dunlin load http://127.0.0.1:8080/ --rate poisson:500 -c 100 -d 30s
  dunlin load http://127.0.0.1:8080/a.css http://127.0.0.1:8080/b.js --choose random --verify=public

Exit status: 0 fine, 1 failed or a wrong answer, 2 wrong use.";

/// Runs a load.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    let (plan, extras, reference) = match plan::read(arguments) {
        Ok(read) => read,
        Err(error) => {
            eprintln!("dunlin: {error}");
            return ExitCode::from(2);
        }
    };
    let job = match Job::new(plan, extras, reference) {
        Ok(job) => job,
        Err(error) => {
            eprintln!("dunlin: {error}");
            return ExitCode::from(2);
        }
    };
    if !job.address.ip().is_loopback() && !arguments.request.i_own_this_host {
        eprintln!("dunlin: {} is not this machine; --i-own-this-host allows it", job.address);
        return ExitCode::from(2);
    }
    if !arguments.output.quiet {
        eprint!("{}", show::plan(&job.plan));
    }
    let outcome = job.probe().map_err(|error| error.to_string()).and_then(|()| {
        let progress = Progress::new(job.plan.threads as usize);
        let measured = engine::run(&job, &progress).map_err(|error| error.to_string())?;
        Ok(conclude(&job, &measured))
    });
    match outcome {
        Ok(outcome) => tell(arguments, &outcome),
        Err(error) => {
            eprintln!("dunlin: {error}");
            ExitCode::FAILURE
        }
    }
}

fn tell(arguments: &Arguments, outcome: &Outcome) -> ExitCode {
    let json = arguments.output.json.as_deref();
    let on_stdout = json == Some(Path::new("-"));
    if let Some(file) = json
        && let Err(error) = write_json(file, outcome)
    {
        eprintln!("dunlin: {}: {error}", file.display());
        return ExitCode::FAILURE;
    }
    if !on_stdout && !arguments.output.quiet {
        print!("{}", show::text(outcome));
    }
    if outcome.errors > 0 || outcome.requests == 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn write_json(file: &Path, outcome: &Outcome) -> std::io::Result<()> {
    let text = show::json(outcome);
    if file == Path::new("-") {
        std::io::stdout().write_all(text.as_bytes())
    } else {
        std::fs::write(file, text)
    }
}
