//! The listing as an HTML page without external resources. It works without JavaScript.

use std::fmt::Write;
use std::sync::LazyLock;

use dunlin_http::html::escape;
use dunlin_http::semantics::digest::base64;

use super::navigation::{self, grouped};
use super::order::{Order, Sort};
use super::query::Query;
use super::{Entry, Page, Totals};
use crate::digest::sha256;

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// The Content-Security-Policy of the page: its own style and script only. The filter is a form.
pub(super) static CSP: LazyLock<String> = LazyLock::new(|| {
    let hash = |text: &str| base64(&sha256(text.as_bytes()));
    format!(
        "default-src 'none'; style-src 'sha256-{}'; script-src 'sha256-{}'; base-uri 'none'; \
         form-action 'self'; frame-ancestors 'self'",
        hash(STYLE),
        hash(SCRIPT)
    )
});

/// The parts of the page besides the entries.
#[derive(Debug, Clone, Copy)]
pub(super) struct View<'a> {
    /// The decoded path; it ends with a slash.
    pub(super) path: &'a [u8],
    /// The host of the request; empty if it has none.
    pub(super) host: &'a [u8],
    pub(super) query: &'a Query,
}

/// Symbols of folders, files and the folder above.
const SYMBOLS: &str = "<svg><symbol id=\"d\" viewBox=\"0 0 16 16\"><path d=\"M1 3h5l2 2h7v9H1z\"/></symbol>\
     <symbol id=\"f\" viewBox=\"0 0 16 16\"><path d=\"M3 1h6l4 4v10H3zM9 1v4h4\"/></symbol>\
     <symbol id=\"u\" viewBox=\"0 0 16 16\"><path d=\"M13 14V9H4M7.5 4.5 3 9l4.5 4.5\"/></symbol></svg>\n";

/// The row of the folder above.
const ABOVE: &str = "<tr><td><a href=\"../\"><svg aria-hidden=\"true\"><use href=\"#u\"/></svg>../</a></td><td></td><td></td></tr>\n";

/// Returns a page of the listing as HTML.
pub(super) fn html(page: &Page, view: View<'_>) -> String {
    let View { path, host, query } = view;
    let mut text = String::with_capacity(8192 + page.entries.len() * 384);
    let host = escape_bytes(host);
    let title = title(page, path, &host);
    // Writing to a String cannot fail.
    let _ = write!(
        text,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>{title}</title>\n\
         <style>{STYLE}</style>\n</head>\n<body>\n{SYMBOLS}<main>\n\
         <a class=\"skip\" href=\"#names\">Skip to the names</a>\n<h1>{}</h1>\n\
         <p id=\"count\" role=\"status\">{}</p>\n{}{}\
         <table id=\"names\" tabindex=\"-1\">\n<caption>Contents of {title}</caption>\n<thead><tr>",
        breadcrumbs(path),
        summary(page, query),
        navigation::filter(page, query),
        navigation::links(page, query, "Pages"),
    );
    for (column, label) in [
        (Sort::Name, "Name"),
        (Sort::Size, "Size"),
        (Sort::Modified, "Modified<span> (UTC)</span>"),
    ] {
        head(&mut text, column, label, query);
    }
    text.push_str("</tr></thead>\n<tbody>\n");
    if path != b"/" {
        text.push_str(ABOVE);
    }
    for entry in &page.entries {
        row(&mut text, entry);
    }
    text.push_str("</tbody>\n</table>\n");
    text.push_str(&navigation::links(page, query, "Pages, after the names"));
    text.push_str(HELP);
    if page.pages > 1 {
        text.push_str(PAGE_KEYS);
    }
    let _ = write!(text, "</details>\n</main>\n<script>{SCRIPT}</script>\n</body>\n</html>\n");
    text
}

/// The keys of the page. Single-character keys can be switched off (WCAG 2.1.4). The script shows this.
const HELP: &str = "<details id=\"help\" hidden><summary>Keys</summary>\
     <p><kbd>\u{2191}</kbd> <kbd>\u{2193}</kbd> <kbd>Home</kbd> <kbd>End</kbd> move, <kbd>Enter</kbd> opens, \
     <kbd>Esc</kbd> clears the filter</p>\
     <p><label><input id=\"letters\" type=\"checkbox\" checked> <kbd>/</kbd> filters, <kbd>j</kbd> <kbd>k</kbd> move</label></p>";

/// The keys of a listing of several pages.
const PAGE_KEYS: &str =
    "<p>With them, <kbd>n</kbd> <kbd>p</kbd> open the next and the previous page</p>";

/// Returns the path, the number of the page if there are several, and the host.
fn title(page: &Page, path: &[u8], host: &str) -> String {
    let mut title = escape_bytes(path);
    if page.pages > 1 {
        let _ = write!(title, ", page {} of {}", grouped(page.number), grouped(page.pages));
    }
    if !host.is_empty() {
        let _ = write!(title, " \u{2013} {host}");
    }
    title
}

/// Returns how many directories and files all pages have, the size of the files, and which part of the directory this is.
fn summary(page: &Page, query: &Query) -> String {
    let listed = totals(page.listed);
    let all = match page.truncated {
        true => format!("the first {} of a larger directory", count(page.names, "name")),
        false => count(page.names, "name"),
    };
    if !query.filter.is_empty() {
        let filter = escape(&query.filter);
        return match page.listed.names() {
            0 => format!("None of {all} matches \u{201c}{filter}\u{201d}"),
            names => {
                let verb = if names == 1 { "matches" } else { "match" };
                let names = grouped(names);
                format!("{names} of {all} {verb} \u{201c}{filter}\u{201d}: {listed}")
            }
        };
    }
    match (page.truncated, page.names) {
        (true, _) => format!("Only {all} are listed: {listed}"),
        (false, 0) => "Empty directory".to_owned(),
        (false, _) => listed,
    }
}

fn totals(listed: Totals) -> String {
    let Totals { directories, files, size } = listed;
    let mut parts = Vec::new();
    if directories > 0 {
        parts.push(count(directories, "folder"));
    }
    if files > 0 {
        parts.push(count(files, "file"));
        parts.push(human(size));
    }
    parts.join(", ")
}

fn count(count: usize, one: &str) -> String {
    match count {
        1 => format!("1 {one}"),
        count => format!("{} {one}s", grouped(count)),
    }
}

/// Breadcrumbs: the path, with a link for the root directory and for each directory above this one.
fn breadcrumbs(path: &[u8]) -> String {
    let segments: Vec<&[u8]> = path.split(|&b| b == b'/').filter(|s| !s.is_empty()).collect();
    let mut text = match segments.len() {
        0 => "<span>/</span>".to_owned(),
        depth => {
            format!("<a href=\"{}\" aria-label=\"/, the top folder\">/</a>", "../".repeat(depth))
        }
    };
    for (at, segment) in segments.iter().enumerate() {
        let name = escape_bytes(segment);
        let above = segments.len() - at - 1;
        let _ = match above {
            0 => write!(text, "<span>{name}/</span>"),
            above => write!(text, "<a href=\"{}\">{name}</a>/", "../".repeat(above)),
        };
    }
    text
}

fn head(text: &mut String, column: Sort, label: &str, query: &Query) {
    let (aria, mark, next) = match (column == query.sort, query.order) {
        (true, Order::Ascending) => (" aria-sort=\"ascending\"", " \u{2191}", Order::Descending),
        (true, Order::Descending) => (" aria-sort=\"descending\"", " \u{2193}", Order::Ascending),
        (false, _) => ("", "", Order::Ascending),
    };
    let href = escape(&query.link_to_order(column, next));
    let _ = write!(text, "<th scope=\"col\"{aria}><a href=\"{href}\">{label}{mark}</a></th>");
}

fn row(text: &mut String, entry: &Entry) {
    let (slash, class, symbol) =
        if entry.directory { ("/", " class=\"dir\"", 'd') } else { ("", "", 'f') };
    let name = escape_bytes(&entry.name);
    let href = escape(&entry.href());
    let size = if entry.directory {
        String::new()
    } else {
        format!("<span title=\"{} bytes\">{}</span>", entry.size, human(entry.size))
    };
    let time = entry.timestamp();
    let (date, clock) = (&time[..10], &time[11..16]);
    let _ = writeln!(
        text,
        "<tr><td><a{class} href=\"{href}\"><svg aria-hidden=\"true\"><use href=\"#{symbol}\"/></svg><bdi>{name}</bdi>{slash}</a></td><td>{size}</td>\
         <td><time datetime=\"{time}\">{date} <small>{clock}</small></time></td></tr>"
    );
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

#[cfg(test)]
mod tests {
    use super::super::json::json;
    use super::*;

    fn entry(name: &str, directory: bool, size: u64) -> Entry {
        Entry { name: name.into(), directory, size, modified: size as i64 }
    }

    fn page(entries: Vec<Entry>) -> Page {
        let directories = entries.iter().filter(|entry| entry.directory).count();
        let size = entries.iter().map(|entry| entry.size).sum();
        let listed = Totals { directories, files: entries.len() - directories, size };
        Page { names: entries.len(), entries, number: 1, pages: 1, listed, truncated: false }
    }

    fn shown(page: &Page, path: &[u8], query: &str) -> String {
        let query = Query::parse(Some(query.as_bytes()));
        html(page, View { path, host: b"<h>", query: &query })
    }

    #[test]
    fn the_page_counts_what_is_listed_and_names_the_host() {
        let entries = vec![entry("a", true, 0), entry("b", false, 1), entry("c", false, 2_999)];
        let text = shown(&page(entries), b"/x/", "");
        assert!(text.contains(">1 folder, 2 files, 3.0 KB</p>"), "{text}");
        assert!(text.contains("<title>/x/ \u{2013} &lt;h&gt;</title>"), "{text}");
        assert!(
            text.contains(
                "<h1><a href=\"../\" aria-label=\"/, the top folder\">/</a><span>x/</span></h1>"
            ),
            "{text}"
        );
        let text = shown(&page(vec![entry("b", false, 1)]), b"/", "");
        assert!(text.contains(">1 file, 1 B</p>"), "{text}");
        assert!(text.contains("<h1><span>/</span></h1>"), "{text}");
        assert!(shown(&page(vec![]), b"/", "").contains(">Empty directory</p>"));
    }

    #[test]
    fn the_page_states_which_part_of_the_directory_it_lists() {
        let listed = Totals { directories: 0, files: 100_000, size: 1_000_000 };
        let many = Page { number: 3, pages: 50, names: 100_000, listed, ..page(vec![]) };
        let text = shown(&many, b"/x/", "");
        assert!(text.contains(">100,000 files, 1.0 MB</p>"), "{text}");
        assert!(text.contains("<title>/x/, page 3 of 50 \u{2013} &lt;h&gt;</title>"), "{text}");
        assert_eq!(text.matches("<span>Page 3 of 50</span>").count(), 2);
        let truncated = Page { truncated: true, ..many };
        let expected = ">Only the first 100,000 names of a larger directory are listed: 100,000 files, 1.0 MB</p>";
        assert!(shown(&truncated, b"/x/", "").contains(expected));
        let found = Page { names: 100_000, ..page(vec![entry("<b", false, 1)]) };
        let text = shown(&found, b"/x/", "filter=%3C");
        let expected = ">1 of 100,000 names matches \u{201c}&lt;\u{201d}: 1 file, 1 B</p>";
        assert!(text.contains(expected), "{text}");
        let none = Page { names: 100_000, ..page(vec![]) };
        let text = shown(&none, b"/x/", "filter=y");
        assert!(text.contains(">None of 100,000 names matches \u{201c}y\u{201d}</p>"), "{text}");
    }

    #[test]
    fn names_cannot_break_out() {
        let entries = vec![entry("<script>\"&", false, 3), entry("a:b", false, 4)];
        let text = shown(&page(entries), b"/x/<y>/", "");
        assert!(!text.contains("<script>\"") && !text.contains("<y>"));
        assert!(text.contains("href=\"./a:b\""), "the colon must not be read as a scheme: {text}");
        assert!(text.contains("href=\"./%3Cscript%3E%22&amp;\""));
    }

    #[test]
    fn a_name_that_is_not_utf_8_is_linked_exactly() {
        let entry = Entry { name: b"\xff\xe2\x81\xa6".into(), ..entry("", false, 1) };
        let page = page(vec![entry]);
        let text = shown(&page, b"/", "");
        assert!(
            text.contains("href=\"./%FF%E2%81%A6\"><svg aria-hidden=\"true\"><use href=\"#f\"/></svg><bdi>\u{fffd}\u{fffd}</bdi></a>"),
            "{text}"
        );
        let text = json(&page, b"/");
        assert!(text.contains("\"href\":\"./%FF%E2%81%A6\""), "{text}");
    }

    #[test]
    fn the_policy_allows_exactly_the_inline_texts() {
        use sha2::{Digest, Sha256};
        let page = shown(&page(vec![]), b"/", "");
        for tag in ["style", "script"] {
            let start = page.find(&format!("<{tag}>")).unwrap() + tag.len() + 2;
            let end = page.find(&format!("</{tag}>")).unwrap();
            let digest: [u8; 32] = Sha256::digest(&page[start..end]).into();
            let hash = base64(&digest);
            assert!(CSP.contains(&format!("{tag}-src 'sha256-{hash}'")), "{tag}");
        }
    }
}
