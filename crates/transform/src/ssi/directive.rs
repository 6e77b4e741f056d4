//! The text of a directive: a name, and parameters with values in quotes.

/// A directive.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Directive {
    pub(super) name: String,
    /// Names in lower case, and values without quotes, in their order.
    pub(super) parameters: Vec<(String, String)>,
}

/// The quotes of values.
const QUOTES: [u8; 3] = [b'"', b'\'', b'`'];

/// Returns the length of the directive with which the bytes begin: up to `-->`, which does not stand in quotes. `None` if its
/// end is not there.
pub(super) fn end(bytes: &[u8]) -> Option<usize> {
    let mut quote = None;
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        match quote {
            Some(_) if byte == b'\\' => at += 1,
            Some(open) if byte == open => quote = None,
            Some(_) => {}
            None if bytes[at..].starts_with(super::END) => return Some(at),
            // Only a value has quotes: those of a malformed directive do not hide its end.
            None if QUOTES.contains(&byte)
                && at > 0
                && bytes[..at].trim_ascii_end().ends_with(b"=") =>
            {
                quote = Some(byte);
            }
            None => {}
        }
        at += 1;
    }
    None
}

impl Directive {
    /// Reads a directive; `None` if it is malformed.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let length = text.find(|char: char| char.is_ascii_whitespace()).unwrap_or(text.len());
        let (name, mut rest) = text.split_at(length);
        let name = name.to_ascii_lowercase();
        if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_lowercase()) {
            return None;
        }
        let mut parameters = Vec::new();
        loop {
            rest = rest.trim_start();
            if rest.is_empty() {
                return Some(Self { name, parameters });
            }
            let (parameter, value) = rest.split_once('=')?;
            let parameter = parameter.trim_end();
            let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
            if parameter.is_empty() || !parameter.bytes().all(is_name) {
                return None;
            }
            let (value, behind) = quoted(value.trim_start())?;
            parameters.push((parameter.to_ascii_lowercase(), value));
            rest = behind;
        }
    }

    /// Returns the value of a parameter.
    pub(super) fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters.iter().find(|(other, _)| other == name).map(|(_, value)| &**value)
    }
}

/// Returns a value in quotes, and what stands behind it. A backslash before the quote is removed; others are kept.
fn quoted(text: &str) -> Option<(String, &str)> {
    let quote = text.bytes().next().filter(|byte| QUOTES.contains(byte))?;
    let (mut value, mut is_escaped) = (String::new(), false);
    for (at, char) in text.char_indices().skip(1) {
        if is_escaped {
            if char != quote as char {
                value.push('\\');
            }
            value.push(char);
            is_escaped = false;
        } else if char == '\\' {
            is_escaped = true;
        } else if char == quote as char {
            return Some((value, &text[at + 1..]));
        } else {
            value.push(char);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_stand_in_quotes() {
        let parsed = |text| Directive::parse(text).map(|of| (of.name, of.parameters));
        let pairs = |of: &[(&str, &str)]| -> Vec<_> {
            of.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        };
        assert_eq!(parsed("endif "), Some(("endif".into(), Vec::new())));
        assert_eq!(
            parsed(" ECHO Var = 'a\"b' encoding=\"c\\\"d\\n\" "),
            Some(("echo".into(), pairs(&[("var", "a\"b"), ("encoding", "c\"d\\n")])))
        );
        for text in ["", "echo var", "echo var=a", "echo var=\"a", "echo =\"a\"", "e-cho"] {
            assert_eq!(parsed(text), None, "{text}");
        }
    }

    #[test]
    fn a_directive_ends_outside_of_quotes() {
        assert_eq!(end(b" echo var=\"a-->b\" -->c"), Some(18));
        assert_eq!(end(b" echo var=\"a\\\"-->b\" -->c"), Some(20));
        assert_eq!(end(b" it's -->c"), Some(6));
        assert_eq!(end(b" echo var=\"a -->"), None);
        assert_eq!(end(b" echo --"), None);
    }
}
