//! The full-screen display.

use std::cmp::Reverse;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Cell, Paragraph, Row as TableRow, Sparkline, Table};

use super::figures::{Figures, History, OF_CLIENT, PERCENTILES, Row, nanos};
use super::layout;
use super::lines::{self, ListLine};
use crate::watch::size;

/// The content of the screen.
pub(super) struct Screen {
    pub(super) figures: Figures,
    pub(super) history: History,
    pub(super) order: Order,
    pub(super) is_paused: bool,
    /// Error of the last request to the server.
    pub(super) trouble: Option<String>,
    pub(super) place: String,
}

/// Order of routes and clients.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Order {
    Requests,
    Latency,
    Bytes,
}

impl Order {
    pub(super) fn next(self) -> Self {
        match self {
            Self::Requests => Self::Latency,
            Self::Latency => Self::Bytes,
            Self::Bytes => Self::Requests,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Requests => "requests",
            Self::Latency => "latency",
            Self::Bytes => "bytes",
        }
    }

    /// Failing rows come first, since there may not be room for all.
    fn key(self, row: &Row) -> (u64, u64, u64) {
        let first = match self {
            Self::Requests => row.rate,
            Self::Latency => row.latency.most.unwrap_or(0) as f64,
            Self::Bytes => row.sent,
        };
        (row.new_failures, (first * 1_000.0) as u64, row.requests)
    }
}

impl Screen {
    pub(super) fn draw(&self, frame: &mut Frame<'_>) {
        let report = &self.figures.report;
        let pools = lines::scripts(report);
        let limits = first(lines::limits(report));
        let certificates = first(lines::certificates(report));
        let heights =
            layout::heights(frame.area().height, [pools.len(), limits.len(), certificates.len()]);
        let [head, charts, facts, routes, scripts, limited, certified, clients, foot] =
            Layout::vertical(heights.map(Constraint::Length)).areas(frame.area());
        let hidden = [(limited, &limits), (certified, &certificates)]
            .into_iter()
            .filter(|(area, _)| area.height == 0)
            .flat_map(|(_, lines)| lines)
            .any(|line| line.calls);
        self.head(frame, head);
        self.charts(frame, charts);
        self.facts(frame, facts);
        self.table(frame, routes, "Routes", &self.figures.routes, PERCENTILES);
        Self::list(frame, scripts, "Scripts", pools);
        Self::list(frame, limited, "Limits", limits);
        Self::list(frame, certified, "Certificates", certificates);
        self.table(frame, clients, "Clients", &self.figures.clients, OF_CLIENT);
        let mut keys = Line::from(vec![
            " q ".reversed(),
            " end  ".into(),
            " p ".reversed(),
            (if self.is_paused { " resume  " } else { " pause  " }).into(),
            " s ".reversed(),
            format!(" order: {}", self.order.name()).into(),
        ]);
        if hidden {
            keys.push_span("  limits or certificates: see --once".yellow());
        }
        frame.render_widget(keys, foot);
    }

    fn head(&self, frame: &mut Frame<'_>, area: Rect) {
        let server = &self.figures.report.server;
        let up = (server.time - server.started).max(0.0) as u64;
        let (days, hours, minutes) = (up / 86_400, up / 3_600 % 24, up / 60 % 60);
        let mut line = vec![
            Span::from("dunlin ").bold(),
            Span::from(format!(
                "{}  process {}, {} workers, up {days} d {hours:02}:{minutes:02}:{:02}",
                server.version,
                server.pid,
                server.threads,
                up % 60
            ))
            .dim(),
        ];
        match &self.trouble {
            Some(trouble) => line.push(Span::from(format!("  {trouble}")).red()),
            None if self.is_paused => line.push(Span::from("  paused").yellow()),
            None => {}
        }
        // Last, since it is the least important on a narrow terminal.
        line.push(Span::from(format!("  {}", self.place)).dim());
        frame.render_widget(Line::from(line), area);
    }

    fn charts(&self, frame: &mut Frame<'_>, area: Rect) {
        let figures = &self.figures;
        let latency = &figures.latency;
        let charts = [
            (["Requests/s"; 2], format!("{:.0}", figures.rate), &self.history.rate, Color::Cyan),
            (["Bytes/s"; 2], size(figures.sent as u64), &self.history.sent, Color::Blue),
            (
                ["Latency p50 · p99", "p50·p99"],
                format!("{} · {}", nanos(latency.half), nanos(latency.most)),
                &self.history.latency,
                Color::Magenta,
            ),
            (
                ["Processor", "CPU"],
                format!("{:.0} %", figures.cpu * 100.0),
                &self.history.cpu,
                Color::Green,
            ),
        ];
        // Widths of the longest values with the short names on 80 columns.
        let areas = Layout::horizontal([20, 18, 29, 13].map(Constraint::Fill)).areas::<4>(area);
        for ((names, value, values, color), area) in charts.into_iter().zip(areas) {
            let width = area.width.saturating_sub(2) as usize;
            let fits = |name: &&str| name.chars().count() + 1 + value.chars().count() <= width;
            let name = names.into_iter().find(fits).unwrap_or(names[1]);
            let title = Line::from(vec![name.dim(), " ".into(), Span::from(value).bold()]);
            let block = Block::bordered().border_style(Style::new().dim()).title(title);
            let values: Vec<u64> =
                values.iter().skip(values.len().saturating_sub(width)).copied().collect();
            frame.render_widget(Sparkline::default().block(block).data(values).fg(color), area);
        }
    }

    fn facts(&self, frame: &mut Frame<'_>, area: Rect) {
        let report = &self.figures.report;
        let open = report.connections.open.iter().filter(|(_, count)| *count > 0);
        let mut connections = vec![
            ("open".to_owned(), format!("{} of {}", self.figures.open(), report.connections.most)),
            ("new/s".to_owned(), format!("{:.0}", self.figures.accepted)),
        ];
        connections.extend(open.map(|(state, count)| (format!("· {state}"), count.to_string())));
        let requests = &report.requests;
        let counted = |(name, count): &(String, u64)| (name.clone(), count.to_string());
        let responses = requests.status.iter().chain(&requests.protocol).map(counted).collect();
        let cache = &report.cache;
        let share =
            self.figures.hits.map_or_else(|| "–".into(), |hits| format!("{:.1} %", hits * 100.0));
        let cache = vec![
            ("hits now".to_owned(), share),
            ("files".to_owned(), cache.files.to_string()),
            ("memory".to_owned(), format!("{} of {}", size(cache.bytes), size(cache.most_bytes))),
            ("descriptors".to_owned(), cache.descriptors.to_string()),
            ("evictions".to_owned(), cache.evictions.to_string()),
        ];
        let process = &report.process;
        let process = vec![
            ("memory".to_owned(), size(process.resident)),
            (
                "descriptors".to_owned(),
                format!("{} of {}", process.descriptors, process.descriptor_limit),
            ),
            ("TLS new".to_owned(), report.tls.full.to_string()),
            ("TLS resumed".to_owned(), report.tls.resumed.to_string()),
            ("TLS failed".to_owned(), (report.tls.failed + report.tls.late).to_string()),
            ("log lost".to_owned(), report.log_lines_lost.to_string()),
        ];
        let columns = [
            ("Connections", connections),
            ("Responses", responses),
            ("Cache", cache),
            ("Process", process),
        ];
        let areas = Layout::horizontal([Constraint::Fill(1); 4]).areas::<4>(area);
        for ((title, facts), area) in columns.into_iter().zip(areas) {
            let width = area.width.saturating_sub(2) as usize;
            let line = |(name, value): (String, String)| {
                let room = width.saturating_sub(name.chars().count() + 1);
                // Omit the limit rather than truncate a number.
                let value = match value.split_once(" of ") {
                    Some((short, _)) if value.chars().count() > room => short.to_owned(),
                    _ => value,
                };
                let gap = width.saturating_sub(name.chars().count() + value.chars().count());
                Line::from(vec![Span::from(name).dim(), " ".repeat(gap).into(), value.into()])
            };
            let lines: Vec<_> = facts.into_iter().map(line).collect();
            let block = Block::bordered().border_style(Style::new().dim()).title(title);
            frame.render_widget(Paragraph::new(lines).block(block), area);
        }
    }

    fn table(
        &self,
        frame: &mut Frame<'_>,
        area: Rect,
        title: &str,
        rows: &[Row],
        times: [&str; 2],
    ) {
        let mut ordered: Vec<&Row> = rows.iter().collect();
        ordered.sort_by_key(|row| Reverse(self.order.key(row)));
        // The borders and the header.
        let room = usize::from(area.height.saturating_sub(3));
        let title = match ordered.len().saturating_sub(room) {
            0 => title.to_owned(),
            hidden => format!("{title} ({hidden} more)"),
        };
        // On a narrow terminal, omit the least important columns rather than the names.
        let is_narrow = area.width < NARROW;
        let columns = |mut cells: Vec<Cell<'static>>| {
            if is_narrow {
                cells.remove(5);
                cells.remove(2);
            }
            TableRow::new(cells)
        };
        let right = |text: String| Cell::from(Line::from(text).right_aligned());
        let row = |row: &Row| {
            let failed = match row.failed {
                None => Cell::default(),
                Some(0) => right("0".into()),
                Some(failed) => right(failed.to_string()).red(),
            };
            columns(vec![
                Cell::from(row.name.clone()),
                right(format!("{:.1}", row.rate)),
                right(size(row.sent as u64)),
                right(nanos(row.latency.half)),
                right(nanos(row.latency.most)),
                right(row.requests.to_string()),
                failed,
            ])
        };
        let mut widths = vec![Constraint::Fill(1)];
        widths.extend([10, 10, 9, 9, 11, 7].map(Constraint::Length));
        if is_narrow {
            widths.remove(5);
            widths.remove(2);
        }
        let header = ["", "req/s", "bytes/s", times[0], times[1], "requests", "5xx"]
            .map(|name| right(name.into()).dim());
        let block = Block::bordered().border_style(Style::new().dim()).title(title);
        let table = Table::new(ordered.into_iter().map(row), widths)
            .header(columns(header.into()))
            .block(block);
        frame.render_widget(table, area);
    }

    fn list(frame: &mut Frame<'_>, area: Rect, title: &str, lines: Vec<ListLine>) {
        let styled = |line: ListLine| {
            let text = Line::from(line.text);
            if line.calls { text.yellow() } else { text }
        };
        let lines: Vec<_> = lines.into_iter().map(styled).collect();
        let block = Block::bordered().border_style(Style::new().dim()).title(title);
        frame.render_widget(Paragraph::new(lines).block(block), area);
    }
}

/// Width below which tables omit columns.
const NARROW: u16 = 76;

/// Lines that need attention come first, since there may not be room for all.
fn first(mut lines: Vec<ListLine>) -> Vec<ListLine> {
    lines.sort_by_key(|line| Reverse(line.calls));
    lines
}
