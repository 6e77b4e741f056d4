//! Checks of the resources that a run needs, before it starts.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::plan::{Arrivals, End, Model, Plan, Reuse};

/// Provides descriptors and ports: raises the limit of descriptors as far as permitted, and adds source addresses to the plan
/// if the ports of one would run short. That is well before they are exhausted: Linux takes ports of one parity first, and
/// after those each `connect` searches all of them, which takes milliseconds.
///
/// # Errors
/// A resource is insufficient. The message states how to increase it.
pub fn prepare(plan: &mut Plan, address: SocketAddr) -> Result<(), String> {
    for source in &plan.source_addresses {
        std::net::TcpListener::bind((*source, 0))
            .map_err(|error| format!("--source {source}: {error}"))?;
    }
    let connections = plan.own_connections();
    descriptors(connections + OWN_DESCRIPTORS)?;
    let (ports, lingers) = (ports(), time_wait_lingers());
    let needed = connections + churn(plan, if lingers { 60.0 } else { 1.0 });
    let sources = plan.source_addresses.len().max(1) as u64;
    let quick = (ports / 10 * 4).max(1);
    if needed <= quick * sources {
        return Ok(());
    }
    let v4_loopback = matches!(address.ip(), IpAddr::V4(ip) if ip.is_loopback());
    if v4_loopback && plan.source_addresses.is_empty() {
        let count = (needed / quick + 1).min(200) as u8;
        plan.source_addresses =
            (0..count).map(|n| Ipv4Addr::new(127, 0, 0, 2 + n).into()).collect();
        return Ok(());
    }
    // Ports in TIME-WAIT are counted as used, although a run close to the limit may succeed.
    if connections > ports * sources {
        return Err(format!(
            "{} connections need more local ports than the {} available ones; add addresses with --source, or widen net.ipv4.ip_local_port_range",
            connections,
            ports * sources
        ));
    }
    Ok(())
}

/// Descriptors beside those of connections.
const OWN_DESCRIPTORS: u64 = 64;

/// Returns the number of connections for which there are descriptors; `None` for no limit.
pub fn max_connections() -> Option<u64> {
    Some(getrlimit(Resource::Nofile).maximum?.saturating_sub(OWN_DESCRIPTORS))
}

fn descriptors(needed: u64) -> Result<(), String> {
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= needed) {
        return Ok(());
    }
    let raised = limit.maximum.map_or(needed, |max| max.min(needed));
    // The check below reports a limit that cannot be raised.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(raised), maximum: limit.maximum });
    match getrlimit(Resource::Nofile).current {
        Some(current) if current < needed => Err(format!(
            "{needed} descriptors are needed and {current} are permitted; raise the limit with `ulimit -n {needed}`"
        )),
        _ => Ok(()),
    }
}

/// Upper bound of the connections that are opened within `seconds`.
fn churn(plan: &Plan, seconds: f64) -> u64 {
    // More than one processor can open.
    const MOST_PER_SECOND: f64 = 20_000.0;
    let length = match plan.end {
        End::Seconds(length) => length + plan.warmup_seconds,
        End::Requests(_) => f64::INFINITY,
    };
    let each = match plan.reuse {
        Reuse::Never => 1.0,
        Reuse::Requests(count) => f64::from(count),
        Reuse::Kept => return 0,
    };
    let generators = f64::from(plan.part().of);
    let per_second = match &plan.model {
        Model::OpenConnections(arrivals) => highest(arrivals) / generators,
        Model::OpenRequests(arrivals) => highest(arrivals) / each / generators,
        Model::Closed { .. } => MOST_PER_SECOND * f64::from(plan.threads),
    };
    let by_count = match plan.end {
        End::Requests(count) => count as f64 / each / generators,
        End::Seconds(_) => f64::INFINITY,
    };
    (per_second * seconds.min(length)).min(by_count) as u64
}

fn highest(arrivals: &Arrivals) -> f64 {
    match *arrivals {
        Arrivals::Constant { rate } | Arrivals::Poisson { rate } => rate,
        Arrivals::Ramp { from, to } => from.max(to),
    }
}

fn ports() -> u64 {
    let text = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let mut bounds = text.split_ascii_whitespace().filter_map(|text| text.parse::<u64>().ok());
    match (bounds.next(), bounds.next()) {
        (Some(low), Some(high)) if high >= low => high - low + 1,
        _ => 28_232,
    }
}

/// Returns `true` if a port of a closed connection stays unused for a minute, rather than a second.
fn time_wait_lingers() -> bool {
    fs::read_to_string("/proc/sys/net/ipv4/tcp_tw_reuse").is_ok_and(|text| text.trim() == "0")
}
