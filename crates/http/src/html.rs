//! Text in HTML pages.

/// Escapes text for the content or an attribute of an element. Control characters and marks that change the direction of
/// text become U+FFFD, because they could hide or reorder what follows.
///
/// ```
/// assert_eq!(dunlin_http::html::escape("<a&b>"), "&lt;a&amp;b&gt;");
/// ```
pub fn escape(text: &str) -> String {
    escape_except(text, |_| false)
}

/// Like [`escape`], and keeps line feeds and tabs.
pub fn escape_lines(text: &str) -> String {
    escape_except(text, |character| matches!(character, '\n' | '\t'))
}

fn escape_except(text: &str, is_kept: impl Fn(char) -> bool) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => escaped.push('\u{fffd}'),
            _ if character.is_control() && !is_kept(character) => escaped.push('\u{fffd}'),
            _ => escaped.push(character),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_controls_and_changes_of_direction_are_escaped() {
        assert_eq!(escape("a<\"'>&\u{e9}"), "a&lt;&quot;&#39;&gt;&amp;\u{e9}");
        assert_eq!(
            escape("a\n\u{1b}[1m\u{202e}b\u{2066}"),
            "a\u{fffd}\u{fffd}[1m\u{fffd}b\u{fffd}"
        );
        assert_eq!(escape_lines("a\n\tb\r\u{7f}\u{202e}"), "a\n\tb\u{fffd}\u{fffd}\u{fffd}");
    }
}
