//! What the kernel knows of the server's process.

use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, clock_gettime};

/// The process, now.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Process {
    /// Processor time of all threads, in seconds.
    pub(crate) cpu: f64,
    /// Bytes in memory.
    pub(crate) resident: u64,
    /// Open descriptors.
    pub(crate) descriptors: u64,
    /// The most that may be open.
    pub(crate) descriptor_limit: u64,
}

impl Process {
    /// Reads it; what the kernel does not say is 0.
    pub(crate) fn read() -> Self {
        let cpu = clock_gettime(ClockId::ProcessCPUTime);
        let pages = std::fs::read_to_string("/proc/self/statm").ok();
        let pages = pages.and_then(|text| text.split(' ').nth(1)?.parse::<u64>().ok());
        Self {
            cpu: cpu.tv_sec as f64 + cpu.tv_nsec as f64 / 1e9,
            resident: pages.unwrap_or(0) * rustix::param::page_size() as u64,
            descriptors: descriptors(),
            descriptor_limit: getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX),
        }
    }
}

/// Since Linux 6.2 the folder's size says how many there are; before, they have to be counted.
fn descriptors() -> u64 {
    let folder = "/proc/self/fd";
    match std::fs::metadata(folder).map_or(0, |facts| facts.len()) {
        0 => std::fs::read_dir(folder).map_or(0, |entries| entries.count() as u64),
        size => size,
    }
}
