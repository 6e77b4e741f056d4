//! Description of the machine.

use std::collections::BTreeMap;
use std::fs;
use std::time::Instant;

use crate::results::Machine;

/// Describes this machine. `server` and `load` are the processors of servers and load generator.
pub(crate) fn describe(server: u32, load: u32) -> Machine {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    let cpuinfo = read("/proc/cpuinfo");
    let field = |text: &str, name: &str| {
        let line = text.lines().find(|line| line.starts_with(name))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    let memory = field(&read("/proc/meminfo"), "MemTotal");
    let kilobytes = memory.and_then(|text| text.strip_suffix("kB")?.trim().parse::<u64>().ok());
    let release = read("/etc/os-release");
    let name = release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    let mut facts = BTreeMap::new();
    for (fact, path) in [
        ("governor", "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        ("clock source", "/sys/devices/system/clocksource/clocksource0/current_clocksource"),
        ("congestion control", "/proc/sys/net/ipv4/tcp_congestion_control"),
    ] {
        let value = read(path);
        if !value.is_empty() {
            facts.insert(fact.to_owned(), value);
        }
    }
    if cpuinfo.contains(" hypervisor") {
        facts.insert("virtual machine".to_owned(), "yes".to_owned());
    }
    Machine {
        processor: field(&cpuinfo, "model name")
            .unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
        processors: cpuinfo.lines().filter(|line| line.starts_with("processor")).count().max(1)
            as u32,
        server_processors: server.to_string(),
        load_processors: load.to_string(),
        memory_bytes: kilobytes.unwrap_or(0) * 1024,
        kernel: read("/proc/sys/kernel/osrelease"),
        distribution: name.unwrap_or("unknown").trim_matches('"').to_owned(),
        load_before: read("/proc/loadavg").split(' ').next().and_then(|load| load.parse().ok()),
        others_share: None,
        facts,
    }
}

/// Processor time used on this machine, to find the part of programs outside of the comparison.
pub(crate) struct Usage {
    at: Instant,
    /// Seconds that all processors were busy.
    all: f64,
    /// Seconds that this process and its descendants used. Those of a child count when it has ended.
    own: f64,
}

impl Usage {
    /// Returns the time used until now; `None` if the system does not report it.
    pub(crate) fn now() -> Option<Self> {
        let per_second = rustix::param::clock_ticks_per_second() as f64;
        let stat = fs::read_to_string("/proc/stat").ok()?;
        let ticks: Vec<f64> = stat
            .lines()
            .next()?
            .split_ascii_whitespace()
            .skip(1)
            .filter_map(|text| text.parse().ok())
            .collect();
        // user, nice, system, idle, iowait, irq, softirq, steal; proc_pid_stat(5), proc_stat(5).
        let busy = [0, 1, 2, 5, 6, 7].into_iter().filter_map(|index| ticks.get(index));
        let own = fs::read_to_string("/proc/self/stat").ok()?;
        // The name is in parentheses and can contain anything.
        let own: Vec<f64> = own
            .rsplit_once(')')?
            .1
            .split_ascii_whitespace()
            .skip(11)
            .take(4)
            .filter_map(|text| text.parse().ok())
            .collect();
        Some(Self {
            at: Instant::now(),
            all: busy.sum::<f64>() / per_second,
            own: own.iter().sum::<f64>() / per_second,
        })
    }

    /// Returns the share of all processors that other programs have used since then, 0 to 1.
    pub(crate) fn others_since(&self, processors: u32) -> Option<f64> {
        let now = Self::now()?;
        let available = now.at.duration_since(self.at).as_secs_f64() * f64::from(processors);
        let others = (now.all - self.all) - (now.own - self.own);
        (available > 0.0).then(|| (others / available).clamp(0.0, 1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_of_this_process_is_not_that_of_others() {
        let before = Usage::now().unwrap();
        let mut sum = 0_u64;
        while Usage::now().unwrap().own < before.own + 0.05 {
            sum = (0..1_000_000).fold(sum, |sum: u64, n| sum.wrapping_mul(31).wrapping_add(n));
        }
        let after = Usage::now().unwrap();
        // Ticks of 10 ms, which are read one after the other.
        assert!(after.all - before.all > 0.02, "{sum}");
        assert!(before.others_since(1_000).unwrap() < 0.5);
    }
}
