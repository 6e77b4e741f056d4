//! The charts of a comparison as SVG. Colours stand for servers and are the same in all charts.

use super::{bars, format, lines};
use crate::results::{Chart, Results};

/// A chart as it is drawn.
pub(super) struct DrawnChart {
    /// Name of its scenario.
    pub(super) scenario: String,
    /// Key of the metric that it belongs to; absent for the charts of the scenario.
    pub(super) metric: Option<String>,
    /// Name of its file.
    pub(super) file: String,
    /// Title.
    pub(super) title: String,
    /// The picture.
    pub(super) svg: String,
}

/// Returns all charts. Those without a figure are omitted.
pub(super) fn all(results: &Results) -> Vec<DrawnChart> {
    let mut charts = Vec::new();
    for scenario in &results.scenarios {
        let mut add = |name: &str,
                       metric: Option<&str>,
                       title: &str,
                       draw: &dyn Fn(&str) -> Option<String>| {
            let id = format!("{}-{name}", scenario.name);
            if let Some(svg) = draw(&id) {
                charts.push(DrawnChart {
                    scenario: scenario.name.clone(),
                    metric: metric.map(str::to_owned),
                    file: format!("{id}.svg"),
                    title: title.to_owned(),
                    svg,
                });
            }
        };
        for metric in &scenario.metrics {
            // A curve of one position is none.
            let curved = scenario.charts.iter().any(|chart| {
                matches!(chart, Chart::Curve { metric: key, .. } if *key == metric.key)
                    && lines::curve(results, scenario, chart, "").is_some()
            });
            if !curved {
                let title = format!("{}{}", metric.title, format::unit(&metric.unit));
                add(&metric.key, Some(&metric.key), &title, &|id| {
                    bars::draw(results, scenario, metric, id, &title)
                });
            }
        }
        for wanted in &scenario.charts {
            match wanted {
                Chart::Curve { title, metric, .. } => {
                    add(&format!("curve-{metric}"), None, title, &|id| {
                        lines::curve(results, scenario, wanted, id)
                    });
                }
                Chart::Latency { title, row } => {
                    let Some(row) = scenario.rows.iter().find(|known| known.id == *row) else {
                        continue;
                    };
                    add(&format!("latency-{}", row.id), None, title, &|id| {
                        lines::latency(results, scenario, row, id, title)
                    });
                }
            }
        }
    }
    charts
}
