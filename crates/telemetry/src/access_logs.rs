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
    /// By [`LogRules::number`]; that of the server is the first, if there is one.
    all: Vec<(u64, Arc<AccessLog>)>,
    has_server_log: bool,
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
        let mut logs = Self { all: Vec::new(), has_server_log: server.is_some() };
        for rules in server.into_iter().chain(own) {
            let number = rules.number();
            if logs.find(number).is_some() {
                continue;
            }
            let log = match before.find(number) {
                Some(log) => Arc::clone(log),
                None => AccessLog::open(AccessLogSettings::of(rules))
                    .map_err(|error| (&*rules.path, error))?,
            };
            logs.all.push((number, log));
        }
        Ok(logs)
    }

    /// Returns the logs of a server with only `log`.
    #[cfg(any(test, feature = "testing"))]
    pub fn of(log: &Arc<AccessLog>) -> Self {
        Self { all: vec![(0, Arc::clone(log))], has_server_log: true }
    }

    fn find(&self, number: u64) -> Option<&Arc<AccessLog>> {
        self.all.iter().find(|(other, _)| *other == number).map(|(_, log)| log)
    }

    /// Returns `true` if there is no log.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Opens all files again; see [`AccessLog::reopen`].
    pub fn reopen(&self) {
        self.all.iter().for_each(|(_, log)| log.reopen());
    }

    /// Writes the queued lines, for at most `timeout` for each log; see [`AccessLog::close`]. Returns the number of lines that were
    /// lost since the logs were opened.
    pub fn close(&self, timeout: Duration) -> u64 {
        let mut lost = 0;
        for (_, log) in &self.all {
            // The sum has these lines.
            let _ = log.close(timeout);
            lost += log.lost();
        }
        lost
    }

    /// Returns the buffers of one worker.
    pub fn worker_logs(&self) -> WorkerLogs {
        let all = self.all.iter().map(|(number, log)| (*number, log.worker_log())).collect();
        WorkerLogs { all, has_server_log: self.has_server_log }
    }

    /// Returns `true` if lines contain the timings of requests.
    pub fn has_timings(&self) -> bool {
        self.all.iter().any(|(_, log)| log.has_timings())
    }

    /// Returns `true` if lines contain fields of responses.
    pub fn has_response_fields(&self) -> bool {
        self.all.iter().any(|(_, log)| log.has_response_fields())
    }
}

/// The buffers of one worker for all access logs.
pub struct WorkerLogs {
    all: Vec<(u64, WorkerLog)>,
    has_server_log: bool,
}

impl WorkerLogs {
    /// Appends the line of a record to a log.
    pub fn record(&mut self, choice: LogChoice, record: &AccessRecord<'_>) {
        let log = match choice {
            LogChoice::Off => None,
            LogChoice::Server => self.all.first_mut().filter(|_| self.has_server_log),
            LogChoice::Own(number) => self.all.iter_mut().find(|(other, _)| *other == number),
        };
        if let Some((_, log)) = log {
            log.record(record);
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
