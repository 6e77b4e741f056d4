//! The listing as an HTML page without external resources. It works without JavaScript.

use std::fmt::Write;
use std::sync::LazyLock;

use dunlin_http::html::escape;
use dunlin_http::semantics::digest::base64;
use dunlin_http::semantics::path::encode;

use super::order::{self, Order, Sort};
use super::{Entry, Listing, timestamp};
use crate::compress::sha256;

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// The Content-Security-Policy of the page: its own style and script only.
pub(crate) static CSP: LazyLock<String> = LazyLock::new(|| {
    let hash = |text: &str| base64(&sha256(text.as_bytes()));
    format!(
        "default-src 'none'; style-src 'sha256-{}'; script-src 'sha256-{}'; base-uri 'none'; \
         form-action 'none'; frame-ancestors 'self'",
        hash(STYLE),
        hash(SCRIPT)
    )
});

/// What the page shows besides the entries.
#[derive(Debug, Clone, Copy)]
pub(crate) struct View<'a> {
    /// The decoded path; it ends with a slash.
    pub(crate) path: &'a [u8],
    /// The host of the request; empty if it has none.
    pub(crate) host: &'a [u8],
    pub(crate) sort: Sort,
    pub(crate) order: Order,
}

/// Symbols of folders and files.
const SYMBOLS: &str = "<svg><symbol id=\"d\" viewBox=\"0 0 16 16\"><path d=\"M1 3h5l2 2h7v9H1z\"/></symbol>\
     <symbol id=\"f\" viewBox=\"0 0 16 16\"><path d=\"M3 1h6l4 4v10H3zM9 1v4h4\"/></symbol></svg>\n";

/// The listing as HTML.
pub(crate) fn html(listing: &mut Listing, view: View<'_>) -> String {
    let View { path, host, sort, order } = view;
    order::sort(&mut listing.entries, sort, order);
    let mut page = String::with_capacity(6144 + listing.entries.len() * 256);
    let (place, host) = (escape_bytes(path), escape_bytes(host));
    let title = if host.is_empty() { place } else { format!("{place} \u{2013} {host}") };
    // Writing to a String cannot fail.
    let _ = write!(
        page,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>{title}</title>\n\
         <style>{STYLE}</style>\n</head>\n<body>\n{SYMBOLS}<main>\n\
         <a class=\"skip\" href=\"#names\">Skip to the names</a>\n<h1>{}</h1>\n\
         <p id=\"count\" role=\"status\">{}</p>\n\
         <input id=\"filter\" type=\"search\" placeholder=\"Filter\" aria-label=\"Filter names\" hidden>\n\
         <table id=\"names\" tabindex=\"-1\">\n<caption>Contents of {title}</caption>\n<thead><tr>",
        breadcrumbs(path, &host),
        summary(listing)
    );
    for (column, label) in
        [(Sort::Name, "Name"), (Sort::Size, "Size"), (Sort::Modified, "Modified (UTC)")]
    {
        head(&mut page, column, label, sort, order);
    }
    page.push_str("</tr></thead>\n<tbody>\n");
    if path != b"/" {
        page.push_str("<tr><td><a href=\"../\">../</a></td><td></td><td></td></tr>\n");
    }
    for entry in &listing.entries {
        row(&mut page, entry);
    }
    page.push_str("</tbody>\n</table>\n");
    page.push_str(HELP);
    let _ = write!(page, "</main>\n<script>{SCRIPT}</script>\n</body>\n</html>\n");
    page
}

/// The keys of the page. Single-character keys can be switched off (WCAG 2.1.4). The script shows this.
const HELP: &str = "<details id=\"help\" hidden><summary>Keys</summary>\
     <p><kbd>\u{2191}</kbd> <kbd>\u{2193}</kbd> <kbd>Home</kbd> <kbd>End</kbd> move, <kbd>Enter</kbd> opens, \
     <kbd>Esc</kbd> clears the filter</p>\
     <p><label><input id=\"letters\" type=\"checkbox\" checked> <kbd>/</kbd> filters, <kbd>j</kbd> <kbd>k</kbd> move</label></p>\
     </details>\n";

/// How many directories and files the listing has, and the size of the files.
fn summary(listing: &Listing) -> String {
    let directories = listing.entries.iter().filter(|entry| entry.directory).count();
    let files = listing.entries.len() - directories;
    let count = |count: usize, one: &str| match count {
        1 => format!("1 {one}"),
        count => format!("{count} {one}s"),
    };
    if listing.truncated {
        let shown = count(listing.entries.len(), "name");
        return format!("The first {shown} of a larger directory");
    }
    if listing.entries.is_empty() {
        return "Empty directory".to_owned();
    }
    let mut parts = Vec::new();
    if directories > 0 {
        parts.push(count(directories, "folder"));
    }
    if files > 0 {
        let size = listing.entries.iter().fold(0, |sum: u64, entry| sum.saturating_add(entry.size));
        parts.push(count(files, "file"));
        parts.push(human(size));
    }
    parts.join(", ")
}

/// Breadcrumbs: a link for the root directory and for each directory of the path.
fn breadcrumbs(path: &[u8], host: &str) -> String {
    let segments: Vec<&[u8]> = path.split(|&b| b == b'/').filter(|s| !s.is_empty()).collect();
    let mut text = match segments.len() {
        0 => format!("<span>{host}/</span>"),
        depth => format!("<a href=\"{}\">{host}/</a>", "../".repeat(depth)),
    };
    for (at, segment) in segments.iter().enumerate() {
        let name = escape_bytes(segment);
        let above = segments.len() - at - 1;
        let _ = match above {
            0 => write!(text, "<span>{name}/</span>"),
            above => write!(text, "<a href=\"{}\">{name}/</a>", "../".repeat(above)),
        };
    }
    text
}

fn head(page: &mut String, column: Sort, label: &str, sort: Sort, order: Order) {
    let (aria, mark, next) = match (column == sort, order) {
        (true, Order::Ascending) => (" aria-sort=\"ascending\"", " \u{2191}", "desc"),
        (true, Order::Descending) => (" aria-sort=\"descending\"", " \u{2193}", "asc"),
        (false, _) => ("", "", "asc"),
    };
    let key = column.as_str();
    let _ = write!(
        page,
        "<th scope=\"col\"{aria}><a href=\"?sort={key}&amp;order={next}\">{label}{mark}</a></th>"
    );
}

fn row(page: &mut String, entry: &Entry) {
    let (slash, class, symbol) =
        if entry.directory { ("/", " class=\"dir\"", 'd') } else { ("", "", 'f') };
    let name = escape_bytes(&entry.name);
    let href = escape(&href(entry));
    let size = if entry.directory {
        String::new()
    } else {
        format!("<span title=\"{} bytes\">{}</span>", entry.size, human(entry.size))
    };
    let time = timestamp(entry.modified);
    let (date, clock) = (&time[..10], &time[11..16]);
    let _ = writeln!(
        page,
        "<tr><td><a{class} href=\"{href}\"><svg aria-hidden=\"true\"><use href=\"#{symbol}\"/></svg><bdi>{name}</bdi>{slash}</a></td><td>{size}</td>\
         <td><time datetime=\"{time}\">{date} <small>{clock}</small></time></td></tr>"
    );
}

/// The relative link to `entry`. The prefix `./` prevents that the name is read as a scheme or as an absolute path.
pub(super) fn href(entry: &Entry) -> String {
    let slash: &[u8] = if entry.directory { b"/" } else { b"" };
    encode(&[b"./", &*entry.name, slash].concat())
}

fn human(size: u64) -> String {
    const UNITS: [&str; 5] = ["KB", "MB", "GB", "TB", "PB"];
    if size < 1000 {
        return format!("{size} B");
    }
    let (mut value, mut unit) = (size as f64 / 1000.0, 0);
    while value >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1000.0;
        unit += 1;
    }
    if value < 10.0 {
        format!("{value:.1} {}", UNITS[unit])
    } else {
        format!("{value:.0} {}", UNITS[unit])
    }
}

fn escape_bytes(bytes: &[u8]) -> String {
    escape(&String::from_utf8_lossy(bytes))
}
