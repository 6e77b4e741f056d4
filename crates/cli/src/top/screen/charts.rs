//! Charts of the last minutes.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Sparkline};

use crate::top::figures::{Figures, History, nanos};
use crate::watch::size;

pub(super) fn draw(frame: &mut Frame<'_>, area: Rect, figures: &Figures, history: &History) {
    let latency = &figures.latency;
    let charts = [
        (["Requests/s", "req/s"], format!("{:.0}", figures.rate), &history.rate, Color::Cyan),
        (["Bytes/s", "B/s"], size(figures.sent as u64), &history.sent, Color::Blue),
        (
            ["Latency p50 · p99", "p50·p99"],
            format!("{} · {}", nanos(latency.low), nanos(latency.high)),
            &history.latency,
            Color::Magenta,
        ),
        (["CPU", "CPU"], format!("{:.0} %", figures.cpu * 100.0), &history.cpu, Color::Green),
    ];
    // Widths of the longest values with the short names on 80 columns.
    let areas = Layout::horizontal([20, 18, 29, 13].map(Constraint::Fill)).areas::<4>(area);
    for ((names, value, values, color), area) in charts.into_iter().zip(areas) {
        let width = area.width.saturating_sub(2) as usize;
        // Omit the name rather than truncate the value.
        let fits = |name: &&str| name.chars().count() + 1 + value.chars().count() <= width;
        let mut title = Line::default();
        if let Some(name) = names.into_iter().find(fits) {
            title.push_span(name.dim());
            title.push_span(" ");
        }
        title.push_span(Span::from(value).bold());
        let block = Block::bordered().border_style(Style::new().dim()).title(title);
        let values: Vec<u64> =
            values.iter().skip(values.len().saturating_sub(width)).copied().collect();
        frame.render_widget(Sparkline::default().block(block).data(values).fg(color), area);
    }
}
