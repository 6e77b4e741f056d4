//! `dunlin compare`

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::SystemTime;

use clap::Args;
use dunlin_compare::run::{Machines, Options};
use dunlin_compare::scenario::{self, BUILT_IN, Scenario};
use dunlin_compare::{adapter, diff, report};
use dunlin_load::show::{Paint, fill};
use dunlin_load::time::{self, rfc3339};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// The arguments of `dunlin compare`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CompareArguments {
    /// Names of scenarios (see --list), or files that end in .toml
    #[arg(value_name = "SCENARIO")]
    scenarios: Vec<String>,
    /// Servers to compare, in the order of the columns [default: all known servers]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    servers: Vec<String>,
    /// Rounds of each row [default: 5, or 3 with --quick]
    #[arg(long, value_name = "N")]
    rounds: Option<u32>,
    /// Duration of each run, such as 2s [default: 1s, or 500ms with --quick]
    #[arg(long, value_name = "TIME")]
    duration: Option<String>,
    /// Directory of the reports [default: ./dunlin-compare-DATE]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Fewer rows, rounds and seconds: a scenario with three servers takes less than a minute
    #[arg(long)]
    quick: bool,
    /// Seed of the order of runs and of all random choices
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// CPU that the servers run on
    #[arg(long, value_name = "N", default_value_t = 0)]
    server_processor: u32,
    /// CPU that the load generator runs on [default: 1, or 0 if there is only one]
    #[arg(long, value_name = "N")]
    load_processor: Option<u32>,
    /// Send the load from these hosts over ssh, as 'dunlin load --from' does
    #[arg(long, value_name = "HOSTS", value_delimiter = ',', requires = "address")]
    from: Vec<String>,
    /// IPv4 address that the servers listen on, for --from [default: 127.0.0.1]
    #[arg(long, value_name = "ADDR", requires = "from")]
    address: Option<Ipv4Addr>,
    /// The ssh program with its options [default: ssh]
    #[arg(long, value_name = "COMMAND", requires = "from")]
    ssh: Option<String>,
    /// Send this program to the hosts even if they have dunlin
    #[arg(long, requires = "from")]
    copy: bool,
    /// List the scenarios and the installed servers
    #[arg(long, exclusive = true)]
    list: bool,
    /// Compare two comparisons: their directories, or their results.json
    #[arg(long, value_names = ["A", "B"], num_args = 2, conflicts_with_all = ["scenarios", "servers", "rounds", "duration", "out", "quick", "seed", "server_processor", "load_processor", "from", "address", "ssh", "copy", "report"])]
    diff: Option<Vec<PathBuf>>,
    /// Exit with status 3 if a figure of --diff is worse by more than SHARE, such as 5% [default: 0%]
    #[arg(long, value_name = "SHARE", requires = "diff", num_args = 0..=1, default_missing_value = "0%", value_parser = share)]
    fail_if_worse: Option<f64>,
    /// Write the reports of a results.json again, to --out
    #[arg(long, value_name = "FILE", requires = "out", conflicts_with = "scenarios")]
    report: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  dunlin compare --list
  dunlin compare wasd-files --servers dunlin,nginx,lighttpd --quick
  dunlin compare wasd-files thttpd-small --rounds 9 --out results
  dunlin compare --diff results-before results-after --fail-if-worse 5%

Servers run one at a time in a random order within each round, on one processor; the load generator has another.
The directory contains report.html, report.md, results.json, charts and the configurations.
`baseline` is a bare responder, the lower bound of the cost of a response. It is not ranked.
`cargo build --release -p baseline` builds its program, which has to be beside that of dunlin.
Exit status: 0 success, 1 failure (a server that fails is a cell, not a failure), 2 usage error, 3 --fail-if-worse.";

/// The error of `--from nats://…`.
const NO_URLS: &str = "--from takes hosts that ssh reaches, not a URL: generators that meet by \
                       NATS end after one run, and a comparison has many";

/// Runs the command.
pub(crate) fn run(arguments: &CompareArguments) -> ExitCode {
    if arguments.list {
        list();
        return ExitCode::SUCCESS;
    }
    let done = match (&arguments.diff, &arguments.report) {
        (Some(two), _) => match show_diff(&two[0], &two[1], arguments.fail_if_worse) {
            Ok(code) => return code,
            Err(error) => Err(error),
        },
        (None, Some(file)) => rewrite(file, arguments.out.as_deref().unwrap_or(Path::new("."))),
        (None, None) => {
            let options = match options(arguments) {
                Ok(options) => options,
                Err(error) => {
                    eprintln!("dunlin: {error}");
                    return ExitCode::from(2);
                }
            };
            compare(&options)
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("dunlin: {error}");
            ExitCode::FAILURE
        }
    }
}

fn options(arguments: &CompareArguments) -> Result<Options, String> {
    if arguments.scenarios.is_empty() {
        return Err("name a scenario; --list shows all".to_owned());
    }
    if arguments.from.iter().any(|host| host.contains("://")) {
        return Err(NO_URLS.to_owned());
    }
    let scenarios: Vec<Scenario> =
        arguments.scenarios.iter().map(|name| scenario::load(name)).collect::<Result<_, _>>()?;
    let servers = if arguments.servers.is_empty() {
        adapter::ALL.iter().map(|adapter| adapter.name.to_owned()).collect()
    } else {
        arguments.servers.clone()
    };
    for name in &servers {
        adapter::by_name(name)?;
    }
    let processors = std::thread::available_parallelism().map_or(1, |count| count.get() as u32);
    let quick = arguments.quick;
    let seconds = match &arguments.duration {
        Some(text) => time::seconds(text).map_err(|error| format!("--duration {text}: {error}"))?,
        None => {
            if quick {
                0.5
            } else {
                1.0
            }
        }
    };
    if seconds <= 0.0 || arguments.rounds == Some(0) {
        return Err("--duration and --rounds must be above 0".to_owned());
    }
    let load_processor = arguments.load_processor.unwrap_or(u32::from(processors > 1));
    if arguments.server_processor.max(load_processor) >= processors {
        return Err(format!("there are {processors} processors, counted from 0"));
    }
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGHUP, SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop))
            .map_err(|error| format!("receiving signals: {error}"))?;
    }
    let date = rfc3339(SystemTime::now()).replace(':', "");
    Ok(Options {
        scenarios,
        servers,
        rounds: arguments.rounds.unwrap_or(if quick { 3 } else { 5 }),
        seconds,
        out: arguments.out.clone().unwrap_or_else(|| format!("dunlin-compare-{date}").into()),
        seed: arguments.seed,
        server_processor: arguments.server_processor,
        load_processor,
        machines: machines(arguments),
        quick,
        command: std::env::args().collect(),
        stop,
    })
}

fn machines(arguments: &CompareArguments) -> Machines {
    let mut options = Vec::new();
    if let Some(command) = &arguments.ssh {
        options.extend(["--ssh".to_owned(), command.clone()]);
    }
    if arguments.copy {
        options.push("--copy".to_owned());
    }
    Machines {
        from: arguments.from.clone(),
        options,
        address: arguments.address.unwrap_or(Ipv4Addr::LOCALHOST),
    }
}

fn compare(options: &Options) -> Result<(), String> {
    let results = dunlin_compare::run::run(options)?;
    if results.interrupted {
        eprintln!("interrupted; the results so far are kept");
    }
    println!("{}", report::summary(&results, paint()));
    println!("Report: {}", options.out.join("report.html").display());
    Ok(())
}

fn paint() -> Paint {
    Paint::new(crate::color::suits(&std::io::stdout()))
}

fn list() {
    println!("Scenarios");
    for (name, _) in BUILT_IN {
        match scenario::load(name) {
            Ok(scenario) => {
                let rows = scenario.rows.len();
                let s = if rows == 1 { "" } else { "s" };
                let title = format!("{} ({rows} row{s})", scenario.title);
                print!("{}", fill(&format!("  {name:<22}"), &title, 24));
            }
            Err(error) => println!("  {error}"),
        }
    }
    println!("\nServers");
    for adapter in adapter::ALL {
        let version = match adapter.find() {
            Some(program) => adapter.version(&program),
            None => format!("not installed ({})", adapter.install),
        };
        print!("{}", fill(&format!("  {:<22}", adapter.name), &version, 24));
    }
}

/// Prints the differences. With a limit, the exit status is that of a figure that is worse by more.
fn show_diff(a: &Path, b: &Path, limit: Option<f64>) -> Result<ExitCode, String> {
    let (a, b) = (diff::read(a)?, diff::read(b)?);
    let diff = diff::diff(&a, &b);
    print!("{}", diff::text(&diff, paint()));
    let Some(limit) = limit else { return Ok(ExitCode::SUCCESS) };
    if diff.changes.is_empty() {
        return Err("no figure can be compared".to_owned());
    }
    let worse = diff.worse(limit).count();
    if worse == 0 {
        return Ok(ExitCode::SUCCESS);
    }
    let figures = if worse == 1 { "figure is" } else { "figures are" };
    eprintln!("dunlin: {worse} {figures} worse by more than {} %", limit * 100.0);
    Ok(ExitCode::from(3))
}

/// Returns a share such as `5%`.
fn share(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').and_then(|number| number.trim().parse::<f64>().ok());
    match number {
        Some(number) if (0.0..=1000.0).contains(&number) => Ok(number / 100.0),
        _ => Err("is not a share such as 5%".to_owned()),
    }
}

fn rewrite(file: &Path, out: &Path) -> Result<(), String> {
    let results = diff::read(file)?;
    report::write(&results, out).map_err(|error| format!("{}: {error}", out.display()))
}
