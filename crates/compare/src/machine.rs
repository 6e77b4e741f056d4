//! Description of the machine.

use std::collections::BTreeMap;
use std::fs;

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
        ("load before", "/proc/loadavg"),
    ] {
        let value = read(path);
        if !value.is_empty() {
            facts.insert(fact.to_owned(), value);
        }
    }
    if cpuinfo.contains(" hypervisor") {
        facts.insert("virtual".to_owned(), "yes".to_owned());
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
        facts,
    }
}
