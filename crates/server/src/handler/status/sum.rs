//! The sum of the reports of several servers.

use std::cmp::Reverse;
use std::collections::HashMap;

use serde_json::{Map, Number, Value};

use super::report::Report;

/// Fields that are not counts: the sum has the largest.
const LARGEST: [&str; 3] = ["time", "slowest", "last_failure"];
/// Fields that are not counts: the sum has the smallest.
const SMALLEST: [&str; 5] = ["started", "expires", "renewal", "failed_at", "next_try"];
/// Fields that identify the entries of lists. The others of an entry are counts, or are the same in all reports.
const IDENTITY: [&str; 7] = ["site", "route", "address", "name", "kind", "file", "limit"];
/// Maximum of clients in a sum.
const MAX_CLIENTS: usize = 64;

impl Report {
    /// Returns the report of several servers as if they were one: counts add up, and list entries are merged by key.
    ///
    /// Of times, it has the first start and the last report; of versions and settings, those of the first report.
    ///
    /// # Errors
    /// The sum is not a valid report (a bug in this module).
    pub fn sum(reports: &[Self]) -> Result<Self, serde_json::Error> {
        match reports {
            [] => return Ok(Self::default()),
            [one] => return Ok(one.clone()),
            _ => {}
        }
        let values: Result<Vec<_>, _> = reports.iter().map(serde_json::to_value).collect();
        let mut sum: Self = serde_json::from_value(add(values?, ""))?;
        sum.clients.sort_by_key(|client| Reverse(client.requests));
        sum.clients.truncate(MAX_CLIENTS);
        Ok(sum)
    }
}

/// Adds up the values of the field `name`.
fn add(mut values: Vec<Value>, name: &str) -> Value {
    values.retain(|value| !value.is_null());
    match values.first() {
        Some(Value::Object(_)) => add_objects(values),
        // Counts by position.
        Some(Value::Array(first)) if first.iter().any(Value::is_number) => {
            add_positions(first.len(), values)
        }
        Some(Value::Array(_)) => add_lists(values),
        Some(Value::Bool(_)) => values.iter().all(|value| *value == Value::Bool(true)).into(),
        Some(Value::Number(_)) if name != "pid" => {
            let numbers = values.into_iter().filter_map(|value| match value {
                Value::Number(number) => Some(number),
                _ => None,
            });
            numbers.reduce(|a, b| combine(a, &b, name)).map_or(Value::Null, Value::Number)
        }
        // Texts.
        Some(_) => values.swap_remove(0),
        None => Value::Null,
    }
}

fn add_objects(values: Vec<Value>) -> Value {
    let mut fields: Vec<(String, Vec<Value>)> = Vec::new();
    let mut places: HashMap<String, usize> = HashMap::new();
    for value in values {
        let Value::Object(object) = value else { continue };
        for (name, value) in object {
            let place = *places.entry(name.clone()).or_insert(fields.len());
            match fields.get_mut(place) {
                Some((_, values)) => values.push(value),
                None => fields.push((name, vec![value])),
            }
        }
    }
    let added = fields.into_iter().map(|(name, values)| {
        let sum = add(values, &name);
        (name, sum)
    });
    Value::Object(added.collect::<Map<_, _>>())
}

fn add_positions(count: usize, values: Vec<Value>) -> Value {
    let mut columns: Vec<Vec<Value>> = vec![Vec::new(); count];
    for value in values {
        let Value::Array(row) = value else { continue };
        columns.iter_mut().zip(row).for_each(|(column, value)| column.push(value));
    }
    columns.into_iter().map(|column| add(column, "")).collect()
}

/// Merges lists of objects or key-count pairs by key.
fn add_lists(values: Vec<Value>) -> Value {
    let mut groups: Vec<Vec<Value>> = Vec::new();
    let mut places: HashMap<(String, usize), usize> = HashMap::new();
    for value in values {
        let Value::Array(entries) = value else { continue };
        // A list may have two entries of the same name: the second one belongs to the second one of the others.
        let mut seen: HashMap<String, usize> = HashMap::new();
        for entry in entries {
            let identity = identity(&entry);
            let nth = seen.entry(identity.clone()).or_default();
            let place = *places.entry((identity, *nth)).or_insert(groups.len());
            *nth += 1;
            match groups.get_mut(place) {
                Some(group) => group.push(entry),
                None => groups.push(vec![entry]),
            }
        }
    }
    groups.into_iter().map(add_entries).collect()
}

/// Adds up list entries with the same key.
fn add_entries(entries: Vec<Value>) -> Value {
    let Some(Value::Array(first)) = entries.first() else { return add(entries, "") };
    let key = first.first().cloned().unwrap_or_default();
    let counts = entries.into_iter().filter_map(|entry| match entry {
        Value::Array(pair) => pair.into_iter().nth(1),
        _ => None,
    });
    Value::Array(vec![key, add(counts.collect(), "")])
}

/// Returns the key of a list entry.
fn identity(entry: &Value) -> String {
    match entry {
        Value::Array(pair) => pair.first().map(Value::to_string).unwrap_or_default(),
        Value::Object(fields) => {
            let named = IDENTITY.iter().filter_map(|name| Some((name, fields.get(*name)?)));
            named.map(|(name, value)| format!("{name}={value};")).collect()
        }
        other => other.to_string(),
    }
}

fn combine(own: Number, other: &Number, name: &str) -> Number {
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
    Number::from_f64(combined).unwrap_or(own)
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
    fn a_sum_has_the_clients_with_the_most_requests() {
        let with = |first: u64| {
            let clients = (first..first + 60).map(|n| Client {
                address: n.to_string(),
                requests: n,
                ..Client::default()
            });
            Report { clients: clients.collect(), ..Report::default() }
        };
        let clients = Report::sum(&[with(1), with(31)]).unwrap().clients;
        assert_eq!((clients.len(), &*clients[0].address, clients[0].requests), (64, "60", 120));
    }

    #[test]
    fn the_sum_of_one_report_is_that_report() {
        let one = report(5, 100.0, "/*");
        let text = |report: &Report| serde_json::to_string(report).unwrap();
        assert_eq!(text(&Report::sum(std::slice::from_ref(&one)).unwrap()), text(&one));
        assert_eq!(text(&Report::sum(&[]).unwrap()), text(&Report::default()));
    }
}
