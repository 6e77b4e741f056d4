//! The listing as an HTML page without external resources. It works without JavaScript.

use std::fmt::Write;
use std::sync::LazyLock;

use dunlin_http::semantics::digest::base64;
use dunlin_http::semantics::path::encode;

use super::{Entry, Listing, Order, Sort, timestamp};
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

/// The listing as HTML. `path` is decoded and ends with a slash.
pub(crate) fn html(listing: &mut Listing, path: &[u8], sort: Sort, order: Order) -> String {
    listing.sort(sort, order);
    let mut page = String::with_capacity(4096 + listing.entries.len() * 256);
    let title = escape(&String::from_utf8_lossy(path));
    // Writing to a String cannot fail.
    let _ = write!(
        page,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>{title}</title>\n\
         <style>{STYLE}</style>\n</head>\n<body>\n<main>\n\
         <a class=\"skip\" href=\"#names\">Skip to the names</a>\n<h1>{}</h1>\n\
         <input id=\"filter\" type=\"search\" placeholder=\"Filter (press /)\" aria-label=\"Filter names\" hidden>\n\
         <table id=\"names\" tabindex=\"-1\">\n<caption>Contents of {title}, times in UTC</caption>\n<thead><tr>",
        breadcrumbs(path)
    );
    for (column, label) in
        [(Sort::Name, "Name"), (Sort::Size, "Size"), (Sort::Modified, "Modified")]
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
    if listing.entries.is_empty() {
        page.push_str("<p>Nothing is here.</p>\n");
    }
    if listing.truncated {
        let _ = writeln!(
            page,
            "<p>Only {} names are shown; there are more.</p>",
            listing.entries.len()
        );
    }
    let _ = write!(page, "</main>\n<script>{SCRIPT}</script>\n</body>\n</html>\n");
    page
}

/// Breadcrumbs: a link for each directory of the path.
fn breadcrumbs(path: &[u8]) -> String {
    let segments: Vec<&[u8]> = path.split(|&b| b == b'/').filter(|s| !s.is_empty()).collect();
    let mut text = match segments.len() {
        0 => "<span>/</span>".to_owned(),
        depth => format!("<a href=\"{}\">/</a>", "../".repeat(depth)),
    };
    for (at, segment) in segments.iter().enumerate() {
        let name = escape(&String::from_utf8_lossy(segment));
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
    let (slash, class) = if entry.directory { ("/", " class=\"dir\"") } else { ("", "") };
    let name = escape(&String::from_utf8_lossy(&entry.name));
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
        "<tr><td><a{class} href=\"{href}\"><bdi>{name}</bdi>{slash}</a></td><td>{size}</td>\
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

fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            // Control characters could change the direction of the text that follows, or hide it.
            c if c.is_control()
                || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}') =>
            {
                escaped.push('\u{fffd}');
            }
            c => escaped.push(c),
        }
    }
    escaped
}
