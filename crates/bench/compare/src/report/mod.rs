//! Reports of a comparison, computed from its results alone.

mod bars;
mod chart;
mod experiments;
pub(crate) mod format;
mod html;
mod html_table;
mod lines;
mod markdown;
mod scale;
mod svg;
pub(crate) mod table;
mod terminal;
pub(crate) mod warnings;

use std::fs;
use std::io;
use std::path::Path;

use dunlin_load::show::Paint;

use crate::results::Results;

/// Writes `results.json`, `report.html`, `report.md` and the charts to `out`. Each file is replaced atomically.
///
/// # Errors
/// The first file that cannot be written.
pub fn write(results: &Results, out: &Path) -> io::Result<()> {
    let charts = chart::all(results);
    fs::create_dir_all(out.join("charts"))?;
    for chart in &charts {
        replace(&out.join("charts").join(&chart.file), &chart.svg)?;
    }
    let json = serde_json::to_string_pretty(results).map_err(io::Error::other)?;
    replace(&out.join("results.json"), &json)?;
    replace(&out.join("report.md"), &markdown::render(results))?;
    replace(&out.join("report.html"), &html::render(results, &charts))
}

/// Formats the results as tables for a terminal.
#[must_use]
pub fn summary(results: &Results, paint: Paint) -> String {
    terminal::render(results, paint)
}

fn replace(file: &Path, text: &str) -> io::Result<()> {
    let new = file.with_extension("new");
    fs::write(&new, text)?;
    fs::rename(&new, file)
}
