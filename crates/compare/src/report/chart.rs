//! Charts as SVG, drawn by plotters. Colours stand for servers and are the same in all charts.

use plotters::coord::Shift;
use plotters::prelude::*;

use super::format;
use super::table::{Entry, entries, rounds_of};
use crate::results::{Cell, Chart as Wanted, Metric, Results, Row, ScenarioResults};
use crate::statistics::median;
use dunlin_load::outcome::Latency;

/// A chart.
pub(super) struct Chart {
    /// Name of its scenario.
    pub(super) scenario: String,
    /// Name of its file.
    pub(super) file: String,
    /// Title.
    pub(super) title: String,
    /// The picture.
    pub(super) svg: String,
}

/// A colour for each column: those of Okabe and Ito, which are distinguishable for the colour-blind, and some more.
pub(super) const COLOURS: [RGBColor; 9] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(180, 140, 0),
    RGBColor(86, 180, 233),
    RGBColor(120, 94, 240),
    RGBColor(150, 75, 60),
    RGBColor(130, 130, 130),
];
const SIZE: (u32, u32) = (860, 420);
const FONT: &str = "system-ui, sans-serif";

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), Box<dyn std::error::Error>>;

/// All charts. Those that cannot be drawn are omitted.
pub(super) fn all(results: &Results) -> Vec<Chart> {
    let mut charts = Vec::new();
    for scenario in &results.scenarios {
        let mut add = |name: String, title: String, draw: &dyn Fn(&Area<'_>) -> Drawn| {
            let mut svg = String::new();
            let drawn = {
                let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
                let (top, rest) = area.split_vertically(26);
                key(&top, results).is_ok() && draw(&rest).is_ok() && area.present().is_ok()
            };
            if drawn {
                let file = format!("{}-{name}.svg", scenario.name);
                charts.push(Chart { scenario: scenario.name.clone(), file, title, svg });
            }
        };
        for metric in &scenario.metrics {
            let curved = scenario.charts.iter().any(
                |chart| matches!(chart, Wanted::Curve { metric: key, .. } if *key == metric.key),
            );
            if !curved && has_figures(results, scenario, metric) {
                let title = format!("{}{}", metric.title, format::unit(&metric.unit));
                add(metric.key.clone(), title, &|area| bars(area, results, scenario, metric));
            }
        }
        for wanted in &scenario.charts {
            match wanted {
                Wanted::Curve { title, metric, .. } => {
                    add(format!("curve-{metric}"), title.clone(), &|area| {
                        curve(area, results, scenario, wanted)
                    });
                }
                Wanted::Latency { title, row } => {
                    let Some(row) = scenario.rows.iter().find(|known| known.id == *row) else {
                        continue;
                    };
                    add(format!("latency-{}", row.id), title.clone(), &|area| {
                        latency(area, results, row)
                    });
                }
            }
        }
    }
    charts
}

/// Draws the legend: the colour of each server.
fn key(area: &Area<'_>, results: &Results) -> Drawn {
    let style = TextStyle::from((FONT, 12).into_font());
    let mut left = 64;
    for (index, server) in results.servers.iter().enumerate().filter(|(_, s)| s.missing.is_none()) {
        area.draw(&Rectangle::new([(left, 10), (left + 10, 20)], colour(index).filled()))?;
        area.draw_text(&server.name, &style, (left + 14, 9))?;
        left += 30 + 7 * server.name.len() as i32;
    }
    Ok(())
}

fn has_figures(results: &Results, scenario: &ScenarioResults, metric: &Metric) -> bool {
    let figures = |row: &Row| {
        entries(results, row, metric)
            .iter()
            .any(|entry| matches!(entry, Entry::Figure { estimate, .. } if estimate.median > 0.0))
    };
    scenario.rows.iter().any(figures)
}

fn colour(index: usize) -> RGBColor {
    COLOURS[index % COLOURS.len()]
}

fn axis(value: f64) -> String {
    match value.abs() {
        size if size >= 1e9 => format!("{}G", value / 1e9),
        size if size >= 1e6 => format!("{}M", value / 1e6),
        size if size >= 1e3 => format!("{}k", value / 1e3),
        _ => format!("{}", (value * 1000.0).round() / 1000.0),
    }
}

/// Draws a group of bars with intervals for each row.
fn bars(area: &Area<'_>, results: &Results, scenario: &ScenarioResults, metric: &Metric) -> Drawn {
    let rows: Vec<(&Row, Vec<Entry<'_>>)> =
        scenario.rows.iter().map(|row| (row, entries(results, row, metric))).collect();
    let figures = rows.iter().flat_map(|(_, entries)| entries).filter_map(|entry| match entry {
        Entry::Figure { estimate, .. } => Some(estimate.high.max(estimate.median)),
        _ => None,
    });
    let max = figures.fold(0.0, f64::max);
    let width = results.servers.len() as f64 + 1.0;
    let mut chart = ChartBuilder::on(area)
        .margin(12)
        .x_label_area_size(28)
        .y_label_area_size(64)
        .build_cartesian_2d(0.0..rows.len() as f64 * width, 0.0..max * 1.08)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .x_labels(0)
        .y_label_formatter(&|value| axis(*value))
        .y_labels(6)
        .light_line_style(TRANSPARENT)
        .label_style((FONT, 12))
        .draw()?;
    if rows.len() <= 8 {
        // Truncate each title to the width of its bars.
        let room = 104 / rows.len().max(1);
        let style = TextStyle::from((FONT, 12).into_font());
        for (row, (plan, _)) in rows.iter().enumerate() {
            let place = chart.backend_coord(&(row as f64 * width + 0.5, 0.0));
            let title: String = plan.title.chars().take(room).collect();
            area.draw_text(&title, &style, (place.0, place.1 + 8))?;
        }
    }
    for (row, (_, entries)) in rows.iter().enumerate() {
        for (column, entry) in entries.iter().enumerate() {
            let Entry::Figure { estimate, doubts, .. } = entry else { continue };
            let left = row as f64 * width + column as f64 + 0.5;
            let fill = if doubts.is_empty() {
                colour(column).filled()
            } else {
                colour(column).mix(0.3).filled()
            };
            chart.draw_series([Rectangle::new(
                [(left, 0.0), (left + 0.86, estimate.median)],
                fill,
            )])?;
            let middle = left + 0.43;
            chart.draw_series([PathElement::new(
                [(middle, estimate.low), (middle, estimate.high)],
                BLACK.stroke_width(1),
            )])?;
        }
    }
    Ok(())
}

/// Draws a metric over the rows' positions, with a line for each server.
fn curve(area: &Area<'_>, results: &Results, scenario: &ScenarioResults, wanted: &Wanted) -> Drawn {
    let Wanted::Curve { metric, x, logarithmic, group, .. } = wanted else { return Ok(()) };
    let rows: Vec<&Row> = scenario
        .rows
        .iter()
        .filter(|row| row.x.is_some() && (group.is_none() || row.group == *group))
        .collect();
    let lines: Vec<(usize, Vec<(f64, f64)>)> = results
        .servers
        .iter()
        .enumerate()
        .map(|(column, server)| {
            let point = |row: &&Row| {
                let values: Vec<f64> = rounds_of(row.cells.get(&server.name)?, metric, false)
                    .iter()
                    .map(|(_, value)| *value)
                    .collect();
                (!values.is_empty()).then(|| (row.x.unwrap_or(0.0), median(&values)))
            };
            (column, rows.iter().filter_map(point).collect())
        })
        .collect();
    let points = || lines.iter().flat_map(|(_, points)| points);
    let max = points().map(|(_, y)| *y).fold(0.0, f64::max);
    let right = points().map(|(x, _)| *x).fold(1.0, f64::max);
    let left = points().map(|(x, _)| *x).fold(f64::INFINITY, f64::min).min(right);
    if max <= 0.0 {
        return Err("there is nothing to draw".into());
    }
    let mut builder = ChartBuilder::on(area);
    builder.margin(12).x_label_area_size(44).y_label_area_size(64);
    macro_rules! lines {
        ($chart:expr) => {{
            let mut chart = $chart;
            chart
                .configure_mesh()
                .x_desc(x.as_str())
                .x_label_formatter(&|value| axis(*value))
                .y_label_formatter(&|value| axis(*value))
                .light_line_style(TRANSPARENT)
                .label_style((FONT, 12))
                .draw()?;
            for (column, points) in &lines {
                let points = points.clone();
                chart.draw_series(LineSeries::new(
                    points.clone(),
                    colour(*column).stroke_width(2),
                ))?;
                chart.draw_series(
                    points.into_iter().map(|point| Circle::new(point, 3, colour(*column).filled())),
                )?;
            }
        }};
    }
    if *logarithmic {
        lines!(builder.build_cartesian_2d((left * 0.9..right * 1.1).log_scale(), 0.0..max * 1.08)?);
    } else {
        lines!(builder.build_cartesian_2d(0.0..right * 1.03, 0.0..max * 1.08)?);
    }
    Ok(())
}

/// Draws response times over the share of slower responses, both logarithmic.
fn latency(area: &Area<'_>, results: &Results, row: &Row) -> Drawn {
    let shares: Vec<f64> = (0..=60).map(|step| 10_f64.powf(-f64::from(step) / 12.0)).collect();
    let mut lines = Vec::new();
    for (column, server) in results.servers.iter().enumerate() {
        let Some(Cell::Measured { rounds, .. }) = row.cells.get(&server.name) else { continue };
        let mut sum: Option<hdrhistogram::Histogram<u64>> = None;
        for text in rounds.iter().filter_map(|round| round.histogram.as_ref()) {
            let latency = Latency { histogram: text.clone(), ..Latency::default() };
            let Ok(histogram) = latency.to_histogram() else { continue };
            match &mut sum {
                None => sum = Some(histogram),
                Some(sum) => sum.add(&histogram)?,
            }
        }
        let Some(sum) = sum.filter(|sum| !sum.is_empty()) else { continue };
        let deep = 1.0 / sum.len() as f64;
        let points: Vec<(f64, f64)> = shares
            .iter()
            .filter(|share| **share >= deep)
            .map(|share| (1.0 / share, sum.value_at_quantile(1.0 - share).max(1000) as f64 / 1e6))
            .collect();
        lines.push((column, points));
    }
    let points = || lines.iter().flat_map(|(_, points): &(usize, Vec<(f64, f64)>)| points);
    let max = points().map(|(_, y)| *y).fold(0.0, f64::max);
    let least = points().map(|(_, y)| *y).fold(f64::INFINITY, f64::min);
    if max <= 0.0 {
        return Err("there is nothing to draw".into());
    }
    let mut chart =
        ChartBuilder::on(area)
            .margin(12)
            .x_label_area_size(44)
            .y_label_area_size(64)
            .build_cartesian_2d((1.0..1e5).log_scale(), (least * 0.8..max * 1.25).log_scale())?;
    chart
        .configure_mesh()
        .x_desc("one response in … took longer than")
        .y_desc("ms")
        .light_line_style(TRANSPARENT)
        .x_label_formatter(&|value| axis(*value))
        .y_label_formatter(&|value| axis(*value))
        .label_style((FONT, 12))
        .draw()?;
    for (column, points) in lines {
        chart.draw_series(LineSeries::new(points, colour(column).stroke_width(2)))?;
    }
    Ok(())
}
