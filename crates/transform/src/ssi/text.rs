//! Texts of directives: variables in them, encodings, sizes.

use std::fmt::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// The maximum size of a text in which variables were replaced.
const MAX: usize = 16 * 1024;
/// The characters that are encoded in URLs (RFC 3986 §2.3), but for the slash.
const ENCODED: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'/');

/// Replaces `$name` and `${name}` by the values of variables, and `\$` by `$`. A variable without a value is empty.
pub(super) fn expanded(text: &str, value: &dyn Fn(&str) -> Option<String>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        let (before, behind) = rest.split_at(at);
        if let Some(before) = before.strip_suffix('\\') {
            out.push_str(before);
            out.push('$');
            rest = &behind[1..];
            continue;
        }
        out.push_str(before);
        let behind = &behind[1..];
        let (name, after) = match behind.strip_prefix('{').and_then(|name| name.split_once('}')) {
            Some(parts) => parts,
            None => behind.split_at(name_length(behind)),
        };
        match name {
            "" => out.push('$'),
            name => out.push_str(&value(name).unwrap_or_default()),
        }
        rest = after;
        if out.len() > MAX {
            return out;
        }
    }
    out.push_str(rest);
    out
}

/// Returns the length of the name of a variable with which the text begins.
pub(super) fn name_length(text: &str) -> usize {
    let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    text.bytes().position(|byte| !is_name(&byte)).unwrap_or(text.len())
}

/// Returns a value in an encoding; `None` if there is no such encoding.
pub(super) fn encoded(value: &str, encoding: &str) -> Option<String> {
    Some(match encoding {
        "none" => value.to_owned(),
        "entity" => entities(value),
        "url" | "urlencoded" => utf8_percent_encode(value, ENCODED).to_string(),
        "base64" => STANDARD.encode(value),
        _ => return None,
    })
}

/// Returns a text as HTML has it.
pub(super) fn entities(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            char => out.push(char),
        }
    }
    out
}

/// Returns a size in units of 1024, as Apache has it: `1.5K`.
pub(super) fn abbreviated(size: u64) -> String {
    let (mut value, mut unit) = (size as f64, "");
    for next in ["K", "M", "G", "T"] {
        if value < 1000.0 {
            break;
        }
        (value, unit) = (value / 1024.0, next);
    }
    let mut out = String::new();
    // Writing to a string does not fail.
    let _ = match (unit, value < 9.95) {
        ("", _) => write!(out, "{size}"),
        (unit, true) => write!(out, "{value:.1}{unit}"),
        (unit, false) => write!(out, "{value:.0}{unit}"),
    };
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_replaced() {
        let value = |name: &str| (name == "a").then(|| "1".to_owned());
        for (text, expected) in [
            ("x$a", "x1"),
            ("${a}b$ab", "1b"),
            ("\\$a $", "$a $"),
            ("$a$a", "11"),
            ("${a", "${a"),
            ("é$a", "é1"),
        ] {
            assert_eq!(expanded(text, &value), expected, "{text}");
        }
    }

    #[test]
    fn values_are_encoded() {
        let of = |encoding| encoded("<a b/'é\">&", encoding);
        assert_eq!(of("none"), Some("<a b/'é\">&".into()));
        assert_eq!(of("entity"), Some("&lt;a b/&#39;é&quot;&gt;&amp;".into()));
        assert_eq!(of("url"), Some("%3Ca%20b/%27%C3%A9%22%3E%26".into()));
        assert_eq!(encoded("a", "base64"), Some("YQ==".into()));
        assert_eq!(of("other"), None);
    }

    #[test]
    fn sizes_are_abbreviated() {
        for (size, expected) in [
            (0, "0"),
            (999, "999"),
            (1000, "1.0K"),
            (1536, "1.5K"),
            (10_240, "10K"),
            (5 << 20, "5.0M"),
        ] {
            assert_eq!(abbreviated(size), expected);
        }
    }
}
