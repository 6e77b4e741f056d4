//! The sum of the reports of several servers.

use serde_json::{Map, Value};

use super::report::Report;

/// Fields that are not counts: the sum has the largest.
const LARGEST: [&str; 2] = ["time", "slowest"];
/// Fields that are not counts: the sum has the smallest.
const SMALLEST: [&str; 5] = ["started", "expires", "renewal", "failed_at", "next_try"];
/// Fields that identify the entries of lists. The others of an entry are counts, or are the same in all reports.
const IDENTITY: [&str; 7] = ["site", "route", "address", "name", "kind", "file", "limit"];

impl Report {
    /// The report of several servers as if they were one: counts add up, entries of lists by what they are entries of.
    ///
    /// Of times, it has the first start and the last report; of versions and settings, those of the first report.
    ///
    /// # Errors
    /// The sum is no report, which would be a fault of the rules here.
    pub fn sum(reports: &[Self]) -> Result<Self, serde_json::Error> {
        let [first, rest @ ..] = reports else { return Ok(Self::default()) };
        let mut sum = serde_json::to_value(first)?;
        for report in rest {
            add(&mut sum, serde_json::to_value(report)?, "");
        }
        serde_json::from_value(sum)
    }
}

/// Adds a value of the field `name`.
fn add(sum: &mut Value, other: Value, name: &str) {
    match (&mut *sum, other) {
        (Value::Object(sum), Value::Object(other)) => add_fields(sum, other),
        // Counts by position.
        (Value::Array(sum), Value::Array(other)) if sum.iter().any(Value::is_number) => {
            sum.iter_mut().zip(other).for_each(|(own, other)| add(own, other, ""));
        }
        (Value::Array(sum), Value::Array(other)) => {
            for entry in other {
                match sum.iter_mut().find(|own| is_same(own, &entry)) {
                    Some(own) => add_entry(own, entry),
                    None => sum.push(entry),
                }
            }
        }
        (Value::Bool(sum), Value::Bool(other)) => *sum = *sum && other,
        (Value::Null, other) => *sum = other,
        (Value::Number(_), Value::Number(_)) if name == "pid" => {}
        (Value::Number(own), Value::Number(other)) => *own = combine(own, &other, name),
        // Texts, and what one of the servers lacks.
        _ => {}
    }
}

fn add_fields(sum: &mut Map<String, Value>, other: Map<String, Value>) {
    for (name, value) in other {
        match sum.get_mut(&name) {
            Some(own) => add(own, value, &name),
            None => {
                sum.insert(name, value);
            }
        }
    }
}

/// Adds an entry of a list: an object, or a pair of a key and a count.
fn add_entry(own: &mut Value, other: Value) {
    match (own, other) {
        (Value::Array(own), Value::Array(other)) => {
            if let (Some(own), Some(other)) = (own.get_mut(1), other.into_iter().nth(1)) {
                add(own, other, "");
            }
        }
        (own, other) => add(own, other, ""),
    }
}

/// Whether two entries of lists are of the same.
fn is_same(own: &Value, other: &Value) -> bool {
    match (own, other) {
        (Value::Array(own), Value::Array(other)) => own.first() == other.first(),
        (Value::Object(own), Value::Object(other)) => {
            IDENTITY.iter().all(|field| own.get(*field) == other.get(*field))
        }
        (own, other) => own == other,
    }
}

fn combine(own: &serde_json::Number, other: &serde_json::Number, name: &str) -> serde_json::Number {
    if let (Some(own), Some(other)) = (own.as_u64(), other.as_u64()) {
        return match name {
            _ if LARGEST.contains(&name) => own.max(other),
            _ if SMALLEST.contains(&name) => own.min(other),
            _ => own.saturating_add(other),
        }
        .into();
    }
    let (a, b) = (own.as_f64().unwrap_or_default(), other.as_f64().unwrap_or_default());
    let combined = match name {
        _ if LARGEST.contains(&name) => a.max(b),
        _ if SMALLEST.contains(&name) => a.min(b),
        _ => a + b,
    };
    serde_json::Number::from_f64(combined).unwrap_or_else(|| own.clone())
}

#[cfg(test)]
mod tests {
    use super::super::{Client, Route, Scripts};
    use super::*;

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
            Report::sum(&[report(5, 100.0, "/*"), report(7, 90.0, "/*"), report(1, 95.0, "/b")])
                .unwrap();
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
    fn the_sum_of_one_report_is_that_report() {
        let one = report(5, 100.0, "/*");
        let text = |report: &Report| serde_json::to_string(report).unwrap();
        assert_eq!(text(&Report::sum(std::slice::from_ref(&one)).unwrap()), text(&one));
        assert_eq!(text(&Report::sum(&[]).unwrap()), text(&Report::default()));
    }
}
