//! The tables of routes and clients.

use std::cmp::Reverse;

use ratatui::layout::Constraint;
use ratatui::style::Stylize;
use ratatui::text::Line;
use ratatui::widgets::{Cell, Row as TableRow, Table};

use dunlin_load::units::rate;

use crate::top::figures::{Row, grouped, nanos};
use crate::watch::size;

/// Order of routes and clients.
#[derive(Clone, Copy, PartialEq)]
pub(in crate::top) enum Order {
    Requests,
    Latency,
    Bytes,
    Errors,
}

impl Order {
    pub(in crate::top) fn next(self) -> Self {
        match self {
            Self::Requests => Self::Latency,
            Self::Latency => Self::Bytes,
            Self::Bytes => Self::Errors,
            Self::Errors => Self::Requests,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Requests => "requests",
            Self::Latency => "latency",
            Self::Bytes => "bytes",
            Self::Errors => "errors",
        }
    }

    /// Failing rows come first, since there may not be room for all.
    fn key(self, row: &Row) -> (u64, u64, u64) {
        let first = match self {
            Self::Requests => step(row.rate),
            Self::Latency => step(row.latency.high.unwrap_or(0) as f64),
            Self::Bytes => step(row.sent),
            // All since the start; those of the interval come first anyway.
            Self::Errors => row.failed.unwrap_or(0),
        };
        (row.new_failures, first, row.requests)
    }
}

/// Returns the number of the step of a value, of which two double it. Rows of one step have the order of their requests, so that
/// they do not change places each second.
fn step(value: f64) -> u64 {
    if value > 0.0 { ((value.log2() + 16.0) * 2.0).max(1.0) as u64 } else { 0 }
}

/// A column besides the name.
#[derive(Clone, Copy, PartialEq)]
enum Column {
    Rate,
    Sent,
    Low,
    High,
    Requests,
    Failed,
}

const COLUMNS: [Column; 6] =
    [Column::Rate, Column::Sent, Column::Low, Column::High, Column::Requests, Column::Failed];

/// Columns in the order in which a narrow terminal omits them.
const OMITTED: [Column; 5] =
    [Column::Requests, Column::Sent, Column::Low, Column::High, Column::Failed];

/// Width of names that columns are omitted for, if there are names as long as this.
const NAME: usize = 24;

impl Column {
    fn width(self) -> u16 {
        match self {
            Self::Rate | Self::Sent => 10,
            Self::Low | Self::High => 9,
            Self::Requests => 11,
            Self::Failed => 7,
        }
    }

    fn title(self, times: [&'static str; 2]) -> &'static str {
        match self {
            Self::Rate => "req/s",
            Self::Sent => "bytes/s",
            Self::Low => times[0],
            Self::High => times[1],
            Self::Requests => "requests",
            Self::Failed => "5xx",
        }
    }

    fn cell(self, row: &Row) -> Cell<'static> {
        match self {
            Self::Rate => right(rate(row.rate)),
            Self::Sent => right(size(row.sent as u64)),
            Self::Low => right(nanos(row.latency.low)),
            Self::High => right(nanos(row.latency.high)),
            Self::Requests => right(grouped(row.requests)),
            Self::Failed => match row.failed {
                None => Cell::default(),
                Some(0) => right("0".into()),
                Some(failed) => right(grouped(failed)).red(),
            },
        }
    }
}

fn right(text: String) -> Cell<'static> {
    Cell::from(Line::from(text).right_aligned())
}

/// Returns the table of `rows` from the line `offset` on, within `width` columns.
pub(super) fn of(
    rows: &[Row],
    times: [&'static str; 2],
    order: Order,
    offset: usize,
    width: u16,
) -> Table<'static> {
    let longest = rows.iter().map(|row| row.name.chars().count()).max().unwrap_or(0);
    // Failures of clients are not counted.
    let mut counted = COLUMNS.to_vec();
    counted
        .retain(|&column| column != Column::Failed || rows.iter().any(|row| row.failed.is_some()));
    let width = usize::from(width.saturating_sub(2));
    let (columns, room) = columns(counted, width, longest.min(NAME));
    let mut ordered: Vec<&Row> = rows.iter().collect();
    ordered.sort_by_key(|row| Reverse(order.key(row)));
    let line = |row: &Row| {
        let name = Cell::from(shortened(&row.name, room));
        TableRow::new([name].into_iter().chain(columns.iter().map(|column| column.cell(row))))
    };
    let title = |column: &Column| right(column.title(times).into()).dim();
    let header = TableRow::new([Cell::default()].into_iter().chain(columns.iter().map(title)));
    let widths = columns.iter().map(|column| Constraint::Length(column.width()));
    let widths = [Constraint::Fill(1)].into_iter().chain(widths);
    Table::new(ordered.into_iter().skip(offset).map(line), widths).header(header)
}

/// Returns which of the columns leave names of `wanted` characters room, and that room.
fn columns(mut columns: Vec<Column>, width: usize, wanted: usize) -> (Vec<Column>, usize) {
    let room = |columns: &[Column]| {
        let taken: usize = columns.iter().map(|column| usize::from(column.width()) + 1).sum();
        width.saturating_sub(taken)
    };
    for omitted in OMITTED {
        if room(&columns) >= wanted {
            break;
        }
        columns.retain(|&column| column != omitted);
    }
    let room = room(&columns);
    (columns, room)
}

/// Returns the text, with an ellipsis if it has more than `width` characters.
pub(super) fn shortened(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let mut short: String = text.chars().take(width.saturating_sub(1)).collect();
    short.push('…');
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_similar_rates_keep_their_order() {
        let row = |rate, requests| Row { rate, requests, ..Row::default() };
        let is_before =
            |one: &Row, other: &Row| Order::Requests.key(one) > Order::Requests.key(other);
        assert!(is_before(&row(100.0, 10), &row(110.0, 5)));
        assert!(is_before(&row(0.0, 10), &row(0.0, 5)));
        assert!(is_before(&row(300.0, 5), &row(100.0, 10)));
        assert!(is_before(&row(0.001, 5), &row(0.0, 10)));
    }
}
