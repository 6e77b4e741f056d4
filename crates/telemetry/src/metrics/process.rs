//! Resource usage of the server's process.

use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, clock_gettime};

/// Current resource usage of the process.
#[derive(Debug, Clone, Copy, Default)]
pub struct Process {
    /// CPU time of all threads in seconds.
    pub cpu: f64,
    /// Resident memory in bytes.
    pub resident: u64,
    /// Open file descriptors.
    pub descriptors: u64,
    /// Maximum of open file descriptors.
    pub descriptor_limit: u64,
}

impl Process {
    /// Returns the CPU time of all threads in seconds.
    pub fn cpu_time() -> f64 {
        let cpu = clock_gettime(ClockId::ProcessCPUTime);
        cpu.tv_sec as f64 + cpu.tv_nsec as f64 / 1e9
    }

    /// Reads the usage. Values that the kernel does not report are 0.
    pub fn read() -> Self {
        let pages = std::fs::read_to_string("/proc/self/statm").ok();
        let pages = pages.and_then(|text| text.split(' ').nth(1)?.parse::<u64>().ok());
        Self {
            cpu: Self::cpu_time(),
            resident: pages.unwrap_or(0) * rustix::param::page_size() as u64,
            descriptors: descriptors(),
            descriptor_limit: getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX),
        }
    }
}

/// Counts the open file descriptors. Since Linux 6.2 the size of the directory is their number.
fn descriptors() -> u64 {
    let folder = "/proc/self/fd";
    match std::fs::metadata(folder).map_or(0, |metadata| metadata.len()) {
        0 => std::fs::read_dir(folder).map_or(0, |entries| entries.count() as u64),
        size => size,
    }
}
