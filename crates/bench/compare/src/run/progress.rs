//! Progress of a scenario on standard error.

use std::io::IsTerminal;
use std::time::Instant;

use dunlin_load::show::WIDTH;

/// Returns to the start of the terminal's line and clears it.
const CLEAR_LINE: &str = "\r\x1b[2K";

/// Reports the runs of a scenario: in place on a terminal, a line for each run elsewhere.
pub(super) struct Progress {
    start: Instant,
    runs: usize,
    is_terminal: bool,
}

impl Progress {
    pub(super) fn new(runs: usize) -> Self {
        Self { start: Instant::now(), runs, is_terminal: std::io::stderr().is_terminal() }
    }

    /// Reports that a run begins, after `done` others.
    pub(super) fn run(&self, done: usize, row: &str, server: &str) {
        let per_run = self.start.elapsed().as_secs_f64() / done.max(1) as f64;
        let left = match done {
            0 => String::new(),
            _ => format!(", {:.0} s left", per_run * (self.runs - done) as f64),
        };
        let line = format!("  {} of {}: {row}, {server}{left}", done + 1, self.runs);
        if self.is_terminal {
            // A line that wraps could not be cleared.
            let line: String = line.chars().take(WIDTH - 1).collect();
            eprint!("{CLEAR_LINE}{line}");
        } else {
            eprintln!("{line}");
        }
    }

    /// Reports the end of the scenario.
    pub(super) fn done(&self, scenario: &str) {
        let clear = if self.is_terminal { CLEAR_LINE } else { "" };
        eprintln!("{clear}{scenario}: done in {:.0} s", self.start.elapsed().as_secs_f64());
    }
}
