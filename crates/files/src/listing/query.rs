//! The parameters of a listing: `sort`, `order`, `filter` and `page`.

use std::fmt::Write;

use super::order::{Order, Sort};

/// The query of a request for a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Query {
    pub(super) sort: Sort,
    pub(super) order: Order,
    /// Text that the listed names contain; empty for all names.
    pub(super) filter: String,
    /// The number of the page from 1; `None` if the value is not a number.
    pub(super) page: Option<usize>,
}

/// Maximum number of characters in a filter. No name has as many, and every link of the response repeats the filter.
const MAX_FILTER: usize = 256;

/// Compares names with a filter without regard to case.
#[derive(Debug)]
pub(super) struct Matcher {
    lowercase: String,
}

impl Query {
    /// Parses `sort=name|size|modified&order=asc|desc&filter=TEXT&page=NUMBER`. Other parameters, and other values of `sort`
    /// and `order`, are ignored.
    pub(super) fn parse(query: Option<&[u8]>) -> Self {
        let mut parsed = Self {
            sort: Sort::Name,
            order: Order::Ascending,
            filter: String::new(),
            page: Some(1),
        };
        for pair in query.unwrap_or_default().split(|&b| b == b'&') {
            match pair {
                b"sort=name" => parsed.sort = Sort::Name,
                b"sort=size" => parsed.sort = Sort::Size,
                b"sort=modified" => parsed.sort = Sort::Modified,
                b"order=asc" => parsed.order = Order::Ascending,
                b"order=desc" => parsed.order = Order::Descending,
                pair => {
                    if let Some(text) = pair.strip_prefix(b"filter=") {
                        parsed.filter = decode(text).chars().take(MAX_FILTER).collect();
                    } else if let Some(number) = pair.strip_prefix(b"page=") {
                        parsed.page = page_number(number);
                    }
                }
            }
        }
        parsed
    }

    /// Returns the filter; `None` if all names are listed.
    pub(super) fn matcher(&self) -> Option<Matcher> {
        (!self.filter.is_empty()).then(|| Matcher { lowercase: self.filter.to_lowercase() })
    }

    /// Returns the relative link to a page in the same order with the same filter. It contains no character that has a
    /// meaning in HTML except `&`.
    pub(super) fn link_to_page(&self, number: usize) -> String {
        let mut pairs = Vec::new();
        if (self.sort, self.order) != (Sort::Name, Order::Ascending) {
            pairs.push(format!("sort={}&order={}", self.sort.as_str(), self.order.as_str()));
        }
        if !self.filter.is_empty() {
            pairs.push(format!("filter={}", encode(&self.filter)));
        }
        if number > 1 {
            pairs.push(format!("page={number}"));
        }
        if pairs.is_empty() { "./".to_owned() } else { format!("?{}", pairs.join("&")) }
    }

    /// Returns the relative link to the first page in another order.
    pub(super) fn link_to_order(&self, sort: Sort, order: Order) -> String {
        let mut link = format!("?sort={}&order={}", sort.as_str(), order.as_str());
        if !self.filter.is_empty() {
            let _ = write!(link, "&filter={}", encode(&self.filter));
        }
        link
    }

    /// Returns the relative link to the first page of all names in the same order.
    pub(super) fn link_to_all(&self) -> String {
        Self { filter: String::new(), ..self.clone() }.link_to_page(1)
    }
}

impl Matcher {
    /// Returns `true` if the name contains the text. Bytes that are not UTF-8 match only U+FFFD.
    pub(super) fn matches(&self, name: &[u8]) -> bool {
        if !name.is_ascii() {
            return String::from_utf8_lossy(name).to_lowercase().contains(&self.lowercase);
        }
        let text = self.lowercase.as_bytes();
        name.windows(text.len()).any(|part| part.eq_ignore_ascii_case(text))
    }
}

/// A number that is too large is that of no page.
fn page_number(digits: &[u8]) -> Option<usize> {
    let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    let text = std::str::from_utf8(digits).ok().filter(|_| is_number)?;
    Some(text.parse().unwrap_or(usize::MAX))
}

/// Decodes a value as HTML forms encode it (application/x-www-form-urlencoded). A percent sign without two digits stands for
/// itself.
fn decode(value: &[u8]) -> String {
    let digit = |at: usize| value.get(at).and_then(|&byte| (byte as char).to_digit(16));
    let mut bytes = Vec::with_capacity(value.len());
    let mut at = 0;
    while let Some(&byte) = value.get(at) {
        at += 1;
        match (byte, digit(at), digit(at + 1)) {
            (b'+', ..) => bytes.push(b' '),
            (b'%', Some(high), Some(low)) => {
                bytes.push((high << 4 | low) as u8);
                at += 2;
            }
            _ => bytes.push(byte),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Percent-encodes a value of a query.
fn encode(value: &str) -> String {
    let mut text = String::with_capacity(value.len());
    for byte in value.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            text.push(byte as char);
        } else {
            let _ = write!(text, "%{byte:02X}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Query {
        Query::parse(Some(text.as_bytes()))
    }

    #[test]
    fn unknown_parameters_are_ignored_and_pages_are_numbers() {
        let plain = Query::parse(None);
        assert_eq!(parse("sort=colour&order=up&x=y&sort&"), plain);
        assert_eq!((plain.sort, plain.order, plain.page), (Sort::Name, Order::Ascending, Some(1)));
        let query = parse("order=desc&page=12&sort=size&filter=a");
        assert_eq!(
            (query.sort, query.order, query.page),
            (Sort::Size, Order::Descending, Some(12))
        );
        for (value, page) in [
            ("", None),
            ("+1", None),
            ("1.0", None),
            ("%31", None),
            ("0", Some(0)),
            ("007", Some(7)),
            ("99999999999999999999", Some(usize::MAX)),
        ] {
            assert_eq!(parse(&format!("page={value}")).page, page, "{value}");
        }
    }

    #[test]
    fn links_keep_the_order_and_the_filter() {
        assert_eq!(parse("page=3").link_to_page(1), "./");
        assert_eq!(parse("sort=name&order=asc").link_to_page(2), "?page=2");
        let query = parse("sort=modified&filter=%22a%26b%27+c%3D%C3%A4<%zz&page=9");
        assert_eq!(query.filter, "\"a&b' c=ä<%zz");
        let link = query.link_to_page(4);
        assert_eq!(link, "?sort=modified&order=asc&filter=%22a%26b%27%20c%3D%C3%A4%3C%25zz&page=4");
        assert_eq!(Query { page: Some(9), ..parse(&link[1..]) }, query);
        assert_eq!(query.link_to_all(), "?sort=modified&order=asc");
        assert_eq!(
            parse("filter=x").link_to_order(Sort::Size, Order::Ascending),
            "?sort=size&order=asc&filter=x"
        );
    }

    #[test]
    fn a_filter_ignores_case() {
        for (filter, name, expected) in [
            ("b.T", "AB.txt", true),
            ("abc", "ab", false),
            ("%C3%A4", "Äpfel", true),
            ("k", "\u{212a}", true),
            ("a", "\u{e9}A", true),
            ("%C3%A4", "apfel", false),
        ] {
            let matcher = parse(&format!("filter={filter}")).matcher().unwrap();
            assert_eq!(matcher.matches(name.as_bytes()), expected, "{filter} {name}");
        }
        assert!(parse("filter=").matcher().is_none());
        assert!(parse("filter=b").matcher().unwrap().matches(b"a\xffB"));
    }
}
