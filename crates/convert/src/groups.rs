//! Groups of regular expressions, and what is outside of them.

/// Returns the range of what is in a group, by its number or its name.
pub(crate) fn group_of(text: &str, group: &str) -> Option<(usize, usize)> {
    let bytes = text.as_bytes();
    let mut open: Vec<Option<usize>> = Vec::new();
    let (mut number, mut in_class, mut at) = (0, false, 0);
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'\\' => at += 1,
            b'[' if !in_class => in_class = true,
            b']' if in_class => in_class = false,
            b'(' if !in_class => {
                let after = &text[at + 1..];
                let name = after.strip_prefix("?P<").or_else(|| after.strip_prefix("?<"));
                let name = name.and_then(|name| name.split_once('>')).map(|(name, _)| name);
                let is_capturing = name.is_some() || !after.starts_with('?');
                number += u32::from(is_capturing);
                let is_it = is_capturing && (name == Some(group) || group.parse() == Ok(number));
                let start = match name {
                    Some(_) => at + 1 + after.find('>')? + 1,
                    None => at + 1,
                };
                open.push(is_it.then_some(start));
            }
            b')' if !in_class => {
                if let Some(start) = open.pop()? {
                    return Some((start, at));
                }
            }
            _ => {}
        }
        at += 1;
    }
    None
}

/// Returns the position of the parenthesis that closes the first one.
pub(crate) fn closing(text: &str) -> Option<usize> {
    let (mut depth, mut is_escaped) = (0, false);
    for (at, c) in text.char_indices() {
        match c {
            _ if is_escaped => {}
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        is_escaped = c == '\\' && !is_escaped;
        if depth == 0 {
            return Some(at);
        }
    }
    None
}

/// Returns the parts between separators that stand in no group and no class.
pub(crate) fn split_top(text: &str, separator: char) -> Vec<&str> {
    let (mut depth, mut is_escaped, mut in_class, mut start) = (0, false, false, 0);
    let mut parts = Vec::new();
    for (at, c) in text.char_indices() {
        match c {
            _ if is_escaped => {}
            '[' => in_class = true,
            ']' => in_class = false,
            '(' if !in_class => depth += 1,
            ')' if !in_class => depth -= 1,
            c if c == separator && depth == 0 && !in_class => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
        is_escaped = c == '\\' && !is_escaped;
    }
    parts.push(&text[start..]);
    parts
}
