//! The state of a pool of processes, for the status page.

/// The state of a pool.
#[derive(Debug, Default)]
pub struct PoolReport {
    /// The scripts that the pool runs.
    pub name: String,
    /// Their kind.
    pub kind: String,
    /// The maximum of processes.
    pub max: u64,
    /// Processes that run.
    pub processes: u64,
    /// Requests that processes work on.
    pub busy: u64,
    /// Requests in the queue.
    pub waiting: u64,
    /// The time for which the oldest request has been worked on, in milliseconds.
    pub longest: u64,
    /// The script of the oldest request.
    pub longest_script: String,
}

impl PoolReport {
    /// Adds the state of another pool of the same scripts.
    pub(super) fn add(&mut self, other: &mut Self) {
        self.max += other.max;
        self.processes += other.processes;
        self.busy += other.busy;
        self.waiting += other.waiting;
        if other.longest > self.longest {
            self.longest = other.longest;
            std::mem::swap(&mut self.longest_script, &mut other.longest_script);
        }
    }
}
