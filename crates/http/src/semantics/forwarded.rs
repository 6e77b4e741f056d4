//! The elements of `Forwarded` (RFC 7239).

use super::list::split;
use super::token::is_token;

/// An element, which one proxy has added.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Element<'a> {
    /// `for`: the node that made the request, without quotes.
    pub node: Option<&'a [u8]>,
    /// `proto`: the scheme of the request, without quotes.
    pub proto: Option<&'a [u8]>,
}

/// Returns the elements of a field line from last to first, `None` for malformed ones. Empty elements are skipped.
///
/// The line is parsed from its end: each proxy appends its element, and nothing that a client puts before it, such as an
/// unclosed quote, can change how that element is parsed.
pub fn from_last(line: &[u8]) -> impl Iterator<Item = Option<Element<'_>>> {
    let mut rest = Some(line);
    std::iter::from_fn(move || {
        let line = rest?;
        let start = start_of_last(line);
        rest = (start > 0).then(|| &line[..start - 1]);
        Some(line[start..].trim_ascii())
    })
    .filter(|element| !element.is_empty())
    .map(parse)
}

/// Offset of the last element, after the last comma outside a quoted string.
fn start_of_last(line: &[u8]) -> usize {
    let mut is_quoted = false;
    for (at, byte) in line.iter().enumerate().rev() {
        match byte {
            b'"' => {
                let escapes = line[..at].iter().rev().take_while(|&&byte| byte == b'\\').count();
                is_quoted ^= escapes % 2 == 0;
            }
            b',' if !is_quoted => return at + 1,
            _ => {}
        }
    }
    0
}

/// Parses an element. No parameter may occur twice (RFC 7239 §4).
fn parse(element: &[u8]) -> Option<Element<'_>> {
    let mut found = Element::default();
    let mut names: Vec<&[u8]> = Vec::new();
    for pair in split(element, b';').filter(|pair| !pair.is_empty()) {
        let equals = memchr::memchr(b'=', pair)?;
        let (name, value) = (&pair[..equals], value(&pair[equals + 1..])?);
        if !is_token(name) || names.iter().any(|other| other.eq_ignore_ascii_case(name)) {
            return None;
        }
        names.push(name);
        if name.eq_ignore_ascii_case(b"for") {
            found.node = Some(value);
        } else if name.eq_ignore_ascii_case(b"proto") {
            found.proto = Some(value);
        }
    }
    Some(found)
}

/// Returns the content of a quoted string, or an unquoted value, in which `[`, `]` and `:` are accepted, since proxies write
/// addresses without quotes.
fn value(text: &[u8]) -> Option<&[u8]> {
    let Some(rest) = text.strip_prefix(b"\"") else {
        let is_plain =
            |byte: &u8| is_token(std::slice::from_ref(byte)) || matches!(byte, b'[' | b']' | b':');
        return (!text.is_empty() && text.iter().all(is_plain)).then_some(text);
    };
    let mut escaped = false;
    let end = rest.iter().position(|&byte| {
        let is_end = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        is_end
    })?;
    (end + 1 == rest.len()).then(|| &rest[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes(line: &str) -> Vec<Option<String>> {
        let text = |node: &[u8]| String::from_utf8_lossy(node).into_owned();
        from_last(line.as_bytes())
            .map(|element| element.map(|element| element.node.map_or("-".into(), text)))
            .collect()
    }

    fn some(texts: &[&str]) -> Vec<Option<String>> {
        texts.iter().map(|text| Some((*text).to_owned())).collect()
    }

    #[test]
    fn elements_are_parsed_from_last_to_first() {
        assert_eq!(
            nodes("for=1.2.3.4, For=\"[::1]:80\";proto=https"),
            some(&["[::1]:80", "1.2.3.4"])
        );
        assert_eq!(nodes("for=a,,for=b , "), some(&["b", "a"]));
        assert_eq!(nodes("proto=http;by=x"), some(&["-"]));
        assert_eq!(nodes(r#"for=a;secret="x,y\"z", for=b;;host=c"#), some(&["b", "a"]));
        assert_eq!(nodes(""), []);
        let element = from_last(b"proto=\"HTTPS\"; for=unknown").next().unwrap().unwrap();
        assert_eq!((element.proto, element.node), (Some(&b"HTTPS"[..]), Some(&b"unknown"[..])));
    }

    #[test]
    fn malformed_elements_are_reported() {
        for line in [
            "for=1.2.3.4;for=6.6.6.6",
            "for=1.2.3.4;FOR=1.2.3.4",
            "proto=http;for=a;proto=https",
            "by=a;by=a",
            "for",
            "for=",
            "=a",
            "for=\"a",
            "for=\"a\"b",
            "f(r=a",
            "for=a b",
        ] {
            assert_eq!(nodes(line), [None], "{line}");
        }
    }

    #[test]
    fn earlier_text_does_not_change_the_last_element() {
        for before in ["for=\"", "for=a\\", "\"", "for=\"\\\"", ";;=", "for=\"a", "\\\"\\"] {
            for last in ["for=1.2.3.4", "for=\"1.2.3.4\"", "for=\"1.2.3.4\";by=\"_x\""] {
                let line = format!("{before}, {last}");
                assert_eq!(nodes(&line).first(), Some(&Some("1.2.3.4".into())), "{line}");
            }
        }
    }
}
