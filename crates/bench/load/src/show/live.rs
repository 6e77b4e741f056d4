//! Progress during a run: a few lines that are redrawn on a terminal, a line per second elsewhere.

use std::collections::VecDeque;
use std::io::{self, IsTerminal, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::number::{NONE, milliseconds};
use crate::plan::{End, Plan};
use crate::processes::{self, Sample};
use crate::progress::{Progress, Snapshot};
use crate::units;

/// The progress display of a run.
pub struct Live<'a> {
    plan: &'a Plan,
    progress: &'a Progress,
    /// The time when the display or the load began.
    began: Instant,
    last: Snapshot,
    sampled: Instant,
    client: Sample,
    server: Option<(Vec<u32>, u64)>,
    /// This process sends the load.
    local: bool,
    rates: VecDeque<f64>,
    terminal: bool,
    drawn: bool,
}

const LINES: usize = 4;
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
const WIDTH: usize = 30;

impl<'a> Live<'a> {
    /// Creates the display of a run that starts now, of this process against the server at `address`, or else of other
    /// machines.
    #[must_use]
    pub fn new(plan: &'a Plan, progress: &'a Progress, address: Option<SocketAddr>) -> Self {
        let now = Instant::now();
        let server = address.and_then(processes::listening_on).map(|pids| {
            let cpu = processes::cpu(&pids);
            (pids, cpu)
        });
        Self {
            plan,
            progress,
            began: now,
            last: Snapshot::default(),
            sampled: now,
            client: processes::sample_self(),
            server,
            local: address.is_some(),
            rates: VecDeque::new(),
            terminal: io::stderr().is_terminal(),
            drawn: false,
        }
    }

    /// Interval in which [`Live::show`] has to be called.
    #[must_use]
    pub fn interval(&self) -> Duration {
        if self.terminal { Duration::from_millis(250) } else { Duration::from_secs(1) }
    }

    /// Updates the display.
    pub fn show(&mut self) {
        let (now, snapshot) = (Instant::now(), self.progress.snapshot());
        if let Some(began) = self.progress.began() {
            self.began = began;
        }
        // Workers publish their counts now and then: what they count refers to the time at which they did.
        let counted = snapshot.at.saturating_sub(self.last.at) as f64 / 1e9;
        let rate = snapshot.requests.saturating_sub(self.last.requests) as f64 / counted.max(1e-3);
        let seconds = now.duration_since(self.sampled).as_secs_f64().max(1e-6);
        self.sampled = now;
        let client = processes::sample_self();
        let busy = (client.cpu_seconds() - self.client.cpu_seconds()) / seconds;
        let server = self.server.as_mut().map(|(pids, before)| {
            let cpu = processes::cpu(pids);
            let used = cpu.saturating_sub(std::mem::replace(before, cpu));
            used as f64 / 1e9 / seconds
        });
        self.last = snapshot;
        self.client = client;
        self.rates.push_back(rate);
        if self.rates.len() > WIDTH {
            self.rates.pop_front();
        }
        let text = if self.terminal { self.drawing(rate, busy, server) } else { self.line(rate) };
        // A closed terminal is no reason to end the run.
        let _ = io::stderr().write_all(text.as_bytes());
        self.drawn = true;
    }

    /// Clears the display.
    pub fn clear(&mut self) {
        if self.terminal && self.drawn {
            let _ = write!(io::stderr(), "\x1b[{LINES}A\x1b[J");
            self.drawn = false;
        }
    }

    fn line(&self, rate: f64) -> String {
        let snapshot = &self.last;
        if snapshot.at == 0 && snapshot.warmup > 0 {
            let seconds = self.began.elapsed().as_secs_f64();
            return format!("{seconds:6.1} s    warm-up, {} responses\n", snapshot.warmup);
        }
        format!(
            "{:6.1} s {:>10} requests/s, p50 {}, p99 {}, {} errors\n",
            self.began.elapsed().as_secs_f64(),
            units::rate(rate),
            time(snapshot, snapshot.p50),
            time(snapshot, snapshot.p99),
            snapshot.errors
        )
    }

    fn drawing(&self, rate: f64, busy: f64, server: Option<f64>) -> String {
        let snapshot = &self.last;
        let (share, rest) = self.done(snapshot);
        let filled = (share * WIDTH as f64) as usize;
        let bar: String = (0..WIDTH).map(|at| if at < filled { '━' } else { '─' }).collect();
        let max = self.rates.iter().copied().fold(1.0, f64::max);
        let curve: String =
            self.rates.iter().map(|rate| BARS[((rate / max * 7.0) as usize).min(7)]).collect();
        let mean = snapshot.requests as f64 / (snapshot.at as f64 / 1e9).max(1e-3);
        let back = if self.drawn { format!("\x1b[{LINES}A") } else { String::new() };
        format!(
            "{back}\x1b[2K{bar} {:3.0} % {rest}\n\x1b[2K{:>12} requests/s, {} on average  {curve}\n\x1b[2K{:>12} p50, {} p99, {} max\n\x1b[2K{:>12} errors, {} in flight{}\n",
            share * 100.0,
            units::rate(rate),
            units::rate(mean),
            time(snapshot, snapshot.p50),
            time(snapshot, snapshot.p99),
            time(snapshot, snapshot.max),
            snapshot.errors,
            snapshot.in_flight,
            if self.local { load(busy, server) } else { String::new() }
        )
    }

    /// Returns the share that is done, and a description of the rest.
    fn done(&self, snapshot: &Snapshot) -> (f64, String) {
        match self.plan.end {
            End::Seconds(seconds) => {
                let whole = seconds + self.plan.warmup_seconds;
                let gone = self.began.elapsed().as_secs_f64().min(whole);
                (gone / whole.max(1e-9), format!("{:.0} s left", whole - gone))
            }
            End::Requests(count) => {
                let count = self.plan.part().share(count);
                let done = (snapshot.requests + snapshot.errors).min(count);
                (done as f64 / count.max(1) as f64, format!("{done} of {count} requests"))
            }
        }
    }
}

/// Returns a time of valid responses.
fn time(snapshot: &Snapshot, nanos: u64) -> String {
    match snapshot.requests {
        0 => NONE.to_owned(),
        _ => format!("{} ms", milliseconds(nanos as f64 / 1e6)),
    }
}

/// Processor usage of both sides, in percent of one processor.
fn load(generator: f64, server: Option<f64>) -> String {
    let server = server.map_or(String::new(), |server| format!(", server {:.0} %", server * 100.0));
    format!(", CPU: load {:.0} %{server}", generator * 100.0)
}
