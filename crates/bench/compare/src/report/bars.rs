//! A bar chart of a metric: a group of horizontal bars for each row, so that all labels have room.

use super::format;
use super::scale::{Scale, label};
use super::svg::{Anchor, INK, Svg, WIDTH, colour, width_of};
use super::table::{Entry, columns, entries};
use crate::results::{Better, Metric, Results, ScenarioResults};
use crate::statistics::Estimate;

/// Height of a bar and of the gap below it.
const BAR: (f64, f64) = (12.0, 4.0);
/// Height of a row's title, and of the gap before the next row.
const TITLE: (f64, f64) = (20.0, 12.0);
/// Height of the axis above the bars.
const AXIS: f64 = 40.0;

/// A bar with its label.
struct Bar<'a> {
    server: usize,
    name: &'a str,
    estimate: Estimate,
    valid: bool,
    value: String,
}

/// Draws the chart; `None` if there is no figure above 0.
pub(super) fn draw(
    results: &Results,
    scenario: &ScenarioResults,
    metric: &Metric,
    id: &str,
    title: &str,
) -> Option<String> {
    let groups: Vec<(String, Vec<Bar<'_>>)> = scenario
        .rows
        .iter()
        .map(|row| {
            (row.full_title(), bars(results, scenario, &entries(results, row, metric), metric))
        })
        .filter(|(_, bars)| !bars.is_empty())
        .collect();
    let all = || groups.iter().flat_map(|(_, bars)| bars);
    let values = all().flat_map(|bar| [bar.estimate.median, bar.estimate.high]);
    if !all().any(|bar| bar.estimate.median > 0.0) {
        return None;
    }
    let scale = Scale::of(values.filter(|value| *value > 0.0));
    let left = all().map(|bar| width_of(bar.name)).fold(40.0, f64::max) + 10.0;
    let right = WIDTH - all().map(|bar| width_of(&bar.value)).fold(40.0, f64::max) - 12.0;
    let at = |value: f64| left + scale.position(value) * (right - left);
    let count = all().count() as f64;
    let height = AXIS + groups.len() as f64 * (TITLE.0 + TITLE.1) + count * (BAR.0 + BAR.1);
    let mut svg = Svg::new(height);
    svg.text((0.0, 14.0), Anchor::Start, &direction(metric, &scale), false);
    for tick in scale.ticks() {
        svg.grid((at(tick), AXIS - 4.0), (at(tick), height));
        svg.text((at(tick), AXIS - 8.0), Anchor::Middle, &label(tick), false);
    }
    let mut top = AXIS;
    for (title, bars) in &groups {
        svg.text((0.0, top + 14.0), Anchor::Start, title, true);
        top += TITLE.0;
        for bar in bars {
            let (middle, end) = (top + BAR.0 / 2.0, at(bar.estimate.median));
            svg.text((left - 8.0, top + BAR.0 - 1.0), Anchor::End, bar.name, false);
            let opacity = if bar.valid { 1.0 } else { 0.35 };
            svg.rectangle((left, top), (end - left, BAR.0), &colour(bar.server), opacity);
            if bar.estimate.count > 1 {
                let (low, high) = (at(bar.estimate.low), at(bar.estimate.high));
                svg.path(&[(low, middle), (high, middle)], INK, 1.0);
                svg.path(&[(high, middle - 3.0), (high, middle + 3.0)], INK, 1.0);
                svg.path(&[(low, middle - 3.0), (low, middle + 3.0)], INK, 1.0);
            }
            let end = end.max(at(bar.estimate.high)) + 6.0;
            svg.text((end, top + BAR.0 - 1.0), Anchor::Start, &bar.value, false);
            top += BAR.0 + BAR.1;
        }
        top += TITLE.1;
    }
    Some(svg.finish(id, title, &description(&groups)))
}

fn bars<'a>(
    results: &'a Results,
    scenario: &ScenarioResults,
    entries: &[Entry<'_>],
    metric: &Metric,
) -> Vec<Bar<'a>> {
    let bar = |server: usize| {
        let Entry::Figure { estimate, doubts, .. } = &entries[server] else { return None };
        let valid = doubts.is_empty();
        let mark = if valid { "" } else { " (not valid)" };
        let value = format::value(estimate.median, &metric.unit);
        let value = format!("{value}{}{mark}", format::unit_after(&metric.unit));
        Some(Bar { server, name: &results.servers[server].name, estimate: *estimate, valid, value })
    };
    columns(results, scenario).into_iter().filter_map(bar).collect()
}

/// Returns the axis in words.
fn direction(metric: &Metric, scale: &Scale) -> String {
    let better = match metric.better {
        Better::Higher => ", longer is better",
        Better::Lower => ", shorter is better",
        Better::Neither => "",
    };
    let scale = if scale.logarithmic { ", logarithmic scale" } else { "" };
    format!("{}{}{better}{scale}", metric.title, format::unit(&metric.unit))
}

/// Returns the figures as text.
fn description(groups: &[(String, Vec<Bar<'_>>)]) -> String {
    let groups = groups.iter().map(|(title, bars)| {
        let bars: Vec<String> =
            bars.iter().map(|bar| format!("{} {}", bar.name, bar.value)).collect();
        format!("{title}: {}.", bars.join(", "))
    });
    groups.collect::<Vec<_>>().join(" ")
}
