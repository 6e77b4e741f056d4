//! Resource usage of processes (processor time, memory, context switches), and the processes that listen on a port.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Instant;

use crate::outcome::ProcessUse;

/// Resource usage of a group of processes at a point in time.
#[derive(Clone, Debug)]
pub struct Sample {
    at: Instant,
    name: String,
    processes: u32,
    /// Processor time of all threads in nanoseconds.
    cpu: u64,
    /// Time in which threads waited for a processor, in nanoseconds.
    waited: u64,
    memory: u64,
    voluntary: u64,
    involuntary: u64,
    processors: u32,
}

/// Returns the process that listens on `address` and its descendants; `None` if it is not on this machine, or not accessible.
#[must_use]
pub fn listening_on(address: SocketAddr) -> Option<Vec<u32>> {
    if !address.ip().is_loopback() {
        return None;
    }
    let inodes = listening_inodes(address.port());
    let holders: HashSet<u32> = all_pids().filter(|pid| holds_socket(*pid, &inodes)).collect();
    (!holders.is_empty()).then(|| with_descendants(holders))
}

/// Processes and their descendants.
#[must_use]
pub fn with_descendants(roots: impl IntoIterator<Item = u32>) -> Vec<u32> {
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    for pid in all_pids() {
        if let Some(parent) = parent_of(pid) {
            children.entry(parent).or_default().push(pid);
        }
    }
    let mut todo: Vec<u32> = roots.into_iter().collect();
    todo.sort_unstable();
    let mut found = Vec::new();
    while let Some(pid) = todo.pop() {
        if !found.contains(&pid) {
            found.push(pid);
            todo.extend(children.get(&pid).into_iter().flatten());
        }
    }
    found.sort_unstable();
    found
}

/// Samples processes.
#[must_use]
pub fn sample(pids: &[u32]) -> Sample {
    let mut sample = Sample {
        at: Instant::now(),
        name: String::new(),
        processes: 0,
        cpu: 0,
        waited: 0,
        memory: 0,
        voluntary: 0,
        involuntary: 0,
        processors: 1,
    };
    for pid in pids {
        let folder = format!("/proc/{pid}");
        let Ok(name) = fs::read_to_string(format!("{folder}/comm")) else { continue };
        if sample.name.is_empty() {
            name.trim_end().clone_into(&mut sample.name);
        }
        sample.processes += 1;
        sample.memory += memory(&folder);
        let (own, of_children) = ticks(&folder);
        let before = sample.cpu;
        let tasks = fs::read_dir(format!("{folder}/task"));
        for task in tasks.into_iter().flatten().flatten() {
            sample.add_thread(&task.path());
        }
        // Threads have nanosecond counters; those that have ended are only in the ticks of the process.
        sample.cpu = sample.cpu.max(before + own) + of_children;
    }
    sample
}

/// Processor time of processes in nanoseconds, with a resolution of 10 ms. Cheap enough to be called during a measurement.
#[must_use]
pub fn cpu(pids: &[u32]) -> u64 {
    let both = pids.iter().map(|pid| ticks(&format!("/proc/{pid}")));
    both.map(|(own, of_children)| own + of_children).sum()
}

/// Samples this process.
#[must_use]
pub fn sample_self() -> Sample {
    sample(&[std::process::id()])
}

impl Sample {
    fn add_thread(&mut self, folder: &Path) {
        if let Ok(text) = fs::read_to_string(folder.join("schedstat")) {
            let mut nanos = text.split(' ').map(|text| text.parse().unwrap_or(0));
            self.cpu += nanos.next().unwrap_or(0);
            self.waited += nanos.next().unwrap_or(0);
        }
        let Ok(status) = fs::read_to_string(folder.join("status")) else { return };
        for line in status.lines() {
            let Some((name, value)) = line.split_once(':') else { continue };
            let value = value.trim();
            match name {
                "voluntary_ctxt_switches" => self.voluntary += value.parse().unwrap_or(0),
                "nonvoluntary_ctxt_switches" => self.involuntary += value.parse().unwrap_or(0),
                "Cpus_allowed_list" => self.processors = self.processors.max(processors(value)),
                _ => {}
            }
        }
    }

    /// Processor time in seconds.
    #[must_use]
    pub fn cpu_seconds(&self) -> f64 {
        self.cpu as f64 / 1e9
    }

    /// Memory in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        self.memory
    }
}

/// Resource usage between two samples, in which there were `requests` responses.
#[must_use]
pub fn use_between(before: &Sample, after: &Sample, requests: u64) -> ProcessUse {
    let cpu = after.cpu.saturating_sub(before.cpu) as f64 / 1e9;
    let seconds = after.at.duration_since(before.at).as_secs_f64().max(1e-9);
    ProcessUse {
        name: after.name.clone(),
        processes: after.processes,
        cpu_seconds: cpu,
        cpu_us_per_request: (requests > 0).then(|| cpu * 1e6 / requests as f64),
        // The ticks of threads that have ended may be a tick too many.
        cpu_share: (cpu / seconds / f64::from(after.processors)).min(1.0),
        cpus_busy: (cpu / seconds).min(f64::from(after.processors)),
        waited_seconds: after.waited.saturating_sub(before.waited) as f64 / 1e9,
        memory_bytes: after.memory,
        voluntary_switches: after.voluntary.saturating_sub(before.voluntary),
        involuntary_switches: after.involuntary.saturating_sub(before.involuntary),
    }
}

/// Returns `true` if this process is bound to some of the machine's processors.
pub(crate) fn is_bound() -> bool {
    let online = fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    allowed.is_some_and(|allowed| processors(allowed.trim()) < processors(online.trim()))
}

/// Returns the number of processors in a list such as `0-3,8`.
fn processors(list: &str) -> u32 {
    let count = |part: &str| {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        Some(to.trim().parse::<u32>().ok()?.checked_sub(from.trim().parse().ok()?)? + 1)
    };
    list.split(',').filter_map(count).sum::<u32>().max(1)
}

fn memory(folder: &str) -> u64 {
    let Ok(text) = fs::read_to_string(format!("{folder}/smaps_rollup")) else { return 0 };
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:"));
    let kilobytes =
        line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    kilobytes.unwrap_or(0) * 1024
}

/// Processor time in nanoseconds of a process, and of its children that have ended, such as CGI scripts. The resolution is
/// 10 ms.
fn ticks(folder: &str) -> (u64, u64) {
    let stat = fs::read_to_string(format!("{folder}/stat")).unwrap_or_default();
    let Some((_, fields)) = stat.rsplit_once(')') else { return (0, 0) };
    let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
    let per_second = rustix::param::clock_ticks_per_second().max(1);
    let nanos = |index: usize| {
        let ticks = fields.get(index).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
        ticks * 1_000_000_000 / per_second
    };
    (nanos(11) + nanos(12), nanos(13) + nanos(14))
}

fn all_pids() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

fn parent_of(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name is in parentheses and can contain anything.
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(1)?.parse().ok()
}

fn listening_inodes(port: u16) -> HashSet<String> {
    const LISTEN: &str = "0A";
    let mut inodes = HashSet::new();
    for table in ["/proc/net/tcp", "/proc/net/tcp6"] {
        let Ok(text) = fs::read_to_string(table) else { continue };
        for line in text.lines().skip(1) {
            let fields: Vec<&str> = line.split_ascii_whitespace().collect();
            let [_, local, _, LISTEN, ..] = fields[..] else { continue };
            let Some((_, text)) = local.rsplit_once(':') else { continue };
            if u16::from_str_radix(text, 16) == Ok(port)
                && let Some(inode) = fields.get(9)
            {
                inodes.insert((*inode).to_owned());
            }
        }
    }
    inodes
}

fn holds_socket(pid: u32, inodes: &HashSet<String>) -> bool {
    let Ok(descriptors) = fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
    descriptors.flatten().any(|descriptor| {
        let target = fs::read_link(descriptor.path()).unwrap_or_default();
        let inode =
            target.to_str().and_then(|text| text.strip_prefix("socket:[")?.strip_suffix(']'));
        inode.is_some_and(|inode| inodes.contains(inode))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_listener_is_found_by_its_port_and_sampled() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let pids = listening_on(address).unwrap();
        assert!(pids.contains(&std::process::id()));
        let before = sample_self();
        let mut sum = 0_u64;
        while sample_self().cpu < before.cpu + 5_000_000 {
            sum = (0..1_000_000).fold(sum, |sum: u64, n| sum.wrapping_mul(31).wrapping_add(n));
        }
        let used = use_between(&before, &sample_self(), 100);
        assert!(used.cpu_seconds >= 0.005 && used.memory_bytes > 100_000, "{used:?} {sum}");
        assert!((used.cpu_us_per_request.unwrap() - used.cpu_seconds * 1e4).abs() < 1e-6);
        assert!(used.cpus_busy > 0.0 && used.cpus_busy >= used.cpu_share, "{used:?}");
        assert_eq!(use_between(&before, &sample_self(), 0).cpu_us_per_request, None);
        drop(listener);
        assert_eq!(listening_on(address), None);
    }

    #[test]
    fn lists_of_processors_are_counted() {
        assert_eq!((processors("0-3,8"), processors("5"), processors("")), (5, 1, 1));
    }
}
