//! The parts that scroll: tables of routes and clients, lists of script pools, upstreams, object stores, limits and
//! certificates.

use std::cmp::Reverse;

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::{Style, Stylize};
use ratatui::text::Line;
use ratatui::widgets::{Block, Paragraph};

use super::{Screen, table};
use crate::top::figures::{OF_CLIENT, PERCENTILES};
use crate::top::lines::{self, ListLine};

/// A part of the screen, in the order from top to bottom.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::top) enum Part {
    Routes,
    Scripts,
    Upstreams,
    Stores,
    Limits,
    Certificates,
    Clients,
}

impl Part {
    pub(super) const ALL: [Self; 7] = [
        Self::Routes,
        Self::Scripts,
        Self::Upstreams,
        Self::Stores,
        Self::Limits,
        Self::Certificates,
        Self::Clients,
    ];

    fn title(self) -> &'static str {
        match self {
            Self::Routes => "Routes",
            Self::Scripts => "Scripts",
            Self::Upstreams => "Upstreams",
            Self::Stores => "Object stores",
            Self::Limits => "Limits",
            Self::Certificates => "Certificates",
            Self::Clients => "Clients",
        }
    }

    /// Returns the number of lines with their name, such as "2 limits".
    pub(super) fn counted(self, count: usize) -> String {
        let name = self.title().to_lowercase();
        let name = if count == 1 { name.trim_end_matches('s') } else { &name };
        format!("{count} {name}")
    }
}

impl Screen {
    /// Returns how many lines the part has.
    pub(super) fn count(&self, part: Part) -> usize {
        match part {
            Part::Routes => self.figures.routes.len(),
            Part::Clients => self.figures.clients.len(),
            _ => self.lines(part).len(),
        }
    }

    pub(super) fn lines(&self, part: Part) -> Vec<ListLine> {
        let report = &self.figures.report;
        let mut lines = match part {
            Part::Scripts => lines::scripts(report),
            Part::Upstreams => lines::upstreams(report),
            Part::Stores => lines::object_stores(report),
            Part::Limits => lines::limits(report),
            Part::Certificates => lines::certificates(report),
            Part::Routes | Part::Clients => Vec::new(),
        };
        // Lines that need attention come first, since there may not be room for all.
        lines.sort_by_key(|line| Reverse(line.calls));
        lines
    }

    pub(super) fn part(&mut self, frame: &mut Frame<'_>, area: Rect, part: Part) {
        let is_table = matches!(part, Part::Routes | Part::Clients);
        // The frame, and the header of a table.
        let room = usize::from(area.height.saturating_sub(if is_table { 3 } else { 2 }));
        let count = self.count(part);
        let offset = self.offsets[part as usize].min(count.saturating_sub(room));
        self.offsets[part as usize] = offset;
        if part == self.selected {
            self.page = room.max(1);
        }
        let below = count.saturating_sub(room + offset);
        let title = match (offset, below) {
            (0, 0) => part.title().to_owned(),
            (0, below) => format!("{} ({below} more)", part.title()),
            (above, below) => format!("{} ({above} above, {below} more)", part.title()),
        };
        let is_selected = part == self.selected;
        let style = if is_selected { Style::new() } else { Style::new().dim() };
        let block = Block::bordered().border_style(style).title(title);
        let (figures, order) = (&self.figures, self.order);
        match part {
            Part::Routes => {
                let table = table::of(&figures.routes, PERCENTILES, order, offset, area.width);
                frame.render_widget(table.block(block), area);
            }
            Part::Clients => {
                let table = table::of(&figures.clients, OF_CLIENT, order, offset, area.width);
                frame.render_widget(table.block(block), area);
            }
            _ => {
                let width = usize::from(area.width.saturating_sub(2));
                let lines = self.lines(part).into_iter().skip(offset);
                let lines: Vec<_> = lines.map(|line| styled(&line, width)).collect();
                frame.render_widget(Paragraph::new(lines).block(block), area);
            }
        }
    }
}

fn styled(line: &ListLine, width: usize) -> Line<'static> {
    let text = Line::from(table::shortened(&line.text, width));
    if line.calls { text.yellow() } else { text }
}
