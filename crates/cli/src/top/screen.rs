//! The full-screen display.

mod charts;
mod facts;
mod help;
mod part;
mod table;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Stylize;
use ratatui::text::{Line, Span};

pub(super) use self::part::Part;
pub(super) use self::table::Order;
use super::figures::{Figures, History};
use super::layout;
use super::lines;

/// The content of the screen.
pub(super) struct Screen {
    pub(super) figures: Figures,
    pub(super) history: History,
    pub(super) order: Order,
    pub(super) is_paused: bool,
    /// Error of the last request to the server.
    pub(super) trouble: Option<String>,
    pub(super) place: String,
    /// The part that the keys scroll.
    pub(super) selected: Part,
    /// The selected part takes the whole screen.
    pub(super) is_enlarged: bool,
    pub(super) shows_help: bool,
    /// The first line that is shown of each part.
    offsets: [usize; Part::ALL.len()],
    /// Lines of the selected part that there is room for.
    page: usize,
}

/// A movement of the lines of the selected part.
#[derive(Clone, Copy)]
pub(super) enum Scroll {
    By(isize),
    /// A page of the part, down or up.
    Page(isize),
    Start,
    End,
}

impl Screen {
    pub(super) fn new(figures: Figures, place: &str) -> Self {
        Self {
            figures,
            history: History::default(),
            order: Order::Requests,
            is_paused: false,
            trouble: None,
            place: place.to_owned(),
            selected: Part::Routes,
            is_enlarged: false,
            shows_help: false,
            offsets: [0; Part::ALL.len()],
            page: 1,
        }
    }

    /// Selects the next part that has lines, or the one before.
    pub(super) fn select(&mut self, is_forward: bool) {
        let parts = Part::ALL.into_iter().filter(|&part| self.count(part) > 0);
        let parts: Vec<Part> = parts.collect();
        let at = parts.iter().position(|&part| part == self.selected).unwrap_or(0);
        let step = if is_forward { 1 } else { parts.len().saturating_sub(1) };
        if let Some(&next) = parts.get((at + step) % parts.len().max(1)) {
            self.selected = next;
        }
    }

    /// Scrolls the selected part. Drawing limits the offset to the lines that there are.
    pub(super) fn scroll(&mut self, scroll: Scroll) {
        let offset = &mut self.offsets[self.selected as usize];
        *offset = match scroll {
            Scroll::By(lines) => offset.saturating_add_signed(lines),
            Scroll::Page(pages) => {
                let page = isize::try_from(self.page).unwrap_or(isize::MAX);
                offset.saturating_add_signed(pages.saturating_mul(page))
            }
            Scroll::Start => 0,
            Scroll::End => usize::MAX,
        };
    }

    pub(super) fn draw(&mut self, frame: &mut Frame<'_>) {
        let area = frame.area();
        let [head, body, foot] =
            Layout::vertical([1, area.height.saturating_sub(2), 1].map(Constraint::Length))
                .areas(area);
        let report = &self.figures.report;
        let counts = layout::Counts {
            facts: facts::count(&self.figures),
            routes: self.figures.routes.len(),
            scripts: lines::scripts(report).len(),
            upstreams: report.upstreams.len(),
            stores: report.object_stores.len(),
            limits: report.limits.iter().map(lines::count).sum(),
            certificates: report.certificates.len(),
            clients: self.figures.clients.len(),
        };
        let heights = layout::heights(area.height, &counts);
        let areas = Layout::vertical(heights.map(Constraint::Length)).areas(area);
        let [_, charts, facts, parts @ .., _]: [Rect; 11] = areas;
        self.head(frame, head);
        let has_room = parts[self.selected as usize].height > 0;
        let (mut hidden, mut calls) = (Vec::new(), false);
        if self.is_enlarged || !has_room {
            self.part(frame, body, self.selected);
        } else {
            charts::draw(frame, charts, &self.figures, &self.history);
            facts::draw(frame, facts, &self.figures);
            for (part, area) in Part::ALL.into_iter().zip(parts) {
                match self.count(part) {
                    count if area.height == 0 && count > 0 => {
                        hidden.push(part.counted(count));
                        calls |= self.lines(part).iter().any(|line| line.calls);
                    }
                    _ => self.part(frame, area, part),
                }
            }
        }
        frame.render_widget(self.foot(&hidden, calls, foot.width), foot);
        if self.shows_help {
            help::draw(frame, body);
        }
    }

    fn head(&self, frame: &mut Frame<'_>, area: Rect) {
        let server = &self.figures.report.server;
        let up = (server.time - server.started).max(0.0) as u64;
        let workers = if server.threads == 1 { "worker" } else { "workers" };
        let mut line = vec![
            Span::from("dunlin ").bold(),
            Span::from(format!(
                "{}  process {}, {} {workers}, up {}",
                server.version,
                server.pid,
                server.threads,
                span(up)
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

    /// Returns the keys, and what there is no room for; `calls` if a line of it needs attention. A narrow line has the number
    /// of the hidden parts.
    fn foot(&self, hidden: &[String], calls: bool, width: u16) -> Line<'static> {
        let mut foot = Line::from(vec![
            " q ".reversed(),
            " end  ".into(),
            " p ".reversed(),
            (if self.is_paused { " resume  " } else { " pause  " }).into(),
            " s ".reversed(),
            format!(" order: {}  ", self.order.name()).into(),
            " ? ".reversed(),
            " help".into(),
        ]);
        if !hidden.is_empty() {
            let mark = if calls { "  ! Tab: " } else { "  Tab: " };
            let mut more = format!("{mark}{}", hidden.join(", "));
            if foot.width() + more.chars().count() > usize::from(width) {
                more = format!("{mark}{} more", hidden.len());
            }
            foot.push_span(if calls { more.yellow() } else { more.dim() });
        }
        foot
    }
}

/// Returns the two largest units of a duration in seconds.
fn span(seconds: u64) -> String {
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60);
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3_600 => format!("{minutes} min {} s", seconds % 60),
        3_600..86_400 => format!("{hours} h {minutes} min"),
        _ => format!("{days} d {hours} h"),
    }
}

#[cfg(test)]
mod tests;
