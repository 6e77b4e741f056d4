//! The access logs of a server: that of the server, and those of routes.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use dunlin_config::AccessLog as LogRules;

use super::{AccessLog, AccessLogSettings, AccessRecord, WorkerLog};

/// The access log that gets a request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LogChoice {
    /// None.
    Off,
    /// That of the server, if it has one.
    #[default]
    Server,
    /// One of a route, by [`LogRules::number`].
    Own(u64),
}

/// The open access logs. All workers share them.
#[derive(Clone, Default)]
pub struct AccessLogs {
    /// Those of the server are the first, if there is one.
    all: Vec<OpenLog>,
    /// The number of the logs of the server.
    server: Option<u64>,
}

/// A log that is open.
#[derive(Clone)]
struct OpenLog {
    /// [`LogRules::number`] of the log that a route or the server names.
    named: u64,
    /// That of this log, which can be a further one.
    own: u64,
    log: Arc<AccessLog>,
}

impl AccessLogs {
    /// Opens the log of the server and those of routes. Those of `before` with the same settings are kept.
    ///
    /// # Errors
    /// The first log that cannot be opened, and the cause.
    pub fn open<'r>(
        server: Option<&'r LogRules>,
        own: impl Iterator<Item = &'r LogRules>,
        before: &Self,
    ) -> Result<Self, (&'r Path, io::Error)> {
        let mut logs = Self { all: Vec::new(), server: server.map(LogRules::number) };
        for rules in server.into_iter().chain(own) {
            let named = rules.number();
            if logs.all.iter().any(|open| open.named == named) {
                continue;
            }
            for rules in rules.each() {
                let own = rules.number();
                let log = match before.find(own).or_else(|| logs.find(own)) {
                    Some(log) => Arc::clone(log),
                    None => AccessLog::open(AccessLogSettings::of(rules))
                        .map_err(|error| (&*rules.path, error))?,
                };
                logs.all.push(OpenLog { named, own, log });
            }
        }
        Ok(logs)
    }

    /// Returns the logs of a server with only `log`.
    #[cfg(any(test, feature = "testing"))]
    pub fn of(log: &Arc<AccessLog>) -> Self {
        Self { all: vec![OpenLog { named: 0, own: 0, log: Arc::clone(log) }], server: Some(0) }
    }

    fn find(&self, number: u64) -> Option<&Arc<AccessLog>> {
        self.all.iter().find(|open| open.own == number).map(|open| &open.log)
    }

    /// Returns the logs that are open, each once.
    fn each(&self) -> impl Iterator<Item = &Arc<AccessLog>> {
        let is_first = |at: usize, open: &OpenLog| {
            !self.all[..at].iter().any(|other| Arc::ptr_eq(&other.log, &open.log))
        };
        let all = self.all.iter().enumerate();
        all.filter(move |(at, open)| is_first(*at, open)).map(|(_, open)| &open.log)
    }

    /// Returns `true` if there is no log.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Opens all files again; see [`AccessLog::reopen`].
    pub fn reopen(&self) {
        self.each().for_each(|log| log.reopen());
    }

    /// Writes the queued lines, for at most `timeout` for each log; see [`AccessLog::close`]. Returns the number of lines that were
    /// lost since the logs were opened.
    pub fn close(&self, timeout: Duration) -> u64 {
        let mut lost = 0;
        for log in self.each() {
            // The sum has these lines.
            let _ = log.close(timeout);
            lost += log.lost();
        }
        lost
    }

    /// Returns the buffers of one worker.
    pub fn worker_logs(&self) -> WorkerLogs {
        let all = self.all.iter().map(|open| (open.named, open.log.worker_log())).collect();
        WorkerLogs { all, server: self.server }
    }

    /// Returns `true` if lines contain the timings of requests.
    pub fn has_timings(&self) -> bool {
        self.all.iter().any(|open| open.log.has_timings())
    }

    /// Returns `true` if lines contain fields of responses.
    pub fn has_response_fields(&self) -> bool {
        self.all.iter().any(|open| open.log.has_response_fields())
    }
}

/// The buffers of one worker for all access logs.
pub struct WorkerLogs {
    /// By the number of the log that a route or the server names.
    all: Vec<(u64, WorkerLog)>,
    server: Option<u64>,
}

impl WorkerLogs {
    /// Appends the line of a record to a log.
    pub fn record(&mut self, choice: LogChoice, record: &AccessRecord<'_>) {
        let number = match choice {
            LogChoice::Off => None,
            LogChoice::Server => self.server,
            LogChoice::Own(number) => Some(number),
        };
        for (named, log) in &mut self.all {
            if Some(*named) == number {
                log.record(record);
            }
        }
    }

    /// Queues the lines for the writing threads; see [`WorkerLog::flush`].
    pub fn flush(&mut self) {
        self.all.iter_mut().for_each(|(_, log)| log.flush());
    }

    /// Returns the number of lines of all workers that were lost since the logs were opened.
    pub fn lost(&self) -> u64 {
        self.all.iter().map(|(_, log)| log.lost()).sum()
    }
}
