//! The metrics in the text format of Prometheus (0.0.4) and in OpenMetrics 1.0.

use std::fmt::{Display, Write};

use crate::metric::{Buckets, Group, Kind, Metric, Reading, Source, Unit};

/// A text format. The two differ in the names of counters and at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// The text format of Prometheus.
    Prometheus,
    /// OpenMetrics.
    OpenMetrics,
}

impl Form {
    /// Returns the format that the client prefers.
    pub fn of(accept: Option<&[u8]>) -> Self {
        let wanted = b"application/openmetrics-text";
        let accepted = accept.is_some_and(|types| memchr::memmem::find(types, wanted).is_some());
        if accepted { Self::OpenMetrics } else { Self::Prometheus }
    }

    /// Returns its media type.
    pub fn media_type(self) -> &'static str {
        match self {
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// The text so far.
pub(crate) struct Exposition {
    text: String,
    form: Form,
}

/// Rows of the table.
pub(crate) trait Section: Sync {
    fn write(&self, source: Source<'_>, out: &mut Exposition);
}

impl<T> Section for Group<T> {
    fn write(&self, source: Source<'_>, out: &mut Exposition) {
        let entries = (self.entries)(source);
        for metric in self.metrics {
            let name = out.family(metric);
            for (labels, of) in &entries {
                for (at, value) in metric.samples.values {
                    out.samples(metric, &name, (labels, at), of, (value.read)(of));
                }
            }
        }
    }
}

// Writing to a String cannot fail.
macro_rules! line {
    ($out:expr, $($arguments:tt)*) => { let _ = writeln!($out.text, $($arguments)*); };
}

impl Exposition {
    pub(crate) fn new(form: Form) -> Self {
        Self { text: String::with_capacity(16 * 1024), form }
    }

    /// Returns the text with its end.
    pub(crate) fn end(mut self) -> String {
        if self.form == Form::OpenMetrics {
            self.text.push_str("# EOF\n");
        }
        self.text
    }

    /// Writes the head of a metric, and returns the name of its samples. In OpenMetrics the head of a counter lacks their
    /// suffix `_total`.
    fn family<T>(&mut self, metric: &Metric<T>) -> String {
        let Metric { name, kind, unit, help, .. } = metric;
        let total = if *kind == Kind::Counter { "_total" } else { "" };
        let name = format!("{name}{}", unit.suffix());
        let head = if self.form == Form::Prometheus { total } else { "" };
        line!(self, "# HELP {name}{head} {help}");
        line!(self, "# TYPE {name}{head} {}", kind.name());
        name + total
    }

    /// Writes what was read of a value of an entry. `at` is the value of the label of the samples, unless the entry has it.
    fn samples<T>(
        &mut self,
        metric: &Metric<T>,
        name: &str,
        (labels, at): (&str, &str),
        of: &T,
        reading: Reading<'_>,
    ) {
        let labels = |at: &str| {
            let labels = with(labels.to_owned(), metric.samples.label, at);
            match metric.dry_run {
                Some(is_dry_run) => with(labels, "dry_run", &is_dry_run(of).to_string()),
                None => labels,
            }
        };
        match reading {
            Reading::Absent => {}
            Reading::Count(count) => self.sample(name, &labels(at), count),
            Reading::Number(number) => self.sample(name, &labels(at), number),
            Reading::Text(at) => self.sample(name, &labels(at), 1),
            Reading::Counts(counts) => {
                counts.iter().for_each(|(at, count)| self.sample(name, &labels(at), count));
            }
            Reading::Histogram(of) => self.histogram(name, &labels(at), &of, metric.unit),
            Reading::Phases(of) => {
                for (phase, requests, nanos) in of.iter() {
                    let labels = labels(phase);
                    self.sample(&format!("{name}_sum"), &labels, metric.unit.of(nanos));
                    self.sample(&format!("{name}_count"), &labels, requests);
                }
            }
        }
    }

    fn sample(&mut self, name: &str, labels: &str, value: impl Display) {
        if labels.is_empty() {
            line!(self, "{name} {value}");
        } else {
            line!(self, "{name}{{{labels}}} {value}");
        }
    }

    fn histogram(&mut self, name: &str, labels: &str, of: &Buckets<'_>, unit: Unit) {
        let mut below = 0;
        for (count, &bound) in of.buckets.iter().zip(of.bounds) {
            below += count;
            let bound = unit.of(bound);
            line!(self, "{name}_bucket{{{labels},le=\"{bound:?}\"}} {below}");
        }
        let (count, sum) = (of.count, unit.of(of.sum));
        line!(self, "{name}_bucket{{{labels},le=\"+Inf\"}} {count}");
        line!(self, "{name}_sum{{{labels}}} {sum}");
        line!(self, "{name}_count{{{labels}}} {count}");
    }
}

/// Returns labels as text.
pub(crate) fn labels(of: &[(&str, &str)]) -> String {
    of.iter().fold(String::new(), |text, (label, value)| with(text, label, value))
}

/// Adds a label, if it has a name.
fn with(mut labels: String, label: &str, value: &str) -> String {
    if !label.is_empty() {
        let comma = if labels.is_empty() { "" } else { "," };
        let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        let _ = write!(labels, "{comma}{label}=\"{value}\"");
    }
    labels
}

#[cfg(test)]
mod tests {
    use dunlin_telemetry::metrics::Metrics;

    use super::*;
    use crate::report::{ObjectStore, Rate, Report, RouteLimits};
    use crate::table::metrics;

    fn text(report: &Report, form: Form) -> String {
        metrics(report, &Metrics::default().sum(), form)
    }

    #[test]
    fn a_metric_has_one_head_and_only_samples_of_counters_end_in_total_in_both_formats() {
        let text = |form| text(&Report::default(), form);
        let names = |text: &str| -> Vec<String> {
            let heads = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
            heads.map(|head| head.split(' ').next().unwrap_or_default().to_owned()).collect()
        };
        let (old, new) = (text(Form::Prometheus), text(Form::OpenMetrics));
        assert!(
            old.contains("# TYPE process_cpu_seconds_total counter\nprocess_cpu_seconds_total 0")
        );
        assert!(new.contains("# TYPE process_cpu_seconds counter\nprocess_cpu_seconds_total 0"));
        assert!(new.ends_with("# EOF\n") && !old.contains("# EOF"));
        let mut once = names(&old);
        once.sort();
        once.dedup();
        assert_eq!(once.len(), names(&old).len());
        assert!(names(&new).iter().all(|name| !name.ends_with("_total")));
    }

    #[test]
    fn values_of_labels_are_escaped() {
        let name = "a\"b\\c\nd".to_owned();
        let rate = Rate { rule: "1/s".to_owned(), dry_run: true, passed: 2, rejected: 3 };
        let limits = RouteLimits { site: name.clone(), rates: vec![rate], ..Default::default() };
        let report = Report {
            object_stores: vec![ObjectStore { name, is_available: true, ..Default::default() }],
            limits: vec![limits],
            ..Report::default()
        };
        let text = text(&report, Form::Prometheus);
        let name = r#"a\"b\\c\nd"#;
        assert!(text.contains(&format!("dunlin_object_store_available{{store=\"{name}\"}} 1\n")));
        let at = r#"http_route="",limit="1/s",dry_run="true",result="rejected""#;
        let expected = format!("dunlin_limit_requests_total{{dunlin_site=\"{name}\",{at}}} 3\n");
        assert!(text.contains(&expected), "{text}");
    }
}
