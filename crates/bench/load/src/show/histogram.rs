//! The distribution of response times as a histogram, with more percentiles than the table has.

use std::fmt::Write;

use hdrhistogram::Histogram;

use super::layout::{Color, Paint};
use super::number::{count, milliseconds};
use crate::outcome::Latency;

/// Rows of a histogram.
const ROWS: u32 = 14;
/// Columns of the longest bar.
const BAR: f64 = 34.0;
/// Eighths of a column.
const PARTS: [char; 8] = [' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉'];
/// Percentiles below the histogram.
const PERCENTILES: [f64; 12] =
    [1.0, 10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 99.0, 99.9, 99.99, 99.999, 100.0];

/// Formats a distribution of times; empty if it has none.
pub(super) fn histogram(latency: &Latency, paint: Paint) -> String {
    let Ok(samples) = latency.to_histogram() else { return String::new() };
    if samples.is_empty() {
        return String::new();
    }
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = bars(&mut text, &samples, paint);
    let _ = percentiles(&mut text, &samples);
    text
}

fn bars(text: &mut String, samples: &Histogram<u64>, paint: Paint) -> std::fmt::Result {
    writeln!(text, "\nresponse time in ms")?;
    let edges = edges(samples.min().max(1), samples.max());
    let mut counts = vec![0; edges.len() - 1];
    for recorded in samples.iter_recorded() {
        let value = recorded.value_iterated_to().min(samples.max());
        let row = edges.partition_point(|edge| *edge <= value).saturating_sub(1);
        counts[row.min(edges.len() - 2)] += recorded.count_at_value();
    }
    let max = counts.iter().copied().max().unwrap_or(1).max(1);
    for (pair, requests) in edges.windows(2).zip(&counts) {
        let bar = bar(*requests as f64 / max as f64);
        let gap = " ".repeat((BAR as usize).saturating_sub(bar.chars().count()));
        let share = *requests as f64 * 100.0 / samples.len() as f64;
        writeln!(
            text,
            "{:>8} to {:>8}  {}{gap} {:>12} {share:>6.2} %",
            milliseconds(pair[0] as f64 / 1e6),
            milliseconds(pair[1] as f64 / 1e6),
            paint.apply(Color::Green, &bar),
            count(*requests),
        )?;
    }
    Ok(())
}

/// Edges in equal ratios, since times differ by orders of magnitude. The last one is above the largest sample.
fn edges(min: u64, max: u64) -> Vec<u64> {
    let ratio = (max as f64 / min as f64).max(1.0).powf(1.0 / f64::from(ROWS));
    let mut edges: Vec<u64> =
        (0..ROWS).map(|row| (min as f64 * ratio.powi(row as i32)) as u64).collect();
    edges.push(max + 1);
    edges.dedup();
    edges
}

/// Returns a bar of a share of the width. A share above 0 is visible.
fn bar(share: f64) -> String {
    let eighths = (share * BAR * 8.0).round() as usize;
    let eighths = if share > 0.0 { eighths.max(1) } else { 0 };
    let mut bar = "█".repeat(eighths / 8);
    if eighths % 8 > 0 {
        bar.push(PARTS[eighths % 8]);
    }
    bar
}

fn percentiles(text: &mut String, samples: &Histogram<u64>) -> std::fmt::Result {
    // A percentile beyond the number of samples is the longest time.
    let known =
        |percent: &f64| *percent == 100.0 || samples.len() as f64 * (1.0 - percent / 100.0) >= 1.0;
    let cells: Vec<String> = PERCENTILES
        .iter()
        .filter(|percent| known(percent))
        .map(|percent| {
            let nanos = samples.value_at_quantile(percent / 100.0).min(samples.max());
            let name = if *percent == 100.0 { "max".to_owned() } else { format!("p{percent}") };
            format!("{name:<8}{:>8} ms", milliseconds(nanos as f64 / 1e6))
        })
        .collect();
    writeln!(text)?;
    for line in cells.chunks(4) {
        writeln!(text, "{}", line.join(" "))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::show::WIDTH;

    fn of(times_us: impl Iterator<Item = u64>) -> String {
        let mut samples = Histogram::<u64>::new_with_bounds(1, 3_600_000_000_000, 3).unwrap();
        times_us.for_each(|us| samples.saturating_record(us * 1000));
        histogram(&Latency::from_histogram(&samples), Paint::default())
    }

    #[test]
    fn every_response_is_in_one_bar() {
        let text = of((1..=10_000).map(|n| 50 + n * n / 100));
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
        let bars = text.lines().filter(|line| line.contains(" to "));
        let counts = bars.map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            words[words.len() - 3].replace(',', "").parse::<u64>().unwrap()
        });
        assert_eq!(counts.sum::<u64>(), 10_000, "{text}");
        assert!(text.contains("p99.99 ") && !text.contains("p99.999"), "{text}");
    }

    #[test]
    fn few_or_equal_times_have_a_histogram() {
        assert!(of(std::iter::empty()).is_empty());
        for text in
            [of([70].into_iter()), of([70; 5].into_iter()), of([1, 3_600_000_000].into_iter())]
        {
            assert!(text.contains('█') && text.contains("max"), "{text}");
            assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
        }
    }
}
