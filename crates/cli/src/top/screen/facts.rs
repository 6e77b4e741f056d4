//! Figures of connections, responses, the cache and the process.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Paragraph};

use crate::top::figures::Figures;
use crate::top::lines::nonzero;
use crate::watch::size;

/// Columns that a block takes at least.
const WIDTH: u16 = 19;

/// Returns the number of lines of the longest block.
pub(super) fn count(figures: &Figures) -> usize {
    blocks(figures).iter().map(|(_, facts)| facts.len()).max().unwrap_or(0)
}

fn blocks(figures: &Figures) -> Vec<(&'static str, Vec<(String, String)>)> {
    let mut blocks = vec![
        ("Connections", connections(figures)),
        ("Responses", responses(figures)),
        ("Cache", cache(figures)),
        ("Process", process(figures)),
    ];
    if figures.report.responses.max_bytes > 0 {
        blocks.insert(3, ("Response cache", response_cache(figures)));
    }
    blocks
}

/// Draws the blocks that the width has room for. The last one counts the others.
pub(super) fn draw(frame: &mut Frame<'_>, area: Rect, figures: &Figures) {
    let blocks = blocks(figures);
    let shown = usize::from(area.width / WIDTH).clamp(1, blocks.len());
    let areas = Layout::horizontal(vec![Constraint::Fill(1); shown]).split(area);
    for (at, ((title, facts), &area)) in blocks.iter().zip(&*areas).enumerate() {
        let title = match blocks.len() - shown {
            hidden if hidden > 0 && at + 1 == shown => format!("{title} ({hidden} more)"),
            _ => (*title).to_owned(),
        };
        let width = area.width.saturating_sub(2) as usize;
        let lines: Vec<_> = facts.iter().map(|fact| line(fact, width)).collect();
        let block = Block::bordered().border_style(Style::new().dim()).title(title);
        frame.render_widget(Paragraph::new(lines).block(block), area);
    }
}

fn line((name, value): &(String, String), width: usize) -> Line<'static> {
    let room = width.saturating_sub(name.chars().count() + 1);
    // Omit the limit rather than truncate a number.
    let value = match value.split_once(" of ") {
        Some((short, _)) if value.chars().count() > room => short,
        _ => value,
    };
    let gap = width.saturating_sub(name.chars().count() + value.chars().count());
    Line::from(vec![
        Span::from(name.clone()).dim(),
        " ".repeat(gap).into(),
        value.to_owned().into(),
    ])
}

fn connections(figures: &Figures) -> Vec<(String, String)> {
    let connections = &figures.report.connections;
    let mut facts = vec![
        ("open".to_owned(), format!("{} of {}", figures.open(), connections.max)),
        ("new/s".to_owned(), format!("{:.0}", figures.accepted)),
    ];
    let tunnels = &figures.report.tunnels;
    if tunnels.opened > 0 {
        facts.push(("tunnels".to_owned(), tunnels.open.to_string()));
    }
    facts.extend(parts(&connections.open));
    facts
}

fn responses(figures: &Figures) -> Vec<(String, String)> {
    let requests = &figures.report.requests;
    let counted = |(name, count): &(String, u64)| (name.clone(), count.to_string());
    requests.status.iter().chain(&requests.protocol).map(counted).collect()
}

fn cache(figures: &Figures) -> Vec<(String, String)> {
    let cache = &figures.report.cache;
    let mut facts = vec![
        ("hits now".to_owned(), percent(figures.hits)),
        ("of bytes".to_owned(), percent(figures.hit_bytes)),
        ("files".to_owned(), cache.files.to_string()),
        ("memory".to_owned(), format!("{} of {}", size(cache.bytes), size(cache.max_bytes))),
        ("descriptors".to_owned(), cache.descriptors.to_string()),
        ("admitted".to_owned(), cache.admitted.to_string()),
        ("not admitted".to_owned(), cache.rejected.to_string()),
        ("evictions".to_owned(), cache.evictions.to_string()),
    ];
    facts.extend(parts(&cache.eviction));
    facts
}

/// Returns the parts of the count above them.
fn parts(counts: &[(String, u64)]) -> impl Iterator<Item = (String, String)> {
    nonzero(counts).map(|(name, count)| (format!("· {name}"), count.to_string()))
}

fn response_cache(figures: &Figures) -> Vec<(String, String)> {
    let cache = &figures.report.responses;
    let mut facts = vec![
        ("hits now".to_owned(), percent(figures.response_hits)),
        ("URLs".to_owned(), cache.urls.to_string()),
        ("memory".to_owned(), format!("{} of {}", size(cache.bytes), size(cache.max_bytes))),
        ("in flight".to_owned(), cache.in_flight.to_string()),
        ("not admitted".to_owned(), cache.rejected.to_string()),
        ("evictions".to_owned(), cache.evicted.to_string()),
    ];
    let disk = &cache.disk;
    if disk.max_bytes > 0 {
        let bytes = format!("{} of {}", size(disk.bytes), size(disk.max_bytes));
        facts.insert(3, ("disk".to_owned(), bytes));
        facts.push(("disk failures".to_owned(), disk.failed.to_string()));
    }
    facts
}

/// Returns a share as text; a dash without requests.
fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| "–".into(), |share| format!("{:.1} %", share * 100.0))
}

fn process(figures: &Figures) -> Vec<(String, String)> {
    let report = &figures.report;
    let process = &report.process;
    vec![
        ("memory".to_owned(), size(process.resident)),
        (
            "descriptors".to_owned(),
            format!("{} of {}", process.descriptors, process.descriptor_limit),
        ),
        ("TLS new".to_owned(), report.tls.full.to_string()),
        ("TLS resumed".to_owned(), report.tls.resumed.to_string()),
        ("TLS failed".to_owned(), (report.tls.failed + report.tls.late).to_string()),
        ("log lost".to_owned(), report.log_lines_lost.to_string()),
    ]
}
