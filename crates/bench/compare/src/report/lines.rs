//! Line charts: a metric over the rows of a scenario, and distributions of response times.

use dunlin_load::outcome::Latency;
use hdrhistogram::Histogram;

use super::format;
use super::scale::{Scale, label};
use super::svg::{Anchor, Svg, WIDTH, colour, width_of};
use super::table::{columns, figure_rounds, is_usable};
use crate::results::{Cell, Chart, Results, Round, Row, ScenarioResults};
use crate::statistics::median;

/// Height of a chart.
const HEIGHT: f64 = 400.0;
/// The area of the lines: left, top, right and bottom.
const AREA: (f64, f64, f64, f64) = (56.0, 66.0, WIDTH - 16.0, HEIGHT - 46.0);

/// A line for each server: the index of the server and its points.
type Lines = Vec<(usize, Vec<(f64, f64)>)>;

/// An axis with its name and its marks.
struct Axis {
    name: String,
    scale: Scale,
    ticks: Vec<(f64, String)>,
}

impl Axis {
    fn new(name: String, scale: Scale) -> Self {
        let ticks = scale.ticks().into_iter().map(|tick| (tick, label(tick))).collect();
        Self { name, scale, ticks }
    }
}

/// Draws a metric over the positions of the rows; `None` if there is no figure.
pub(super) fn curve(
    results: &Results,
    scenario: &ScenarioResults,
    wanted: &Chart,
    id: &str,
) -> Option<String> {
    let Chart::Curve { title, metric, x, logarithmic, group } = wanted else { return None };
    let rows = scenario.rows.iter().filter(|row| group.is_none() || row.group == *group);
    let rows: Vec<(f64, &Row)> = rows.filter_map(|row| Some((row.x?, row))).collect();
    let points = |server: usize| -> Vec<(f64, f64)> {
        let point = |(x, row): &(f64, &Row)| {
            let (rounds, _) = figure_rounds(row.cells.get(&results.servers[server].name)?, metric);
            let values: Vec<f64> = rounds.iter().map(|(_, value)| *value).collect();
            (!values.is_empty()).then(|| (*x, median(&values)))
        };
        rows.iter().filter_map(point).collect()
    };
    let lines = lines(results, scenario, points);
    if !has_distance(&lines) {
        return None;
    }
    let unit = scenario.metrics.iter().find(|known| known.key == *metric);
    let name = unit.map_or_else(String::new, |metric| {
        format!("{}{}", metric.title, format::unit(&metric.unit))
    });
    let all = || lines.iter().flat_map(|(_, points)| points);
    let horizontal = match logarithmic {
        true => Scale::logarithmic(
            all().map(|point| point.0).fold(f64::INFINITY, f64::min),
            all().map(|point| point.0).fold(0.0, f64::max),
        ),
        false => Scale::linear(all().map(|point| point.0)),
    };
    // The rise of each line is no reason for a logarithmic scale, but the distance of the lines is.
    let tops =
        lines.iter().map(|(_, points)| points.iter().map(|point| point.1).fold(0.0, f64::max));
    let vertical = match Scale::of(tops).logarithmic {
        true => Scale::of(all().map(|point| point.1).filter(|value| *value > 0.0)),
        false => Scale::linear(all().map(|point| point.1)),
    };
    draw(results, &lines, &Axis::new(x.clone(), horizontal), &Axis::new(name, vertical), id, title)
}

/// Returns `true` if the lines have more than one position, so that there is something to draw.
fn has_distance(lines: &Lines) -> bool {
    let mut positions = lines.iter().flat_map(|(_, points)| points).map(|point| point.0);
    let first = positions.next();
    positions.any(|position| Some(position) != first)
}

/// Draws response times by percentile, both logarithmic; `None` if there are none.
pub(super) fn latency(
    results: &Results,
    scenario: &ScenarioResults,
    row: &Row,
    id: &str,
    title: &str,
) -> Option<String> {
    // Positions are one in how many responses took longer: 2 for p50, 100 for p99.
    let shares: Vec<f64> = (0..=60).map(|step| 10_f64.powf(-f64::from(step) / 12.0)).collect();
    let points = |server: usize| -> Vec<(f64, f64)> {
        let Some(sum) = row.cells.get(&results.servers[server].name).and_then(sum_of) else {
            return Vec::new();
        };
        let deepest = 1.0 / sum.len() as f64;
        let known = shares.iter().filter(|share| **share >= deepest);
        let nanos = |share: f64| sum.value_at_quantile(1.0 - share).max(1000) as f64;
        known.map(|share| (1.0 / share, nanos(*share) / 1e6)).collect()
    };
    let lines = lines(results, scenario, points);
    let all = || lines.iter().flat_map(|(_, points)| points);
    let deepest = all().map(|point| point.0).fold(1.0, f64::max);
    let marks = [
        (1.0, "min"),
        (2.0, "p50"),
        (10.0, "p90"),
        (100.0, "p99"),
        (1e3, "p99.9"),
        (1e4, "p99.99"),
        (1e5, "p99.999"),
    ];
    let marks = marks.into_iter().filter(|(position, _)| *position <= deepest * 1.01);
    let horizontal = Axis {
        name: "percentile of the responses".to_owned(),
        scale: Scale::logarithmic(1.0, deepest),
        ticks: marks.map(|(position, name)| (position, name.to_owned())).collect(),
    };
    let times = || all().map(|point| point.1);
    let scale =
        Scale::logarithmic(times().fold(f64::INFINITY, f64::min), times().fold(0.0, f64::max));
    let vertical = Axis::new("response time (ms), logarithmic scale".to_owned(), scale);
    draw(results, &lines, &horizontal, &vertical, id, title)
}

fn lines(
    results: &Results,
    scenario: &ScenarioResults,
    points: impl Fn(usize) -> Vec<(f64, f64)>,
) -> Lines {
    let lines = columns(results, scenario).into_iter().map(|server| (server, points(server)));
    lines.filter(|(_, points)| !points.is_empty()).collect()
}

/// Returns the response times of the valid rounds, or of all if none is valid.
fn sum_of(cell: &Cell) -> Option<Histogram<u64>> {
    let Cell::Measured { rounds, .. } = cell else { return None };
    let is_valid = |round: &Round| is_usable(round.verdict, "latency");
    let any_valid = rounds.iter().any(is_valid);
    let used = rounds.iter().filter(|round| !any_valid || is_valid(round));
    let mut sum: Option<Histogram<u64>> = None;
    for text in used.filter_map(|round| round.histogram.as_ref()) {
        let latency = Latency { histogram: text.clone(), ..Latency::default() };
        let Ok(histogram) = latency.to_histogram() else { continue };
        match &mut sum {
            None => sum = Some(histogram),
            // Fails for a histogram with larger bounds only, and all have the same.
            Some(sum) => sum.add(&histogram).ok()?,
        }
    }
    sum.filter(|sum| !sum.is_empty())
}

fn draw(
    results: &Results,
    lines: &Lines,
    horizontal: &Axis,
    vertical: &Axis,
    id: &str,
    title: &str,
) -> Option<String> {
    if !lines.iter().any(|(_, points)| points.iter().any(|point| point.1 > 0.0)) {
        return None;
    }
    let (left, top, right, bottom) = AREA;
    let x = |value: f64| left + horizontal.scale.position(value) * (right - left);
    let y = |value: f64| bottom - vertical.scale.position(value) * (bottom - top);
    let mut svg = Svg::new(HEIGHT);
    key(&mut svg, results, lines);
    svg.text((0.0, top - 14.0), Anchor::Start, &vertical.name, false);
    for (tick, name) in &vertical.ticks {
        svg.grid((left, y(*tick)), (right, y(*tick)));
        svg.text((left - 8.0, y(*tick) + 4.0), Anchor::End, name, false);
    }
    for (tick, name) in &horizontal.ticks {
        svg.grid((x(*tick), top), (x(*tick), bottom));
        svg.text((x(*tick), bottom + 18.0), Anchor::Middle, name, false);
    }
    svg.text(((left + right) / 2.0, HEIGHT - 8.0), Anchor::Middle, &horizontal.name, false);
    for (server, points) in lines {
        let placed: Vec<(f64, f64)> = points.iter().map(|(px, py)| (x(*px), y(*py))).collect();
        svg.path(&placed, &colour(*server), 2.0);
        if placed.len() <= 20 {
            placed.iter().for_each(|point| svg.point(*point, &colour(*server)));
        }
    }
    let names: Vec<&str> =
        lines.iter().map(|(server, _)| &*results.servers[*server].name).collect();
    let description =
        format!("Lines of {} over {}: {}.", names.join(", "), horizontal.name, vertical.name);
    Some(svg.finish(id, title, &description))
}

/// Draws the names of the servers in their colours.
fn key(svg: &mut Svg, results: &Results, lines: &Lines) {
    let (mut left, mut top) = (0.0, 4.0);
    for (server, _) in lines {
        let name = &results.servers[*server].name;
        if left + 20.0 + width_of(name) > WIDTH {
            (left, top) = (0.0, top + 18.0);
        }
        svg.rectangle((left, top), (12.0, 12.0), &colour(*server), 1.0);
        svg.text((left + 18.0, top + 11.0), Anchor::Start, name, false);
        left += 38.0 + width_of(name);
    }
}
