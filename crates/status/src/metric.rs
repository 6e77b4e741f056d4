//! The columns of the table: what a row states about a metric, and how its values are read and added up.

use dunlin_telemetry::metrics::{BOUNDS, Counts, PhaseSums, SIZES, Seconds, Sizes};

use crate::report::Report;

/// A metric: a row of the table.
pub(crate) struct Metric<T: 'static> {
    /// Its name, which the unit completes.
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) unit: Unit,
    pub(crate) help: &'static str,
    pub(crate) samples: Samples<T>,
    /// Reads the last label, `dry_run`: `true` for a limit that only counts.
    pub(crate) dry_run: Option<fn(&T) -> bool>,
}

/// The kind of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Counter,
    Gauge,
    Histogram,
    Summary,
}

/// The unit of a metric, in which its name ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    Plain,
    Bytes,
    Seconds,
}

/// The samples that an entry of the report has of a metric.
pub(crate) struct Samples<T: 'static> {
    /// The label by which they differ; empty if there is one sample.
    pub(crate) label: &'static str,
    /// By the value of the label, which is empty if the entry has it.
    pub(crate) values: &'static [(&'static str, Value<T>)],
}

/// A value of an entry of the report.
pub(crate) struct Value<T> {
    pub(crate) read: fn(&T) -> Reading<'_>,
    /// Adds the value of the same entry of another server.
    pub(crate) sum: fn(&mut T, &T),
}

/// What is read of a value.
pub(crate) enum Reading<'r> {
    Absent,
    Count(u64),
    Number(f64),
    Counts(&'r [(String, u64)]),
    /// The value of a label.
    Text(&'r str),
    Histogram(Buckets<'r>),
    Phases(&'r PhaseSums),
}

/// A histogram, in bytes or nanoseconds.
pub(crate) struct Buckets<'r> {
    pub(crate) bounds: &'static [u64],
    /// One more than bounds.
    pub(crate) buckets: &'r [u64],
    pub(crate) count: u64,
    pub(crate) sum: u64,
}

/// The rows of one kind of entries.
pub(crate) struct Group<T: 'static> {
    /// Returns the entries with their labels.
    pub(crate) entries: for<'s> fn(Source<'s>) -> Vec<(String, &'s T)>,
    pub(crate) metrics: &'static [Metric<T>],
    /// How the values add up that `status.json` has beside the metrics.
    pub(crate) others: &'static [fn(&mut T, &T)],
}

/// What metrics are read from.
#[derive(Clone, Copy)]
pub(crate) struct Source<'s> {
    pub(crate) report: &'s Report,
    pub(crate) counts: &'s Counts,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
            Self::Summary => "summary",
        }
    }
}

impl Unit {
    pub(crate) fn suffix(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Bytes => "_bytes",
            Self::Seconds => "_seconds",
        }
    }

    /// Returns what a histogram or a sum counts, which counts time in nanoseconds.
    pub(crate) fn of(self, counted: u64) -> f64 {
        if self == Self::Seconds { counted as f64 / 1e9 } else { counted as f64 }
    }
}

impl<T> Group<T> {
    /// Adds the values of the same entry of another server.
    pub(crate) fn add(&self, sum: &mut T, of: &T) {
        for metric in self.metrics {
            metric.samples.values.iter().for_each(|(_, value)| (value.sum)(sum, of));
        }
        for add in self.others {
            add(sum, of);
        }
    }
}

/// A type of the report that a metric can show.
pub(crate) trait Readable {
    fn reading(&self) -> Reading<'_>;
}

macro_rules! readable {
    ($($type:ty: |$of:ident| $reading:expr;)+) => {$(
        impl Readable for $type {
            fn reading(&self) -> Reading<'_> {
                let $of = self;
                $reading
            }
        }
    )+};
}

readable! {
    u64: |of| Reading::Count(*of);
    f64: |of| Reading::Number(*of);
    Option<f64>: |of| of.map_or(Reading::Absent, Reading::Number);
    bool: |of| Reading::Count((*of).into());
    // An error: the metric shows that there is one.
    Option<String>: |of| Reading::Count(of.is_some().into());
    String: |of| Reading::Text(of);
    Vec<(String, u64)>: |of| Reading::Counts(of);
    PhaseSums: |of| Reading::Phases(of);
    Seconds: |of| Reading::Histogram(Buckets { bounds: &BOUNDS, buckets: &of.buckets, count: of.count, sum: of.sum });
    Sizes: |of| Reading::Histogram(Buckets { bounds: &SIZES, buckets: &of.buckets, count: of.count, sum: of.sum });
}
