//! The way from page to page: links, the filter of all names, and the field `Link`.

use std::fmt::Write;

use dunlin_http::html::escape;

use super::Page;
use super::order::{Order, Sort};
use super::query::Query;

/// Returns the links to the other pages; empty if there are none. `label` distinguishes the links before the names from those
/// behind them.
pub(super) fn links(page: &Page, query: &Query, label: &str) -> String {
    let Page { number, pages, .. } = *page;
    if pages == 1 {
        return String::new();
    }
    let link = |to: usize, rel: &str, text: &str| match (1..=pages).contains(&to) && to != number {
        true => {
            let href = escape(&query.link_to_page(to));
            format!("<a href=\"{href}\"{rel}>{text}</a>")
        }
        false => format!("<a role=\"link\" aria-disabled=\"true\">{text}</a>"),
    };
    format!(
        "<nav aria-label=\"{label}\">{}{}<span>Page {} of {}</span>{}{}</nav>\n",
        link(1, "", "First"),
        link(number - 1, " rel=\"prev\"", "Previous"),
        grouped(number),
        grouped(pages),
        link(number + 1, " rel=\"next\"", "Next"),
        link(pages, "", "Last"),
    )
}

/// Returns the field by which names are filtered. The browser filters a single page while the user types; several pages are
/// filtered by the server.
pub(super) fn filter(page: &Page, query: &Query) -> String {
    if page.pages == 1 && query.filter.is_empty() {
        return "<input id=\"filter\" type=\"search\" placeholder=\"Filter\" aria-label=\"Filter names\" hidden>\n"
            .to_owned();
    }
    let mut form = format!(
        "<form role=\"search\"><input id=\"filter\" type=\"search\" name=\"filter\" value=\"{}\" \
         placeholder=\"Filter all pages\" aria-label=\"Filter the names of all pages\">",
        escape(&query.filter)
    );
    if (query.sort, query.order) != (Sort::Name, Order::Ascending) {
        for (name, value) in [("sort", query.sort.as_str()), ("order", query.order.as_str())] {
            let _ = write!(form, "<input type=\"hidden\" name=\"{name}\" value=\"{value}\">");
        }
    }
    form.push_str("<button>Filter</button>");
    if !query.filter.is_empty() {
        let _ = write!(form, "<a href=\"{}\">All names</a>", escape(&query.link_to_all()));
    }
    form.push_str("</form>\n");
    form
}

/// Returns the value of the field `Link` (RFC 8288); `None` if there is one page.
pub(super) fn field(page: &Page, query: &Query) -> Option<String> {
    let Page { number, pages, .. } = *page;
    if pages == 1 {
        return None;
    }
    let all = [("first", 1), ("prev", number - 1), ("next", number + 1), ("last", pages)];
    let links = all.into_iter().filter(|(_, to)| (1..=pages).contains(to));
    let links = links.map(|(rel, to)| format!("<{}>; rel=\"{rel}\"", query.link_to_page(to)));
    Some(links.collect::<Vec<_>>().join(", "))
}

/// Returns the number with separators of thousands.
pub(super) fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::Totals;
    use super::*;

    fn page(number: usize, pages: usize) -> Page {
        let listed = Totals::default();
        Page { entries: Vec::new(), number, pages, listed, names: 0, truncated: false }
    }

    #[test]
    fn links_lead_to_the_pages_that_exist() {
        let query = Query::parse(Some(b"sort=size&filter=%22"));
        assert_eq!(links(&page(1, 1), &query, "Pages"), "");
        assert_eq!(field(&page(1, 1), &query), None);
        let first = links(&page(1, 1_200), &query, "Pages");
        assert!(first.contains("<a role=\"link\" aria-disabled=\"true\">Previous</a>"), "{first}");
        assert!(first.contains("<span>Page 1 of 1,200</span>"), "{first}");
        let next = "<a href=\"?sort=size&amp;order=asc&amp;filter=%22&amp;page=2\" rel=\"next\">";
        assert!(first.contains(next), "{first}");
        let query = Query::parse(None);
        let last = links(&page(3, 3), &query, "Pages");
        assert!(
            last.contains("<a href=\"./\">First</a><a href=\"?page=2\" rel=\"prev\">"),
            "{last}"
        );
        assert!(last.contains("<a role=\"link\" aria-disabled=\"true\">Last</a>"), "{last}");
        assert_eq!(
            field(&page(2, 3), &query).as_deref(),
            Some(
                "<./>; rel=\"first\", <./>; rel=\"prev\", <?page=3>; rel=\"next\", <?page=3>; rel=\"last\""
            )
        );
    }

    #[test]
    fn the_server_filters_what_one_page_does_not_have() {
        let query = Query::parse(Some(b"order=desc"));
        assert!(filter(&page(1, 1), &query).ends_with("hidden>\n"));
        let form = filter(&page(1, 2), &query);
        assert!(form.contains("<input type=\"hidden\" name=\"order\" value=\"desc\">"), "{form}");
        assert!(!form.contains("All names"), "{form}");
        let form = filter(&page(1, 1), &Query::parse(Some(b"filter=%22%3E")));
        assert!(
            form.contains("value=\"&quot;&gt;\"") && form.contains("<a href=\"./\">All names</a>")
        );
    }

    #[test]
    fn thousands_are_separated() {
        for (number, text) in [(0, "0"), (999, "999"), (1_000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(grouped(number), text);
        }
    }
}
