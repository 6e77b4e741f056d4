//! Requests, by route and by client.

use std::cmp::Reverse;

use dunlin_telemetry::metrics::{Counts, Fine, Label, Route as RouteCounts, named};
use serde::{Deserialize, Serialize};

/// Requests since the start.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Requests {
    /// All requests.
    pub total: u64,
    /// Bytes of response bodies that were sent.
    pub sent: u64,
    /// Requests by the first digit of the status.
    pub status: Vec<(String, u64)>,
    /// Requests by method.
    pub method: Vec<(String, u64)>,
    /// Requests by protocol.
    pub protocol: Vec<(String, u64)>,
    /// Histogram of durations: the upper bound of each bucket in nanoseconds, and its count.
    pub latency: Vec<(u64, u64)>,
}

/// Counters of a route.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Route {
    /// Name of the site.
    pub site: String,
    /// Pattern of the route.
    pub route: String,
    /// Requests since the start.
    pub requests: u64,
    /// Responses with status 500 or more.
    pub failed: u64,
    /// Bytes of response bodies that were sent.
    pub sent: u64,
    /// Sum of the durations in nanoseconds.
    pub took: u64,
    /// Histogram of durations, as [`Requests::latency`].
    pub latency: Vec<(u64, u64)>,
}

/// Counters of a client.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Client {
    /// Address of the client.
    pub address: String,
    /// Requests of the client.
    pub requests: u64,
    /// Bytes of response bodies that were sent to it.
    pub sent: u64,
    /// Sum of the durations in nanoseconds.
    pub took: u64,
    /// The longest duration in nanoseconds.
    pub slowest: u64,
}

impl Requests {
    /// Returns the sums over all series and routes.
    pub fn new(counts: &Counts) -> Self {
        let mut requests = Self::default();
        for series in &counts.series {
            let count = series.durations.count;
            requests.total += count;
            requests.sent += series.sizes.sum;
            add(&mut requests.status, &format!("{}xx", series.key.status / 100), count);
            add(&mut requests.method, series.key.method.as_str(), count);
            add(&mut requests.protocol, series.key.version.as_str(), count);
        }
        requests.status.sort();
        let mut all = Fine::default();
        for route in &counts.routes {
            all.add(&route.durations);
        }
        requests.latency = all.iter().collect();
        requests
    }
}

impl Route {
    /// Returns the routes that have counts.
    pub fn all(counts: &Counts) -> Vec<Self> {
        let report = |(label, counts): (Label, &RouteCounts)| {
            let (site, route) = named(label);
            Self {
                site: site.into(),
                route: route.into(),
                requests: counts.requests,
                failed: counts.failed,
                sent: counts.sent,
                took: counts.durations.sum,
                latency: counts.durations.iter().collect(),
            }
        };
        let numbered = Label::all().zip(&counts.routes);
        numbered.filter(|(_, counts)| counts.requests > 0).map(report).collect()
    }
}

impl Client {
    /// Returns the clients that were counted. The first has the most requests.
    pub fn all(counts: &Counts) -> Vec<Self> {
        let report = |client: &dunlin_telemetry::metrics::Client| Self {
            address: client.address.to_string(),
            requests: client.requests,
            sent: client.sent,
            took: client.sum,
            slowest: client.slowest,
        };
        let mut clients: Vec<_> = counts.clients.iter().map(report).collect();
        clients.sort_by_key(|client| Reverse(client.requests));
        clients
    }
}

fn add(counts: &mut Vec<(String, u64)>, name: &str, count: u64) {
    match counts.iter_mut().find(|(other, _)| other == name) {
        Some((_, sum)) => *sum += count,
        None => counts.push((name.to_owned(), count)),
    }
}
