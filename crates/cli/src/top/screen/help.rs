//! The help.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::widgets::{Block, Clear, Paragraph};

const HELP: &str = "\
 q, Esc       end
 p            pause, resume
 s            sort by requests, latency,
              bytes or errors
 Tab          select the next part
 Enter        show it alone, or all
 ↑ ↓ j k      scroll the selected part
 PgUp PgDn    by ten lines
 Home End     to the start, to the end
 ?            close this help

 What fails, waits or is rejected
 comes first. p50 and p99 are times
 in the server, of one interval.";

/// Draws the help in the middle of `area`.
pub(super) fn draw(frame: &mut Frame<'_>, area: Rect) {
    let width = HELP.lines().map(|line| line.chars().count()).max().unwrap_or(0) as u16 + 3;
    let height = HELP.lines().count() as u16 + 2;
    let (width, height) = (width.min(area.width), height.min(area.height));
    let area = Rect {
        x: area.x + (area.width - width) / 2,
        y: area.y + (area.height - height) / 2,
        width,
        height,
    };
    frame.render_widget(Clear, area);
    frame.render_widget(Paragraph::new(HELP).block(Block::bordered().title("Keys")), area);
}
