//! Figures of connections, responses, the cache and the process.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Paragraph};

use crate::top::figures::{Figures, grouped};
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

/// Draws the blocks that the width has room for. The last one counts the others: `+2`.
pub(super) fn draw(frame: &mut Frame<'_>, area: Rect, figures: &Figures) {
    let blocks = blocks(figures);
    let shown = usize::from(area.width / WIDTH).clamp(1, blocks.len());
    let areas = Layout::horizontal(vec![Constraint::Fill(1); shown]).split(area);
    for (at, ((title, facts), &area)) in blocks.iter().zip(&*areas).enumerate() {
        let title = match blocks.len() - shown {
            hidden if hidden > 0 && at + 1 == shown => format!("{title} +{hidden}"),
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
        ("open".to_owned(), format!("{} of {}", grouped(figures.open()), grouped(connections.max))),
        ("new/s".to_owned(), grouped(figures.accepted.round() as u64)),
    ];
    let tunnels = &figures.report.tunnels;
    if tunnels.opened > 0 {
        facts.push(("tunnels".to_owned(), grouped(tunnels.open)));
    }
    facts.extend(parts(&connections.open));
    facts
}

fn responses(figures: &Figures) -> Vec<(String, String)> {
    let requests = &figures.report.requests;
    let counted = |(name, count): &(String, u64)| (name.clone(), grouped(*count));
    requests.status.iter().chain(&requests.protocol).map(counted).collect()
}

fn cache(figures: &Figures) -> Vec<(String, String)> {
    let cache = &figures.report.cache;
    let mut facts = vec![
        ("hits now".to_owned(), percent(figures.hits)),
        ("of bytes".to_owned(), percent(figures.hit_bytes)),
        ("files".to_owned(), grouped(cache.files)),
        ("memory".to_owned(), format!("{} of {}", size(cache.bytes), size(cache.max_bytes))),
        ("descriptors".to_owned(), grouped(cache.descriptors)),
        ("admitted".to_owned(), grouped(cache.admitted)),
        ("not admitted".to_owned(), grouped(cache.rejected)),
        ("evictions".to_owned(), grouped(cache.evictions)),
    ];
    facts.extend(parts(&cache.eviction));
    facts
}

/// Returns the parts of the count above them.
fn parts(counts: &[(String, u64)]) -> impl Iterator<Item = (String, String)> {
    nonzero(counts).map(|(name, count)| (format!("· {name}"), grouped(*count)))
}

fn response_cache(figures: &Figures) -> Vec<(String, String)> {
    let cache = &figures.report.responses;
    let mut facts = vec![
        ("hits now".to_owned(), percent(figures.response_hits)),
        ("URLs".to_owned(), grouped(cache.urls)),
        ("memory".to_owned(), format!("{} of {}", size(cache.bytes), size(cache.max_bytes))),
        ("in flight".to_owned(), grouped(cache.in_flight)),
        ("not admitted".to_owned(), grouped(cache.rejected)),
        ("evictions".to_owned(), grouped(cache.evicted)),
    ];
    let disk = &cache.disk;
    if disk.max_bytes > 0 {
        let bytes = format!("{} of {}", size(disk.bytes), size(disk.max_bytes));
        facts.insert(3, ("disk".to_owned(), bytes));
        facts.push(("disk failures".to_owned(), grouped(disk.failed)));
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
            format!("{} of {}", grouped(process.descriptors), grouped(process.descriptor_limit)),
        ),
        ("TLS new".to_owned(), grouped(report.tls.full)),
        ("TLS resumed".to_owned(), grouped(report.tls.resumed)),
        ("TLS failed".to_owned(), grouped(report.tls.failed + report.tls.late)),
        ("log lost".to_owned(), grouped(report.log_lines_lost)),
    ]
}
