//! The command line of `dunlin load` for a row.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use super::Options;
use crate::scenario::RowPlan;

/// With `--quick`: seconds of one level of a search, which hold a window of each user.
const QUICK_TRIAL: f64 = 3.5;
/// With `--quick`: the highest level of a search.
const QUICK_USERS: &str = "2000";
/// Time that the generator may take beyond its planned duration.
const GRACE: Duration = Duration::from_secs(30);
/// Trials that a search runs at most, as far as the time limit is concerned.
const SEARCH_TRIALS: f64 = 40.0;
/// URLs that fit on the command line; more go into a file.
const URLS_ON_COMMAND_LINE: usize = 20;

/// Returns the command that loads the server at `address` with the plan of a row. A list of URLs is written to `folder`.
///
/// # Errors
/// The program's own path is unknown, or the list of URLs cannot be written.
pub(super) fn load(
    options: &Options,
    plan: &RowPlan,
    address: SocketAddr,
    folder: &Path,
    root: &Path,
) -> io::Result<Vec<String>> {
    let program = std::env::current_exe()?;
    let mut command = vec![program.display().to_string(), "load".to_owned()];
    command.extend(urls(plan, address, folder)?);
    command.extend(plan.load.iter().cloned());
    command.extend(duration(options, plan));
    if plan.generated || plan.server.records {
        command.push("--verify".to_owned());
    } else if !plan.varies {
        command.push(format!("--verify={}", root.display()));
    }
    if plan.server.tls {
        command.push("--insecure".to_owned());
    }
    if plan.server.http2 {
        command.push("--http2".to_owned());
    }
    if plan.server.http3 {
        command.push("--http3".to_owned());
    }
    let machines = &options.machines;
    if !machines.from.is_empty() {
        command.extend(["--from".to_owned(), machines.from.join(",")]);
        command.push("--i-own-this-host".to_owned());
        command.extend(machines.options.iter().cloned());
    }
    command.extend(["--seed".to_owned(), options.seed.to_string()]);
    command.extend(["--quiet", "--json", "-"].map(str::to_owned));
    Ok(command)
}

fn urls(plan: &RowPlan, address: SocketAddr, folder: &Path) -> io::Result<Vec<String>> {
    let scheme = if plan.server.tls { "https" } else { "http" };
    let many = plan.many.iter().flat_map(|many| {
        (0..many.count).map(|number| many.path.replace("{n}", &number.to_string()))
    });
    let paths: Vec<String> = plan.paths.iter().cloned().chain(many).collect();
    if paths.len() <= URLS_ON_COMMAND_LINE {
        return Ok(paths.iter().map(|path| format!("{scheme}://{address}{path}")).collect());
    }
    let file = folder.join(format!("{}.urls", plan.id));
    fs::write(&file, paths.join("\n"))?;
    Ok(vec![format!("{scheme}://{address}/"), "--urls-file".to_owned(), file.display().to_string()])
}

/// Returns the options that set the duration, with those that bound a search under `--quick`.
fn duration(options: &Options, plan: &RowPlan) -> Vec<String> {
    let mut words = Vec::new();
    let searches = searches(plan);
    let mut seconds = plan.seconds.unwrap_or(options.seconds);
    if options.quick {
        seconds = seconds.min(if searches { QUICK_TRIAL } else { options.seconds.max(1.0) });
    }
    if searches && options.quick {
        words.extend(["--most", QUICK_USERS].map(str::to_owned));
    }
    let counts_requests = plan.load.iter().any(|word| word == "-n" || word == "--requests");
    if !counts_requests {
        words.extend(["-d".to_owned(), format!("{seconds}s")]);
        if !searches {
            words.extend(["--warmup".to_owned(), format!("{}s", (seconds / 4.0).min(0.5))]);
        }
    }
    words
}

/// Returns the time after which the generator is killed.
pub(super) fn time_limit(options: &Options, plan: &RowPlan) -> Duration {
    let seconds = plan.seconds.unwrap_or(options.seconds);
    let trials = if searches(plan) { SEARCH_TRIALS } else { 1.0 };
    GRACE + Duration::try_from_secs_f64(seconds * 2.0 * trials).unwrap_or(GRACE)
}

fn searches(plan: &RowPlan) -> bool {
    plan.load.iter().any(|word| word.starts_with("--find"))
}
