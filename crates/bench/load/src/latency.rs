//! Conversion between histograms and their summary in the outcome.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer, V2DeflateSerializer};

use crate::outcome::Latency;

impl Latency {
    /// Creates the summary of samples in nanoseconds.
    #[must_use]
    pub fn from_histogram(samples: &Histogram<u64>) -> Self {
        let ms = |nanos: u64| nanos as f64 / 1e6;
        let at = |quantile| ms(samples.value_at_quantile(quantile).min(samples.max()));
        let mut bytes = Vec::new();
        // Writing to memory cannot fail. An error would give an empty text.
        let _ = V2DeflateSerializer::new().serialize(samples, &mut bytes);
        Self {
            count: samples.len(),
            min: if samples.is_empty() { 0.0 } else { ms(samples.min()) },
            mean: samples.mean() / 1e6,
            stddev: samples.stdev() / 1e6,
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p999: at(0.999),
            max: ms(samples.max()),
            histogram: STANDARD.encode(bytes),
        }
    }

    /// Returns the samples in nanoseconds.
    ///
    /// # Errors
    /// The text is malformed.
    pub fn to_histogram(&self) -> Result<Histogram<u64>, String> {
        let bytes = STANDARD.decode(&self.histogram).map_err(|error| error.to_string())?;
        Deserializer::new().deserialize(&mut bytes.as_slice()).map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn histograms_round_trip_through_text() {
        let mut samples = Histogram::<u64>::new_with_bounds(1, 3_600_000_000_000, 3).unwrap();
        (1..=1000).for_each(|n| samples.saturating_record(n * 1_000_000));
        let summary = Latency::from_histogram(&samples);
        assert!(
            (summary.p50 - 500.0).abs() < 0.6 && (summary.p99 - 990.0).abs() < 1.1,
            "{summary:?}"
        );
        assert_eq!(summary.count, 1000);
        assert_eq!(summary.to_histogram().unwrap(), samples);
    }
}
