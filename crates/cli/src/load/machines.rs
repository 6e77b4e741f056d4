//! `--from`, `--segment`, `--join`: load from several machines.

use std::process::ExitCode;
use std::sync::mpsc;
use std::time::{Instant, SystemTime};

use clap::{Args, ValueEnum};
use dunlin_load::generators::generator;
use dunlin_load::generators::link::{Arrived, Link};
use dunlin_load::generators::session::Session;
use dunlin_load::generators::ssh::Ssh;
use dunlin_load::progress::Progress;
use dunlin_load::segment::{MAX_SEGMENTS, Segment};
use dunlin_load::time;

/// Options of load from several machines.
#[derive(Args)]
#[command(next_help_heading = "Several machines")]
pub(super) struct Machines {
    /// Send the load from these hosts over ssh, in equal parts; or from generators that join at nats://HOST:4222/NAME
    #[arg(long, value_name = "HOSTS", value_delimiter = ',')]
    pub(super) from: Vec<String>,
    /// Number of generators that join, or of the Job that is printed
    #[arg(long, value_name = "N")]
    pub(super) generators: Option<u32>,
    /// The ssh program with its options [default: ssh]
    #[arg(long, value_name = "COMMAND", requires = "from")]
    ssh: Option<String>,
    /// Send this program to the hosts even if they have dunlin; it is removed at the end
    #[arg(long, requires = "from")]
    copy: bool,
    /// Send part I of N of the load, with I from 0 to N-1; --merge combines the results of the parts
    #[arg(long, value_name = "I/N", conflicts_with_all = ["from", "find_users", "find_rate"])]
    pub(super) segment: Option<Segment>,
    /// Begin at this time, such as 2027-01-31T12:00:00Z
    #[arg(long, value_name = "TIME", conflicts_with_all = ["from", "find_users", "find_rate"])]
    start_at: Option<String>,
    /// Print a manifest that runs this load, instead of running it
    #[arg(long, value_name = "FOR", requires = "generators", conflicts_with_all = ["segment", "find_users", "find_rate", "json", "csv", "fail_if"])]
    pub(super) print: Option<Manifest>,
    /// Image of the manifest
    #[arg(long, value_name = "IMAGE", requires = "print", default_value = "dunlin:latest")]
    pub(super) image: String,
    /// Run as a generator of another dunlin, over standard input and output
    #[arg(long, exclusive = true)]
    generator: bool,
    /// Run as a generator of the dunlin with --from URL
    #[arg(long, value_name = "URL", exclusive = true)]
    join: Option<String>,
}

/// Manifests that can be printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Manifest {
    /// An Indexed Job
    Kubernetes,
}

/// Scheme of meeting points.
const MEETING: [&str; 2] = ["nats://", "tls://"];

impl Machines {
    /// Runs as a generator, if that is what the options want.
    pub(super) fn serve(&self) -> Option<ExitCode> {
        let served = match &self.join {
            Some(url) => join(url),
            None if self.generator => {
                // Standard output is unbuffered here, since it has no line buffer of its own.
                generator::serve(std::io::stdin(), std::io::stdout())
            }
            None => return None,
        };
        Some(match served {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("dunlin: {error}");
                ExitCode::FAILURE
            }
        })
    }

    /// Returns `true` if other machines send the load.
    pub(super) fn are_remote(&self) -> bool {
        !self.from.is_empty()
    }

    /// Returns the number of generators that share the load.
    ///
    /// # Errors
    /// The options contradict each other.
    pub(super) fn count(&self) -> Result<u32, String> {
        let joined = self.meeting()?.is_some();
        if self.generators == Some(0) || self.generators > Some(MAX_SEGMENTS) {
            return Err(format!("--generators is from 1 to {MAX_SEGMENTS}"));
        }
        match (self.generators, self.segment) {
            (None, _) if joined => Err("--from URL needs the number of --generators".to_owned()),
            (Some(_), _) if !joined && self.print.is_none() => {
                Err("--generators does nothing without --from nats://… or --print".to_owned())
            }
            (Some(count), _) => Ok(count),
            (None, Some(segment)) => Ok(segment.of),
            (None, None) => Ok(self.from.len().max(1) as u32),
        }
    }

    /// Returns the meeting point of --from, if it is one.
    pub(super) fn meeting(&self) -> Result<Option<&str>, String> {
        let is_meeting = |from: &&String| MEETING.iter().any(|scheme| from.starts_with(scheme));
        match (&self.from[..], self.from.iter().find(is_meeting)) {
            ([only], Some(_)) => Ok(Some(only)),
            (_, Some(url)) => {
                Err(format!("--from {url}: a URL cannot be combined with other hosts"))
            }
            (_, None) => Ok(None),
        }
    }

    /// Connects to all generators.
    ///
    /// # Errors
    /// One cannot be used, or the command was interrupted.
    pub(super) fn connect(&self, progress: &Progress, quiet: bool) -> Result<Session, String> {
        let (events, arrived) = mpsc::channel();
        let (names, links) = match self.meeting()? {
            Some(url) => {
                let links = meet(url, self.count()? as usize, &events)?;
                (vec![String::new(); links.len()], links)
            }
            None => (self.from.clone(), self.by_ssh(&events)?),
        };
        let count = links.len();
        let waiting = |absent: &[&str]| {
            let named = absent.iter().filter(|name| !name.is_empty()).copied();
            let named = named.collect::<Vec<_>>().join(", ");
            if !quiet {
                let space = if named.is_empty() { "" } else { ": " };
                eprintln!("waiting for {} of {count} generators{space}{named}", absent.len());
            }
        };
        Session::new(names, links, arrived, &progress.stop_flag(), waiting)
    }

    fn by_ssh(&self, events: &mpsc::Sender<Arrived>) -> Result<Vec<Box<dyn Link>>, String> {
        let command = self.ssh.as_deref().unwrap_or("ssh");
        let command = command.split_ascii_whitespace().map(str::to_owned).collect();
        let ssh = Ssh { command, copy: self.copy };
        let hosts = self.from.iter().enumerate();
        hosts.map(|(number, host)| ssh.connect(host, number, events)).collect()
    }

    /// Checks the names of --from.
    ///
    /// # Errors
    /// One cannot be a host.
    pub(super) fn check(&self) -> Result<(), String> {
        let wrong = self.from.iter().find(|host| {
            host.is_empty() || host.starts_with('-') || host.contains(char::is_whitespace)
        });
        match wrong {
            Some(host) => Err(format!("--from {host}: is not the name of a host")),
            None => self.count().map(|_| ()),
        }
    }

    /// Returns the instant of --start-at.
    ///
    /// # Errors
    /// It is not a valid time, or has passed.
    pub(super) fn start(&self) -> Result<Option<Instant>, String> {
        let Some(text) = &self.start_at else { return Ok(None) };
        let at = time::from_rfc3339(text).ok_or_else(|| {
            format!("--start-at {text}: is not a time such as 2027-01-31T12:00:00Z")
        })?;
        match at.duration_since(SystemTime::now()) {
            Ok(ahead) => Ok(Some(Instant::now() + ahead)),
            Err(_) => Err(format!("--start-at {text}: has passed")),
        }
    }
}

#[cfg(feature = "fleet")]
fn join(url: &str) -> Result<(), String> {
    dunlin_load::generators::nats::Meeting::parse(url)?.join()
}

#[cfg(feature = "fleet")]
fn meet(
    url: &str,
    count: usize,
    events: &mpsc::Sender<Arrived>,
) -> Result<Vec<Box<dyn Link>>, String> {
    dunlin_load::generators::nats::Meeting::parse(url)?.coordinate(count, events)
}

#[cfg(not(feature = "fleet"))]
const LACKS_NATS: &str = "NATS: this build lacks the feature `fleet`; build with `--features fleet`, or install a package";

#[cfg(not(feature = "fleet"))]
fn join(_: &str) -> Result<(), String> {
    Err(LACKS_NATS.to_owned())
}

#[cfg(not(feature = "fleet"))]
fn meet(_: &str, _: usize, _: &mpsc::Sender<Arrived>) -> Result<Vec<Box<dyn Link>>, String> {
    Err(LACKS_NATS.to_owned())
}
