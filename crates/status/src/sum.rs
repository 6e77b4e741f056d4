//! The sum of the reports of several servers.

use std::cmp::Reverse;

use crate::report::Report;
use crate::table::OF_SERVER;

/// Maximum of clients in a sum.
const MAX_CLIENTS: usize = 64;

impl Report {
    /// Returns the report of several servers as if they were one: counts add up, and list entries are merged by key.
    ///
    /// Of times, it has the first start and the last report; of versions and settings, those of the first report.
    pub fn sum(reports: &[Self]) -> Self {
        let Some((first, others)) = reports.split_first() else { return Self::default() };
        let mut sum = first.clone();
        for report in others {
            OF_SERVER.iter().for_each(|group| group.add(&mut sum, report));
        }
        if !others.is_empty() {
            sum.clients.sort_by_key(|client| Reverse(client.requests));
            sum.clients.truncate(MAX_CLIENTS);
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::report::{Certificate, Client, Route, Scripts, Upstream};

    fn report(requests: u64, started: f64, route: &str) -> Report {
        let mut report = Report::default();
        report.server.started = started;
        report.server.time = started + 10.0;
        report.server.pid = 7;
        report.process.cpu = 0.5;
        report.requests.total = requests;
        report.requests.status = vec![("2".to_owned(), requests), (route.to_owned(), 1)];
        report.requests.latency = vec![(1000, requests)];
        report.spans = (1, 2);
        let (site, route) = ("a".to_owned(), route.to_owned());
        report.routes = vec![Route { site, route, requests, ..Route::default() }];
        let address = "192.0.2.1".to_owned();
        report.clients = vec![Client { address, requests, slowest: requests, ..Client::default() }];
        report.scripts = vec![Scripts { name: "app".to_owned(), max: 4, ..Scripts::default() }];
        report
    }

    #[test]
    fn counts_add_up_and_entries_of_lists_are_matched_by_what_they_name() {
        let sum =
            Report::sum(&[report(5, 100.0, "/*"), report(7, 90.0, "/*"), report(1, 95.0, "/b")]);
        assert_eq!((sum.requests.total, sum.process.cpu), (13, 1.5));
        assert_eq!((sum.server.started, sum.server.time, sum.server.pid), (90.0, 110.0, 7));
        assert_eq!(sum.requests.latency, [(1000, 13)]);
        let status = [("2", 13), ("/*", 2), ("/b", 1)].map(|(key, n)| (key.to_owned(), n));
        assert_eq!(sum.requests.status, status);
        let routes: Vec<_> = sum.routes.iter().map(|r| (r.route.as_str(), r.requests)).collect();
        assert_eq!(routes, [("/*", 12), ("/b", 1)]);
        assert_eq!((sum.clients[0].requests, sum.clients[0].slowest), (13, 7));
        assert_eq!((sum.scripts[0].max, sum.spans), (12, (3, 6)));
    }

    #[test]
    fn a_sum_has_the_clients_with_the_most_requests() {
        let with = |first: u64| {
            let clients = (first..first + 60).map(|n| Client {
                address: n.to_string(),
                requests: n,
                ..Client::default()
            });
            Report { clients: clients.collect(), ..Report::default() }
        };
        let clients = Report::sum(&[with(1), with(31)]).clients;
        assert_eq!((clients.len(), &*clients[0].address, clients[0].requests), (64, "60", 120));
    }

    #[test]
    fn the_sum_of_one_report_is_that_report() {
        let one = report(5, 100.0, "/*");
        let text = |report: &Report| serde_json::to_string(report).unwrap();
        assert_eq!(text(&Report::sum(std::slice::from_ref(&one))), text(&one));
        assert_eq!(text(&Report::sum(&[])), text(&Report::default()));
    }

    #[test]
    fn buckets_are_in_the_order_of_their_bounds() {
        let with = |latency: &[(u64, u64)]| {
            let mut report = Report { routes: vec![Route::default()], ..Report::default() };
            report.requests.latency = latency.to_vec();
            report.routes[0].latency = latency.to_vec();
            report
        };
        let sum = Report::sum(&[with(&[(1, 1), (9, 50)]), with(&[(5, 50), (9, 2)])]);
        assert_eq!(sum.requests.latency, [(1, 1), (5, 50), (9, 52)]);
        assert_eq!(sum.routes[0].latency, sum.requests.latency);
    }

    #[test]
    fn what_is_no_count_has_a_rule_of_its_own() {
        let with = |expires, error: Option<&str>, is_available| {
            let error = error.map(str::to_owned);
            let certificate = Certificate { expires, error, ..Certificate::default() };
            let upstream = Upstream { is_available, ..Upstream::default() };
            Report {
                certificates: vec![certificate],
                upstreams: vec![upstream],
                ..Report::default()
            }
        };
        let sum = Report::sum(&[
            with(None, None, true),
            with(Some(5.0), Some("b"), false),
            with(Some(3.0), Some("c"), true),
            with(None, None, true),
        ]);
        let [certificate] = &*sum.certificates else { panic!("{:?}", sum.certificates) };
        assert_eq!((certificate.expires, certificate.error.as_deref()), (Some(3.0), Some("b")));
        assert!(!sum.upstreams[0].is_available);
    }

    #[test]
    fn the_table_has_each_number_of_the_report() {
        let one = full();
        let sum = json(&Report::sum(&[one.clone(), one.clone()]));
        let mut kept = Vec::new();
        compare(&json(&one), &sum, String::new(), &mut kept);
        let expected = [
            ".certificates.0.expires",
            ".certificates.0.failed_at",
            ".certificates.0.next_try",
            ".certificates.0.renewal",
            ".clients.0.slowest",
            ".replicas.each.0.started",
            ".requests.latency.0.0",
            ".routes.0.latency.0.0",
            ".server.pid",
            ".server.started",
            ".server.time",
            ".upstreams.0.last_failure",
        ];
        kept.sort();
        assert_eq!(kept, expected);
    }

    fn json(report: &Report) -> Value {
        serde_json::to_value(report).unwrap()
    }

    /// Returns a report with an entry in each list, and 3 as each number.
    fn full() -> Report {
        let counts = || json!([["a", 0]]);
        let report = json!({
            "connections": { "open": counts() },
            "requests": {
                "status": counts(), "method": counts(), "protocol": counts(), "latency": [[0, 0]],
            },
            "cache": { "eviction": counts() },
            "responses": { "requests": counts() },
            "routes": [{ "latency": [[0, 0]] }],
            "clients": [{}],
            "scripts": [{}],
            "components": [{ "stops": counts() }],
            "upstreams": [{ "last_failure": 0 }],
            "object_stores": [{}],
            "limits": [{ "concurrency": {}, "bandwidth": {}, "rates": [{}] }],
            "fleet": {},
            "replicas": { "each": [{ "started": 0, "age": 0 }] },
            "certificates": [{ "expires": 0, "renewal": 0, "failed_at": 0, "next_try": 0 }],
        });
        let mut report = json(&serde_json::from_value(report).unwrap());
        fill(&mut report);
        serde_json::from_value(report).unwrap()
    }

    fn fill(value: &mut Value) {
        match value {
            Value::Object(fields) => fields.values_mut().for_each(fill),
            Value::Array(entries) => entries.iter_mut().for_each(fill),
            Value::Number(_) => *value = 3.into(),
            _ => {}
        }
    }

    /// Adds the paths of the numbers that are not twice as large in the sum to `kept`.
    fn compare(one: &Value, sum: &Value, path: String, kept: &mut Vec<String>) {
        match (one, sum) {
            (Value::Object(one), Value::Object(sum)) => {
                assert!(one.keys().eq(sum.keys()));
                for (name, value) in one {
                    compare(value, &sum[name], format!("{path}.{name}"), kept);
                }
            }
            (Value::Array(one), Value::Array(sum)) => {
                assert_eq!(one.len(), sum.len(), "{path}");
                for (at, (one, sum)) in one.iter().zip(sum).enumerate() {
                    compare(one, sum, format!("{path}.{at}"), kept);
                }
            }
            (Value::Number(_), _) if sum.as_f64() == Some(3.0) => kept.push(path),
            (Value::Number(_), _) => assert_eq!(sum.as_f64(), Some(6.0), "{path}"),
            _ => assert_eq!(one, sum, "{path}"),
        }
    }
}
